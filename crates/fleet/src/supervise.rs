//! What is started, ended and given up, as processes come and go. Pure: time is an argument.
//!
//! Owns who fills which place of a run, the pauses between attempts, and when an attempt is the
//! last. Never starts or ends anything, and never knows what processes say to each other beyond
//! that they live, are ready, and get on.
//!
//! A run has places: the coordinator, servers and workers. A place is filled by one process at a
//! time. The one who acts answers every [`Action::Start`] at once, with [`Input::Started`],
//! [`Input::NotStarted`] or [`Input::NoRoom`], and looks often ([`Input::Look`]): silence is counted in looks, so that a
//! supervisor that was itself suspended or starved blames nobody.

mod words;

use crate::backoff::Backoff;
use crate::ending::Ending;
use crate::pool::FIRST_PROCESS;
use planaria_protocol::message::Agent;
use std::collections::BTreeMap;
use std::time::Duration;
pub use words::{Action, Input, Loss};

/// Pause before the second attempt in a row; each further one waits twice as long.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause before a process that has not become ready is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Longest pause for one that does become ready, but not for long.
const PAUSE_READY_MAX: Duration = Duration::from_secs(2);
/// Whoever was ready for so long has got over what ended those before it.
const SETTLED: Duration = Duration::from_secs(10);
/// Attempts in a row before anything has worked: more would go the same way.
const BAD_STARTS_MAX: u32 = 3;
/// The same for a worker that becomes ready and ends before the run's first step.
const BAD_BEGINNINGS_MAX: u32 = 5;
/// Workers in a row that may end by themselves without a step between them.
const FAILURES_MAX: u32 = 8;
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
/// Longest pause for whoever was ended from outside, in a run that gets on otherwise.
const PAUSE_DISTURBED_MAX: Duration = Duration::from_millis(250);
/// A coordinator that lives says so ten times a second.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long a coordinator may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(20);
/// A look counts for so much time at most. Twenty looks at least are then in [`SILENCE_MAX`].
const LOOK_MAX: Duration = Duration::from_millis(250);
/// How often a process that no machine has room for is tried again.
const ROOM_EVERY: Duration = Duration::from_millis(20);
/// How long a process may take to join a coordinator that waits for it.
const ABSENT_MAX: Duration = Duration::from_secs(15);
/// How long the last words of a coordinator that has ended may be on their way.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a worker that is no longer wanted may take to end.
const RELEASE_MAX: Duration = Duration::from_secs(30);
/// Workers that are ever started.
pub const WORKERS_MAX: u32 = 4096;

/// The places of a run.
#[derive(Debug, Clone)]
pub struct Supervisor {
    generation: u64,
    servers: u32,
    workers: u32,
    places: BTreeMap<Agent, Place>,
    /// Whether a coordinator was ever reached: only then others know where to join.
    was_linked: bool,
    is_linked: bool,
    /// Whether this coordinator has said anything.
    is_heard: bool,
    /// How long it has said nothing, counted in looks.
    silent: Duration,
    looked: Option<Duration>,
    /// Coordinators that took the place of another since the last step.
    coordinators: u32,
    after: Option<String>,
    /// The server that was lost since the coordinator began.
    lost_server: Option<String>,
    was_ready: bool,
    was_worker_ready: bool,
    /// Whether a step was done in this session.
    has_progressed: bool,
    /// Workers that have ended since the last step, not from outside.
    failures: u32,
    is_over: bool,
}

#[derive(Debug, Clone)]
struct Place {
    filling: Filling,
    /// Ends in a row before the process had settled.
    ends: u32,
}

#[derive(Debug, Clone, PartialEq)]
enum Filling {
    /// Nobody is there; from this time on somebody is to be.
    Due(Duration),
    /// It was asked for.
    Asked,
    Process(Process),
    /// The coordinator has ended; what it said last is waited for until then.
    Parting {
        until: Duration,
        pid: u32,
        ending: Ending,
        why: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq)]
