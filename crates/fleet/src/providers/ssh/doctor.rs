//! What this machine has for reaching hosts: the client, its configuration and keys.
//!
//! Owns the lines of `doctor` about it. Never connects.

use super::{Settings, Ssh};
use crate::finding::{Answer, Finding, ask};
use crate::home::user_home;
use crate::provider::Provider;
use planaria_recipe::words::counted;
use std::path::Path;

/// Names of the private keys that the ssh client tries by itself.
const KEYS: [&str; 5] = ["id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"];

pub(super) fn needs() -> Vec<Finding> {
    vec![client(), configuration(), keys()]
}

fn client() -> Finding {
    if let Err(fault) = Ssh::new(Settings::default()).check() {
        return Finding::fault("client", fault);
    }
    // It has just answered.
    let said = ask("ssh", &["-V"]).map(|answer| answer.first_line()).unwrap_or_default();
    Finding::ok("client", said)
}

fn configuration() -> Finding {
    let path = user_home().join(".ssh/config");
    let said = match std::fs::read_to_string(&path) {
        Ok(text) => {
            let hosts = text.lines().filter_map(host_names).flatten().count();
            format!("{}: {} by name", path.display(), counted(hosts, "host"))
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
            (keys, format!("an agent with {}", counted(keys, "key")))
        }
        Ok(Answer { said, .. }) if said.contains("no identities") => {
            (0, "an agent without keys (`ssh-add` gives it some)".into())
        }
        _ => (0, "an agent that does not answer".into()),
    }
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
}
