//! What the end of a script's process means: the policy of the [`supervise::Supervisor`] of scripts.
//! Pure: time is an argument.
//!
//! Owns the rules of each framework: which process restarts alone, when all are started again, and
//! when the job is over.

mod limits;
mod words;

pub use limits::Limits;

use crate::jobs::script::layout::RENDEZVOUS;
use limits::Patience;
use planaria_fleet::backoff::Backoff;
use planaria_fleet::ending::Ending;
use planaria_fleet::supervise::places::Places;
use planaria_fleet::supervise::{self, How, Input, Lost};
use planaria_protocol::message::Agent;
use planaria_recipe::pool::Workers;
use planaria_recipe::script::{CHIEF, EVALUATOR, Framework, Job, Launcher, MASTER, PS};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Pause before the first restart; each further one waits twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What is known of a process here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub role: String,
    /// Which of its role.
    pub index: usize,
    /// Whether it must find the others within a bound.
    pub meets: bool,
}

/// How a job has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
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
    /// The process that had ended well before, while this one went on.
    pub left: Option<u32>,
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
    /// It failed where it had failed before.
    SamePlace,
    /// The job took longer than it may.
    TimedOut,
    /// No process wrote anything for longer than they may.
    Silent,
}

/// Something to be told and written down.
#[derive(Debug, Clone, PartialEq)]
pub struct Restart {
    /// Which process; nothing where all are started again.
    pub process: Option<u32>,
    /// Restarts so far.
    pub restarts: u32,
    /// The process that failed.
    pub failed: u32,
    pub ending: Ending,
    /// The process that had ended well before, while that one went on.
    pub left: Option<u32>,
}

/// What a framework makes of the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    framework: Framework,
    launcher: Launcher,
    has_services: bool,
    has_ps: bool,
    is_told_hosts: bool,
    /// Whether launchers go on with fewer machines by themselves.
    is_elastic: bool,
}

impl Rules {
    /// Of a job that is written for this.
    pub fn of(job: &Job, framework: Framework) -> Self {
        let member = |role| Member { role, index: 0, meets: false };
        let members: Vec<Member> = job.script.role_names().into_iter().map(member).collect();
        let rules = Self::new(framework, job.script.launcher, &members, job.script.tells_places());
        Self { is_elastic: matches!(job.pool.workers, Workers::Range(_)), ..rules }
    }

    /// Of a job; `is_told_hosts` where processes of a plain script know each other's places.
    pub fn new(
        framework: Framework,
        launcher: Launcher,
        members: &[Member],
        is_told_hosts: bool,
    ) -> Self {
        let has_services = members.iter().any(is_service);
        let has_ps = members.iter().any(|member| member.role == PS);
        Self { framework, launcher, has_services, has_ps, is_told_hosts, is_elastic: false }
    }

    fn is_torchrun(self) -> bool {
        self.framework == Framework::Pytorch && self.launcher == Launcher::Torchrun
    }

    /// Whether a process may be started again by itself.
    fn restarts_alone(self, member: &Member) -> bool {
        match self.framework {
            // A launcher that returns alone loads an older checkpoint than the other ranks have.
            _ if self.is_torchrun() => member.index > 0 && self.is_elastic,
            Framework::Tensorflow => {
                self.has_services && ![CHIEF, MASTER, PS].contains(&&*member.role)
            }
            Framework::Plain if self.is_told_hosts => {
                self.has_services && !is_service(member) && member.role != CHIEF
            }
            Framework::Plain => true,
            _ => false,
        }
    }

    /// Whether the job is done as soon as this process is.
    fn decides(self, member: &Member) -> bool {
        let is_told = self.framework == Framework::Tensorflow && member.role == MASTER;
        (member.role == CHIEF || is_told) && self.has_services
    }

    /// Whether processes are each other's equals, of which the first speaks for all. Workers around
    /// parameter servers each end by themselves.
    fn has_leader(self) -> bool {
        !matches!(self.framework, Framework::Plain) && !self.is_torchrun() && !self.has_ps
    }
}