struct Process {
    pid: u32,
    /// Since when it is ready.
    ready: Option<Duration>,
    /// Why it is being killed.
    killed: Option<String>,
    /// When it must have ended, where it is no longer wanted.
    leaves: Option<Duration>,
    /// Whether the coordinator waits for it to join, and for how long it was seen to.
    is_absent: bool,
    absent: Duration,
}

impl Supervisor {
    /// A run of so many processes, of which none is there; the coordinator is the first.
    pub fn new(generation: u64, servers: u32, workers: u32) -> Self {
        let mut supervisor = Self {
            generation,
            servers,
            workers: workers.clamp(1, WORKERS_MAX),
            places: BTreeMap::new(),
            was_linked: false,
            is_linked: false,
            is_heard: false,
            silent: Duration::ZERO,
            looked: None,
            coordinators: 0,
            after: None,
            lost_server: None,
            was_ready: false,
            was_worker_ready: false,
            has_progressed: false,
            failures: 0,
            is_over: false,
        };
        supervisor.want(Agent::Coordinator, Duration::ZERO);
        supervisor
    }

    /// Of the coordinator that is there or comes next.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Workers wanted.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// The process in an agent's place.
    pub fn pid(&self, agent: Agent) -> Option<u32> {
        match &self.places.get(&agent)?.filling {
            Filling::Process(process) => Some(process.pid),
            _ => None,
        }
    }

    /// Processes that nobody has heard to be ready: they would not hear either that a run is over.
    pub fn unready(&self) -> Vec<(Agent, u32)> {
        let unready = |(agent, place): (&Agent, &Place)| match &place.filling {
            Filling::Process(p) if p.ready.is_none() => Some((*agent, p.pid)),
            _ => None,
        };
        let others = self.places.iter().filter(|(agent, _)| **agent != Agent::Coordinator);
        others.filter_map(unready).collect()
    }

