//! Who was lost, who joined, and what that cost. Pure counting over events.

use planaria_protocol::event::{Event, MachineState, Products, What};
use planaria_protocol::message::Agent;
use planaria_text::number::{counted, counted_as, grouped};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Counts over all sessions of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Machines {
    /// Processes that were lost and did not come back: workers, servers and coordinators.
    pub processes_lost: u64,
    /// Processes that joined after their session's first step, and were not there before.
    pub processes_joined: u64,
    /// Machines of the pool that were lost after they had been ready.
    pub machines_lost: u64,
    /// Machines of the pool that became ready after their session's first step, or once more.
    pub machines_joined: u64,
    /// Times that a process lost its link, and joined again.
    pub links_cut: u64,
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
    /// What workers of a coded run have multiplied and sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub products: Option<Products>,
}

impl Machines {
    /// What was lost and what came, in words: `1 process lost, 1 joined`; machines too, where any
    /// were.
    pub fn moves(&self) -> String {
        let processes = counted_as(self.processes_lost, "process", "processes");
        let mut text = format!("{processes} lost, {} joined", grouped(self.processes_joined));
        if self.machines_lost + self.machines_joined > 0 {
            let (lost, joined) = (counted(self.machines_lost, "machine"), self.machines_joined);
            text += &format!("; {lost} lost, {} joined", grouped(joined));
        }
        text
    }
}

/// A process of a session.
#[derive(Debug, Clone, Default, PartialEq)]
struct Process {
    /// The generation that it last joined.
    generation: u64,
    /// Whether it was lost since.
    lost: bool,
    /// Whether it joined again before the loss of its link was told.
    owed: bool,
}

/// The counting, event by event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Count {
    machines: Machines,
    /// Workers and servers of the session, by name and process.
    processes: BTreeMap<(String, u32), Process>,
    /// Names of which one was lost in the session.
    lost: BTreeSet<String>,
    /// Machines that have been ready in the session, and whether they are.
    pool: BTreeMap<String, bool>,
    /// Whether the session has taken a step.
    begun: bool,
}

impl Count {
    /// What was counted so far.
    pub fn machines(&self) -> Machines {
        let mut count = self.clone();
        count.settle();
        count.machines
    }

    /// Those of a session who were lost and have not come back are lost for good.
    fn settle(&mut self) {
        let processes = std::mem::take(&mut self.processes);
        self.machines.processes_lost += processes.values().filter(|p| p.lost).count() as u64;
        self.lost.clear();
        self.pool.clear();
        self.begun = false;
    }

    fn joined(&mut self, agent: &str, pid: u32, generation: u64) {
        let process = (agent.to_owned(), pid);
        match self.processes.get_mut(&process) {
            None => {
                // Also a process that takes the place of one that was lost before the first step.
                let late = self.begun || self.lost.contains(agent);
                self.machines.processes_joined += u64::from(late);
                let new = Process { generation, ..Process::default() };
                self.processes.insert(process, new);
            }
            // All join again after a recovery; otherwise a link was cut.
            Some(known) => {
                let cut = known.lost || known.generation == generation;
                self.machines.links_cut += u64::from(cut);
                *known = Process { generation, lost: false, owed: cut && !known.lost };
            }
        }
    }

    fn lost(&mut self, agent: &str, pid: u32) {
        if pid == 0 {
            // It is not known which: it is one of its own.
            self.machines.processes_lost += 1;
        } else {
            let process = self.processes.entry((agent.to_owned(), pid)).or_default();
            process.lost = !std::mem::take(&mut process.owed);
        }
        self.lost.insert(agent.to_owned());
    }

    fn machine(&mut self, machine: &str, state: MachineState) {
        let is_ready = state == MachineState::Ready;
        match self.pool.get_mut(machine) {
            None if is_ready => {
                self.machines.machines_joined += u64::from(self.begun);
                self.pool.insert(machine.to_owned(), true);
            }
            Some(was_ready) => {
                let machines = &mut self.machines;
                machines.machines_joined += u64::from(is_ready && !*was_ready);
                machines.machines_lost += u64::from(state == MachineState::Lost && *was_ready);
                *was_ready = is_ready || (*was_ready && state != MachineState::Lost);
            }
            None => {}
        }
    }