fn is_service(member: &Member) -> bool {
    [PS, EVALUATOR, RENDEZVOUS].contains(&&*member.role)
}

/// The supervisor of a script's processes: `Agent::Task(n)` is the n-th of the layout.
pub type Supervisor = supervise::Supervisor<Policy>;

/// What only the supervisor of scripts hears.
#[derive(Debug, Clone, PartialEq)]
pub enum JobInput {
    /// All processes are being started, these.
    Began(Vec<Member>),
    /// A process that is about to be told as ended would end so every time.
    Hopeless { process: u32, why: Why },
    /// A process that is about to be told as ended failed because another was gone.
    OfOthers { process: u32 },
    /// A process that has ended, also while all are being ended, tells of a failure of its own, and why
    /// it would fail every time.
    Own { process: u32, ending: Ending, why: Option<Why> },
    /// The answer to [`Policy::take_stuck`]: the process that the others wait for.
    Looked { process: u32 },
    /// One process cannot be started again by itself.
    AllAgain,
    /// The job has taken longer than it may, while machines for its next round are waited for.
    TooLate,
    /// The user wants the job to stop.
    Interrupted,
}

impl From<JobInput> for Input<JobInput> {
    fn from(input: JobInput) -> Self {
        Self::Own(input)
    }
}

#[derive(Debug, Clone)]
pub struct Policy {
    rules: Rules,
    max_restarts: u32,
    patience: Patience,
    members: Vec<Member>,
    restarts: u32,
    leader_done: Option<Duration>,
    /// The first process of the round that has ended well while others, which need it, go on.
    left: Option<u32>,
    /// When a process was last lost with its machine.
    lost_at: Option<Duration>,
    hopeless: BTreeMap<u32, Why>,
    /// Processes that failed because another was gone.
    of_others: BTreeSet<u32>,
    /// The process of the round that is said to have failed.
    blamed: Option<Blamed>,
    told: Vec<Restart>,
}

/// See [`Policy::blamed`].
#[derive(Debug, Clone, Copy)]
struct Blamed {
    process: u32,
    /// Whether it failed because another was gone, which may be told as ended a moment later.
    is_of_others: bool,
    /// Why the job is over, where it is.
    over: Option<Why>,
}

impl Policy {
    /// A supervisor by these rules; nothing is started yet.
    pub fn supervisor(rules: Rules, max_restarts: u32, limits: Limits) -> Supervisor {
        let policy = Self {
            rules,
            max_restarts,
            patience: Patience::new(limits),
            members: Vec::new(),
            restarts: 0,
            leader_done: None,
            left: None,
            lost_at: None,
            hopeless: BTreeMap::new(),
            of_others: BTreeSet::new(),
            blamed: None,
            told: Vec::new(),
        };
        Supervisor::new(policy, Places::together())
    }

    /// Whether all processes train one thing, and so must go on from the same files.
    pub fn trains_together(&self) -> bool {
        self.rules.framework != Framework::Plain || self.rules.is_told_hosts
    }

    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Whether the job has taken longer than it may.
    pub fn is_too_late(&self, now: Duration) -> bool {
        self.patience.is_too_late(now)
    }

    /// A process has written something.
    pub fn wrote(&mut self) {
        self.patience.wrote();
    }

    /// Whether the job is about to be ended because of time, said once. The caller may look first
    /// which process the others wait for, and answer with [`JobInput::Looked`].
    pub fn take_stuck(&mut self) -> bool {
        self.patience.take()
    }

    /// Restarts since the last time, to be told. While all are being ended because one found another
    /// gone, that other may still come.
    pub fn take_restarts(&mut self, places: &Places<Outcome>) -> Vec<Restart> {
        let is_running = !places.is_up() && places.processes().next().is_some();
        match self.is_unsure() && is_running {
            true => Vec::new(),
            false => std::mem::take(&mut self.told),
        }
    }

