//! The `pool` section: where machines come from, and how many processes there are.
//!
//! Owns its words and what follows from them alone (how many machines, how many workers on each).
//! Never reaches a machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Machines of a pool that does not say how many.
pub const MACHINES_DEFAULT_MAX: usize = 16;
/// Most machines of a pool.
pub const MACHINES_MAX: usize = 1024;
/// Longest name of a machine or a group, in bytes.
pub const NAME_BYTES_MAX: usize = 100;

/// The group that every machine is in.
pub const ALL: &str = "all";
/// The group of machines that workers may be on.
pub const WORKER: &str = "worker";
/// The group of machines that servers may be on.
pub const SERVER: &str = "server";

/// The `pool` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Where machines come from.
    pub provider: Provider,
    /// Worker processes, which compute shards: how many, or `{min: 2, max: 8}`. One worker without a
    /// server trains inside the command. The result never depends on it.
    pub workers: Workers,
    /// Server processes, which hold the parameters: 1 where there are several workers or machines,
    /// else 0. The result never depends on it.
    #[schemars(range(min = 0, max = 256))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<usize>,
    /// Threads of each worker that compute shards side by side; 0 shares the cores out. The result
    /// never depends on it.
    #[schemars(range(min = 0, max = 1024))]
    pub threads: usize,
    /// The machines of `provider: ssh`: names of `~/.ssh/config`, `user@host:port`, or mappings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostEntry>,
    /// How `ssh` connects.
    #[serde(skip_serializing_if = "is_default")]
    pub ssh: Ssh,
    /// Image of the containers of `provider: docker`; built from the program when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How the Docker engine is reached.
    #[serde(skip_serializing_if = "is_default")]
    pub docker: Docker,
    /// Machines to have at a time: containers (as many as workers when left out, at most 16), or how
    /// many of the hosts (all when left out; the others are spare). `provider: local` has none of
    /// its own unless it is asked to.
    #[schemars(range(min = 1, max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<usize>,
    /// Where machines reach this one; found out when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Workers on one machine, at most; shared out evenly when left out.
    #[schemars(range(min = 1, max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<usize>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            provider: Provider::Local,
            workers: Workers::Count(1),
            servers: None,
            threads: 0,
            hosts: Vec::new(),
            ssh: Ssh::default(),
            image: None,
            docker: Docker::default(),
            machines: None,
            address: None,
            slots: None,
        }
    }
}

impl Pool {
    /// Server processes, spelled out.
    pub fn server_count(&self) -> usize {
        self.servers.unwrap_or(usize::from(self.workers.max() > 1 || self.has_machines()))
    }

    /// Whether the command trains by itself, without other processes.
    pub fn is_one_process(&self) -> bool {
        self.workers.max() == 1 && self.server_count() == 0
    }

    /// Whether processes live on machines of a provider, rather than beside the command.
    pub fn has_machines(&self) -> bool {
        self.provider != Provider::Local || self.machines.is_some()
    }

    /// Machines to have at a time; 0 where processes live beside the command.
    pub fn machine_count(&self) -> usize {
        match self.provider {
            Provider::Local => self.machines.unwrap_or(0),
            Provider::Ssh => self.machines.unwrap_or(self.hosts.len()),
            Provider::Docker => {
                self.machines.unwrap_or(self.workers.max().min(MACHINES_DEFAULT_MAX))
            }
        }
    }

    /// Workers on one machine, at most, spelled out.
    pub fn slot_count(&self) -> usize {
        self.slots.unwrap_or(self.workers.max().div_ceil(self.machine_count().max(1)))
    }
}

/// How many workers. A number stays a number when the recipe is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Workers {
    /// So many; the run goes on as long as one is left.
    Count(#[schemars(range(min = 1, max = 4096))] usize),
    /// From so many to so many.
    Range(WorkerRange),
}

/// From how many to how many workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerRange {
    /// Workers below which the run waits.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 4096))]
    pub min: usize,
    /// Workers to start with, and to have again when one is lost.
    #[schemars(range(min = 1, max = 4096))]
    pub max: usize,
}

impl Workers {
    /// Workers below which the run waits.
    pub fn min(self) -> usize {
        match self {
            Self::Count(_) => 1,
            Self::Range(range) => range.min,
        }
    }

    /// Workers to start with.
    pub fn max(self) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Range(range) => range.max,
        }
    }

    /// As before, with at most so many: the least there may be follows where it is above that.
    #[must_use]
    pub fn at_most(self, max: usize) -> Self {
        match self {
            Self::Count(_) => Self::Count(max),
            Self::Range(range) => Self::Range(WorkerRange { min: range.min.min(max), max }),
        }
    }
}

/// Where machines come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// This machine.
    #[default]
    Local,
    /// Hosts that `ssh` reaches.
    Ssh,
    /// Containers of a Docker engine.
    Docker,
}