    /// The next event.
    pub fn take(&mut self, event: &Event) {
        let machines = &mut self.machines;
        match &event.what {
            What::Started(_) => self.settle(),
            What::Committed { .. } | What::Steps(_) | What::Epoch { .. } | What::Saved { .. } => {
                self.begun = true;
            }
            What::Machine { machine, state, .. } => self.machine(machine, *state),
            What::Joined { agent, pid, .. } => self.joined(agent, *pid, event.generation),
            // Its successor says so.
            What::Lost { agent, .. } if Agent::named(agent) == Some(Agent::Coordinator) => {}
            What::Lost { agent, pid, .. } => self.lost(agent, *pid),
            What::Recovered { lost, .. } => {
                let lost = lost.as_deref().and_then(Agent::named);
                machines.processes_lost += u64::from(lost == Some(Agent::Coordinator));
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
            What::Worked(done) => machines.products.get_or_insert_default().add(done),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(agent: &str, pid: u32) -> What {
        What::Joined {
            agent: agent.into(),
            pid,
            engine: None,
            threads: None,
            machine: None,
            downloaded: None,
        }
    }

    fn lost(agent: &str, pid: u32) -> What {
        What::Lost { agent: agent.into(), pid, reason: "".into() }
    }

    fn committed() -> What {
        let read = (0..1).collect();
        What::Committed { epoch: 0, first_step: 0, end_step: 1, read }
    }

    fn recovered(lost: &str) -> What {
        let (source, reason, lost) = ("kept".into(), "".into(), Some(lost.into()));
        What::Recovered { step: 5, superseded: 0, source, reason, lost }
    }

    /// Counts over one session, in which every recovery begins a generation.
    fn count(all: Vec<What>) -> Machines {
        let mut generation = 1;
        let event = |what| {
            generation += u64::from(matches!(what, What::Recovered { .. }));
            Event { seconds: 0.0, unix_seconds: 0.0, generation, what }
        };
        let mut count = Count::default();
        all.into_iter().map(event).for_each(|event| count.take(&event));
        count.machines()
    }

    fn moved(machines: &Machines) -> (u64, u64, u64) {
        (machines.processes_lost, machines.processes_joined, machines.links_cut)
    }

    #[test]
    fn processes_are_counted_once_each() {
        let healed = What::Healed {
            step: 6,
            after: "worker-0".into(),
            stalled_seconds: 0.5,
            recomputed_shards: 4,
            shard_seconds: 0.25,
        };
        let machines = count(vec![
            joined("worker-0", 10),
            joined("server-0", 11),
            committed(),
            lost("worker-0", 10),
            lost("worker-0", 10),
            joined("worker-0", 12),
            healed,
            recovered("coordinator"),
            // All members join again, with the same processes.
            joined("worker-0", 12),
            joined("server-0", 11),
            lost("server-0", 11),
            recovered("server-0"),
            joined("server-0", 13),
            joined("worker-0", 12),
            What::Paused { workers: 0, min: 1 },
        ]);
        assert_eq!(moved(&machines), (3, 2, 0));
        assert_eq!((machines.recomputed_shards, machines.recomputed_seconds), (4, 1.0));
        assert_eq!((machines.stalled_seconds, machines.pauses), (0.5, 1));
    }

    #[test]
    fn a_cut_link_is_no_lost_machine() {
        let begin = || vec![joined("worker-0", 10), joined("worker-1", 11), committed()];
        for (more, expect) in [
            (vec![lost("worker-0", 10), joined("worker-0", 10)], (0, 0, 1)),
            // The loss may be told after the return.
            (vec![joined("worker-0", 10), lost("worker-0", 10)], (0, 0, 1)),
            // Cut, and lost later.
            (
                vec![
                    joined("worker-0", 10),
                    lost("worker-0", 10),
                    lost("worker-0", 10),
                    joined("worker-0", 12),
                ],
                (1, 1, 1),
            ),
            (vec![lost("worker-0", 0), joined("worker-0", 12)], (1, 1, 0)),
            (vec![joined("worker-2", 12)], (0, 1, 0)),
        ] {
            let said = format!("{more:?}");
            let machines = count([begin(), more].concat());
            assert_eq!(moved(&machines), expect, "{said}");
        }
    }

    #[test]
    fn those_a_run_begins_with_have_not_joined_late() {
        let machines = count(vec![
            joined("worker-0", 10),
            lost("worker-0", 10),
            joined("worker-1", 11),
            // In the place of one that was lost.
            joined("worker-0", 12),
            committed(),
        ]);
        assert_eq!(moved(&machines), (1, 1, 0));
    }

    #[test]
    fn a_killed_process_is_no_lost_machine() {
        let machine =
            |name: &str, state| What::Machine { machine: name.into(), state, reason: None };
        let moves = |more: Vec<What>| {
            let begin = vec![
                machine("lab-1", MachineState::Raising),
                machine("lab-1", MachineState::Ready),
                joined("worker-0", 10),
                committed(),
            ];
            count([begin, more].concat()).moves()
        };
        assert_eq!(moves(vec![]), "0 processes lost, 0 joined");
        let killed = || vec![lost("worker-0", 10), joined("worker-0", 12)];
        assert_eq!(moves(killed()), "1 process lost, 1 joined");
        let mut with_machine = killed();
        with_machine.insert(1, machine("lab-1", MachineState::Lost));
        with_machine.insert(2, machine("lab-1", MachineState::Failed));
        with_machine.insert(3, machine("lab-2", MachineState::Ready));
        let expect = "1 process lost, 1 joined; 1 machine lost, 1 joined";
        assert_eq!(moves(with_machine), expect);
        let back =
            vec![machine("lab-1", MachineState::Lost), machine("lab-1", MachineState::Ready)];
        assert_eq!(moves(back), "0 processes lost, 0 joined; 1 machine lost, 1 joined");
    }
}
