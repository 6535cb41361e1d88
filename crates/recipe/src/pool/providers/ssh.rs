//! `provider: ssh`: hosts that are there already, by the OpenSSH client.
//!
//! Owns the keys `hosts` and `ssh` of a pool, and what they must be.

use super::{Named, Place};
use crate::diagnostic::Finding;
use crate::node::{Kind, Node};
use crate::pool::{ALL, MACHINES_MAX, NAME_BYTES_MAX, WORKER, is_default, is_in, is_name};
use crate::text;
use crate::words::listed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Its keys of `pool`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Settings {
    /// The machines of `provider: ssh`: names of `~/.ssh/config`, `user@host:port`, or mappings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostEntry>,
    /// How `ssh` connects.
    #[serde(skip_serializing_if = "is_default")]
    pub ssh: Ssh,
}

impl super::Settings for Settings {
    const NAME: &'static str = "ssh";
    const MEANING: &'static str = "Hosts that `ssh` reaches.";

    fn machine_count(&self, asked: Option<usize>, _workers: usize) -> usize {
        asked.unwrap_or(self.hosts.len())
    }

    fn machines_max(&self) -> Option<usize> {
        Some(self.hosts.len())
    }

    fn named(&self) -> Vec<Named> {
        let hosts = self.hosts.iter().filter_map(|host| host.spelled_out().ok());
        hosts.map(|host| Named { name: host.name, groups: host.groups }).collect()
    }

    fn describe(&self, count: usize) -> String {
        let hosts = self.named();
        let spare = match hosts.len() - count.min(hosts.len()) {
            0 => String::new(),
            spare => format!(" ({spare} spare)"),
        };
        let named = hosts.into_iter().map(|host| match host.groups.is_empty() {
            true => host.name,
            false => format!("{} ({})", host.name, host.groups.join(", ")),
        });
        format!("{count} by ssh{spare}: {}", listed(named.collect()))
    }

    fn check(&self, at: &mut Place<'_>) {
        self.check_hosts(at);
        let hosts = self.hosts.len();
        if let Some(machines) = at.machines.filter(|asked| hosts > 0 && *asked > hosts) {
            let key = at.key("machines");
            let message = match hosts {
                1 => format!("`{key}` is {machines}, but there is 1 host"),
                _ => format!("`{key}` is {machines}, but there are {hosts} hosts"),
            };
            let hint = format!("set it to {hosts} or less, or add hosts; leave it out to use all");
            at.add("machines", message, hint);
        }
        at.refuse("ssh.config", self.ssh.config.as_deref().and_then(text::path));
        at.refuse("ssh.known_hosts", self.ssh.known_hosts.as_deref().and_then(text::path));
    }
}

impl Settings {
    fn check_hosts(&self, at: &mut Place<'_>) {
        let (key, example) =
            (at.key("hosts"), "list them, such as `hosts: [node1, lab@10.0.0.2:2222]`");
        match at.written("hosts") {
            None => {
                return at.add("provider", format!("`provider: ssh` needs `{key}`"), example);
            }
            Some(Node { kind: Kind::Seq(items), .. }) if items.is_empty() => {
                return at.add("hosts", format!("`{key}` is empty"), example);
            }
            Some(_) => {}
        }
        if self.hosts.len() > MACHINES_MAX {
            let message = format!("`{key}` has {} hosts", self.hosts.len());
            return at.add("hosts", message, format!("a pool has {MACHINES_MAX} machines at most"));
        }
        let mut seen = Seen::default();
        for (number, entry) in self.hosts.iter().enumerate() {
            let place = HostPlace { path: format!("{key}.{number}"), number, entry };
            match entry.spelled_out() {
                Ok(host) => check_host(&place, host, &mut seen, at.found),
                Err(why) => at.found.push(place.at("", format!(": {why}")).hint(
                    "write a name of `~/.ssh/config`, `user@host:port`, or `{name: …, host: …}`",
                )),
            }
        }
        let sound = seen.names.len() == self.hosts.len() && !self.hosts.is_empty();
        if sound && at.is_only && !seen.workers {
            let message = "every host is in `server` alone, so workers have no machine";
            let hint = "add `worker` to the groups of one, or leave its groups out";
            at.add("hosts", message, hint);
        }
    }
}

