//! A run on many processes: members, rounds, leases, commits, checkpoints, losses.
//!
//! A pure state machine. [`Cluster::step`] takes the time and what has happened, and returns what
//! to do, each with its reason. The shell around it sends, writes and reports back. A lost worker
//! costs its unfinished shards; a lost server ends this process, and the next one goes on from the
//! record. Only what the user must change, and what cannot be computed, ends the run.
//!
//! # Layout
//! - `joining`: who takes part, and from where the run goes on; `entering`: weights are checked
//!   before a worker computes; `training`: rounds, leases, commits; `losing`: losses and late
//!   workers; `watching`: what follows from time alone; `scoring`: held-out parts; `saving`:
//!   checkpoints

mod entering;
mod joining;
mod losing;
mod saving;
mod scoring;
mod training;
mod watching;

use super::course::{Course, End, Next, Setup};
use super::gather::{Counted, Gather};
use super::leases::Leases;
use super::member::{Members, Standing};
use super::patience::Patience;
use super::record::{Pending, Record};
use super::scoring::Scoring;
use losing::{Mourned, Wound};
use planaria_learn::Scores;
use planaria_numerics::aggregate::shard_range;
use planaria_protocol::event::{Pulse, What};
use planaria_protocol::message::{
    Agent, FromServer, FromWorker, HeldOut, Kept, Share, ToServer, ToWorker, Trouble,
};
use planaria_protocol::state::State;
use saving::Save;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;
use watching::Inquiry;

/// How long the other workers are waited for when enough are ready: at the beginning, and when
/// everyone joins again.
const GRACE: Duration = Duration::from_secs(2);
const GRACE_AFTER_LOSS: Duration = Duration::from_millis(300);

/// What does not change in a session.
#[derive(Debug, Clone)]
pub struct Config {
    /// Workers that are wanted to begin with.
    pub workers: u32,
    /// Workers below which the run waits.
    pub workers_min: u32,
    /// Servers that hold parameters.
    pub servers: u32,
    /// Shards of each batch.
    pub shards: u32,
    /// Blocks of parameters in all.
    pub blocks: u32,
    /// Examples of a batch.
    pub batch: u64,
    /// Largest norm of the gradient.
    pub clip_norm: Option<f32>,
    /// Batches to score after an epoch, and at the end.
    pub held_out: [u64; 2],
    /// Which build everyone must be.
    pub build: String,
}

impl Config {
    /// The blocks of a server: about as many each, in order. Where there are too few, the first
    /// servers have one: server 0, which counts, must not be without.
    pub fn blocks_of(&self, server: u32) -> Range<u32> {
        if self.blocks < self.servers {
            return server.min(self.blocks)..(server + 1).min(self.blocks);
        }
        let range = shard_range(self.blocks as usize, self.servers as usize, server as usize);
        range.start as u32..range.end as u32
    }
}

/// Where a run goes on from.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The checkpoint's folder; from the seed without one.
    pub checkpoint: Option<String>,
    /// The run as the checkpoint has it.
    pub state: State,
    /// What a coordinator before this one has left, which is later.
    pub record: Option<Record>,
    /// Steps that count by what this session's events have told: the record may be lost, or be
    /// from before them.
    pub told: u64,
    /// What was lost, where this coordinator takes the place of another in the same session.
    pub after: Option<String>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A process has joined.
    Joined {
        /// Who.
        agent: Agent,
        /// Its process.
        pid: u32,
        /// Its build.
        build: String,
        /// Where it listens.
        address: Option<String>,
        /// What a server has kept from before.
        kept: Option<Kept>,
    },
    /// A process has gone: its link has ended, or it has.
    Left {
        /// Who.
        agent: Agent,
        /// Its process.
        pid: u32,
        /// How that was seen.
        how: String,
        /// Whether whoever started it says so, who knows best.
        ended: bool,
    },
    /// A worker said something.
    Worker(u32, FromWorker),
    /// A worker has scored a batch.
    Scored(u32, HeldOut, u64, Scores),
    /// A server said something, with the squares that came with it.
    Server(u32, FromServer, Vec<f64>),
    /// A checkpoint's manifest is on the disk, in this folder; or why not.
    ManifestWritten(Result<String, String>),
    /// A stop was asked for.
    Stop(String),
    /// So many workers are wanted from now on.
    Scale(u32),
    /// Time has passed. Comes at least every tenth of a second, unless nobody could run.
    Tick,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Write this where another coordinator finds it, before anything after it is done.
    Keep(Box<Record>),
    /// Say this to a worker.
    ToWorker(u32, ToWorker),
    /// Say this to a server.
    ToServer(u32, ToServer),
    /// Write this down and tell everyone who watches.
    Record(What),
    /// Make a folder for a checkpoint of these steps and tell every server to write to it.
    Save(u64),
    /// Remove what was written of a checkpoint that does not come about.
    Abandon,
    /// Write a checkpoint's manifest.
    WriteManifest(Box<Saving>),
    /// Tell whoever starts processes how many workers are wanted.
    Pool(u32),
    /// Let whoever started this process end it.
    Kill(Agent, u32),
    /// This coordinator cannot go on; another is to take its place.
    Restart,
    /// The run is over.
    End,
}

