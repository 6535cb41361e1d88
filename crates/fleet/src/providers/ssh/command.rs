//! How `ssh` is called.
//!
//! Owns its options: the user's own configuration holds but for what would make it ask, forward or
//! share what it should not.

use super::{Host, HostKeys, Settings};
use crate::home::at_home;
use crate::shell::quoted;
use std::path::Path;
use std::process::Command;

/// Longest path of a socket.
const SOCKET_BYTES_MAX: usize = 103;

/// What a call has to do with the connection that a machine's channel holds.
#[derive(Debug, Clone, Copy)]
pub enum Sharing<'a> {
    /// It is that connection; others may use it by this socket.
    Offer(&'a Path),
    /// It uses that connection.
    Use(&'a Path),
    /// It has a connection of its own.
    Apart,
}

/// `ssh` to a host, to run a command there.
pub fn ssh(settings: &Settings, host: &Host, sharing: Sharing<'_>, remote: &str) -> Command {
    let mut command = Command::new(&settings.client);
    command.args(options(settings, host));
    for name in &settings.hidden {
        command.env_remove(name);
    }
    command.args(["-T", "-x", "-a"]);
    for option in [
        "RequestTTY=no",
        "EscapeChar=none",
        "ClearAllForwardings=yes",
        "PermitLocalCommand=no",
        "RemoteCommand=none",
        "ControlPersist=no",
    ] {
        command.args(["-o", option]);
    }
    let (master, path) = match sharing {
        Sharing::Offer(path) => ("yes", Some(path)),
        Sharing::Use(path) => ("no", Some(path)),
        Sharing::Apart => ("no", None),
    };
    let path = path.map_or("none".into(), |path| path.display().to_string());
    command.arg("-o").arg(format!("ControlMaster={master}"));
    command.arg("-o").arg(format!("ControlPath={path}"));
    if let Some(jump) = &host.jump {
        command.arg("-o").arg(format!("ProxyCommand={}", proxy(settings, host, jump)));
    }
    // Never prompts, on any screen.
    command.env("SSH_ASKPASS_REQUIRE", "never").env_remove("SSH_ASKPASS");
    command.args(["--", &host.host, remote]);
    command
}

/// Asks the process that holds a connection to lead a Unix socket on the machine to one here.
pub fn forward(settings: &Settings, path: &Path, there: &str, here: &str) -> Command {
    let mut command = Command::new(&settings.client);
    command.args(["-F", "none", "-o", "LogLevel=ERROR", "-o"]);
    command.arg(format!("ControlPath={}", path.display()));
    command.args(["-O", "forward", "-R", &format!("{there}:{here}"), "--", "machine"]);
    command
}

/// Why a socket's path cannot be forwarded, if it cannot. The machine says where its folder is: what
/// `ssh` would take for a port, an address or a variable must not get through.
pub fn not_forwarded(socket: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=,@".contains(c);
    if !socket.starts_with('/') || !socket.chars().all(is_plain) {
        let what = "letters, digits and `/._-+=,@` alone may be in a path that ssh forwards";
        return Some(format!("`{}`: {what}", socket.escape_debug()));
    }
    (socket.len() > SOCKET_BYTES_MAX)
        .then(|| format!("`{socket}` is longer than {SOCKET_BYTES_MAX} bytes"))
}

/// Prints how the user's configuration has a host; connects to nothing.
pub fn resolve(settings: &Settings, host: &Host) -> Command {
    let mut command = Command::new(&settings.client);
    command.arg("-G").args(options(settings, host)).args(["--", &host.host]);
    command
}

/// `ssh -V`.
pub fn version(settings: &Settings) -> Command {
    let mut command = Command::new(&settings.client);
    command.arg("-V");
    command
}

/// The options by which others (ansible) reach the host as this does.
pub fn common(settings: &Settings, host: &Host) -> Vec<String> {
    let mut words = options(settings, host);
    if let Some(jump) = &host.jump {
        words.extend(["-o".into(), format!("ProxyCommand={}", proxy(settings, host, jump))]);
    }
    words
}

/// What holds for every connection, to a host or to the one before it.
fn options(settings: &Settings, host: &Host) -> Vec<String> {
    let mut words = trust(settings, host);
    if let Some(user) = &host.user {
        words.extend(["-l".into(), user.clone()]);
    }
    if let Some(port) = host.port {
        words.extend(["-p".into(), port.to_string()]);
    }
    words
}

fn trust(settings: &Settings, host: &Host) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(config) = &settings.config {
        words.extend(["-F".into(), config.display().to_string()]);
    }
    let mut option = |text: String| words.extend(["-o".into(), text]);
    option("BatchMode=yes".into());
    option(match settings.host_keys {
        HostKeys::Strict => "StrictHostKeyChecking=yes".into(),
        HostKeys::AcceptNew => "StrictHostKeyChecking=accept-new".into(),
    });
    option("UpdateHostKeys=no".into());
    option(format!("ConnectTimeout={}", settings.connect_seconds));
    option("ConnectionAttempts=1".into());
    option("ServerAliveInterval=5".into());
    option("ServerAliveCountMax=3".into());
    option("LogLevel=ERROR".into());
    if let Some(file) = &settings.known_hosts {
        let file = file.display().to_string().replace('%', "%%");
        option(format!("UserKnownHostsFile=\"{file}\""));
    }
    if let Some(key) = &host.key {
        option("IdentitiesOnly=yes".into());
        words.extend(["-i".into(), at_home(key).display().to_string()]);
    }
    words
}

