//! The policy of training: the coordinator, servers and workers each have a place, and a process
//! that is lost is replaced as long as the run gets on. Pure.
//!
//! Owns the pauses between attempts, and when an attempt is the last. Never knows what processes say
//! to each other beyond that they live, are ready, and get on.

use crate::backoff::Backoff;
use crate::ending::Ending;
use crate::pool::FIRST_PROCESS;
use crate::supervise::places::Places;
use crate::supervise::{self, How, Input, Lost, Policy};
use planaria_protocol::message::{Agent, Loss};
use std::collections::BTreeMap;
use std::time::Duration;

/// Pause before the second attempt in a row; each further one waits twice as long.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause before a process that has not become ready is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Longest pause for one that does become ready, but not for long.
const PAUSE_READY_MAX: Duration = Duration::from_secs(2);
/// A process that was ready for so long has got over what ended those before it.
const SETTLED: Duration = Duration::from_secs(10);
/// Attempts in a row before anything has worked: more would go the same way.
const BAD_STARTS_MAX: u32 = 3;
/// The same for a worker that becomes ready and ends before the run's first step.
const BAD_BEGINNINGS_MAX: u32 = 5;
/// Workers in a row that may end by themselves without a step between them.
const FAILURES_MAX: u32 = 8;
/// Processes in one place that may be short of memory without a step between them.
const STARVED_MAX: u32 = 3;
/// How many times as often something may be ended from outside.
const OUTSIDE_TIMES: u32 = 10;
/// Attempts in a row of a server, without which nothing goes on.
const SERVER_ATTEMPTS_MAX: u32 = 6;
/// Coordinators in a row that may take the place of another without a step between them.
const COORDINATORS_MAX: u32 = 5;
/// The same where they say nothing, as those that are stopped again and again.
const SILENT_MAX: u32 = 20;
/// The same where something from outside ends them, or cuts links.
const DISTURBED_MAX: u32 = 500;
/// Longest pause for a process that was ended from outside, in a run that gets on otherwise.
const PAUSE_DISTURBED_MAX: Duration = Duration::from_millis(250);
/// How long a coordinator may be silent, which sends ten heartbeats a second: at least (the time of
/// twenty looks) and at most, and in between so many times its longest silence so far. Packet loss
/// causes silences, and must not end a live coordinator.
const SILENCE_MIN: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(20);
const SILENCE_TIMES: u32 = 4;
/// How long a coordinator may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(20);
/// How long a process may take to join a coordinator that waits for it.
const ABSENT_MAX: Duration = Duration::from_secs(15);
/// How long the last messages of a coordinator that has ended may be on their way.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a worker that is no longer wanted may take to end.
const RELEASE_MAX: Duration = Duration::from_secs(30);
/// Workers that are ever started.
pub const WORKERS_MAX: u32 = 4096;

/// The supervisor of a training run.
pub type Supervisor = supervise::Supervisor<Training>;

/// What only a training run hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunInput {
    /// There is a link to the coordinator.
    Linked,
    /// The link to the coordinator has ended, and all that was said on it is heard.
    LinkGone,
    /// The coordinator said something, if only that it lives.
    Heard,
    /// A step was committed.
    Progress,
    /// The coordinator lost a server, and is about to ask for another coordinator.
    ServerLost(Loss),
    /// The coordinator waits for these to join.
    Absent(Vec<Agent>),
    /// The coordinator wants so many workers.
    Pool { workers: u32 },
    /// The coordinator said that the run is over: nothing is started any more.
    Over,
}

#[derive(Debug, Clone)]
pub struct Training {
    generation: u64,
    servers: u32,
    workers: u32,
    /// Whether a coordinator was ever started.
    has_begun: bool,
    /// Whether one was ever reached.
    was_linked: bool,
    is_linked: bool,
    /// Whether this coordinator has said anything.
    is_heard: bool,
    /// How long it has said nothing, counted in looks.
    silent: Duration,
    /// The longest silence after which it was heard, lately.
    longest_silence: Duration,
    /// Coordinators that took the place of another since the last step.
    coordinators: u32,
    after: Option<Loss>,
    /// The coordinator that has ended, as long as its last messages may be on their way.
    parting: Option<Parting>,
    /// The server that was lost since the coordinator began, as its end or the coordinator told.
    lost_server: Option<Loss>,
    /// Processes that the coordinator waits for to join, and for how long that was seen.
    absent: BTreeMap<Agent, Duration>,
    /// Workers that are no longer wanted, and when they must have ended.
    leaving: BTreeMap<Agent, Duration>,
    was_ready: bool,
    was_worker_ready: bool,
    /// Whether a step was done in this session.
    has_progressed: bool,
    /// Workers that have ended since the last step, not from outside.
    failures: u32,
    /// Times the process in each place was short of memory since the last step.
    starved: BTreeMap<Agent, u32>,
}