/// What the hosts before had.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, usize>,
    places: BTreeMap<(String, Option<String>, Option<u16>), usize>,
    workers: bool,
}

/// Where one host was written.
struct HostPlace<'a> {
    path: String,
    number: usize,
    entry: &'a HostEntry,
}

impl HostPlace<'_> {
    fn at(&self, key: &str, message: impl AsRef<str>) -> Finding {
        // What was written as one text has no keys to point at.
        let path = match self.entry {
            HostEntry::Full(_) if !key.is_empty() => format!("{}.{key}", self.path),
            _ => self.path.clone(),
        };
        Finding::new(path, format!("host {}{}", self.number + 1, message.as_ref()))
    }
}

fn check_host(place: &HostPlace<'_>, host: Host, seen: &mut Seen, found: &mut Vec<Finding>) {
    let before = found.len();
    found.extend(host.mistakes().map(|(key, why)| place.at(key, format!(": its {key} {why}"))));
    if found.len() == before && !is_name(&host.name) {
        found.push(place.at("name", " cannot be called that").hint(names_hint()));
    }
    for (number, group) in host.groups.iter().enumerate() {
        let key = format!("groups.{number}");
        if group == ALL {
            found.push(place.at(&key, ": every machine is in `all`").hint("leave it out"));
        } else if !is_name(group) {
            let message = " has a group that cannot be called that";
            found.push(place.at(&key, message).hint(names_hint()));
        }
    }
    if found.len() > before {
        return;
    }
    seen.workers |= is_in(WORKER, &host.groups);
    let address = (host.host.clone(), host.user.clone(), host.port);
    if let Some(first) = seen.names.insert(host.name.clone(), place.number) {
        let message = format!(" has the name of host {}, `{}`", first + 1, host.name);
        found.push(place.at("name", message).hint("give one of them another `name`"));
    } else if let Some(first) = seen.places.insert(address, place.number) {
        let message = format!(" is the same machine as host {}, `{}`", first + 1, host.host);
        found.push(
            place
                .at("host", message)
                .hint("list each machine once; `slots` says how many workers it takes"),
        );
    }
}

/// What names of machines and groups are made of.
fn names_hint() -> String {
    format!(
        "use letters, digits, `-`, `_` and `.`, {NAME_BYTES_MAX} at most, such as `name: node1`"
    )
}

/// A machine of `provider: ssh`, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum HostEntry {
    /// A name of `~/.ssh/config`, or `user@host:port`.
    Short(String),
    /// With options.
    Full(HostOptions),
}

/// A machine of `provider: ssh`, with options. What is left out is as `~/.ssh/config` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HostOptions {
    /// What the machine is called here, and by `ssh` where there is no `host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its address, or its name in `~/.ssh/config`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Who logs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where sshd listens.
    #[cfg_attr(test, schemars(range(min = 1, max = 65535)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// File of the private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Hosts to go through: `gate`, or `user@gate:port`; several with commas between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jump: Option<String>,
    /// Groups that the machine is in, for `setup` and for placing: `worker`, `server`, or words of
    /// your own. One that is in neither `worker` nor `server` is in both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

/// A machine of `provider: ssh`, spelled out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// What it is called in this run.
    pub name: String,
    /// What `ssh` is told to connect to.
    pub host: String,
    /// Who logs in.
    pub user: Option<String>,
    /// Where sshd listens.
    pub port: Option<u16>,
    /// File of the private key.
    pub key: Option<String>,
    /// Hosts to go through.
    pub jump: Option<String>,
    /// Groups, besides `all`.
    pub groups: Vec<String>,
}

impl Host {
    /// A host as `~/.ssh/config` has it.
    pub fn new(host: &str) -> Self {
        Self {
            name: host.to_owned(),
            host: host.to_owned(),
            user: None,
            port: None,
            key: None,
            jump: None,
            groups: Vec::new(),
        }
    }