    /// Whether the process that is said to have failed blames another.
    pub fn is_unsure(&self) -> bool {
        self.blamed.is_some_and(|blamed| blamed.is_of_others)
    }

    /// Processes that have not found the others yet.
    pub fn unmet(&self, places: &Places<Outcome>) -> Vec<u32> {
        self.never_met(places)
            .into_iter()
            .filter(|id| places.process(Agent::Task(*id)).is_some())
            .collect()
    }

    /// The same, with those of the last round that have ended.
    pub fn never_met(&self, places: &Places<Outcome>) -> Vec<u32> {
        let meeting = (0..).zip(&self.members).filter(|(_, member)| member.meets);
        meeting.map(|(id, _)| id).filter(|id| !places.was_ready(Agent::Task(*id))).collect()
    }

    fn done(&mut self, now: Duration, id: u32, places: &mut Places<Outcome>) {
        let member = &self.members[id as usize];
        if is_service(member) {
            // It gave up being there for others; a service that ends is as good as lost.
            return self.failed(now, id, Ending::Code(0), places);
        }
        let is_done = |(id, member)| is_service(member) || places.is_done(Agent::Task(id));
        if self.rules.decides(member) || (0..).zip(&self.members).all(is_done) {
            places.end(Outcome::Completed);
            return;
        }
        if self.rules.has_leader() && id == 0 {
            self.leader_done = Some(now);
        }
        if self.trains_together() && !self.rules.has_services {
            self.left.get_or_insert(id);
        }
    }

    fn failed(&mut self, now: Duration, id: u32, ending: Ending, places: &mut Places<Outcome>) {
        // Processes that are lost with one machine are lost once.
        let is_same = ending == Ending::MachineLost && self.lost_at == Some(now);
        let over = self.hopeless.remove(&id).or_else(|| self.last(ending, is_same));
        let is_of_others = self.of_others.remove(&id);
        self.blamed = Some(Blamed { process: id, is_of_others, over });
        if let Some(why) = over {
            let (ending, left) = (Some(ending), self.left);
            return places.end(Outcome::Failed(Failed { process: id, ending, why, left }));
        }
        self.lost_at = (ending == Ending::MachineLost).then_some(now);
        let at = now + pause(self.restarts.saturating_sub(u32::from(is_same)));
        self.restarts += u32::from(!is_same);
        let alone = self.rules.restarts_alone(&self.members[id as usize]);
        if is_same && !alone {
            // One of them needs all to begin again: the others' restarts are not reported.
            self.told.pop();
        }
        let process = alone.then_some(id);
        let left = self.left;
        self.told.push(Restart { process, restarts: self.restarts, failed: id, ending, left });
        match alone {
            true => places.again(Agent::Task(id), at),
            false => places.all_again(at),
        }
    }

    /// A process failed by itself: where the one that was told as ended before it found another gone,
    /// this is the one to name.
    fn blame(&mut self, id: u32, ending: Ending, why: Option<Why>, places: &mut Places<Outcome>) {
        let before = self.blamed.filter(|before| before.is_of_others && before.process != id);
        let Some(Blamed { over, .. }) = before.filter(|_| !places.is_up()) else { return };
        if over.is_none() {
            let restart = self.told.pop();
            match why {
                // It is not started again after all.
                Some(_) => {
                    self.restarts = self.restarts.saturating_sub(u32::from(restart.is_some()))
                }
                None => self.told.extend(restart.map(|r| Restart { failed: id, ending, ..r })),
            }
        }
        let over = why.or(over);
        self.blamed = Some(Blamed { process: id, is_of_others: false, over });
        if let Some(why) = over {
            let (ending, left) = (Some(ending), self.left);
            places.end(Outcome::Failed(Failed { process: id, ending, why, left }));
        }
    }

