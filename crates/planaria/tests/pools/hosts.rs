//! Real sshd hosts in network namespaces, for a test (`tests/hosts`).

use planaria_fleet::providers::ssh::{Host, Settings};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/hosts");

/// Some hosts, `h1` and on; all are gone when this is dropped.
pub struct Hosts {
    folder: TempDir,
    count: u32,
}

impl Hosts {
    /// Nothing where this machine cannot have any: a test is then skipped, and says so.
    pub fn up(count: u32, options: &[&str]) -> Option<Self> {
        if let Err(why) = possible() {
            assert!(
                std::env::var_os("PLANARIA_REQUIRE_HOSTS").is_none(),
                "hosts are required here, but {why}"
            );
            #[expect(clippy::disallowed_macros, reason = "a skipped test says so")]
            {
                println!("skipped: {why}");
            }
            return None;
        }
        let folder = tempfile::Builder::new().prefix("hosts-").tempdir().expect("a folder");
        let hosts = Self { folder, count };
        let (number, owner) = (count.to_string(), std::process::id().to_string());
        let mut words = vec![number.as_str(), "--owner", owner.as_str()];
        words.extend(options);
        hosts.script("up", &words);
        Some(hosts)
    }

    /// `kill`, `start`, `cut` or `heal` one.
    #[track_caller]
    pub fn tell(&self, verb: &str, number: u32) {
        self.script(verb, &[&number.to_string()]);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The address that a number has, whether there is such a host or not.
    pub fn address(&self, number: u32) -> String {
        let net = std::fs::read_to_string(self.path("net")).expect("a net");
        format!("{}.{}", net.trim(), 10 + number)
    }

    /// All hosts by their names in an ssh configuration.
    pub fn settings(&self) -> Settings {
        let name = |number| Host::new(&format!("h{number}"));
        Settings {
            hosts: (1..=self.count).map(name).collect(),
            config: Some(self.path("ssh_config")),
            connect_seconds: 4,
            ..Settings::default()
        }
    }

    /// One host by its address and all that is needed, without a configuration.
    pub fn spelled_out(&self, number: u32) -> Settings {
        let host = Host {
            name: format!("h{number}"),
            user: Some("root".into()),
            port: Some(22),
            key: Some(self.path("key").display().to_string()),
            ..Host::new(&self.address(number))
        };
        Settings {
            hosts: vec![host],
            // Not what the user who runs the tests has.
            config: Some("/dev/null".into()),
            known_hosts: Some(self.path("known_hosts")),
            connect_seconds: 4,
            ..Settings::default()
        }
    }

    /// Runs a command on a host as root, with the plain client.
    #[track_caller]
    pub fn on(&self, number: u32, command: &str) -> String {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(self.path("ssh_config")).args(["-o", "BatchMode=yes"]);
        ssh.args(["-o", "ConnectTimeout=5", &format!("h{number}"), command]);
        let output = ssh.stdin(Stdio::null()).output().expect("ssh starts");
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "`{command}`: {out} {said}");
        out.trim().to_owned()
    }

    #[track_caller]
    fn script(&self, verb: &str, words: &[&str]) -> Output {
        let output = call(verb, self.folder.path(), words);
        assert!(output.status.success(), "tests/hosts {verb}: {}", text(&output.stderr));
        output
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        call("down", self.folder.path(), &[]);
    }
}

fn call(verb: &str, folder: &Path, words: &[&str]) -> Output {
    let mut script = Command::new("timeout");
    script.args(["60", SCRIPT, verb]).arg(folder).args(words);
    script.stdin(Stdio::null()).output().expect("the script starts")
}

fn possible() -> Result<(), String> {
    // SAFETY: the call touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        return Err("only root can make network namespaces".into());
    }
    for (file, package) in
        [("sshd", "openssh-server"), ("ip", "iproute2"), ("iptables", "iptables")]
    {
        let found = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .iter()
            .any(|folder| Path::new(folder).join(file).exists());
        if !found {
            return Err(format!("there is no `{file}` (install {package})"));
        }
    }
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
