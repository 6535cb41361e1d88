//! The places of a job, and which process fills each. Pure.
//!
//! Owns that there is never more than one process in a place, that everything asked for is asked for
//! once, and the way from running to ended where all processes are to end. When something is due is
//! the policy's to say.

use super::{Action, How, Lost};
use crate::ending::Ending;
use planaria_protocol::message::Agent;
use std::collections::BTreeMap;
use std::time::Duration;

/// Retry interval for a process that no machine has room for.
const ROOM_EVERY: Duration = Duration::from_millis(20);

/// See the module. `O` is how a job can be over.
#[derive(Debug, Clone)]
pub struct Places<O> {
    places: BTreeMap<Agent, Place>,
    phase: Phase<O>,
    actions: Vec<Action<O>>,
}

#[derive(Debug, Clone)]
struct Place {
    filling: Filling,
    /// Times that another process was due here.
    again: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Filling {
    /// A process is to be started at this time.
    Due(Duration),
    /// It was asked for.
    Asked,
    Process(Process),
    /// It has ended, and no other is due.
    Ended {
        is_well: bool,
        was_ready: bool,
    },
}

/// A process in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub since: Duration,
    /// Since when it is ready.
    pub ready: Option<Duration>,
    /// Why it is being killed.
    pub killed: Option<String>,
    /// Whether it was asked to end.
    pub is_stopped: bool,
}

#[derive(Debug, Clone)]
enum Phase<O> {
    /// All processes are to be started at this time.
    Due(Duration),
    /// They were asked for.
    Starting,
    Up,
    /// All processes are to end; then this comes.
    Ending(Then<O>),
    Over,
}

#[derive(Debug, Clone)]
enum Then<O> {
    Again(Duration),
    Over(O),
}

impl<O: Clone> Places<O> {
    /// Of a job that begins with these processes, whose number may change.
    pub fn of(first: &[Agent]) -> Self {
        let mut places = Self { places: BTreeMap::new(), phase: Phase::Up, actions: Vec::new() };
        first.iter().for_each(|agent| places.want(*agent, Duration::ZERO));
        places
    }

    /// Of a job whose processes are started all together, on the machines there are then.
    pub fn together() -> Self {
        Self { places: BTreeMap::new(), phase: Phase::Due(Duration::ZERO), actions: Vec::new() }
    }

