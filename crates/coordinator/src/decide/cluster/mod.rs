//! A run on many processes: members, rounds, leases, commits, checkpoints, losses.
//!
//! A pure state machine. [`Cluster::step`] takes the time and what has happened, and returns what
//! to do, each with its reason. The shell around it sends, writes and reports back. A lost worker
//! costs its unfinished shards; a lost server ends this process, and the next one goes on from the
//! record. Only what the user must change, and what cannot be computed, ends the run.
//!
//! # Layout
//! - `words`: what it is told and what it answers; `hearing`: who is told what happened
//! - `joining`: who takes part, and from where the run goes on; `entering`: weights are checked
//!   before a worker computes; `training`: rounds, leases, commits; `losing`: losses and late
//!   workers; `watching`: what follows from time alone; `scoring`: held-out parts; `saving`:
//!   checkpoints; `ending`: the last words

mod ending;
mod entering;
mod hearing;
mod joining;
mod losing;
mod saving;
mod scoring;
mod training;
mod watching;
mod words;

use super::course::{Course, End, Next, Setup};
use super::gather::Gather;
use super::leases::Leases;
use super::member::{Members, Standing};
use super::patience::Patience;
use super::record::{Pending, Record};
use super::scoring::Scoring;
use losing::{Mourned, Wound};
use planaria_learn::Scores;
use planaria_protocol::event::{Pulse, What};
use planaria_protocol::message::{Agent, HeldOut, Share, ToWorker, Trouble};
use planaria_protocol::state::State;
use saving::Save;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;
use watching::Inquiry;
pub use words::{Action, Config, Decision, Input, Origin, Saving};

/// How long the other workers are waited for when enough are ready: at the beginning, and when
/// everyone joins again.
const GRACE: Duration = Duration::from_secs(2);
const GRACE_AFTER_LOSS: Duration = Duration::from_millis(300);

/// What the run is doing.
#[derive(Debug)]
enum Phase {
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

/// A run on many processes.
#[derive(Debug)]
pub struct Cluster {
    config: Config,
    course: Course,
    origin: Origin,
    phase: Phase,
    members: Members,
    /// Workers wanted.
    wanted: u32,
    /// Whether it takes up what another coordinator has left.
    recovering: bool,
    /// Whether servers begin from a checkpoint whose parts nobody has compared before.
    unproven: bool,
    /// How long others are waited for when enough workers are ready to begin.
    grace: Duration,
    /// Since when enough workers are ready to begin.
    enough_since: Option<Duration>,
    /// Whether too few workers are there to go on.
    paused: bool,
    shares: Vec<Share>,
    /// Shares that others compute as well.
    copies: Vec<Share>,
    redealt: Duration,
    leases: Leases,
    gather: Gather,
    patience: Patience,
    inquiry: Option<Inquiry>,
    /// Revocations so far.
    tickets: u64,
    mourned: Vec<Mourned>,
    buried: VecDeque<(Agent, u32)>,
    wound: Option<Wound>,
    save: Option<Save>,
    scores: Option<(HeldOut, Scores)>,
    /// The longest that scoring a batch took.
    longest_batch: Option<Duration>,
    pending: Option<Pending>,
    /// When the last step was committed, or training went on.
    stepped: Duration,
    /// When anything last happened.
    now: Duration,
    /// The longest that anyone was silent lately.
    gap: Duration,
    /// The run's seconds when this machine's clock stood at zero.
    before: f64,
    /// Whether the record is behind.
    unkept: bool,
    decisions: Vec<Decision>,
}

impl Cluster {
    /// A run that is about to begin; `before` is how many seconds of it are past at time zero.
    pub fn new(mut config: Config, setup: Setup, origin: Origin, before: f64) -> Self {
        let sizes = (0..config.servers).map(|s| config.blocks_of(s).len()).collect();
        // A session that follows another is as large as its command says.
        let record = origin.record.as_ref().filter(|_| origin.after.is_some());
        let wanted = record.map_or(0, |r| r.workers);
        let wanted = if wanted > 0 { wanted } else { config.workers };
        // It may have been asked to be smaller than its least size.
        config.workers_min = config.workers_min.min(wanted);
        let recovering = origin.record.is_some();
        let grace = if origin.after.is_some() { GRACE_AFTER_LOSS } else { GRACE };
        Self {
            members: Members::new(wanted, config.servers),
            gather: Gather::new(sizes),
            course: Course::new(setup, origin.state.clone()),
            patience: Patience::default(),
            origin,
            wanted,
            recovering,
            unproven: false,
            grace,
            enough_since: None,
            paused: false,
            shares: Vec::new(),
            copies: Vec::new(),
            redealt: Duration::ZERO,
            phase: Phase::Gathering,
            leases: Leases::default(),
            inquiry: None,
            tickets: 0,
            mourned: Vec::new(),
            buried: VecDeque::new(),
            wound: None,
            save: None,
            scores: None,
            longest_batch: None,
            pending: None,
            stepped: Duration::ZERO,
            now: Duration::ZERO,
            gap: Duration::ZERO,
            before,
            unkept: false,
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
            Phase::Failing(trouble) => match input {
                Input::ManifestWritten(written) => {
                    let trouble = trouble.clone();
                    // If it is not whole, the one before it is gone on from.
                    let _ = self.checkpoint_written(written);
                    self.failed(trouble);
                    Ok(())
                }
                _ => Ok(()),
            },
            _ => self.take(now, input),
        };
        if let Err(trouble) = taken {
            self.fail(trouble);
        }
        self.keep();
        std::mem::take(&mut self.decisions)
    }

