//! A run: what happened goes in, what to do comes out, with its reason. Pure.
//!
//! [`Run::step`] takes the time and what has happened, and returns what to do. It owns what is the
//! same for every training method: members, scoring, checkpoints, the end, the record, the pulse.
//! What is leased, what a contribution is, when a step counts and what is saved is a
//! [`Method`]'s. Never touches files, sockets or clocks; the shell around it acts and reports back.
//! A lost worker costs its unfinished work; a lost server ends this process, and the next one goes
//! on from the record. Only what the user must change, and what cannot be computed, ends the run.
//!
//! # Layout
//! - [`course`]: train, validate, save, end; the same in one process and in many. [`watch`]: the
//!   best epoch, and when to stop
//! - [`Method`]: what differs from one training method to the next
//! - `words`: what a run is told and what it answers; `hearing`: which part of it hears what
//! - [`members`]: who takes part; `joining`: who comes; `servers`: parameter servers, and where the
//!   run goes on from; `losing`: who goes or is late; `watching`: what follows from time alone
//! - `committing`: steps that count; [`patience`]: how long one may take
//! - [`scoring`], `evaluating`: held-out parts; `saving`: checkpoints; `ending`: the last words
//! - [`record`]: what outlives the coordinator's process

mod committing;
pub mod course;
mod ending;
mod evaluating;
mod hearing;
mod joining;
mod losing;
pub mod members;
mod method;
pub mod patience;
pub mod record;
mod saving;
pub mod scoring;
mod servers;
pub mod watch;
mod watching;
mod words;

pub use committing::Counted;
use course::{Course, End, Next};
pub use joining::WORKERS_MAX;
use losing::{Loss, Stall};
use members::{Members, Standing, Worker};
pub use method::{Arrival, Batches, Method};
use patience::Patience;
use planaria_learn::Scores;
use planaria_protocol::event::{Activity, Doing, Pulse, What, WorkerPulse};
use planaria_protocol::message::{Agent, HeldOut, Join, ToServer, ToWorker, Trouble};
use planaria_protocol::state::State;
use record::{Pending, Record};
use saving::Save;
use scoring::Scoring;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;
pub use words::{
    Action, Begun, Config, Decision, Input, Left, Origin, Saving, Scored, Session, Snapshot,
};

/// How long the other workers are waited for when enough are ready: at the beginning, and when
/// everyone joins again.
const GRACE: Duration = Duration::from_secs(2);
const GRACE_AFTER_LOSS: Duration = Duration::from_millis(300);
/// The same where none of the others has so much as joined: their machines may never come.
const GRACE_FOR_ABSENT: Duration = Duration::from_millis(300);

/// What the run is doing.
#[derive(Debug)]
pub(crate) enum Phase {
    Gathering,
    Training,
    /// A part is being scored; with an end, it is the last thing to do.
    Scoring(Scoring, Option<End>),
    /// All is decided; the last checkpoint is being written.
    Ending(End),
    /// It cannot go on; the last checkpoint is being written.
    Failing(Trouble),
    Over,
}

/// Too few workers are there to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    pub have: u32,
    pub need: u32,
}

/// A run on many processes, by one method.
#[derive(Debug)]
pub struct Run<M> {
    pub(crate) config: Config,
    pub(crate) course: Course,
    pub(crate) method: M,
    pub(crate) phase: Phase,
    pub(crate) members: Members,
    /// Workers wanted.
    pub(crate) wanted: u32,
    pub(crate) patience: Patience,
    pub(crate) paused: Option<Shortage>,
    /// When the last step was committed, or training went on.
    pub(crate) stepped: Duration,
    /// Whether the record is behind.
    pub(crate) unkept: bool,
    origin: Origin,
    /// Whether it is decided where the run goes on from.
    is_settled: bool,
    /// Whether it takes up what another coordinator has left.
    recovering: bool,
    /// Whether servers begin from a checkpoint whose parts were not compared before.
    unproven: bool,
    /// How long others are waited for when enough workers are ready to begin.
    grace: Duration,
    /// Since when enough workers are ready to begin.
    enough_since: Option<Duration>,
    /// Revocations so far.
    tickets: u64,
    /// Losses that no event has told.
    losses: Vec<Loss>,
    /// Processes whose loss was told.
    told_losses: VecDeque<(Agent, u32)>,
    stall: Option<Stall>,
    save: Option<Save>,
    scores: Option<(HeldOut, Scores)>,
    /// The longest that scoring a batch took.
    longest_batch: Option<Duration>,
    pending: Option<Pending>,
    /// When anything last happened.
    now: Duration,
    /// The longest that a member was silent lately.
    gap: Duration,
    /// The run's seconds when this machine's clock stood at zero.
    seconds_before: f64,
    decisions: Vec<Decision>,
}

