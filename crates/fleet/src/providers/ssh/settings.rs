//! Which hosts there are, and how they are reached.
//!
//! Owns the settings as plain data and what is wrong with them before anything is tried. What is not
//! said here is as the user's `~/.ssh/config` has it.

use crate::home::at_home;
use crate::provider::{Fault, Machine, is_name};
use planaria_recipe::pool::providers::ssh as recipe;
pub use planaria_recipe::pool::providers::ssh::{Host, HostKeys};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Hosts, and how to reach them.
#[derive(Debug, Clone)]
pub struct Settings {
    /// In this order; each is one machine.
    pub hosts: Vec<Host>,
    /// A file in the place of `~/.ssh/config`.
    pub config: Option<PathBuf>,
    /// A file in the place of `~/.ssh/known_hosts`.
    pub known_hosts: Option<PathBuf>,
    /// What is done about hosts that are not in it.
    pub host_keys: HostKeys,
    /// How long a connection may take.
    pub connect_seconds: u64,
    /// How long a host may then say nothing.
    pub answer_seconds: u64,
    /// Variables that no process is to inherit: they hold secrets.
    pub hidden: Vec<String>,
    /// The OpenSSH client.
    pub client: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            config: None,
            known_hosts: None,
            host_keys: HostKeys::Strict,
            connect_seconds: 10,
            answer_seconds: 20,
            hidden: Vec::new(),
            client: "ssh".into(),
        }
    }
}

/// The machine that a host is: its handle is enough to find it again.
pub fn machine(host: &Host) -> Machine {
    let handle = match host.port {
        Some(port) if host.host.contains(':') => {
            let user = host.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
            format!("{user}[{}]:{port}", host.host)
        }
        Some(port) => format!("{}:{port}", host.whom()),
        None => host.whom(),
    };
    Machine::new(&host.name, handle, host.groups.clone())
}

/// The host that a machine's handle says, where no setting has it any more.
pub fn host_of(machine: &Machine) -> Host {
    let (user, at) = match machine.handle.rsplit_once('@') {
        Some((user, at)) => (Some(user.to_owned()), at),
        None => (None, machine.handle.as_str()),
    };
    let (host, port) = host_and_port(at);
    let (name, groups) = (machine.name.clone(), machine.groups.clone());
    Host { name, user, port, groups, ..Host::new(host) }
}

/// What is wrong with a host, if anything: nothing may be taken for an option or lead elsewhere. The
/// checker has seen it before; a run's folder may have been changed by hand.
pub fn fault(host: &Host) -> Option<Fault> {
    if !is_name(&host.name) {
        let what = format!("`{}` cannot name a machine", host.name);
        return Some(Fault::fix(&host.name, what, "use letters, digits, `-`, `_` and `.`"));
    }
    if let Some((key, why)) = host.mistakes().next() {
        return Some(Fault::fix(&host.name, format!("its {key} {why}"), format!("check `{key}`")));
    }
    let key = host.key.as_deref().filter(|key| !at_home(key).is_file())?;
    let hint = "check `key`: it names the file of the private key on this machine";
    Some(Fault::replace(&host.name, format!("there is no key `{key}`"), hint))
}

impl Settings {
    pub fn of(settings: &recipe::Settings, hidden: Vec<String>) -> Result<Self, Fault> {
        let host = |entry: &recipe::HostEntry| {
            let host = entry.spelled_out();
            host.map_err(|why| Fault::fix("ssh", format!("a host: {why}"), ""))
        };
        let recipe::Ssh { config, known_hosts, host_keys, connect_seconds } = &settings.ssh;
        Ok(Self {
            hosts: settings.hosts.iter().map(host).collect::<Result<_, Fault>>()?,
            config: config.as_deref().map(at_home),
            known_hosts: known_hosts.as_deref().map(at_home),
            host_keys: *host_keys,
            connect_seconds: u64::from(*connect_seconds),
            hidden,
            ..Self::default()
        })
    }

    /// What is wrong with the whole of it, if anything.
    pub fn fault(&self) -> Option<Fault> {
        let files = [("config", &self.config), ("known_hosts", &self.known_hosts)];
        for (key, file) in files {
            if let Some(file) = file.as_deref().filter(|file| !file.exists()) {
                let what = format!("there is no file `{}`", file.display());
                return Some(Fault::fix("ssh", what, format!("check `{key}`")));
            }
        }
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        for host in &self.hosts {
            if let Some(fault) = fault(host) {
                return Some(fault);
            }
            if !names.insert(&host.name) || !places.insert((&host.host, host.port, &host.user)) {
                let hint = "give each machine once, under a name of its own";
                return Some(Fault::fix(&host.name, "it is there twice under `hosts`", hint));
            }
        }
        None
    }
}

/// Cuts `host:port`, `[address]:port` or `host`. An address with many colons has no port.
pub fn host_and_port(text: &str) -> (&str, Option<u16>) {
    let bare = |host: &'_ str| host.trim_start_matches('[').trim_end_matches(']').len();
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse() {
            Ok(port) if bare(host) == host.len() => (host, Some(port)),
            Ok(port) => (&host[1..host.len() - 1], Some(port)),
            Err(_) => (text, None),
        },
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_lead_back_to_their_host() {
        let plain = Host::new("node1");
        let lab = Host { user: Some("lab".into()), port: Some(2222), ..Host::new("10.0.0.2") };
        let six = Host { port: Some(23), ..Host::new("fe80::1") };
        for (host, handle) in [
            (plain, "node1"),
            (lab, "lab@10.0.0.2:2222"),
            (six, "[fe80::1]:23"),
            (Host::new("fe80::1"), "fe80::1"),
        ] {
            let machine = machine(&host);
            assert_eq!(machine.handle, handle);
            assert_eq!(host_of(&machine), host);
        }
    }

    #[test]
    fn settings_that_cannot_be_meant_are_refused() {
        let check = |host: Host, expect: &str| {
            let fault = Settings { hosts: vec![host], ..Settings::default() }.fault();
            let what = fault.map(|fault| fault.to_string()).unwrap_or_default();
            assert!(what.contains(expect), "{expect}: {what}");
        };
        assert_eq!(Settings { hosts: vec![Host::new("a")], ..Settings::default() }.fault(), None);
        check(Host { name: "a".into(), ..Host::new("-oProxyCommand") }, "its host starts with `-`");
        check(Host { user: Some("-l".into()), ..Host::new("a") }, "its user starts with `-`");
        check(Host { jump: Some("a;b".into()), ..Host::new("a") }, "its jump holds `;`");
        check(Host { key: Some("/nonexistent/key".into()), ..Host::new("a") }, "there is no key");
        check(Host { name: "../a".into(), ..Host::new("a") }, "cannot name a machine");
        let twice = Settings { hosts: vec![Host::new("a"), Host::new("a")], ..Settings::default() };
        assert!(twice.fault().is_some_and(|fault| fault.what.contains("twice")));
        let lost = Settings { config: Some("/nonexistent/config".into()), ..Settings::default() };
        assert!(lost.fault().is_some_and(|fault| fault.what.contains("no file")));
    }
}