    /// What follows from `input` at the time `now`.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Look => self.look(now, &mut actions),
            Input::Started { agent, pid } => self.started(agent, pid),
            Input::NoRoom { agent } => self.wait_for_room(now, agent),
            Input::NotStarted { agent, why } => self.not_started(now, agent, why, &mut actions),
            Input::Ended { agent, pid, ending } => {
                self.ended(now, agent, pid, ending, &mut actions);
            }
            Input::Linked => self.linked(now),
            Input::LinkGone => {
                self.is_linked = false;
                self.part(now, &mut actions);
            }
            Input::Heard => (self.is_heard, self.silent) = (true, Duration::ZERO),
            Input::Progress => {
                (self.coordinators, self.failures, self.has_progressed) = (0, 0, true);
            }
            Input::Ready { agent, pid } => self.ready(now, agent, pid),
            Input::Absent(agents) => self.absent(&agents),
            Input::Pool { workers } => self.pool(now, workers),
            Input::Kill { agent, pid, why } => self.kill(agent, pid, why, &mut actions),
            Input::Over => self.is_over = true,
        }
        if !self.is_over {
            self.start(now, &mut actions);
        }
        actions
    }

    /// Whoever is due is asked for.
    fn start(&mut self, now: Duration, actions: &mut Vec<Action>) {
        for (&agent, place) in &mut self.places {
            let is_due = matches!(place.filling, Filling::Due(at) if at <= now);
            // Until the coordinator has been reached once nobody knows where it listens.
            if !is_due || agent != Agent::Coordinator && !self.was_linked {
                continue;
            }
            place.filling = Filling::Asked;
            actions.push(match agent {
                Agent::Coordinator => {
                    (self.is_heard, self.silent) = (false, Duration::ZERO);
                    self.lost_server = None;
                    Action::Coordinate { generation: self.generation, after: self.after.clone() }
                }
                agent => Action::Start { agent },
            });
        }
    }

    fn look(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let passed = now.saturating_sub(self.looked.replace(now).unwrap_or(now)).min(LOOK_MAX);
        if let Some(pid) = self.pid(Agent::Coordinator) {
            self.silent += passed;
            let limit = if self.is_heard { SILENCE_MAX } else { BEGIN_MAX };
            if self.silent >= limit {
                // Should it live on, it is killed once more.
                self.silent = Duration::ZERO;
                let why = format!("it said nothing for {} s", limit.as_secs());
                self.kill(Agent::Coordinator, pid, why, actions);
            }
        }
        if let Some(Filling::Parting { until, .. }) = self.filling(Agent::Coordinator)
            && *until <= now
        {
            self.is_linked = false;
            self.part(now, actions);
        }
        let mut hung = Vec::new();
        for (&agent, place) in &mut self.places {
            if let Filling::Process(process) = &mut place.filling {
                process.absent = match process.is_absent && self.is_linked {
                    true => process.absent + passed,
                    false => Duration::ZERO,
                };
                if process.absent >= ABSENT_MAX {
                    process.absent = Duration::ZERO;
                    hung.push((agent, process.pid));
                }
            }
        }
        for (agent, pid) in hung {
            let why = format!("it did not join for {} s", ABSENT_MAX.as_secs());
            self.kill(agent, pid, why, actions);
        }
        for (&agent, place) in &mut self.places {
            if let Filling::Process(process) = &mut place.filling
                && process.leaves.is_some_and(|at| at <= now)
                && !self.is_over
            {
                process.leaves = Some(now + RELEASE_MAX);
                let why = "it is no longer needed and did not end".to_owned();
                actions.push(Action::Kill { agent, pid: process.pid, why });
            }
        }
    }

    fn started(&mut self, agent: Agent, pid: u32) {
        if let Some(place) = self.places.get_mut(&agent)
            && place.filling == Filling::Asked
        {
            let process = Process {
                pid,
                ready: None,
                killed: None,
                leaves: None,
                is_absent: false,
                absent: Duration::ZERO,
            };
            place.filling = Filling::Process(process);
        }
    }

    /// It is nobody's fault, and counts for nothing.
    fn wait_for_room(&mut self, now: Duration, agent: Agent) {
        if self.filling(agent) == Some(&Filling::Asked) {
            self.set(agent, Filling::Due(now + ROOM_EVERY));
        }
    }

    fn not_started(&mut self, now: Duration, agent: Agent, why: String, actions: &mut Vec<Action>) {
        if self.filling(agent) != Some(&Filling::Asked) {
            return;
        }
        if !self.was_ready {
            return self.fail(agent, why, actions);
        }
        match agent {
            Agent::Coordinator => self.replace_coordinator(now, why, COORDINATORS_MAX, actions),
            agent => self.again(now, agent, None, &why, actions),
        }
    }

    fn ended(
        &mut self,
        now: Duration,
        agent: Agent,
        pid: u32,
        ending: Ending,
        actions: &mut Vec<Action>,
    ) {
        let process = match self.filling(agent) {
            Some(Filling::Process(process)) if process.pid == pid => process.clone(),
            _ => return,
        };
        if self.is_over {
            self.places.remove(&agent);
            return;
        }
        if agent == Agent::Coordinator {
            let until = now + LAST_WORDS;
            self.set(agent, Filling::Parting { until, pid, ending, why: process.killed });
            return self.part(now, actions);
        }
        let how = lost(agent, pid, ending, process.killed.as_deref());
        if matches!(agent, Agent::Server(_)) {
            self.lost_server = Some(how.clone());
        }
        self.again(now, agent, Some((process.ready, ending)), &how, actions);
    }

    /// Somebody else for the place of a server or worker that was lost.
    fn again(
        &mut self,
        now: Duration,
        agent: Agent,
        ended: Option<(Option<Duration>, Ending)>,
        how: &str,
        actions: &mut Vec<Action>,
    ) {
        let is_wanted = self.is_wanted(agent);
        let Some(place) = self.places.get_mut(&agent).filter(|_| is_wanted) else {
            self.places.remove(&agent);
            return;
        };
        let ready = ended.and_then(|(ready, _)| ready);
        if ready.is_some_and(|since| now.saturating_sub(since) >= SETTLED) {
            place.ends = 0;
        }
        let is_disturbed =
            self.has_progressed && ended.is_some_and(|(_, ending)| ending.is_from_outside());
        let longest = match (agent, ready) {
            (Agent::Server(_), _) if is_disturbed => PAUSE_DISTURBED_MAX,
            (_, Some(_)) => PAUSE_READY_MAX,
            _ if is_disturbed => PAUSE_READY_MAX,
            _ => PAUSE_MAX,
        };
        let mut wait = pause(place.ends, longest);
        // Who ends well was told to: by a coordinator whose word that the run is over, or that the
        // pool has shrunk, is still on its way here.
        if ended.is_some_and(|(_, ending)| ending.is_well()) {
            wait = wait.max(PAUSE);
        }
        let by_itself =
            ended.is_some_and(|(_, ending)| !ending.is_well() && !ending.is_from_outside());
        // Without a coordinator they end by themselves in the end, and are not to blame.
        if by_itself && self.is_linked && matches!(agent, Agent::Worker(_)) {
            self.failures += 1;
        }
        place.ends = place.ends.saturating_add(1);
        place.filling = Filling::Due(now + wait);
        let ends = place.ends;
        if self.failures >= FAILURES_MAX {
            let workers = self.failures;
            let message =
                format!("{how}; {workers} workers in a row ended without a step between them");
            return self.fail(agent, message, actions);
        }
        let most = match agent {
            Agent::Worker(_) if !self.was_worker_ready => BAD_STARTS_MAX,
            // Whatever ends it will end it again.
            Agent::Worker(_) if !self.has_progressed => BAD_BEGINNINGS_MAX,
            Agent::Server(_) if !self.was_ready => BAD_STARTS_MAX,
            Agent::Server(_) if ready.is_none() && !is_disturbed => SERVER_ATTEMPTS_MAX,
            _ => return,
        };
        // Something outside may end it a few times before it has begun.
        let outside = ended.is_some_and(|(_, ending)| ending.is_from_outside());
        let most = if outside { OUTSIDE_TIMES * most } else { most };
        if ends >= most {
            let before = if ready.is_none() { "it was ready" } else { "a step was done" };
            let message = format!("{how}, {ends} times in a row before {before}");
            self.fail(agent, message, actions);
        }
    }

    /// The coordinator has ended, and all that it said is heard.
    fn part(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let Some(Filling::Parting { pid, ending, why, .. }) = self.filling(Agent::Coordinator)
        else {
            return;
        };
        if self.is_linked {
            return;
        }
        let was_silent = why.is_some();
        let (ending, how) = (*ending, lost(Agent::Coordinator, *pid, *ending, why.as_deref()));
        if self.is_over {
            self.places.remove(&Agent::Coordinator);
            return;
        }
        if !self.was_linked && ending.is_deliberate() {
            let message = format!("the coordinator did not start: {ending}");
            return self.fail(Agent::Coordinator, message, actions);
        }
        let reason = match &self.lost_server {
            Some(server) if ending.asks_for_another() => server.clone(),
            _ => how,
        };
        let most = match ending.is_from_outside() || ending.asks_for_another() {
            true if !was_silent => DISTURBED_MAX,
            // One that was never reached is not likely to be.
            true if self.was_linked => SILENT_MAX,
            _ => COORDINATORS_MAX,
        };
        self.replace_coordinator(now, reason, most, actions);
    }

    fn replace_coordinator(
        &mut self,
        now: Duration,
        reason: String,
        most: u32,
        actions: &mut Vec<Action>,
    ) {
        let longest = if most == COORDINATORS_MAX { PAUSE_MAX } else { PAUSE_DISTURBED_MAX };
        if self.coordinators >= most {
            let message = format!(
                "{reason}; {most} coordinators in a row were started again without \
                 a step between them"
            );
            return self.fail(Agent::Coordinator, message, actions);
        }
        let wait = pause(self.coordinators, longest);
        self.coordinators += 1;
        self.generation += 1;
        self.after = Some(reason);
        self.set(Agent::Coordinator, Filling::Due(now + wait));
    }

    fn linked(&mut self, now: Duration) {
        // That it takes a connection is not yet a sign of life: only what it says is.
        self.is_linked = true;
        if !std::mem::replace(&mut self.was_linked, true) {
            (0..self.servers).for_each(|n| self.want(Agent::Server(n), now));
            (0..self.workers).for_each(|n| self.want(Agent::Worker(n), now));
        }
    }

    fn ready(&mut self, now: Duration, agent: Agent, pid: u32) {
        self.was_ready = true;
        self.was_worker_ready |= matches!(agent, Agent::Worker(_));
        if let Some(Place { filling: Filling::Process(process), .. }) = self.places.get_mut(&agent)
            && process.pid == pid
        {
            process.ready.get_or_insert(now);
        }
    }

    /// These have not joined the present coordinator.
    fn absent(&mut self, agents: &[Agent]) {
        for (agent, place) in &mut self.places {
            if let Filling::Process(process) = &mut place.filling {
                process.is_absent = agents.contains(agent);
            }
        }
    }

    fn pool(&mut self, now: Duration, workers: u32) {
        self.workers = workers.clamp(1, WORKERS_MAX);
        if self.is_over || !self.was_linked {
            return;
        }
        let wanted = self.workers;
        self.places.retain(|agent, place| match (agent, &mut place.filling) {
            (Agent::Worker(n), Filling::Process(process)) => {
                let leaves = (*n >= wanted).then_some(now + RELEASE_MAX);
                process.leaves = leaves.map(|at| process.leaves.unwrap_or(at));
                true
            }
            (Agent::Worker(n), Filling::Due(_)) => *n < wanted,
            _ => true,
        });
        (0..wanted).for_each(|n| self.want(Agent::Worker(n), now));
    }

    fn kill(&mut self, agent: Agent, pid: u32, why: String, actions: &mut Vec<Action>) {
        if let Some(Place { filling: Filling::Process(process), .. }) = self.places.get_mut(&agent)
            && process.pid == pid
            && !self.is_over
        {
            process.killed = Some(why.clone());
            actions.push(Action::Kill { agent, pid, why });
        }
    }

    fn fail(&mut self, agent: Agent, message: String, actions: &mut Vec<Action>) {
        self.is_over = true;
        actions.push(Action::Fail(Loss { agent, message }));
    }

    fn is_wanted(&self, agent: Agent) -> bool {
        match agent {
            Agent::Coordinator => true,
            Agent::Server(n) => n < self.servers,
            Agent::Worker(n) => n < self.workers,
            Agent::Console | Agent::Task(_) => false,
        }
    }

    /// Makes a place, where there is none.
    fn want(&mut self, agent: Agent, now: Duration) {
        self.places.entry(agent).or_insert(Place { filling: Filling::Due(now), ends: 0 });
    }

    fn filling(&self, agent: Agent) -> Option<&Filling> {
        self.places.get(&agent).map(|place| &place.filling)
    }

    fn set(&mut self, agent: Agent, filling: Filling) {
        if let Some(place) = self.places.get_mut(&agent) {
            place.filling = filling;
        }
    }
}

/// The pause after so many ends in a row: none after the first.
fn pause(before: u32, longest: Duration) -> Duration {
    Backoff { first: PAUSE, longest }.pause(before)
}

/// `worker-1 (process 7) was lost: killed by signal 11`.
fn lost(agent: Agent, pid: u32, ending: Ending, killed: Option<&str>) -> String {
    let how = killed.map_or_else(|| ending.to_string(), |why| format!("{why}, and was ended"));
    match pid < FIRST_PROCESS {
        true => format!("{agent} (process {pid}) was lost: {how}"),
        // On another machine it has another number.
        false => format!("{agent} was lost: {how}"),
    }
}

#[cfg(test)]
mod tests;
