//! Who was lost, who joined, and what that cost. Pure counting over events.

use planaria_protocol::event::{Event, What};
use serde::Serialize;
use std::collections::BTreeSet;

/// Counts over all sessions of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Machines {
    /// Processes that were lost: workers, servers and coordinators.
    pub machines_lost: u64,
    /// Processes that joined after their session's first step.
    pub machines_joined: u64,
    /// Times that a worker was late, and others computed its shards.
    pub suspicions: u64,
    /// Shards that were computed by others than first meant to.
    pub recomputed_shards: u64,
    /// Seconds that these would take one after another.
    pub recomputed_seconds: f64,
    /// Seconds by which steps were late after a loss or a suspicion.
    pub stalled_seconds: f64,
    /// Times that too few workers were left.
    pub pauses: u64,
    /// Checkpoints that could not be written.
    pub saves_failed: u64,
}

impl Machines {
    /// From all events of a run.
    pub fn of(events: &[Event]) -> Self {
        let mut count = Count::default();
        for event in events {
            count.take(event);
        }
        let coordinators = count.coordinators_lost.max(count.coordinators_missed);
        count.machines.machines_lost = count.lost.len() as u64 + coordinators;
        count.machines.machines_joined = count.joined.len() as u64;
        count.machines
    }
}

#[derive(Default)]
struct Count {
    machines: Machines,
    /// Workers and servers; where the process is not known, each time is one of its own.
    lost: BTreeSet<(String, u64)>,
    joined: BTreeSet<(String, u32)>,
    /// Processes there were when a session took its first step.
    first: BTreeSet<(String, u32)>,
    /// Whether the session has taken a step.
    begun: bool,
    /// Coordinators that someone saw being lost.
    coordinators_lost: u64,
    /// Coordinators whose successor says so.
    coordinators_missed: u64,
}

impl Count {
    fn take(&mut self, event: &Event) {
        let machines = &mut self.machines;
        match &event.what {
            What::Started(_) => {
                self.begun = false;
                self.first.clear();
            }
            What::Committed { .. } | What::Steps(_) | What::Epoch { .. } | What::Saved { .. } => {
                self.begun = true;
            }
            What::Joined { agent, pid, .. } => {
                let process = (agent.clone(), *pid);
                if self.begun {
                    if !self.first.contains(&process) {
                        self.joined.insert(process);
                    }
                } else {
                    self.first.insert(process);
                }
            }
            What::Lost { agent, .. } if agent == "coordinator" => self.coordinators_lost += 1,
            What::Lost { agent, pid, .. } => {
                // Beyond all numbers of processes.
                let unknown = (1 << 32) + self.lost.len() as u64;
                let process = if *pid == 0 { unknown } else { u64::from(*pid) };
                self.lost.insert((agent.clone(), process));
                self.begun = true;
            }
            What::Recovered { reason, .. } => {
                self.coordinators_missed += u64::from(reason.contains("coordinator"));
                self.begun = true;
            }
            What::Suspected { .. } => machines.suspicions += 1,
            What::Healed { stalled_seconds, recomputed_shards, shard_seconds, .. } => {
                let shards = f64::from(*recomputed_shards);
                machines.recomputed_shards += u64::from(*recomputed_shards);
                machines.recomputed_seconds += (shards * shard_seconds).max(0.0);
                machines.stalled_seconds += stalled_seconds.max(0.0);
            }
            What::Paused { .. } => machines.pauses += 1,
            What::NotSaved { .. } => machines.saves_failed += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted_once_each() {
        let joined = |agent: &str, pid| What::Joined {
            agent: agent.into(),
            pid,
            engine: None,
            threads: None,
        };
        let lost = |agent: &str, pid| What::Lost { agent: agent.into(), pid, reason: "".into() };
        let saved =
            What::Saved { step: 1, is_best: false, folder: String::new(), reason: String::new() };
        let recovered = |reason: &str| What::Recovered {
            step: 5,
            superseded: 0,
            source: "kept".into(),
            reason: reason.into(),
        };
        let healed = What::Healed {
            step: 6,
            after: "worker-0".into(),
            stalled_seconds: 0.5,
            recomputed_shards: 4,
            shard_seconds: 0.25,
        };
        let all = [
            joined("worker-0", 10),
            joined("server-0", 11),
            saved,
            lost("worker-0", 10),
            lost("worker-0", 10),
            joined("worker-0", 12),
            healed,
            recovered("the coordinator was lost: killed by signal 9"),
            // Everyone joins again, with the same processes.
            joined("worker-0", 12),
            joined("server-0", 11),
            lost("server-0", 11),
            recovered("server-0 was lost: killed by signal 9"),
            joined("server-0", 13),
            What::Paused { workers: 0, min: 1 },
        ];
        let events = all.map(|what| Event { seconds: 0.0, unix_seconds: 0.0, generation: 1, what });
        let machines = Machines::of(&events);
        assert_eq!((machines.machines_lost, machines.machines_joined), (3, 2));
        assert_eq!((machines.recomputed_shards, machines.recomputed_seconds), (4, 1.0));
        assert_eq!((machines.stalled_seconds, machines.pauses), (0.5, 1));
    }
}