    /// Puts the record, if it has changed, before everything that relies on it.
    fn keep(&mut self) {
        if !std::mem::take(&mut self.unkept) {
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
            // It is not known yet whether what was left can be gone on from.
            Some(left) => Record { workers: self.wanted, ..left.clone() },
            None => Record {
                saving: self.save.as_ref().map(|save| save.saving.clone()),
                pending: self.pending,
                step_seconds: self.patience.typical(),
                workers: self.wanted,
                ..self.course.record()
            },
        };
        let action = Action::Keep(Box::new(record.with_events(&told)));
        let reason = Cow::Borrowed("the run has come further");
        self.decisions.insert(0, Decision { action, reason });
    }

    /// Where the run is at `now`.
    pub fn pulse(&self, now: Duration) -> Pulse {
        let phase = match &self.phase {
            Phase::Gathering => self.members.waiting_for(self.wanted),
            Phase::Training | Phase::Scoring(..) if self.paused => {
                let (have, min) = (self.members.active(self.wanted).len(), self.config.workers_min);
                format!("paused, have {have}, need {min}: waiting for the pool")
            }
            Phase::Training => "training".into(),
            Phase::Scoring(scoring, _) if scoring.part == HeldOut::Test => "testing".into(),
            Phase::Scoring(..) => "validating".into(),
            Phase::Ending(_) | Phase::Failing(_) => "saving".into(),
            Phase::Over => "over".into(),
        };
        let mut pulse = self.course.pulse(&phase, self.seconds(now));
        (pulse.workers, pulse.servers) = self.members.pulses(&phase, self.dealt(), self.wanted);
        pulse
    }

    /// Does what the course says next, as far as it can be done now.
    fn go_on(&mut self, now: Duration) -> Result<(), Trouble> {
        // A stop lets what is leased come to its end.
        if !self.leases.is_empty() {
            if !self.course.stopping() {
                self.lease(now);
            }
            return Ok(());
        }
        loop {
            match self.course.next() {
                Next::Train(_) => {
                    self.phase = Phase::Training;
                    self.lease(now);
                    return Ok(());
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
                    return Ok(());
                }
                Next::Save { is_best, reason } => {
                    // One checkpoint at a time: the next one waits, unless the disk takes none.
                    if self.save.as_ref().is_some_and(|save| !save.has_failed()) {
                        return Ok(());
                    }
                    self.save(is_best, reason);
                }
                Next::End(End::Interrupted) => {
                    self.finish(End::Interrupted);
                    return Ok(());
                }
                Next::End(end) => {
                    match self.last_part() {
                        Some(part) => {
                            self.score(now, part, Some(end), "the last step is committed");
                        }
                        None => self.finish(end),
                    }
                    return Ok(());
                }
            }
            self.stepped = now;
        }
    }

    /// How far the run has come.
    pub fn state(&self) -> &State {
        self.course.state()
    }

    /// Seconds of the run, pauses left out.
    pub fn seconds(&self, now: Duration) -> f64 {
        self.before + now.as_secs_f64()
    }

    fn record(&mut self, what: What, reason: impl Into<Cow<'static, str>>) {
        self.decide(Action::Record(what), reason);
    }

    fn decide(&mut self, action: Action, reason: impl Into<Cow<'static, str>>) {
        self.decisions.push(Decision { action, reason: reason.into() });
    }

    fn tell_worker(
        &mut self,
        worker: u32,
        message: ToWorker,
        reason: impl Into<Cow<'static, str>>,
    ) {
        self.decide(Action::ToWorker(worker, message), reason);
    }

    /// Whether a server holds parameters; one without has nothing to say of a step.
    fn has_blocks(&self, server: u32) -> bool {
        !self.config.blocks_of(server).is_empty()
    }

    fn standing(&self, worker: u32) -> Standing {
        self.members.workers.get(&worker).map_or(Standing::Awaited, |w| w.standing)
    }
}
