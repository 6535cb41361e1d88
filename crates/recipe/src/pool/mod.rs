//! The `pool` section: where machines come from, and how many processes there are.
//!
//! Owns its words and what follows from them alone (how many machines, how many workers on each);
//! what one provider alone understands is in [`providers`]. Never reaches a machine.

pub mod providers;

pub use providers::{Named, Provider};
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(extend("additionalProperties" = false)))]
pub struct Pool {
    /// The machines of one provider.
    #[serde(flatten)]
    pub supply: Supply,
    /// Machines of other providers besides: each with `provider`, `machines` and that provider's
    /// own keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<Supply>,
    /// Worker processes, which compute shards: how many, or `{min: 2, max: 8}`. One worker without a
    /// server trains inside the command. The result never depends on it.
    pub workers: Workers,
    /// Server processes, which hold the parameters: 1 where there are several workers or machines,
    /// else 0. The result never depends on it.
    #[cfg_attr(test, schemars(range(min = 0, max = 256)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<usize>,
    /// Threads of each worker that compute shards side by side; 0 shares the cores out. The result
    /// never depends on it.
    #[cfg_attr(test, schemars(range(min = 0, max = 1024)))]
    pub threads: usize,
    /// Where machines reach this one; found out when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Workers on one machine, at most; shared out evenly when left out.
    #[cfg_attr(test, schemars(range(min = 1, max = 4096)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<usize>,
}

/// Machines of one provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(test, schemars(extend("additionalProperties" = false)))]
pub struct Supply {
    /// Where they come from.
    #[serde(flatten)]
    pub provider: Provider,
    /// Machines to have at a time. When left out: where they are made, as many as workers, at most
    /// 16; where they are listed, all (those beyond are spare); of this machine, none.
    #[cfg_attr(test, schemars(range(min = 1, max = 1024)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<usize>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            supply: Supply::default(),
            more: Vec::new(),
            workers: Workers::Count(1),
            servers: None,
            threads: 0,
            address: None,
            slots: None,
        }
    }
}

impl Supply {
    /// Whether processes live on machines of it, rather than beside the command.
    pub fn has_machines(&self) -> bool {
        self.provider.has_machines(self.machines)
    }

    /// Machines to have at a time.
    pub fn machine_count(&self, workers: Workers) -> usize {
        self.provider.machine_count(self.machines, workers.max())
    }
}

impl Pool {
    /// Where its machines come from, in order.
    pub fn supplies(&self) -> impl Iterator<Item = &Supply> {
        std::iter::once(&self.supply).chain(&self.more)
    }

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
        self.supplies().any(Supply::has_machines)
    }

    /// Whether all its machines are this one.
    pub fn is_here(&self) -> bool {
        self.supplies().all(|supply| supply.provider.is_here())
    }

    /// Machines to have at a time; 0 where processes live beside the command.
    pub fn machine_count(&self) -> usize {
        self.supplies().map(|supply| supply.machine_count(self.workers)).sum()
    }

    /// Machines that a detached run holds from the beginning: all where they are listed, as it
    /// cannot get others later; else as many as it works on.
    pub fn machines_held(&self) -> usize {
        let listed = |supply: &Supply| supply.provider.machines_max();
        match self.supplies().all(|supply| supply.has_machines() && listed(supply).is_some()) {
            true => self.machines_max(),
            false => self.machine_count(),
        }
    }

    /// Most machines that there can be.
    pub fn machines_max(&self) -> usize {
        let each = self.supplies().map(|supply| match supply.has_machines() {
            true => supply.provider.machines_max().unwrap_or(MACHINES_MAX),
            false => 0,
        });
        each.sum::<usize>().min(MACHINES_MAX)
    }

    /// The least memory that a machine of the pool is limited to, in bytes, and the key that says so.
    pub fn memory_limit(&self) -> Option<(u64, String)> {
        let limits = self.supplies().enumerate().filter_map(|(number, supply)| {
            let (bytes, key) = supply.provider.memory_limit()?;
            let key = match number.checked_sub(1) {
                None => format!("pool.{key}"),
                Some(more) => format!("pool.more.{more}.{key}"),
            };
            Some((bytes, key))
        });
        limits.min()
    }

    /// Workers on one machine, at most, spelled out.
    pub fn slot_count(&self) -> usize {
        self.slots.unwrap_or(self.workers.max().div_ceil(self.machine_count().max(1)))
    }

    /// Machines that are known before they are had.
    pub fn named(&self) -> Vec<Named> {
        self.supplies().flat_map(|supply| supply.provider.named()).collect()
    }
}

/// How many workers. A number stays a number when the recipe is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Workers {
    /// So many; the run goes on as long as one is left.
    Count(#[cfg_attr(test, schemars(range(min = 1, max = 4096)))] usize),
    /// From so many to so many.
    Range(WorkerRange),
}

/// From how many to how many workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkerRange {
    /// Workers below which the run waits.
    #[serde(default = "one")]
    #[cfg_attr(test, schemars(range(min = 1, max = 4096)))]
    pub min: usize,
    /// Workers to start with, and to have again when one is lost.
    #[cfg_attr(test, schemars(range(min = 1, max = 4096)))]
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

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one() -> usize {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_least_limit_on_memory_is_told_with_its_key() {
        let of = |text: &str| serde_json::from_str::<Pool>(text).unwrap().memory_limit();
        let limited =
            |mib: u64| format!(r#"{{"provider": "docker", "docker": {{"memory_mib": {mib}}}"#);
        assert_eq!(of(r#"{"provider": "docker"}"#), None);
        let limit = (96 << 20, "pool.docker.memory_mib".to_owned());
        assert_eq!(of(&(limited(96) + "}")), Some(limit));
        let two = limited(96) + r#", "more": ["# + &limited(64) + "}]}";
        assert_eq!(of(&two), Some((64 << 20, "pool.more.0.docker.memory_mib".to_owned())));
    }

    #[test]
    fn machines_and_slots_follow_from_little() {
        let of = |text: &str| serde_json::from_str::<Pool>(text).unwrap();
        for (text, machines, slots, servers) in [
            (r#"{"workers": 3}"#, 0, 3, 1),
            (r#"{"workers": 1}"#, 0, 1, 0),
            (r#"{"workers": 3, "machines": 2}"#, 2, 2, 1),
            (r#"{"provider": "ssh", "hosts": ["a", "b"], "workers": 5}"#, 2, 3, 1),
            (r#"{"provider": "ssh", "hosts": ["a", "b"], "machines": 1}"#, 1, 1, 1),
            (r#"{"provider": "docker", "workers": 40}"#, 16, 3, 1),
            (r#"{"provider": "docker", "workers": 4, "slots": 2}"#, 4, 2, 1),
            (
                r#"{"provider": "ssh", "hosts": ["a", "b"], "workers": 8,
                    "more": [{"provider": "docker", "machines": 2}]}"#,
                4,
                2,
                1,
            ),
        ] {
            let pool = of(text);
            let found = (pool.machine_count(), pool.slot_count(), pool.server_count());
            assert_eq!(found, (machines, slots, servers), "{pool:?}");
            let again = serde_json::to_string(&pool).unwrap();
            assert_eq!(of(&again), pool, "{again}");
        }
    }
}
