//! What a job does next: whom to start, whom to end, and when it is over. Pure: time is an argument.
//!
//! Owns what the end of a process means under each framework. Never starts anything; whoever acts
//! says what came of it.

mod words;

use crate::jobs::script::layout::RENDEZVOUS;
use planaria_fleet::backoff::Backoff;
use planaria_fleet::ending::Ending;
use planaria_recipe::script::{CHIEF, EVALUATOR, Framework, Job, Launcher, PS};
use std::collections::BTreeMap;
use std::time::Duration;

/// Pause before the first restart; each further one waits twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What is known of a process here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What it is.
    pub role: String,
    /// Which of its role.
    pub index: usize,
    /// Whether it must find the others within a bound.
    pub meets: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Start all processes, on whatever machines there are then.
    Round,
    /// Start one process again.
    Start(u32),
    Stop(Vec<u32>),
    /// The job is over, and nothing of it runs.
    Over(Outcome),
}

/// How a job has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Whoever decides is done.
    Completed,
    /// A process failed, and is not started again.
    Failed(Failed),
    /// It was asked to stop.
    Interrupted,
}

/// The process that failed first.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    pub process: u32,
    /// How; nothing where it did not find the others in time, or did not end.
    pub ending: Option<Ending>,
    /// Why it is not started again.
    pub why: Why,
}

/// Why a process that failed is not started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    LeaderDone,
    TorchrunTried,
    NotStarted,
    /// All restarts that are allowed were used up.
    Restarted(u32),
    NeverMet,
    WentOn,
    MissingModule,
    NotPython,
    WrongArguments,
}

/// Something to be told and written down.
#[derive(Debug, Clone, PartialEq)]
pub struct Restart {
    /// Which process; nothing where all are started again.
    pub process: Option<u32>,
    /// How often processes were started again by now.
    pub restarts: u32,
    /// The process that failed.
    pub failed: u32,
    pub ending: Ending,
}

/// What a framework makes of the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    framework: Framework,
    launcher: Launcher,
    has_services: bool,
    is_told_hosts: bool,
}

impl Policy {
    /// Of a job that is written for this.
    pub fn of(job: &Job, framework: Framework) -> Self {
        let member = |role| Member { role, index: 0, meets: false };
        let members: Vec<Member> = job.script.role_names().into_iter().map(member).collect();
        let texts = job.script.arguments().join(" ").replace(' ', "");
        Self::new(framework, job.script.launcher, &members, texts.contains("hosts}}"))
    }

    /// Of a job; `is_told_hosts` where processes of a plain script know each other's places.
    pub fn new(
        framework: Framework,
        launcher: Launcher,
        members: &[Member],
        is_told_hosts: bool,
    ) -> Self {
        let has_services = members.iter().any(is_service);
        Self { framework, launcher, has_services, is_told_hosts }
    }

    fn is_torchrun(self) -> bool {
        self.framework == Framework::Pytorch && self.launcher == Launcher::Torchrun
    }

    /// Whether a process may be started again by itself.
    fn restarts_alone(self, member: &Member) -> bool {
        match self.framework {
            _ if self.is_torchrun() => member.index > 0,
            Framework::Tensorflow => self.has_services && ![CHIEF, PS].contains(&&*member.role),
            Framework::Plain if self.is_told_hosts => {
                self.has_services && !is_service(member) && member.role != CHIEF
            }
            Framework::Plain => true,
            _ => false,
        }
    }

    /// Whether the job is done as soon as this process is.
    fn decides(self, member: &Member) -> bool {
        member.role == CHIEF && self.has_services
    }

    /// Whether processes are each other's equals, of which the first speaks for all.
    fn has_leader(self) -> bool {
        !matches!(self.framework, Framework::Plain) && !self.is_torchrun()
    }
}

fn is_service(member: &Member) -> bool {
    [PS, EVALUATOR, RENDEZVOUS].contains(&&*member.role)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// It is to be started again at this time.
    Due(Duration),
    Done,
    Failed,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    /// All are to be started at this time.
    Due(Duration),
    /// Whoever acts has been told to start all, and has not said that it did.
    Starting,
    Up,
    /// All are to end; then this comes.
    Ending(Then),
    Over,
}

#[derive(Debug, Clone, PartialEq)]
enum Then {
    Again(Duration),
    Over(Outcome),
}