#[derive(Debug, Clone)]
struct Parting {
    until: Duration,
    ending: Ending,
    how: String,
    was_killed: bool,
}

impl Supervisor {
    /// A run of so many processes, of which none is there. The coordinator is the first; the others
    /// follow at once, for it is known where it will listen.
    pub fn training(generation: u64, servers: u32, workers: u32) -> Self {
        let first = [Agent::Coordinator].into_iter();
        let others = (0..servers).map(Agent::Server);
        let workers = workers.clamp(1, WORKERS_MAX);
        let first: Vec<Agent> =
            first.chain(others).chain((0..workers).map(Agent::Worker)).collect();
        let training = Training {
            generation,
            servers,
            workers,
            has_begun: false,
            was_linked: false,
            is_linked: false,
            is_heard: false,
            silent: Duration::ZERO,
            longest_silence: Duration::ZERO,
            coordinators: 0,
            after: None,
            parting: None,
            lost_server: None,
            absent: BTreeMap::new(),
            leaving: BTreeMap::new(),
            was_ready: false,
            was_worker_ready: false,
            has_progressed: false,
            failures: 0,
            starved: BTreeMap::new(),
        };
        Self::new(training, Places::of(&first))
    }

    /// Processes that were not heard to be ready: they would not hear either that a run is over.
    pub fn unready(&self) -> Vec<(Agent, u32)> {
        let others = self.places.processes().filter(|(agent, _)| *agent != Agent::Coordinator);
        let unready = others.filter(|(_, process)| process.ready.is_none());
        unready.map(|(agent, process)| (agent, process.pid)).collect()
    }
}

impl From<RunInput> for Input<RunInput> {
    fn from(input: RunInput) -> Self {
        Self::Own(input)
    }
}

impl Policy for Training {
    type Input = RunInput;
    type Outcome = Loss;

    fn start(&mut self, agent: Agent) -> bool {
        if agent == Agent::Coordinator {
            (self.is_heard, self.silent) = (false, Duration::ZERO);
            self.lost_server = None;
            return true;
        }
        self.has_begun
    }

    fn started(&mut self, agent: Agent) {
        self.has_begun |= agent == Agent::Coordinator;
    }

    fn ready(&mut self, agent: Agent) {
        self.was_ready = true;
        self.was_worker_ready |= matches!(agent, Agent::Worker(_));
    }

    fn lost(&mut self, now: Duration, lost: Lost, places: &mut Places<Loss>) {
        let agent = lost.agent;
        self.absent.remove(&agent);
        self.leaving.remove(&agent);
        let how = words(&lost);
        match (agent, &lost.how) {
            (_, How::NotStarted(_)) if !self.was_ready => {
                places.give_up(Loss { agent, message: how });
            }
            (Agent::Coordinator, How::NotStarted(_)) => {
                let loss = Loss { agent: Agent::Coordinator, message: how };
                self.replace_coordinator(now, loss, COORDINATORS_MAX, places);
            }
            (Agent::Coordinator, How::Ended { process, ending }) => {
                let (ending, was_killed) = (*ending, process.killed.is_some());
                self.parting = Some(Parting { until: now + LAST_WORDS, ending, how, was_killed });
                self.part(now, places);
            }
            (agent, how_lost) => {
                if matches!((agent, how_lost), (Agent::Server(_), How::Ended { .. })) {
                    self.lost_server = Some(Loss { agent, message: how.clone() });
                }
                self.again(now, &lost, &how, places);
                // The coordinator that asked for another because of it may have ended first.
                self.part(now, places);
            }
        }
    }

    fn look(&mut self, now: Duration, passed: Duration, places: &mut Places<Loss>) {
        if let Some(pid) = places.process(Agent::Coordinator).map(|process| process.pid) {
            self.silent += passed;
            let longest = self.longest_silence * SILENCE_TIMES;
            let limit = match self.is_heard {
                true => longest.clamp(SILENCE_MIN, SILENCE_MAX),
                false => BEGIN_MAX,
            };
            if self.silent >= limit {
                // Should it live on, it is killed once more.
                self.silent = Duration::ZERO;
                let why = format!("it said nothing for {} s", limit.as_secs());
                places.kill(Agent::Coordinator, pid, why);
            }
        }
        if self.parting.as_ref().is_some_and(|parting| parting.until <= now) {
            self.is_linked = false;
            self.part(now, places);
        }
        for (agent, absent) in &mut self.absent {
            let Some(pid) = places.process(*agent).map(|process| process.pid) else { continue };
            *absent = if self.is_linked { *absent + passed } else { Duration::ZERO };
            if *absent >= ABSENT_MAX {
                *absent = Duration::ZERO;
                let why = format!("it did not join for {} s", ABSENT_MAX.as_secs());
                places.kill(*agent, pid, why);
            }
        }
        for (agent, until) in &mut self.leaving {
            let Some(pid) = places.process(*agent).map(|process| process.pid) else { continue };
            if *until <= now {
                *until = now + RELEASE_MAX;
                places.kill(*agent, pid, "it is no longer needed and did not end".to_owned());
            }
        }
    }

