//! What `ssh` says when it fails, as faults.
//!
//! Owns the meaning of its messages, which have been the same for many years. Pure: text goes in, a
//! fault with what to do comes out.

use super::{Host, Settings};
use crate::provider::Fault;

/// Longest part of a message that is passed on.
const SHOWN_CHARS_MAX: usize = 300;

/// The usual port.
const SSH_PORT: u16 = 22;
/// The usual file.
const KNOWN_HOSTS: &str = "~/.ssh/known_hosts";

/// What `ssh` says where no command was begun on the machine.
const BEFORE: [&str; 4] = [
    "ssh: connect to host",
    "Permission denied (",
    "Host key verification failed",
    "Could not resolve hostname",
];

/// How the user's configuration has a host: what its key is known by, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The name or address that is connected to (`HostName`).
    pub host: String,
    pub port: u16,
    /// What it is in the file, where it is not that (`HostKeyAlias`).
    pub alias: Option<String>,
    /// The file of known hosts (`UserKnownHostsFile`).
    pub known_hosts: String,
}

impl Resolved {
    /// Of what `ssh -G` prints: a key and its value on each line.
    pub fn parse(settings: &Settings, host: &Host, text: &str) -> Self {
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.trim().split_once(' '));
            lines.find(|(known, _)| known.eq_ignore_ascii_case(key)).map(|(_, value)| value)
        };
        let file = || value("userknownhostsfile").and_then(|files| files.split(' ').next());
        let own = settings.known_hosts.as_deref().map(|path| path.display().to_string());
        let port = value("port").and_then(|port| port.parse().ok());
        Self {
            host: value("hostname").unwrap_or(&host.host).to_owned(),
            port: port.or(host.port).unwrap_or(SSH_PORT),
            alias: value("hostkeyalias").filter(|alias| *alias != "none").map(str::to_owned),
            known_hosts: own.unwrap_or_else(|| file().unwrap_or(KNOWN_HOSTS).to_owned()),
        }
    }

    /// As the file has it, for a shell.
    fn known_as(&self) -> String {
        match (&self.alias, self.port) {
            (Some(alias), _) => alias.clone(),
            (None, SSH_PORT) => self.host.clone(),
            (None, port) => format!("'[{}]:{port}'", self.host),
        }
    }
}

/// Whether what `ssh` says is about the host's key: then [`Resolved`] tells which and where.
pub fn is_about_key(said: &str) -> bool {
    ["HOST IDENTIFICATION HAS CHANGED", "host key is known", "Host key verification failed"]
        .iter()
        .any(|words| said.contains(words))
}

/// Explains why `ssh` ended before its command did.
pub fn explain(settings: &Settings, host: &Host, resolved: &Resolved, said: &str) -> Fault {
    let is_untouched = BEFORE.iter().any(|words| said.contains(words));
    Fault { is_untouched, ..meaning(settings, host, resolved, said) }
}

fn meaning(settings: &Settings, host: &Host, resolved: &Resolved, said: &str) -> Fault {
    let has = |text: &str| said.contains(text);
    let (name, whom) = (host.name.as_str(), host.whom());
    if has("HOST IDENTIFICATION HAS CHANGED") {
        return changed(host, resolved, said);
    }
    if is_about_key(said) {
        return unknown(host, resolved);
    }
    if has("UNPROTECTED PRIVATE KEY") || has("bad permissions") {
        let key = host.key.as_ref().map_or_else(|| "the key".into(), |key| format!("`{key}`"));
        let what = format!("others can read {key}, so ssh does not use it");
        return Fault::replace(name, what, format!("run `chmod 600` on {key}"));
    }
    if has("Permission denied") || has("Too many authentication failures") {
        return denied(host, said);
    }
    if has("Could not resolve hostname") {
        let what = format!("the name `{}` is not known ({})", host.host, last(said));
        if has("Temporary failure") {
            return Fault::retry(name, what);
        }
        return Fault::replace(name, what, "check the name under `hosts`, or give an address");
    }
    if has("Can't open user config file") || has("Bad configuration option") || has("terminating,")
    {
        let hint = "check the file that `config` names, or ~/.ssh/config";
        return Fault::fix(
            name,
            format!("ssh does not take its configuration: {}", last(said)),
            hint,
        );
    }
    if let Some(fault) = unreachable(settings, host, said) {
        return fault;
    }
    if has("sh: not found")
        || has("head: not found")
        || has("not available")
        || has("request failed")
    {
        let what = format!("{whom} lets us in but runs no commands: {}", last(said));
        return Fault::replace(name, what, "the user needs a shell there, with the usual commands");
    }
    let what = match last(said) {
        text if text.is_empty() => {
            "the connection ended without a message: the host, or the way to it, is gone".to_owned()
        }
        text => format!("the connection ended: {text}"),
    };
    Fault::retry(name, what)
}