    /// Whether processes are up, and not about to end.
    pub fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up)
    }

    /// Whether the job is over, or will be when all processes have ended.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending(Then::Over(_)) | Phase::Over)
    }

    /// The process in an agent's place.
    pub fn process(&self, agent: Agent) -> Option<&Process> {
        match &self.places.get(&agent)?.filling {
            Filling::Process(process) => Some(process),
            _ => None,
        }
    }

    pub fn processes(&self) -> impl Iterator<Item = (Agent, &Process)> {
        self.places.keys().filter_map(|agent| Some((*agent, self.process(*agent)?)))
    }

    /// The same, if it is this process.
    pub(super) fn process_mut(&mut self, agent: Agent, pid: u32) -> Option<&mut Process> {
        match &mut self.places.get_mut(&agent)?.filling {
            Filling::Process(process) if process.pid == pid => Some(process),
            _ => None,
        }
    }

    /// Whether the process in a place has ended as it should, and no other is due.
    pub fn is_done(&self, agent: Agent) -> bool {
        let filling = self.places.get(&agent).map(|place| &place.filling);
        matches!(filling, Some(Filling::Ended { is_well: true, .. }))
    }

    /// Whether the process in a place is ready, or was when it ended.
    pub fn was_ready(&self, agent: Agent) -> bool {
        match self.places.get(&agent).map(|place| &place.filling) {
            Some(Filling::Process(process)) => process.ready.is_some(),
            Some(Filling::Ended { was_ready, .. }) => *was_ready,
            _ => false,
        }
    }

    /// Makes a place, where there is none.
    pub fn want(&mut self, agent: Agent, at: Duration) {
        self.places.entry(agent).or_insert(Place { filling: Filling::Due(at), again: 0 });
    }

    /// Makes these places, and no others: their processes are being started.
    pub fn begin(&mut self, agents: impl Iterator<Item = Agent>) {
        let place = || Place { filling: Filling::Asked, again: 0 };
        self.places = agents.map(|agent| (agent, place())).collect();
        self.phase = Phase::Up;
    }

    /// Takes places away that no process fills, nor is asked for.
    pub fn drop_unfilled(&mut self, unwanted: impl Fn(Agent) -> bool) {
        let is_filled =
            |place: &Place| matches!(place.filling, Filling::Process(_) | Filling::Asked);
        self.places.retain(|agent, place| is_filled(place) || !unwanted(*agent));
    }

    /// Another process in a place whose process has ended.
    pub fn again(&mut self, agent: Agent, at: Duration) {
        if let Some(place) = self.places.get_mut(&agent) {
            place.filling = Filling::Due(at);
            place.again = place.again.saturating_add(1);
        }
    }

    /// Restarts in this place, since [`Places::settled`].
    pub fn attempts(&self, agent: Agent) -> u32 {
        self.places.get(&agent).map_or(0, |place| place.again)
    }

    /// What ended earlier processes in a place no longer counts.
    pub fn settled(&mut self, agent: Agent) {
        if let Some(place) = self.places.get_mut(&agent) {
            place.again = 0;
        }
    }

    /// Has a process killed, if it is the one in its place.
    pub fn kill(&mut self, agent: Agent, pid: u32, why: String) {
        if matches!(self.phase, Phase::Over) {
            return;
        }
        if let Some(process) = self.process_mut(agent, pid) {
            process.killed = Some(why.clone());
            self.actions.push(Action::Kill { agent, pid, why });
        }
    }

    /// All processes end, and are started again at this time.
    pub fn all_again(&mut self, at: Duration) {
        self.phase = Phase::Ending(Then::Again(at));
    }

    /// All processes end; then the job is over.
    pub fn end(&mut self, outcome: O) {
        if !matches!(self.phase, Phase::Over) {
            self.phase = Phase::Ending(Then::Over(outcome));
        }
    }

    /// The job is over now, whatever runs.
    pub fn give_up(&mut self, outcome: O) {
        self.over();
        self.actions.push(Action::Over(outcome));
    }

    /// Nothing is started or killed any more.
    pub fn over(&mut self) {
        self.phase = Phase::Over;
    }

    pub(super) fn started(&mut self, since: Duration, agent: Agent, pid: u32) {
        let process = Process { pid, since, ready: None, killed: None, is_stopped: false };
        self.answer(agent, Filling::Process(process));
    }

    /// It is no process' fault, and counts for nothing.
    pub(super) fn wait_for_room(&mut self, now: Duration, agent: Agent) {
        self.answer(agent, Filling::Due(now + ROOM_EVERY));
    }

    pub(super) fn not_started(&mut self, agent: Agent, why: String) -> Option<Lost> {
        let answered = self.answer(agent, Filling::Ended { is_well: false, was_ready: false });
        answered.then_some(Lost { agent, how: How::NotStarted(why) })
    }

    /// Fills a place whose process was asked for.
    fn answer(&mut self, agent: Agent, filling: Filling) -> bool {
        let place = self.places.get_mut(&agent).filter(|place| place.filling == Filling::Asked);
        place.map(|place| place.filling = filling).is_some()
    }

    /// The process that has ended, if it was the one in its place.
    pub(super) fn ended(&mut self, agent: Agent, pid: u32, ending: Ending) -> Option<Lost> {
        let process = self.process_mut(agent, pid)?.clone();
        let (is_well, was_ready) = (ending.is_well(), process.ready.is_some());
        self.places.get_mut(&agent)?.filling = Filling::Ended { is_well, was_ready };
        Some(Lost { agent, how: How::Ended { process, ending } })
    }

    /// What follows for all processes by now.
    pub(super) fn look(&mut self, now: Duration) {
        match &self.phase {
            Phase::Due(at) if now >= *at => {
                self.phase = Phase::Starting;
                self.actions.push(Action::StartAll);
            }
            Phase::Ending(_) if self.processes().next().is_some() => self.stop_all(),
            Phase::Ending(Then::Again(at)) => self.phase = Phase::Due(*at),
            Phase::Ending(Then::Over(outcome)) => {
                let outcome = outcome.clone();
                self.give_up(outcome);
            }
            _ => {}
        }
    }

    fn stop_all(&mut self) {
        for (agent, place) in &mut self.places {
            if let Filling::Process(process) = &mut place.filling
                && !std::mem::replace(&mut process.is_stopped, true)
            {
                self.actions.push(Action::Stop { agent: *agent, pid: process.pid });
            }
        }
    }

    pub(super) fn start_due(&mut self, now: Duration, mut may: impl FnMut(Agent) -> bool) {
        if !self.is_up() {
            return;
        }
        for (agent, place) in &mut self.places {
            if matches!(place.filling, Filling::Due(at) if at <= now) && may(*agent) {
                place.filling = Filling::Asked;
                self.actions.push(Action::Start { agent: *agent });
            }
        }
    }

    pub(super) fn take_actions(&mut self) -> Vec<Action<O>> {
        std::mem::take(&mut self.actions)
    }
}
