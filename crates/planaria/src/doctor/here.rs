//! What this machine has for each provider.
//!
//! Owns the looks at it: files, a few programs asked for their version, the engine's socket. Creates
//! nothing, and waits for nothing longer than some seconds.

use super::{Block, Finding};
use crate::agent::host::disk_free_bytes;
use crate::memory;
use crate::traces::number::{bytes, counted};
use planaria_fleet::host::tasks::user_home;
use planaria_fleet::provider::{Fault, Provider};
use planaria_fleet::providers::carrier::Carrier;
use planaria_fleet::providers::docker::{self, Docker};
use planaria_fleet::providers::ssh::{self, Ssh};
use planaria_learn::engines;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a program may take to say which version it is.
const ANSWER: Duration = Duration::from_secs(20);
/// Most bytes that are read of what it says.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Free space below which runs will soon fail.
const DISK_BYTES_MIN: u64 = 256 << 20;
/// Names of the private keys that the ssh client tries by itself.
const KEYS: [&str; 5] = ["id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"];

/// One block for each provider, and one for what set-up steps use.
pub fn look() -> Vec<Block> {
    let block = |name: &str, findings| Block { name: name.into(), findings };
    vec![
        block("local", vec![processor(), memory(), disk()]),
        block("ssh", vec![client(), configuration(), keys()]),
        block("docker", vec![engine()]),
        block("set-up tools", vec![ansible(), venv()]),
    ]
}

/// The program that plays playbooks.
pub fn ansible() -> Finding {
    let what = "ansible-playbook";
    let remedy = "for `ansible` steps: `apt install ansible`, or `pipx install ansible-core`";
    tool(what, ask(what, &["--version"]), remedy)
}

fn venv() -> Finding {
    let code = "import sys, venv, ensurepip; print('Python', sys.version.split()[0])";
    let remedy = "for `pip` steps on this machine: `apt install python3-venv`";
    tool("python3-venv", ask("python3", &["-c", code]), remedy)
}

fn tool(what: &str, answer: io::Result<Answer>, remedy: &str) -> Finding {
    match answer {
        Ok(Answer { is_well: true, said }) => Finding::ok(what, last_or_first(&said, false)),
        Ok(Answer { said, .. }) => Finding::missing(what, last_or_first(&said, true), remedy),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Finding::missing(what, "not found on PATH", remedy)
        }
        Err(e) => Finding::missing(what, e.to_string(), remedy),
    }
}

/// Versions come first, reasons last.
fn last_or_first(said: &str, last: bool) -> String {
    let mut lines = said.lines();
    let line = if last { lines.next_back() } else { lines.next() };
    line.unwrap_or_default().trim().to_owned()
}

fn processor() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let sets: Vec<&str> = engines::KINDS.iter().flat_map(|kind| (kind.here)()).collect();
    let sets = sets.join(", ").replace("cpu-", "");
    Finding::ok("processor", format!("{}, {}; {sets}", model(), counted(cores, "core")))
}

/// What the processor calls itself.
fn model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

fn memory() -> Finding {
    let total = memory::total_bytes().map_or_else(|| "unknown".into(), bytes);
    let free = memory::available_bytes().map(|free| format!(", {} available", bytes(free)));
    Finding::ok("memory", total + &free.unwrap_or_default())
}

fn disk() -> Finding {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let Some(free) = disk_free_bytes(&here) else {
        let said = format!("cannot look at `{}`", here.display());
        return Finding::missing("disk", said, "use a folder that exists");
    };
    let said = format!("{} free in {}", bytes(free), here.display());
    match free < DISK_BYTES_MIN {
        true => Finding::missing("disk", said, "make room: runs and their checkpoints go there"),
        false => Finding::ok("disk", said),
    }
}

fn client() -> Finding {
    if let Err(fault) = Ssh::new(ssh::Settings::default()).check() {
        return Finding::fault("client", fault);
    }
    // It has just answered.
    let said = ask("ssh", &["-V"]).map(|answer| answer.said).unwrap_or_default();
    Finding::ok("client", last_or_first(&said, false))
}