/// A run, whatever its method.
pub trait Decider {
    /// Why a process that wants to join is refused, if it is.
    fn refusal(&self, join: &Join) -> Option<String>;
    /// What follows from something that happened at `now`.
    fn step(&mut self, now: Duration, input: Input) -> Vec<Decision>;
    /// Where the run is at `now`.
    fn pulse(&self, now: Duration) -> Pulse;
    /// How far the run has come.
    fn state(&self) -> &State;
    /// Seconds of the run, pauses left out.
    fn seconds(&self, now: Duration) -> f64;
}

impl<M: Method> Decider for Run<M> {
    fn refusal(&self, join: &Join) -> Option<String> {
        Self::refusal(self, join)
    }

    fn step(&mut self, now: Duration, input: Input) -> Vec<Decision> {
        Self::step(self, now, input)
    }

    fn pulse(&self, now: Duration) -> Pulse {
        Self::pulse(self, now)
    }

    fn state(&self) -> &State {
        Self::state(self)
    }

    fn seconds(&self, now: Duration) -> f64 {
        Self::seconds(self, now)
    }
}

impl<M: Method> Run<M> {
    /// A run that is about to begin.
    pub fn new(session: Session, method: M) -> Self {
        let Session { mut config, setup, origin, seconds_before } = session;
        // A session that follows another is as large as its command says.
        let record = origin.record.as_ref().filter(|_| origin.after.is_some());
        let wanted = record.map_or(0, |r| r.workers);
        let wanted = if wanted > 0 { wanted } else { config.workers };
        // It may have been asked to be smaller than its least size.
        config.workers_min = config.workers_min.min(wanted);
        Self {
            members: Members::new(wanted, config.servers),
            course: Course::new(setup, origin.state.clone()),
            method,
            phase: Phase::Gathering,
            wanted,
            patience: Patience::default(),
            paused: None,
            stepped: Duration::ZERO,
            unkept: false,
            recovering: origin.record.is_some(),
            grace: if origin.after.is_some() { GRACE_AFTER_LOSS } else { GRACE },
            origin,
            is_settled: false,
            unproven: false,
            enough_since: None,
            tickets: 0,
            losses: Vec::new(),
            told_losses: VecDeque::new(),
            stall: None,
            save: None,
            scores: None,
            longest_batch: None,
            pending: None,
            now: Duration::ZERO,
            gap: Duration::ZERO,
            seconds_before,
            decisions: Vec::new(),
            config,
        }
    }