    /// Why a process that has ended so is not started again, if it is not.
    fn last(&self, ending: Ending, is_same: bool) -> Option<Why> {
        if self.leader_done.is_some() {
            Some(Why::LeaderDone)
        } else if self.rules.is_torchrun() && matches!(ending, Ending::Code(_)) {
            Some(Why::TorchrunTried)
        } else if ending == Ending::Code(127) && self.restarts == 0 {
            Some(Why::NotStarted)
        } else if self.restarts >= self.max_restarts && !is_same {
            Some(Why::Restarted(self.max_restarts))
        } else {
            None
        }
    }
}

impl supervise::Policy for Policy {
    type Input = JobInput;
    type Outcome = Outcome;

    fn lost(&mut self, now: Duration, lost: Lost, places: &mut Places<Outcome>) {
        let Agent::Task(id) = lost.agent else { return };
        match lost.how {
            How::Ended { ending, .. } if ending.is_well() => self.done(now, id, places),
            How::Ended { ending, .. } => self.failed(now, id, ending, places),
            // Its machine takes no orders: it is about to be lost.
            How::NotStarted(_) => self.failed(now, id, Ending::MachineLost, places),
        }
    }

    fn look(&mut self, now: Duration, passed: Duration, places: &mut Places<Outcome>) {
        let connect = self.patience.limits.connect;
        // One that waits for its machine writes nothing, and others may wait for it.
        let is_away = |id: u32| {
            let agent = Agent::Task(id);
            places.process(agent).is_none() && !places.is_done(agent)
        };
        let is_whole = !(0..self.members.len() as u32).any(is_away);
        let out_of_time = self.patience.look(now, if is_whole { passed } else { Duration::ZERO });
        let is_late = |id: &u32| {
            let process = places.process(Agent::Task(*id));
            process.is_some_and(|p| now.saturating_sub(p.since) > connect)
        };
        let left = self.left;
        let failed = |process, why| Outcome::Failed(Failed { process, ending: None, why, left });
        if let Some(id) = self.unmet(places).into_iter().find(is_late) {
            return places.end(failed(id, Why::NeverMet));
        }
        let went_on = || {
            let mut running = places.processes().filter_map(|(agent, _)| match agent {
                Agent::Task(id) => Some(id),
                _ => None,
            });
            running.find(|id| !is_service(&self.members[*id as usize]))
        };
        if let Some(done) = self.leader_done
            && now.saturating_sub(done) > connect
            && let Some(id) = went_on()
        {
            return places.end(failed(id, Why::WentOn));
        }
        if let Some(why) = out_of_time {
            let id = went_on().unwrap_or(0);
            places.end(failed(id, why));
        }
    }

    fn on(&mut self, now: Duration, input: JobInput, places: &mut Places<Outcome>) {
        match input {
            JobInput::Began(members) => {
                places.begin((0..members.len() as u32).map(Agent::Task));
                (self.members, self.leader_done, self.left) = (members, None, None);
                self.patience.begin(now);
                self.hopeless.clear();
                self.of_others.clear();
                self.blamed = None;
            }
            JobInput::Hopeless { process, why } => drop(self.hopeless.insert(process, why)),
            JobInput::OfOthers { process } => drop(self.of_others.insert(process)),
            JobInput::Own { process, ending, why } => self.blame(process, ending, why, places),
            JobInput::Looked { process } => {
                // Processes that went on, or failed, while machines were asked are not stuck.
                if let Some(why) = self.patience.why().filter(|_| places.is_up()) {
                    let left = self.left;
                    places.end(Outcome::Failed(Failed { process, ending: None, why, left }));
                }
            }
            JobInput::AllAgain if places.is_up() => places.all_again(now),
            JobInput::AllAgain => {}
            // Between two rounds there is nothing to look at.
            JobInput::TooLate => {
                let (why, left) = (Why::TimedOut, self.left);
                let failed = Failed { process: 0, ending: None, why, left };
                places.end(Outcome::Failed(failed));
            }
            JobInput::Interrupted => places.end(Outcome::Interrupted),
        }
    }
}

fn pause(restarts: u32) -> Duration {
    Backoff { first: PAUSE, longest: PAUSE_MAX }.pause(restarts.saturating_add(1))
}

#[cfg(test)]
mod tests;
