//! How long a job may take, and what comes of one that takes longer. Pure: time is an argument.

use super::Why;
use planaria_recipe::script::Job;
use std::time::Duration;

/// How long it may take to look who waits for whom.
const LOOKED_WITHIN: Duration = Duration::from_secs(15);

/// How long a job may take to do what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Until its processes have found each other.
    pub connect: Duration,
    /// In all, from the first start of its processes.
    pub timeout: Option<Duration>,
    /// Without output of any process.
    pub silence: Option<Duration>,
}

impl Limits {
    /// As its recipe has them.
    pub fn of(job: &Job) -> Self {
        Self {
            connect: Duration::from_secs(job.script.connect_seconds),
            timeout: job.script.timeout.map(Duration::from_secs),
            silence: job.script.silence.map(Duration::from_secs),
        }
    }
}

/// What a job has taken by now.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    pub(super) limits: Limits,
    began: Option<Duration>,
    /// Counted in looks, so that a controller that was itself suspended blames no process.
    silent: Duration,
    stuck: Option<Stuck>,
}

/// A job that is about to be ended because of time.
#[derive(Debug, Clone, Copy)]
struct Stuck {
    why: Why,
    since: Duration,
    is_told: bool,
}

impl Patience {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, began: None, silent: Duration::ZERO, stuck: None }
    }

    /// All processes are being started.
    pub(super) fn begin(&mut self, now: Duration) {
        self.began.get_or_insert(now);
        (self.silent, self.stuck) = (Duration::ZERO, None);
    }

    /// A process has written something.
    pub(super) fn wrote(&mut self) {
        self.silent = Duration::ZERO;
        self.stuck = self.stuck.filter(|stuck| stuck.why != Why::Silent);
    }

    /// Time has passed. Why the job is ended, where machines have not said in time who waits for whom.
    pub(super) fn look(&mut self, now: Duration, passed: Duration) -> Option<Why> {
        self.silent += passed;
        let why = self.overdue(now)?;
        let stuck = self.stuck.get_or_insert(Stuck { why, since: now, is_told: false });
        (now.saturating_sub(stuck.since) > LOOKED_WITHIN).then_some(stuck.why)
    }

    /// Whether time is up, said once.
    pub(super) fn take(&mut self) -> bool {
        let stuck = self.stuck.as_mut().filter(|stuck| !stuck.is_told);
        stuck.map(|stuck| stuck.is_told = true).is_some()
    }

    /// Why time is up, if it is.
    pub(super) fn why(&self) -> Option<Why> {
        self.stuck.map(|stuck| stuck.why)
    }

    pub(super) fn is_too_late(&self, now: Duration) -> bool {
        let taken = self.began.map(|began| now.saturating_sub(began));
        taken.zip(self.limits.timeout).is_some_and(|(taken, most)| taken > most)
    }

    fn overdue(&self, now: Duration) -> Option<Why> {
        if self.is_too_late(now) {
            return Some(Why::TimedOut);
        }
        self.began?;
        self.limits.silence.is_some_and(|most| self.silent > most).then_some(Why::Silent)
    }
}