    /// Who is where: `lab@10.0.0.2`.
    pub fn whom(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.host),
            None => self.host.clone(),
        }
    }

    /// What must not be as it is, by key, and why: nothing may be taken for an option of `ssh`.
    pub fn mistakes(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("host", text::host(&self.host)),
            ("user", self.user.as_deref().and_then(text::user)),
            ("key", self.key.as_deref().and_then(text::path)),
            ("jump", self.jump.as_deref().and_then(text::jumps)),
        ]
        .into_iter()
        .filter_map(|(key, why)| Some((key, why?)))
    }
}

impl HostEntry {
    /// Spelled out, or what is wrong with it.
    pub fn spelled_out(&self) -> Result<Host, String> {
        let full = match self {
            Self::Full(options) => options.clone(),
            Self::Short(text) => short(text)?,
        };
        let host = full.host.or_else(|| full.name.clone()).ok_or("it has no `name` or `host`")?;
        let name = match (full.name, full.port) {
            (Some(name), _) => name,
            (None, None) => as_name(&host),
            (None, Some(port)) => format!("{}-{port}", as_name(&host)),
        };
        let (user, port, key, jump) = (full.user, full.port, full.key, full.jump);
        Ok(Host { name, host, user, port, key, jump, groups: full.groups })
    }
}

/// `user@host:port`, `user@[::1]:port`.
fn short(text: &str) -> Result<HostOptions, String> {
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (None, text),
    };
    let (host, port) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or("a `:` is missing")?)),
        None if rest.matches(':').count() > 1 => {
            return Err(format!("an IPv6 address needs brackets: `[{rest}]`"));
        }
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let port = match port.map(str::parse) {
        Some(Ok(0) | Err(_)) => return Err("its port is not a number from 1 to 65535".into()),
        Some(Ok(port)) => Some(port),
        None => None,
    };
    // A name alone is also what the machine is called.
    let name = (user.is_none() && port.is_none() && !host.contains(':')).then(|| host.to_owned());
    Ok(HostOptions { name, host: Some(host.to_owned()), user, port, ..HostOptions::default() })
}

/// An address as a name: an IPv6 address has colons, which names must not have.
fn as_name(host: &str) -> String {
    match host.contains(':') {
        true => format!("ip-{}", host.replace([':', '%'], "-")),
        false => host.to_owned(),
    }
}

/// How `ssh` connects to all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Ssh {
    /// File to read instead of `~/.ssh/config`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// File of known host keys instead of `~/.ssh/known_hosts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_hosts: Option<String>,
    /// What becomes of a host whose key is not known.
    pub host_keys: HostKeys,
    /// How long a connection may take to come about.
    #[cfg_attr(test, schemars(range(min = 1, max = 300)))]
    pub connect_seconds: u32,
}

impl Default for Ssh {
    fn default() -> Self {
        Self { config: None, known_hosts: None, host_keys: HostKeys::Strict, connect_seconds: 10 }
    }
}

/// What becomes of a host whose key is not known. One whose key has changed is always refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HostKeys {
    /// It is refused.
    #[default]
    Strict,
    /// Its key is noted down, and known from then on.
    AcceptNew,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_hosts_are_spelled_out() {
        let check = |text: &str, expect: Option<(&str, &str, Option<&str>, Option<u16>)>| {
            let host = HostEntry::Short(text.into()).spelled_out().ok();
            let found = host.as_ref().map(|h| (&*h.name, &*h.host, h.user.as_deref(), h.port));
            assert_eq!(found, expect, "{text}");
        };
        check("node1", Some(("node1", "node1", None, None)));
        check("lab@node1", Some(("node1", "node1", Some("lab"), None)));
        check("lab@10.0.0.2:2222", Some(("10.0.0.2-2222", "10.0.0.2", Some("lab"), Some(2222))));
        check("a@b@node1", Some(("node1", "node1", Some("a@b"), None)));
        check("[::1]", Some(("ip---1", "::1", None, None)));
        check("[fe80::1]:22", Some(("ip-fe80--1-22", "fe80::1", None, Some(22))));
        for wrong in ["fe80::1", "node1:", "node1:0", "node1:65536", "node1:ssh", "[::1]22"] {
            check(wrong, None);
        }
    }
}