/// Why `ssh` itself did not start.
pub fn not_started(settings: &Settings, name: &str, why: &std::io::Error) -> Fault {
    let client = settings.client.display();
    let hint = "install the OpenSSH client (Debian: `apt-get install openssh-client`)";
    Fault::fix(name, format!("`{client}` does not start: {why}"), hint)
}

/// Why a delivery failed, as the machine says.
pub fn undelivered(host: &Host, kind: &str, what: &str) -> Fault {
    let name = host.name.as_str();
    let what = &*clipped(what);
    if what.contains("No space left") || what.contains("quota exceeded") {
        let hint = "make room in the home folder there, or take this host out of the pool";
        return Fault::replace(name, format!("its disk is full: {what}"), hint);
    }
    match kind {
        "home" => {
            let hint = "the user needs a home folder there that can be written to";
            Fault::replace(name, format!("there is no home folder ({what})"), hint)
        }
        "folder" => {
            let hint = "`~/.cache/planaria` must be writable for the user there";
            Fault::replace(name, format!("cannot write to the home folder: {what}"), hint)
        }
        "start" => {
            let (code, said) = what.split_once(' ').unwrap_or((what, ""));
            let what = format!("the program does not run there (exit code {code}): {said}");
            Fault::replace(name, what, start_hint(code, said))
        }
        "build" => {
            let what = format!("the program says there that it is build `{what}`");
            Fault::replace(name, what, "remove `~/.cache/planaria/bin` there and try again")
        }
        _ => Fault::retry(name, format!("the program arrived damaged ({kind} {what})")),
    }
}

fn start_hint(code: &str, said: &str) -> &'static str {
    if said.contains("Permission denied") {
        "the home folder may be mounted `noexec`: use a user whose home is not"
    } else if code == "132" {
        "its processor lacks instructions: build planaria for it"
    } else {
        "install the library it names, use a static build (musl), or build planaria on that machine"
    }
}

fn changed(host: &Host, resolved: &Resolved, said: &str) -> Fault {
    let fingerprint = said.split_whitespace().find(|word| word.starts_with("SHA256:"));
    let fingerprint = fingerprint.unwrap_or("unknown").trim_end_matches('.');
    let what = format!(
        "ITS HOST KEY HAS CHANGED: {} is not the machine it was, or the connection is intercepted (it now \
         shows {fingerprint}); nothing was sent",
        resolved.host
    );
    let hint = format!(
        "ask its administrator; only if that key is right: `ssh-keygen -f {} -R {}`, and connect once by hand",
        resolved.known_hosts,
        resolved.known_as()
    );
    Fault::replace(&host.name, what, hint)
}

fn unknown(host: &Host, resolved: &Resolved) -> Fault {
    let Resolved { host: at, port, known_hosts: shown, .. } = resolved;
    let port = if *port == SSH_PORT { String::new() } else { format!("-p {port} ") };
    let what = format!("its host key is not known, so it could be any machine (`{shown}`)");
    let by_hand = "connect once by hand and compare the fingerprint";
    let hint = match &resolved.alias {
        // What a scan writes has the address, not the alias.
        Some(alias) => format!("{by_hand} (its key is looked for as `{alias}`)"),
        None => format!(
            "{by_hand}, or `ssh-keyscan {port}{at} >> {shown}` on a network you trust, or set \
             `host_keys: accept-new`"
        ),
    };
    Fault::replace(&host.name, what, hint)
}

fn denied(host: &Host, said: &str) -> Fault {
    let key = match &host.key {
        Some(key) => format!("with the key `{key}`"),
        None => "with the keys that ssh has by itself".to_owned(),
    };
    let what = format!("{} does not let us in {key}: {}", host.whom(), last(said));
    let hint = format!(
        "check `user` and `key`; `ssh-copy-id {}` puts a key there; a key with a passphrase must be \
         in the agent (`ssh-add`)",
        host.whom()
    );
    Fault::replace(&host.name, what, hint)
}

fn unreachable(settings: &Settings, host: &Host, said: &str) -> Option<Fault> {
    let at = match host.port {
        Some(port) => format!("{} port {port}", host.host),
        None => host.host.clone(),
    };
    let seconds = settings.connect_seconds;
    let through = host.jump.as_deref().map(|jump| format!(" through {jump}")).unwrap_or_default();
    let has = |text: &str| said.contains(text);
    let what = if has("not responding") {
        format!("{at} has stopped answering{through}")
    } else if has("Connection refused") {
        format!("{at} refuses connections{through}: no sshd listens there")
    } else if has("No route to host") || has("Network is unreachable") {
        format!("{at} cannot be reached{through}: no route to it")
    } else if has("timed out") {
        format!("{at} cannot be reached{through}: no answer within {seconds} s")
    } else if has("Connection closed") || has("Connection reset") || has("Broken pipe") {
        format!("{at} closed the connection{through}: {}", last(said))
    } else if has("forwarding failed") || has("UNKNOWN port") {
        format!("{at} cannot be reached{through}: {}", last(said))
    } else {
        return None;
    };
    let hint =
        "check that the machine is up, its address and `port`, and the firewall between".into();
    Some(Fault { hint: Some(hint), ..Fault::retry(&host.name, what) })
}