/// A job under way.
pub struct Decider {
    members: Vec<Member>,
    policy: Policy,
    max_restarts: u32,
    connect_within: Duration,
    state: State,
    stages: BTreeMap<u32, Stage>,
    began: BTreeMap<u32, Duration>,
    met: BTreeMap<u32, bool>,
    restarts: u32,
    leader_done: Option<Duration>,
    /// When a process was last lost with its machine.
    lost_at: Option<Duration>,
    told: Vec<Restart>,
}

impl Decider {
    /// Nothing is started yet.
    pub fn new(policy: Policy, max_restarts: u32, connect_within: Duration) -> Self {
        Self {
            members: Vec::new(),
            policy,
            max_restarts,
            connect_within,
            state: State::Due(Duration::ZERO),
            stages: BTreeMap::new(),
            began: BTreeMap::new(),
            met: BTreeMap::new(),
            restarts: 0,
            leader_done: None,
            lost_at: None,
            told: Vec::new(),
        }
    }

    /// How often processes were started again.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Restarts since the last time, to be told.
    pub fn take_restarts(&mut self) -> Vec<Restart> {
        std::mem::take(&mut self.told)
    }

    /// Whether processes are up, and not about to end.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Processes that have not found the others yet.
    pub fn unmet(&self) -> Vec<u32> {
        let running = |id: &u32| self.stages.get(id) == Some(&Stage::Running);
        let unmet = self.met.iter().filter(|(id, met)| !**met && running(id));
        unmet.map(|(id, _)| *id).collect()
    }

    /// Processes of the last round that ended without having been seen to find the others.
    pub fn never_met(&self) -> Vec<u32> {
        self.met.iter().filter(|(_, met)| !**met).map(|(id, _)| *id).collect()
    }

    /// All processes were started, these.
    pub fn started(&mut self, now: Duration, members: Vec<Member>) {
        self.stages = (0..members.len() as u32).map(|id| (id, Stage::Running)).collect();
        self.began = self.stages.keys().map(|id| (*id, now)).collect();
        let meets = members.iter().enumerate().filter(|(_, member)| member.meets);
        self.met = meets.map(|(id, _)| (id as u32, false)).collect();
        self.members = members;
        self.leader_done = None;
        if self.state == State::Starting {
            self.state = State::Up;
        }
    }

    /// One process was started again.
    pub fn started_one(&mut self, now: Duration, id: u32) {
        self.stages.insert(id, Stage::Running);
        self.began.insert(id, now);
        if let Some(met) = self.met.get_mut(&id) {
            *met = false;
        }
    }