    fn on(&mut self, now: Duration, input: RunInput, places: &mut Places<Loss>) {
        match input {
            // That it takes a connection is not yet a sign of life: only what it says is.
            RunInput::Linked => (self.is_linked, self.was_linked) = (true, true),
            RunInput::LinkGone => {
                self.is_linked = false;
                self.part(now, places);
            }
            RunInput::Heard => self.hear(),
            RunInput::Progress => {
                (self.coordinators, self.failures, self.has_progressed) = (0, 0, true);
                self.starved.clear();
            }
            RunInput::ServerLost(loss) => {
                // How the process ended says more than that its link did.
                let is_known = |known: &Loss| known.agent == loss.agent;
                if !self.lost_server.as_ref().is_some_and(is_known) {
                    self.lost_server = Some(loss);
                }
            }
            RunInput::Absent(agents) => {
                let known = std::mem::take(&mut self.absent);
                let there = agents.into_iter().filter(|agent| places.process(*agent).is_some());
                let absent = |agent| (agent, known.get(&agent).copied().unwrap_or_default());
                self.absent = there.map(absent).collect();
            }
            RunInput::Pool { workers } => self.pool(now, workers, places),
            RunInput::Over => places.over(),
        }
    }
}

impl Training {
    /// Of the coordinator that is there or comes next.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What was lost, where the coordinator takes the place of another.
    pub fn after(&self) -> Option<&Loss> {
        self.after.as_ref()
    }

    /// Workers wanted.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// The coordinator lives. How long it was silent says what silences there are.
    fn hear(&mut self) {
        if self.is_heard {
            self.longest_silence = self.longest_silence.mul_f64(0.999).max(self.silent);
        }
        (self.is_heard, self.silent) = (true, Duration::ZERO);
    }

    /// Another server or worker for the place of one that was lost.
    fn again(&mut self, now: Duration, lost: &Lost, how: &str, places: &mut Places<Loss>) {
        let agent = lost.agent;
        if !self.is_wanted(agent) {
            return places.drop_unfilled(|other| other == agent);
        }
        let (ready, ending) = match &lost.how {
            How::Ended { process, ending } => (process.ready, Some(*ending)),
            How::NotStarted(_) => (None, None),
        };
        if ready.is_some_and(|since| now.saturating_sub(since) >= SETTLED) {
            places.settled(agent);
        }
        let is_well = ending.is_some_and(Ending::is_well);
        let is_outside = ending.is_some_and(Ending::is_from_outside);
        let is_disturbed = self.has_progressed && is_outside;
        let longest = match (agent, ready) {
            (Agent::Server(_), _) if is_disturbed => PAUSE_DISTURBED_MAX,
            (_, Some(_)) => PAUSE_READY_MAX,
            _ if is_disturbed => PAUSE_READY_MAX,
            _ => PAUSE_MAX,
        };
        let mut wait = pause(places.attempts(agent), longest);
        // A process that ends well was told to: by a coordinator whose word that the run is over, or
        // that the pool has shrunk, is still on its way here.
        if is_well {
            wait = wait.max(PAUSE);
        }
        let by_itself = ending.is_some() && !is_well && !is_outside;
        // Without a coordinator they end by themselves in the end, and are not to blame.
        if by_itself && self.is_linked && matches!(agent, Agent::Worker(_)) {
            self.failures += 1;
        }
        places.again(agent, now + wait);
        if ending.is_some_and(Ending::is_out_of_memory) && self.is_starved(agent) {
            let message = format!("{how}, {STARVED_MAX} times in a row without a step between");
            return places.give_up(Loss { agent, message });
        }
        if self.failures >= FAILURES_MAX {
            let workers = self.failures;
            let message =
                format!("{how}; {workers} workers in a row ended without a step between them");
            return places.give_up(Loss { agent, message });
        }
        let most = match agent {
            Agent::Worker(_) if !self.was_worker_ready => BAD_STARTS_MAX,
            // What ends it will end it again.
            Agent::Worker(_) if !self.has_progressed => BAD_BEGINNINGS_MAX,
            Agent::Server(_) if !self.was_ready => BAD_STARTS_MAX,
            Agent::Server(_) if ready.is_none() && !is_disturbed => SERVER_ATTEMPTS_MAX,
            _ => return,
        };
        // Something outside may end it a few times before it has begun.
        let most = if is_outside { OUTSIDE_TIMES * most } else { most };
        let attempts = places.attempts(agent);
        if attempts >= most {
            let before = if ready.is_none() { "it was ready" } else { "a step was done" };
            let message = format!("{how}, {attempts} times in a row before {before}");
            places.give_up(Loss { agent, message });
        }
    }