fn configuration() -> Finding {
    let path = user_home().join(".ssh/config");
    let said = match std::fs::read_to_string(&path) {
        Ok(text) => {
            let hosts = text.lines().filter_map(host_names).flatten().count();
            format!("{}: {} by name", path.display(), counted(hosts as u64, "host"))
        }
        Err(_) => format!("no {}; hosts are reached by name or address", path.display()),
    };
    Finding::ok("configuration", said)
}

/// Names in a line `Host a b`, patterns left out.
fn host_names(line: &str) -> Option<impl Iterator<Item = &str>> {
    let mut words = line.split_whitespace();
    let is_host = words.next()?.eq_ignore_ascii_case("host");
    is_host.then(|| words.filter(|word| !word.contains(['*', '?', '!'])))
}

fn keys() -> Finding {
    let files = key_files(&user_home().join(".ssh"));
    let (in_agent, agent) = agent();
    let has_one = in_agent > 0 || !files.is_empty();
    let files = if files.is_empty() { "none in ~/.ssh".into() } else { files.join(", ") };
    let said = format!("{files}; {agent}");
    match has_one {
        true => Finding::ok("keys", said),
        false => {
            let remedy = "`ssh-keygen -t ed25519`, then `ssh-copy-id USER@HOST` for each host; or \
                          name a `key` under `pool.hosts`";
            Finding::missing("keys", said, remedy)
        }
    }
}

fn key_files(folder: &Path) -> Vec<&'static str> {
    KEYS.into_iter().filter(|name| folder.join(name).is_file()).collect()
}

/// Keys that an agent has, and that in words.
fn agent() -> (usize, String) {
    if std::env::var_os("SSH_AUTH_SOCK").is_none() {
        return (0, "no agent".into());
    }
    match ask("ssh-add", &["-l"]) {
        Ok(Answer { is_well: true, said }) => {
            let keys = said.lines().count();
            (keys, format!("an agent with {}", counted(keys as u64, "key")))
        }
        Ok(Answer { said, .. }) if said.contains("no identities") => {
            (0, "an agent without keys (`ssh-add` gives it some)".into())
        }
        _ => (0, "an agent that does not answer".into()),
    }
}

fn engine() -> Finding {
    let about = || -> Result<String, Fault> {
        let docker = Docker::new(docker::Settings::default())?;
        docker.check()?;
        docker.about()
    };
    match about() {
        Ok(said) => Finding::ok("engine", said),
        Err(fault) => Finding::fault("engine", fault),
    }
}

/// What a program said.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    is_well: bool,
    said: String,
}

fn ask(program: &str, words: &[&str]) -> io::Result<Answer> {
    let mut command = Command::new(program);
    command.args(words);
    let Carrier { stdin, stdout, last_words, end } = Carrier::start(command)?;
    drop(stdin);
    let Some(ending) = end.wait(ANSWER) else {
        end.kill();
        return Err(io::Error::other(format!("it said nothing for {} s", ANSWER.as_secs())));
    };
    let mut said = Vec::new();
    stdout.take(ANSWER_BYTES_MAX).read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    let said = if said.is_empty() { last_words.text() } else { said };
    Ok(Answer { is_well: ending.is_well(), said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_configuration_are_counted() {
        for (line, expect) in
            [("Host a b", 2), ("  host a", 1), ("Host *", 0), ("HostName a", 0), ("", 0)]
        {
            assert_eq!(host_names(line).map_or(0, Iterator::count), expect, "{line}");
        }
    }

    #[test]
    fn tools_say_their_version_or_why_not() {
        let check = |program: &str, words: &[&str], works: bool, expect: &str| {
            let found = tool("it", ask(program, words), "get it");
            assert_eq!((found.works, &*found.said), (works, expect));
            assert_eq!(found.remedy.is_some(), !works);
        };
        check("echo", &["one\ntwo"], true, "one");
        check("sh", &["-c", "echo where; echo no such module >&2; exit 3"], false, "where");
        check("sh", &["-c", "printf 'where\nno such module' >&2; exit 3"], false, "no such module");
        check("there-is-no-such-program", &[], false, "not found on PATH");
    }
}