/// The last line that says something.
fn last(said: &str) -> String {
    let mut lines = said.lines().rev().map(str::trim);
    clipped(lines.find(|line| !line.is_empty()).unwrap_or(""))
}

/// What a machine said, fit to be shown: not too long, and nothing in it that moves a cursor.
fn clipped(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Remedy;

    #[test]
    fn what_ssh_says_is_explained() {
        let settings = Settings::default();
        let host = Host { user: Some("lab".into()), key: Some("/k".into()), ..Host::new("node1") };
        let check = |said: &str, remedy: Remedy, expect: &str| {
            let resolved = Resolved::parse(&settings, &host, "");
            let fault = explain(&settings, &host, &resolved, said);
            assert!(fault.what.contains(expect), "`{expect}` in: {fault}");
            assert_eq!((fault.machine.as_str(), fault.remedy), ("node1", remedy), "{said}");
        };
        let at = "ssh: connect to host node1 port 22:";
        check(&format!("{at} Connection timed out"), Remedy::Retry, "no answer within 10 s");
        check(&format!("{at} Connection refused"), Remedy::Retry, "refuses connections");
        check(&format!("{at} No route to host"), Remedy::Retry, "no route");
        check("Connection closed by 10.0.0.2 port 22", Remedy::Retry, "closed the connection");
        check("Timeout, server node1 not responding.", Remedy::Retry, "has stopped answering");
        let name = "ssh: Could not resolve hostname node1:";
        check(
            &format!("{name} Name or service not known"),
            Remedy::Replace,
            "`node1` is not known",
        );
        check(&format!("{name} Temporary failure in name resolution"), Remedy::Retry, "not known");
        check("lab@node1: Permission denied (publickey).", Remedy::Replace, "with the key `/k`");
        check(
            "No ED25519 host key is known for node1 and",
            Remedy::Replace,
            "host key is not known",
        );
        check(
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @",
            Remedy::Replace,
            "HAS CHANGED",
        );
        check(
            "Permissions 0644 for '/k' are too open. bad permissions",
            Remedy::Replace,
            "others can read `/k`",
        );
        check("Can't open user config file /x: No such file", Remedy::Fix, "configuration");
        check("sh: 1: head: not found", Remedy::Replace, "runs no commands");
        check("what\nelse\u{1b}[2J?\n\n", Remedy::Retry, "ended: else[2J?");
        check("", Remedy::Retry, "without a message");
    }

    #[test]
    fn hints_about_keys_follow_the_configuration() {
        let (settings, host) = (Settings::default(), Host::new("node1"));
        let said = "host node1\nhostname 10.0.0.7\nport 2222\n\
                    userknownhostsfile /lab/known /lab/known2\n";
        let hint = |text: &str, said: &str| {
            let resolved = Resolved::parse(&settings, &host, text);
            explain(&settings, &host, &resolved, said).hint.unwrap_or_default()
        };
        let unknown = "No ED25519 host key is known for [10.0.0.7]:2222 and";
        let expect = "`ssh-keyscan -p 2222 10.0.0.7 >> /lab/known`";
        assert!(hint(said, unknown).contains(expect), "{}", hint(said, unknown));
        let changed = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @";
        let expect = "`ssh-keygen -f /lab/known -R '[10.0.0.7]:2222'`";
        assert!(hint(said, changed).contains(expect), "{}", hint(said, changed));
        let alias = format!("{said}hostkeyalias gate\n");
        assert!(hint(&alias, changed).contains("-R gate`"), "{}", hint(&alias, changed));
        assert!(hint(&alias, unknown).contains("looked for as `gate`"));
        // Where nothing could be asked, as it is written.
        assert!(hint("", unknown).contains("`ssh-keyscan node1 >> ~/.ssh/known_hosts`"));
        let own = Settings { known_hosts: Some("/own".into()), ..Settings::default() };
        assert_eq!(Resolved::parse(&own, &host, said).known_hosts, "/own");
    }

    #[test]
    fn what_a_machine_cannot_take_is_explained() {
        let host = Host::new("node1");
        for (kind, said, expect) in [
            ("folder", "head: write error: No space left on device", "disk is full"),
            ("folder", "mkdir: Permission denied", "cannot write to the home folder"),
            ("home", "not set", "no home folder"),
            ("start", "126 Permission denied", "exit code 126"),
            ("build", "abc", "build `abc`"),
            ("short", "7", "arrived damaged"),
        ] {
            let fault = undelivered(&host, kind, said);
            assert!(fault.what.contains(expect), "`{expect}` in: {fault}");
        }
        assert!(start_hint("126", "Permission denied").contains("noexec"));
    }
}