    /// What follows from something that happened at `now`.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Decision> {
        self.awake(now);
        let taken = match &self.phase {
            Phase::Over => Ok(()),
            // One error is enough; only the disk is waited for.
            Phase::Failing(trouble) => {
                if let Input::ManifestWritten(written) = input {
                    let trouble = trouble.clone();
                    // If it is not whole, `resume` takes the one before it.
                    let _ = self.checkpoint_written(written);
                    self.failed(trouble);
                }
                Ok(())
            }
            _ => {
                self.maybe_settle();
                self.take(now, input).and_then(|()| self.go_on(now))
            }
        };
        if let Err(trouble) = taken {
            self.fail(trouble);
        }
        self.keep();
        std::mem::take(&mut self.decisions)
    }

    /// Where the run is at `now`.
    pub fn pulse(&self, now: Duration) -> Pulse {
        let (activity, phase): (_, Cow<'_, str>) = match (&self.phase, self.paused) {
            (Phase::Gathering, _) => {
                (Activity::Gathering, self.members.waiting_for(self.wanted).into())
            }
            (Phase::Training | Phase::Scoring(..), Some(Shortage { have, need })) => {
                let phase = format!("paused, have {have}, need {need}: waiting for the pool");
                (Activity::Paused, phase.into())
            }
            (Phase::Training, None) => (Activity::Training, "training".into()),
            (Phase::Scoring(scoring, _), None) if scoring.part == HeldOut::Test => {
                (Activity::Scoring, "testing".into())
            }
            (Phase::Scoring(..), None) => (Activity::Scoring, "validating".into()),
            (Phase::Ending(_) | Phase::Failing(_), _) => (Activity::Saving, "saving".into()),
            (Phase::Over, _) => (Activity::Over, "over".into()),
        };
        let mut pulse = self.course.pulse(activity, &phase, self.seconds(now));
        // It is not known when there will be enough workers again.
        pulse.seconds_left = pulse.seconds_left.filter(|_| self.paused.is_none());
        let (loads, wanted) = (M::loads(self), self.wanted);
        let seen = |(number, w): &(&u32, &Worker)| **number < wanted || w.has_joined();
        let workers = self.members.workers.iter().filter(seen).map(|(worker, member)| {
            let shards = loads.get(worker).copied().unwrap_or(0);
            let mut pulse = WorkerPulse {
                worker: *worker,
                state: self.state_of(*worker, member, shards),
                shards,
                examples_per_second: member.rate,
                busy: member.busy,
                machine: member.machine.clone(),
                slot: None,
                rows: None,
            };
            M::describe(self, *worker, &mut pulse);
            pulse
        });
        pulse.workers = workers.collect();
        pulse.servers = self.members.server_pulses();
        pulse
    }

    /// What a worker does.
    fn state_of(&self, worker: u32, member: &Worker, load: u32) -> Doing {
        let is_paused = self.paused.is_some();
        match (member.standing, &self.phase) {
            _ if worker >= self.wanted => Doing::Leaving,
            _ if member.suspected.is_some() => Doing::Late,
            _ if member.cut.is_some() => Doing::CutOff,
            (Standing::Awaited, _) => Doing::Starting,
            (Standing::Joined, _) => M::doing(self, worker).unwrap_or(Doing::GettingReady),
            (Standing::Ready, Phase::Training) if !is_paused => match M::doing(self, worker) {
                Some(doing) => doing,
                None if load == 0 => Doing::Standby,
                None => Doing::Computing,
            },
            (Standing::Ready, Phase::Scoring(..)) if !is_paused => Doing::Evaluating,
            (Standing::Ready, _) => Doing::Ready,
        }
    }

    /// How far the run has come.
    pub fn state(&self) -> &State {
        self.course.state()
    }

    /// Seconds of the run, pauses left out.
    pub fn seconds(&self, now: Duration) -> f64 {
        self.seconds_before + now.as_secs_f64()
    }

    /// Does what the course says next, as far as it can be done now.
    fn go_on(&mut self, now: Duration) -> Result<(), Trouble> {
        while matches!(self.phase, Phase::Training) {
            if M::advance(self, now)? {
                return Ok(());
            }
            match self.course.next() {
                Next::Train(_) => {
                    if !M::begin(self, now)? {
                        return Ok(());
                    }
                    continue;
                }
                Next::Validate if self.config.held_out[0] == 0 => {
                    self.tell_pending();
                    let what = self.course.validated(self.seconds(now), None);
                    self.unkept = true;
                    self.record(what, "every batch of the epoch is committed");
                }
                Next::Validate => {
                    let why = "every batch of the epoch is committed";
                    self.score(now, HeldOut::Validation, None, why);
                }
                Next::Save { is_best, reason } => {
                    // One checkpoint at a time: the next one waits, unless the disk takes none.
                    if self.save.as_ref().is_some_and(|save| !save.has_failed()) {
                        return Ok(());
                    }
                    self.save(is_best, reason);
                }
                Next::End(End::Interrupted) => self.finish(End::Interrupted),
                Next::End(end) => match self.last_part() {
                    Some(part) => self.score(now, part, Some(end), "the last step is committed"),
                    None => self.finish(end),
                },
            }
            self.stepped = now;
        }
        Ok(())
    }

    /// Puts the record, if it has changed, before everything that relies on it.
    fn keep(&mut self) {
        if !std::mem::take(&mut self.unkept) || M::IS_ONE_PROCESS {
            return;
        }
        let told = self.decisions.iter().filter_map(|d| match &d.action {
            Action::Record(
                what @ (What::Steps(_)
                | What::Epoch { .. }
                | What::Committed { .. }
                | What::Recovered { .. }
                | What::Saved { .. }),
            ) => Some(what),
            _ => None,
        });
        let told: Vec<&What> = told.collect();
        let record = match &self.origin.record {
            // Whether the servers still hold what the record names is not known yet.
            Some(left) => Record { workers: self.wanted, ..left.clone() },
            None => Record {
                saving: self.save.as_ref().map(|save| save.saving.clone()),
                pending: self.pending,
                step_seconds: self.patience.typical(),
                workers: self.wanted,
                ..self.course.record()
            },
        };
        let keep = Action::Keep(Box::new(record.with_events(&told)));
        // A record counts on the state of its step.
        let state = M::state_to_keep(self);
        let state = state.map(|state| Action::KeepState { step: self.course.state().step, state });
        let kept = state.into_iter().chain([keep]);
        let kept =
            kept.map(|action| Decision { action, reason: "the run has come further".into() });
        self.decisions.splice(..0, kept.collect::<Vec<_>>());
    }

    pub(crate) fn record(&mut self, what: What, reason: impl Into<Cow<'static, str>>) {
        self.decide(Action::Record(what), reason);
    }

    pub(crate) fn decide(&mut self, action: Action, reason: impl Into<Cow<'static, str>>) {
        self.decisions.push(Decision { action, reason: reason.into() });
    }

    pub(crate) fn tell_worker(
        &mut self,
        worker: u32,
        message: impl Into<ToWorker>,
        reason: impl Into<Cow<'static, str>>,
    ) {
        self.decide(Action::to_worker(worker, message), reason);
    }

    pub(crate) fn tell_server(&mut self, server: u32, message: ToServer, reason: &'static str) {
        self.decide(Action::ToServer(server, message), reason);
    }

    /// Whether workers have something to do.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.phase, Phase::Training | Phase::Scoring(..))
    }

    /// Whether steps are taken.
    pub(crate) fn is_training(&self) -> bool {
        matches!(self.phase, Phase::Training) && self.paused.is_none()
    }

    /// Workers that can be given work.
    pub(crate) fn active(&self) -> Vec<u32> {
        self.members.active(self.wanted)
    }
}