    /// A process has found the others.
    pub fn met(&mut self, id: u32) {
        if let Some(met) = self.met.get_mut(&id) {
            *met = true;
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, now: Duration, id: u32, ending: Ending) {
        let Some(stage) = self.stages.get_mut(&id) else { return };
        if *stage != Stage::Running {
            return;
        }
        *stage = if ending.is_well() { Stage::Done } else { Stage::Failed };
        if self.state != State::Up {
            return;
        }
        let member = self.members[id as usize].clone();
        match ending.is_well() {
            true => self.done(now, id, &member),
            false => self.failed(now, id, &member, ending),
        }
    }

    /// A process has ended, and would end so every time.
    pub fn hopeless(&mut self, id: u32, ending: Ending, why: Why) {
        if self.state == State::Up && self.stages.get(&id) == Some(&Stage::Running) {
            self.stages.insert(id, Stage::Failed);
            let failed = Failed { process: id, ending: Some(ending), why };
            self.state = State::Ending(Then::Over(Outcome::Failed(failed)));
        }
    }

    fn done(&mut self, now: Duration, id: u32, member: &Member) {
        if is_service(member) {
            // It gave up being there for others; a service that ends is as good as lost.
            return self.failed(now, id, member, Ending::Code(0));
        }
        let is_done =
            |id: &u32| is_service(&self.members[*id as usize]) || self.stages[id] == Stage::Done;
        if self.policy.decides(member) || self.stages.keys().all(is_done) {
            self.state = State::Ending(Then::Over(Outcome::Completed));
        } else if self.policy.has_leader() && id == 0 {
            self.leader_done = Some(now);
        }
    }

    fn failed(&mut self, now: Duration, id: u32, member: &Member, ending: Ending) {
        let give_up = |why: Why| {
            let failed = Failed { process: id, ending: Some(ending), why };
            State::Ending(Then::Over(Outcome::Failed(failed)))
        };
        if self.leader_done.is_some() {
            self.state = give_up(Why::LeaderDone);
            return;
        }
        if self.policy.is_torchrun() && matches!(ending, Ending::Code(_)) {
            self.state = give_up(Why::TorchrunTried);
            return;
        }
        if ending == Ending::Code(127) && self.began.contains_key(&id) && self.restarts == 0 {
            self.state = give_up(Why::NotStarted);
            return;
        }
        // Processes that are lost with one machine are lost once.
        let is_same = ending == Ending::MachineLost && self.lost_at == Some(now);
        self.lost_at = (ending == Ending::MachineLost).then_some(now);
        if self.restarts >= self.max_restarts && !is_same {
            self.state = give_up(Why::Restarted(self.max_restarts));
            return;
        }
        let at = now + pause(self.restarts.saturating_sub(u32::from(is_same)));
        self.restarts += u32::from(!is_same);
        let alone = self.policy.restarts_alone(member);
        let process = alone.then_some(id);
        if is_same && !alone {
            // One of them needs all to begin again, so nothing is told of the others.
            self.told.pop();
        }
        self.told.push(Restart { process, restarts: self.restarts, failed: id, ending });
        match alone {
            true => drop(self.stages.insert(id, Stage::Due(at))),
            false => self.state = State::Ending(Then::Again(at)),
        }
    }

    /// One process cannot be started again by itself: all are.
    pub fn all_again(&mut self, now: Duration) {
        if self.state == State::Up {
            self.state = State::Ending(Then::Again(now));
        }
    }

    /// The job cannot go on, for a reason that is no process'.
    pub fn give_up(&mut self) {
        if !matches!(self.state, State::Over) {
            self.state = State::Ending(Then::Over(Outcome::Interrupted));
        }
    }

    /// Whether a stop was asked for, or something failed for good.
    pub fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending(Then::Over(_)) | State::Over)
    }

    /// What follows by now.
    pub fn look(&mut self, now: Duration) -> Vec<Action> {
        match self.state.clone() {
            State::Due(at) if now >= at => {
                self.state = State::Starting;
                vec![Action::Round]
            }
            State::Ending(then) => {
                let left: Vec<u32> = self.running();
                if !left.is_empty() {
                    return vec![Action::Stop(left)];
                }
                match then {
                    Then::Again(at) => {
                        self.state = State::Due(at);
                        Vec::new()
                    }
                    Then::Over(outcome) => {
                        self.state = State::Over;
                        vec![Action::Over(outcome)]
                    }
                }
            }
            State::Up => self.look_up(now),
            _ => Vec::new(),
        }
    }

    fn look_up(&mut self, now: Duration) -> Vec<Action> {
        let late = |id: &u32| now.saturating_sub(self.began[id]) > self.connect_within;
        if let Some(id) = self.unmet().into_iter().find(late) {
            let failed = Failed { process: id, ending: None, why: Why::NeverMet };
            self.state = State::Ending(Then::Over(Outcome::Failed(failed)));
        } else if let Some(done) = self.leader_done
            && now.saturating_sub(done) > self.connect_within
            && let Some(id) =
                self.running().into_iter().find(|id| !is_service(&self.members[*id as usize]))
        {
            let failed = Failed { process: id, ending: None, why: Why::WentOn };
            self.state = State::Ending(Then::Over(Outcome::Failed(failed)));
        }
        let due: Vec<u32> = self
            .stages
            .iter()
            .filter(|(_, stage)| matches!(stage, Stage::Due(at) if now >= *at))
            .map(|(id, _)| *id)
            .collect();
        due.into_iter().map(Action::Start).collect()
    }

    fn running(&self) -> Vec<u32> {
        let running = self.stages.iter().filter(|(_, stage)| **stage == Stage::Running);
        running.map(|(id, _)| *id).collect()
    }
}

fn pause(restarts: u32) -> Duration {
    Backoff { first: PAUSE, longest: PAUSE_MAX }.pause(restarts.saturating_add(1))
}

#[cfg(test)]
mod tests;