impl Provider {
    /// As recipes write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Ssh => "ssh",
            Self::Docker => "docker",
        }
    }
}

/// A machine of `provider: ssh`, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HostEntry {
    /// A name of `~/.ssh/config`, or `user@host:port`.
    Short(String),
    /// With options.
    Full(HostOptions),
}

/// A machine of `provider: ssh`, with options. What is left out is as `~/.ssh/config` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    #[schemars(range(min = 1, max = 65535))]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    #[schemars(range(min = 1, max = 300))]
    pub connect_seconds: u32,
}

impl Default for Ssh {
    fn default() -> Self {
        Self { config: None, known_hosts: None, host_keys: HostKeys::Strict, connect_seconds: 10 }
    }
}

/// What becomes of a host whose key is not known. One whose key has changed is always refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostKeys {
    /// It is refused.
    #[default]
    Strict,
    /// Its key is noted down, and known from then on.
    AcceptNew,
}

/// How the Docker engine is reached, and what containers have of its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Docker {
    /// The engine's socket; `/var/run/docker.sock` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Network of the containers; the engine's own when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Folders and files of this machine that containers see: `HERE:THERE`, or `HERE:THERE:ro` to
    /// be read alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// Graphics processors of each container: how many, or `all`; none when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Gpus>,
}

/// Graphics processors of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Gpus {
    /// So many.
    Count(#[schemars(range(min = 1, max = 64))] u32),
    /// `all` that there are.
    All(String),
}

/// Something of this machine that containers see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// A folder or file here.
    pub source: String,
    /// Where it is in a container.
    pub target: String,
    /// Whether it is read alone.
    pub is_read_only: bool,
}

impl Mount {
    /// As it was written, or what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, is_read_only) = match parts[..] {
            [source, target] | [source, target, "rw"] => (source, target, false),
            [source, target, "ro"] => (source, target, true),
            [_, _, how] => return Err(format!("ends in `{how}`, which is neither `ro` nor `rw`")),
            _ => return Err("is not of the form `HERE:THERE`".into()),
        };
        if source.is_empty() || source.contains('\0') {
            return Err("names nothing here".into());
        }
        if !target.starts_with('/') || target.split('/').any(|part| part == "..") {
            return Err(format!("leads to `{target}`, which is no absolute path of a container"));
        }
        let target = match target.trim_end_matches('/') {
            "" => return Err("leads to `/`, which holds all else".into()),
            target => target.to_owned(),
        };
        Ok(Self { source: source.to_owned(), target, is_read_only })
    }
}

/// Whether a machine in these groups is also in `group`. One that was put into neither `worker` nor
/// `server` is in both, and every one is in `all`.
pub fn is_in(group: &str, groups: &[String]) -> bool {
    let named = |group: &str| groups.iter().any(|g| g == group);
    match group {
        ALL => true,
        WORKER | SERVER if !named(WORKER) && !named(SERVER) => true,
        group => named(group),
    }
}

/// Whether a word may name a machine or a group: nothing that leads elsewhere.
pub fn is_name(word: &str) -> bool {
    let mut letters = word.chars();
    word.len() <= NAME_BYTES_MAX
        && letters.next().is_some_and(|c| c.is_ascii_alphanumeric())
        && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one() -> usize {
    1
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

    #[test]
    fn machines_are_in_groups() {
        let groups = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        for (group, of, expect) in [
            ("all", &[][..], true),
            ("worker", &[], true),
            ("server", &[], true),
            ("worker", &["big"], true),
            ("big", &["big"], true),
            ("big", &["small"], false),
            ("worker", &["server"], false),
            ("server", &["server"], true),
            ("server", &["worker", "big"], false),
        ] {
            assert_eq!(is_in(group, &groups(of)), expect, "{group} of {of:?}");
        }
    }

    #[test]
    fn machines_and_slots_follow_from_little() {
        let pool = |provider, workers, machines, slots| Pool {
            provider,
            workers: Workers::Count(workers),
            machines,
            slots,
            hosts: vec![HostEntry::Short("a".into()), HostEntry::Short("b".into())],
            ..Pool::default()
        };
        for (pool, machines, slots, servers) in [
            (pool(Provider::Local, 3, None, None), 0, 3, 1),
            (pool(Provider::Local, 1, None, None), 0, 1, 0),
            (pool(Provider::Local, 3, Some(2), None), 2, 2, 1),
            (pool(Provider::Ssh, 5, None, None), 2, 3, 1),
            (pool(Provider::Ssh, 1, Some(1), None), 1, 1, 1),
            (pool(Provider::Docker, 40, None, None), 16, 3, 1),
            (pool(Provider::Docker, 4, None, Some(2)), 4, 2, 1),
        ] {
            let found = (pool.machine_count(), pool.slot_count(), pool.server_count());
            assert_eq!(found, (machines, slots, servers), "{pool:?}");
        }
    }
}
