//! Processes that restart alone, and whether all have found each other.

use super::{REPLACED_WITHIN, Running, UNMET_TOLD, UNREADY_MAX, ordered, sources};
use crate::jobs::script::layout::{Layout, Process};
use crate::jobs::script::machines::seat;
use crate::jobs::script::policy::JobInput;
use crate::jobs::script::round::{Made, Readying, Unready};
use crate::jobs::script::variables::Meeting;
use crate::jobs::script::watch::Question;
use planaria_fleet::pool::ReadyMachine;
use planaria_fleet::supervise::places::Process as Live;
use planaria_protocol::message::Agent;
use std::time::Duration;

/// A process that waits to be started again by itself.
pub(super) struct Restarting {
    pub(super) since: Duration,
    pub(super) readying: Option<(Readying, ReadyMachine)>,
}

impl Running<'_> {
    /// Starts processes again that restart alone, once their machine is there.
    pub(super) fn restart_due(&mut self, now: Duration) {
        if !self.supervisor.places.is_up() {
            return self.restarting.clear();
        }
        for id in self.restarting.keys().copied().collect::<Vec<_>>() {
            self.restart(now, id);
        }
    }

    fn restart(&mut self, now: Duration, id: u32) {
        let Some(mut restarting) = self.restarting.remove(&id) else { return };
        if let Some((readying, standing)) = &restarting.readying {
            match readying.take() {
                None => drop(self.restarting.insert(id, restarting)),
                Some(Ok(readied)) => {
                    let port = readied.layout.processes[0].port;
                    self.settle(now, id, &standing.clone(), port);
                }
                Some(Err(Unready::Lost(fault))) => {
                    self.unready += 1;
                    match self.unready >= UNREADY_MAX {
                        // Where one cannot be made ready all are tried, which is bounded too.
                        true => self.on(now, JobInput::AllAgain),
                        false => {
                            self.progress.note(&fault.to_string());
                            restarting.readying = None;
                            self.restarting.insert(id, restarting);
                        }
                    }
                }
                // Its port is another's now: all get new ones.
                Some(Err(Unready::Never(_))) => self.on(now, JobInput::AllAgain),
            }
            return;
        }
        match self.standing_for(id) {
            Some(standing) => {
                let layout = self.layout.as_ref().expect("a process has failed");
                let process = &layout.processes[id as usize];
                let port = self.is_known_to_others().then_some(process.port);
                let alone = Layout {
                    seats: vec![seat(&standing, self.machines.are_here)],
                    processes: vec![Process { seat: 0, ..process.clone() }],
                    workers: Vec::new(),
                };
                let made = Made::Own(self.fetching.outputs.clone());
                let from = sources(std::slice::from_ref(&standing));
                restarting.readying = Some((Readying::new(alone, from, port, made), standing));
                self.restarting.insert(id, restarting);
            }
            None if now.saturating_sub(restarting.since) > REPLACED_WITHIN => {
                self.on(now, JobInput::AllAgain);
            }
            None => drop(self.restarting.insert(id, restarting)),
        }
    }

    /// A process goes on on a machine.
    fn settle(&mut self, now: Duration, id: u32, standing: &ReadyMachine, port: u16) {
        let are_here = self.machines.are_here;
        let Some(layout) = &mut self.layout else { return };
        let place = layout.processes[id as usize].seat;
        layout.seats[place] = seat(standing, are_here);
        layout.processes[id as usize].port = port;
        let layout = layout.clone();
        self.told = self.tell(&layout);
        let is_alone = are_here && layout.seats.len() == 1;
        self.transcript.moved(id, if is_alone { "" } else { &standing.machine.name });
        self.fetching.from(ordered(&layout, &self.machines.pool().standing()));
        self.start(now, id);
    }

    /// The machine that a process can be started on again, if it is there: where the others know it
    /// by its address, only that; else any.
    fn standing_for(&self, id: u32) -> Option<ReadyMachine> {
        let layout = self.layout.as_ref()?;
        let process = layout.processes.get(id as usize)?;
        let before = layout.seat(process);
        let standing = self.machines.pool().standing();
        let same = standing.iter().find(|one| one.number == before.number);
        let is_used =
            |one: &&ReadyMachine| layout.seats.iter().any(|seat| seat.number == one.number);
        let found = same.or_else(|| standing.iter().find(|one| !is_used(one)));
        let found = match found {
            None if self.machines.pool().coming() == 0 && !self.is_known_to_others() => {
                standing.first()
            }
            found => found,
        }?;
        let address = seat(found, self.machines.are_here).address;
        (address == before.address || !self.is_known_to_others()).then(|| found.clone())
    }

    /// Whether processes are told where the others are.
    fn is_known_to_others(&self) -> bool {
        self.prepared.job.script.tells_places()
            || self.told.iter().any(|told| matches!(told.meeting, Some(Meeting::Listens(_))))
    }

    /// Asks machines whether processes have found each other.
    pub(super) fn ask(&mut self, now: Duration) {
        if !self.supervisor.places.is_up() {
            return;
        }
        let unmet = self.supervisor.policy.unmet(&self.supervisor.places);
        if unmet.is_empty() {
            return;
        }
        if self.meetings.is_free() {
            let standing = self.machines.pool().standing();
            let question = |(agent, live): (Agent, &Live)| {
                let Agent::Task(id) = agent else { return None };
                let layout = self.layout.as_ref()?;
                let seat = layout.seat(layout.processes.get(id as usize)?);
                let remote = standing.iter().find(|one| one.number == seat.number)?.remote.clone();
                let meeting = self.told[id as usize].meeting?;
                let pid = self.machines.pool().pid(live.pid)?;
                let question = Question { agent, process: live.pid, pid, remote, meeting };
                unmet.contains(&id).then_some(question)
            };
            let questions = self.supervisor.places.processes().filter_map(question).collect();
            self.meetings.ask(questions);
        }
        let began = self.round_began.unwrap_or(now);
        if !self.unmet_told && now.saturating_sub(began) > UNMET_TOLD {
            self.unmet_told = true;
            let who: Vec<String> =
                unmet.iter().filter_map(|id| Some(self.process(*id)?.title())).collect();
            let most = self.prepared.job.script.connect_seconds;
            self.progress.note(&format!(
                "{} not found the others yet; given up after {most} s (`connect_seconds`)",
                match who.len() {
                    1 => format!("{} has", who[0]),
                    _ => format!("{} have", who.join(", ")),
                }
            ));
        }
    }
}