/// An action and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: Cow<'static, str>,
}

/// A checkpoint on its way to the disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saving {
    /// The run as it was.
    pub state: State,
    /// Whether it is the best epoch so far.
    pub is_best: bool,
    /// Why it is written.
    pub reason: String,
    /// By server: file, SHA-256 and length.
    pub parts: Vec<Option<(String, String, u64)>>,
}

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
    /// How long others are waited for when enough workers are ready to begin.
    grace: Duration,
    /// Since when enough workers are ready to begin.
    enough_since: Option<Duration>,
    /// Whether too few workers are there to go on.
    paused: bool,
    shares: Vec<Share>,
    redealt: Duration,
    leases: Leases,
    gather: Gather,
    patience: Patience,
    inquiry: Option<Inquiry>,
    /// Revocations so far.
    tickets: u64,
    mourned: Vec<Mourned>,
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
        let wanted = origin.record.as_ref().map_or(0, |r| r.workers);
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
            grace,
            enough_since: None,
            paused: false,
            shares: Vec::new(),
            redealt: Duration::ZERO,
            phase: Phase::Gathering,
            leases: Leases::default(),
            inquiry: None,
            tickets: 0,
            mourned: Vec::new(),
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
                format!("paused: {have} of {min} workers, waiting for the pool")
            }
            Phase::Training => "training".into(),
            Phase::Scoring(scoring, _) if scoring.part == HeldOut::Test => "testing".into(),
            Phase::Scoring(..) => "validating".into(),
            Phase::Ending(_) | Phase::Failing(_) => "saving".into(),
            Phase::Over => "over".into(),
        };
        let mut pulse = self.course.pulse(&phase, self.seconds(now));
        (pulse.workers, pulse.servers) = self.members.pulses(&phase, &self.shares, self.wanted);
        pulse
    }

    fn take(&mut self, now: Duration, input: Input) -> Result<(), Trouble> {
        match input {
            Input::Joined { agent, pid, build, address, kept } => {
                self.joined(now, agent, pid, &build, (address, kept))
            }
            Input::Left { agent, pid, how, ended } => self.left(now, agent, pid, how, ended),
            Input::Worker(worker, said) => self.worker_said(now, worker, said),
            Input::Server(server, said, squares) => self.server_said(now, server, said, squares),
            Input::Scored(worker, part, batch, scores) => {
                self.heard_worker(worker, now);
                self.scored(now, part, batch, scores)
            }
            Input::ManifestWritten(written) => self.manifest_written(now, written),
            Input::Scale(workers) => self.scale(now, workers),
            Input::Tick => self.tick(now),
            Input::Stop(reason) => {
                if !self.course.stopping() {
                    self.course.stop();
                    self.record(What::Stopping { reason: reason.clone() }, reason);
                }
                match self.phase {
                    // What was kept must be saved, as soon as the servers have it again.
                    Phase::Gathering if self.recovering => {
                        if self.members.servers_are(Standing::Ready) {
                            self.begin_training(now)?;
                        }
                    }
                    // Nothing is under way that could be finished.
                    Phase::Gathering => self.end(End::Interrupted),
                    // What is leased is finished first, if there is anybody to; scores are given up.
                    Phase::Training if !self.leases.is_empty() && !self.paused => {}
                    // The weights are saved; `resume` scores them.
                    Phase::Scoring(_, Some(_)) => self.finish(End::Interrupted),
                    Phase::Training | Phase::Scoring(_, None) => {
                        self.leases.clear();
                        self.go_on(now)?;
                    }
                    Phase::Ending(_) | Phase::Failing(_) | Phase::Over => {}
                }
                Ok(())
            }
        }
    }

    fn worker_said(&mut self, now: Duration, worker: u32, said: FromWorker) -> Result<(), Trouble> {
        self.heard_worker(worker, now);
        match said {
            FromWorker::Ready { engine, threads } => {
                self.worker_ready(now, worker, engine, threads)
            }
            FromWorker::Pace { examples, busy_seconds, waiting_seconds, .. } => {
                let per_shard = self.config.batch.div_ceil(u64::from(self.config.shards)).max(1);
                let shards = examples as f64 / per_shard as f64;
                if let Some(member) = self.members.workers.get_mut(&worker) {
                    member.pace((examples, shards), busy_seconds, waiting_seconds);
                }
                Ok(())
            }
            FromWorker::Holds { step, sha256 } => self.holds(now, worker, step, sha256),
            FromWorker::Revoked { ticket } => self.revoked(now, worker, ticket),
            FromWorker::Behind { step } => self.behind(now, worker, step),
            FromWorker::Cut { server, why } => self.cut(now, worker, server, &why),
            FromWorker::Failed(trouble) if trouble.fix_input => Err(Trouble {
                message: format!("worker-{worker} cannot go on: {}", trouble.message),
                ..trouble
            }),
            // It ends now; that it did, and why, is told by its link.
            FromWorker::Failed(trouble) => self.lose_worker(now, worker, trouble.message, false),
            // The shell passes it on as `Input::Scored`.
            FromWorker::Evaluated { .. } | FromWorker::Alive => Ok(()),
        }
    }

    fn server_said(
        &mut self,
        now: Duration,
        server: u32,
        said: FromServer,
        squares: Vec<f64>,
    ) -> Result<(), Trouble> {
        let at = server as usize;
        let Some(member) = self.members.servers.get_mut(at) else { return Ok(()) };
        self.gap = self.gap.max(now.saturating_sub(member.heard));
        member.heard = now;
        match said {
            FromServer::Ready => self.server_ready(now, server),
            FromServer::Summed { step } => {
                self.expect_step(server, step)?;
                self.gather.squares(at, squares).map_err(Trouble::new)?;
                self.clip(step)
            }
            FromServer::Applied { step } => {
                self.expect_step(server, step)?;
                if self.config.clip_norm.is_none() {
                    self.gather.squares(at, squares).map_err(Trouble::new)?;
                }
                self.gather.applied(at);
                self.commit(now)
            }
            FromServer::Counted { step, loss_sum, correct, read } => {
                self.expect_step(server, step)?;
                self.gather.counted(Counted { loss_sum, correct, read });
                self.commit(now)
            }
            FromServer::Load { seconds, busy_seconds, bytes_out, .. } => {
                member.load(seconds, busy_seconds, bytes_out);
                Ok(())
            }
            FromServer::Missing { step, segments, shards } => {
                self.missing(now, server, step, (segments, shards));
                Ok(())
            }
            FromServer::Pulled { worker, step, sha256 } => {
                self.pulled(now, server, worker, step, sha256)
            }
            FromServer::Saved { step, file, sha256, bytes } => {
                self.part_saved(now, server, step, Ok((file, sha256, bytes)))
            }
            FromServer::NotSaved { step, why } => {
                let why = format!("server-{server} cannot write its part: {why}");
                self.part_saved(now, server, step, Err(why))
            }
            FromServer::Alive => Ok(()),
            FromServer::Failed(trouble) => Err(Trouble {
                message: format!("server-{server} cannot go on: {}", trouble.message),
                ..trouble
            }),
        }
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

    /// Ends as soon as nothing is on its way to the disk.
    fn finish(&mut self, end: End) {
        match self.save {
            Some(_) => self.phase = Phase::Ending(end),
            None => self.end(end),
        }
    }

    fn end(&mut self, end: End) {
        let (outcome, reason) = match &end {
            End::Completed => ("completed", None),
            End::StoppedEarly(reason) => ("stopped_early", Some(reason.clone())),
            End::Interrupted => ("interrupted", None),
        };
        if let Some((part, scores)) = &self.scores {
            let scored = What::Scored {
                part: *part,
                examples: scores.examples(),
                loss: scores.loss(),
                accuracy: scores.accuracy(),
                scores: serde_json::to_value(scores).unwrap_or_default(),
            };
            self.record(scored, "the last weights are scored");
        }
        self.over(outcome, reason, None);
    }

    /// Ends the run with an error. A checkpoint whose parts are all on the disk is finished first:
    /// it is what the run will go on from.
    fn fail(&mut self, trouble: Trouble) {
        let whole = |save: &Save| save.saving.parts.iter().all(Option::is_some);
        if self.save.as_ref().is_some_and(whole) {
            self.phase = Phase::Failing(trouble);
        } else {
            self.failed(trouble);
        }
    }

    fn failed(&mut self, trouble: Trouble) {
        self.over("failed", Some(trouble.message.clone()), Some(trouble));
    }

    fn over(&mut self, outcome: &str, reason: Option<String>, trouble: Option<Trouble>) {
        self.tell_pending();
        self.bury_all();
        self.phase = Phase::Over;
        let (outcome, state) = (outcome.to_owned(), self.course.state().clone());
        let (step, state) = (state.step, Some(Box::new(state)));
        let ended = What::Ended { outcome, reason, step, weights_sha256: None, trouble, state };
        self.record(ended, "nothing is left to do");
        let workers: Vec<u32> = self.members.workers.keys().copied().collect();
        for worker in workers {
            self.decide(Action::ToWorker(worker, ToWorker::Finish), "the run is over");
        }
        for server in 0..self.config.servers {
            self.decide(Action::ToServer(server, ToServer::Finish), "the run is over");
        }
        self.decide(Action::End, "the run is over");
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