/// The command by which `ssh` gets to a host behind another. `-J` would do, but for the key and the
/// host keys, which it does not pass on.
fn proxy(settings: &Settings, host: &Host, jump: &str) -> String {
    let mut words = vec![settings.client.display().to_string()];
    words.extend(trust(settings, host));
    // Of several, each gets to the next.
    let (before, last) = match jump.rsplit_once(',') {
        Some((before, last)) => (Some(before), last),
        None => (None, jump),
    };
    if let Some(before) = before {
        words.extend(["-J".into(), before.into()]);
    }
    let (user, last) = last.rsplit_once('@').map_or((None, last), |(user, at)| (Some(user), at));
    if let Some(user) = user {
        words.extend(["-l".into(), user.into()]);
    }
    let (name, port) = super::host_and_port(last);
    if let Some(port) = port {
        words.extend(["-p".into(), port.to_string()]);
    }
    words.push("-W".into());
    let words: Vec<String> = words.iter().map(|word| quoted(&word.replace('%', "%%"))).collect();
    format!("{} '[%h]:%p' -- {}", words.join(" "), quoted(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_override_the_users_configuration() {
        let settings = Settings { known_hosts: Some("/a b/known".into()), ..Settings::default() };
        let host = Host {
            user: Some("lab".into()),
            port: Some(2222),
            key: Some("/k".into()),
            jump: Some("gate@door:23".into()),
            ..Host::new("node1")
        };
        let called = ssh(&settings, &host, Sharing::Use(Path::new("/t/1")), "exec sh");
        let words: Vec<_> =
            called.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let text = words.join(" ");
        for expect in [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "ClearAllForwardings=yes",
            "UserKnownHostsFile=\"/a b/known\"",
            "IdentitiesOnly=yes -i /k -l lab -p 2222",
            "ControlMaster=no -o ControlPath=/t/1",
            "'-l' 'gate' '-p' '23' '-W' '[%h]:%p' -- 'door'",
        ] {
            assert!(text.contains(expect), "{expect} in {text}");
        }
        assert!(text.ends_with("-- node1 exec sh"), "{text}");
        let new = Settings { host_keys: HostKeys::AcceptNew, ..Settings::default() };
        let called = ssh(&new, &Host::new("x"), Sharing::Apart, "true");
        assert!(called.get_args().any(|word| word == "StrictHostKeyChecking=accept-new"));
        assert!(called.get_args().any(|word| word == "ControlPath=none"));
    }

    #[test]
    fn a_machine_cannot_have_anything_else_forwarded() {
        assert_eq!(not_forwarded("/home/lab/.cache/planaria/runs/a-1/gate-7"), None);
        for (socket, why) in [
            ("8080:10.0.0.1:22", "may be in a path"),
            ("/a:10.0.0.1:22", "may be in a path"),
            ("/a/${HOME}", "may be in a path"),
            ("/a/%h", "may be in a path"),
            ("/a/\\:b", "may be in a path"),
            ("relative", "may be in a path"),
            (&format!("/{}", "x".repeat(103)), "longer than 103 bytes"),
        ] {
            assert!(not_forwarded(socket).is_some_and(|said| said.contains(why)), "{socket}");
        }
    }
}