    /// Counts a process that was short of memory; whether another would be too.
    fn is_starved(&mut self, agent: Agent) -> bool {
        let times = self.starved.entry(agent).or_default();
        *times += 1;
        *times >= STARVED_MAX
    }

    /// The coordinator has ended; another is wanted once all that it said is heard.
    fn part(&mut self, now: Duration, places: &mut Places<Loss>) {
        if self.is_linked || !places.is_up() {
            return;
        }
        // It asks for another because of a server, whose end may not be known yet.
        let is_unexplained = |parting: &mut Parting| {
            parting.ending.asks_for_another() && self.lost_server.is_none() && now < parting.until
        };
        let parting = self.parting.take_if(|parting| !is_unexplained(parting));
        let Some(Parting { ending, how, was_killed, .. }) = parting else { return };
        if !self.was_linked && ending.is_deliberate() {
            let message = format!("the coordinator did not start: {ending}");
            return places.give_up(Loss { agent: Agent::Coordinator, message });
        }
        let loss = match &self.lost_server {
            Some(server) if ending.asks_for_another() => server.clone(),
            _ => Loss { agent: Agent::Coordinator, message: how },
        };
        let most = match ending.is_from_outside() || ending.asks_for_another() {
            true if !was_killed => DISTURBED_MAX,
            // One that was never reached is not likely to be.
            true if self.was_linked => SILENT_MAX,
            _ => COORDINATORS_MAX,
        };
        self.replace_coordinator(now, loss, most, places);
    }

    fn replace_coordinator(
        &mut self,
        now: Duration,
        loss: Loss,
        most: u32,
        places: &mut Places<Loss>,
    ) {
        let agent = Agent::Coordinator;
        let longest = if most == COORDINATORS_MAX { PAUSE_MAX } else { PAUSE_DISTURBED_MAX };
        if self.coordinators >= most {
            let message = format!(
                "{}; {most} coordinators in a row were started again without a step between them",
                loss.message
            );
            return places.give_up(Loss { agent, message });
        }
        let wait = pause(self.coordinators, longest);
        self.coordinators += 1;
        self.generation += 1;
        self.after = Some(loss);
        places.again(agent, now + wait);
    }

    fn pool(&mut self, now: Duration, workers: u32, places: &mut Places<Loss>) {
        self.workers = workers.clamp(1, WORKERS_MAX);
        if !places.is_up() {
            return;
        }
        let unwanted = |agent: Agent| matches!(agent, Agent::Worker(n) if n >= self.workers);
        places.drop_unfilled(unwanted);
        let there = places.processes().map(|(agent, _)| agent).filter(|agent| unwanted(*agent));
        let known = std::mem::take(&mut self.leaving);
        let until = |agent| (agent, known.get(&agent).copied().unwrap_or(now + RELEASE_MAX));
        self.leaving = there.map(until).collect();
        (0..self.workers).for_each(|n| places.want(Agent::Worker(n), now));
    }

    fn is_wanted(&self, agent: Agent) -> bool {
        match agent {
            Agent::Coordinator => true,
            Agent::Server(n) => n < self.servers,
            Agent::Worker(n) => n < self.workers,
            Agent::Console | Agent::Task(_) | Agent::Host | Agent::Controller => false,
        }
    }
}

/// The pause after so many ends in a row: none after the first.
fn pause(before: u32, longest: Duration) -> Duration {
    Backoff { first: PAUSE, longest }.pause(before)
}

/// `worker-1 (process 7) was lost: killed by signal 11`.
fn words(lost: &Lost) -> String {
    let agent = lost.agent;
    let (process, ending) = match &lost.how {
        How::Ended { process, ending } => (process, ending),
        How::NotStarted(why) => return why.clone(),
    };
    let killed = process.killed.as_ref();
    let how = killed.map_or_else(|| ending.to_string(), |why| format!("{why}, and was ended"));
    match process.pid < FIRST_PROCESS {
        true => format!("{agent} (process {}) was lost: {how}", process.pid),
        // On another machine it has another number.
        false => format!("{agent} was lost: {how}"),
    }
}

#[cfg(test)]
mod tests;
