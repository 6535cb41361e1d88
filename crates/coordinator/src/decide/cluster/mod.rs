//! A run on many processes: members, rounds, leases, commits, checkpoints.
//!
//! A pure state machine. [`Cluster::step`] takes the time and what has happened, and returns what
//! to do, each with its reason. The shell around it sends, writes and reports back. When anything
//! is lost the run ends with one error that names it.
//!
//! # Layout
//! - `joining`: who takes part; `training`: rounds, leases, commits; `scoring`: held-out parts;
//!   `saving`: checkpoints

mod joining;
mod saving;
mod scoring;
mod training;

use super::course::{Course, End, Next};
use super::gather::{Counted, Gather};
use super::member::{Members, Standing};
use super::scoring::Scoring;
use planaria_learn::Scores;
use planaria_numerics::aggregate::shard_range;
use planaria_protocol::event::{Pulse, What};
use planaria_protocol::message::Share;
use planaria_protocol::message::{
    Agent, FromServer, FromWorker, HeldOut, Steps, ToServer, ToWorker, Trouble,
};
use planaria_protocol::state::State;
use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

/// What does not change in a session.
#[derive(Debug, Clone)]
pub struct Config {
    /// Workers that take part.
    pub workers: u32,
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
    /// The checkpoint the run goes on from.
    pub checkpoint: Option<String>,
    /// Which build everyone must be.
    pub build: String,
}

impl Config {
    /// The blocks of a server: about as many each, in order.
    pub fn blocks_of(&self, server: u32) -> Range<u32> {
        let range = shard_range(self.blocks as usize, self.servers as usize, server as usize);
        range.start as u32..range.end as u32
    }
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
    },
    /// A process has gone.
    Left {
        /// Who.
        agent: Agent,
        /// How that was seen.
        how: String,
    },
    /// A worker said something.
    Worker(u32, FromWorker),
    /// A worker has scored a batch.
    Scored(HeldOut, u64, Scores),
    /// A server said something, with the squares that came with it.
    Server(u32, FromServer, Vec<f64>),
    /// A checkpoint's manifest is on the disk, in this folder; or why not.
    ManifestWritten(Result<String, String>),
    /// A stop was asked for.
    Stop(String),
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Say this to a worker.
    ToWorker(u32, ToWorker),
    /// Say this to a server.
    ToServer(u32, ToServer),
    /// Write this down and tell everyone who watches.
    Record(What),
    /// Make a folder for a checkpoint of these steps and tell every server to write to it.
    Save(u64),
    /// Write a checkpoint's manifest.
    WriteManifest(Box<Saving>),
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
#[derive(Debug, Clone, PartialEq)]
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
    /// Something was lost; the last checkpoint is being written.
    Failing(Trouble),
    Over,
}

/// A run on many processes.
#[derive(Debug)]
pub struct Cluster {
    config: Config,
    course: Course,
    phase: Phase,
    members: Members,
    shares: Vec<Share>,
    redealt: Duration,
    /// Rounds leased and not yet committed to their end.
    leased: Vec<Steps>,
    gather: Gather,
    saving: Option<Saving>,
    scores: Option<(HeldOut, Scores)>,
    /// When the last step was committed, or training went on.
    stepped: Duration,
    step_seconds: Option<f64>,
    /// The run's seconds when this machine's clock stood at zero.
    before: f64,
    decisions: Vec<Decision>,
}

impl Cluster {
    /// A run that is about to begin; `before` is how many seconds of it are past at time zero.
    pub fn new(config: Config, course: Course, before: f64) -> Self {
        let sizes = (0..config.servers).map(|s| config.blocks_of(s).len()).collect();
        Self {
            members: Members::new(config.workers, config.servers),
            gather: Gather::new(sizes),
            shares: Vec::new(),
            redealt: Duration::ZERO,
            phase: Phase::Gathering,
            leased: Vec::new(),
            saving: None,
            scores: None,
            stepped: Duration::ZERO,
            step_seconds: None,
            before,
            decisions: Vec::new(),
            config,
            course,
        }
    }

    /// What follows from something that happened at `now`.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Decision> {
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
        std::mem::take(&mut self.decisions)
    }

    /// Where the run is at `now`.
    pub fn pulse(&self, now: Duration) -> Pulse {
        let phase = match &self.phase {
            Phase::Gathering => self.members.waiting_for(),
            Phase::Training => "training".into(),
            Phase::Scoring(scoring, _) if scoring.part == HeldOut::Test => "testing".into(),
            Phase::Scoring(..) => "validating".into(),
            Phase::Ending(_) | Phase::Failing(_) => "saving".into(),
            Phase::Over => "over".into(),
        };
        let mut pulse = self.course.pulse(&phase, self.seconds(now));
        (pulse.workers, pulse.servers) = self.members.pulses(&phase, &self.shares);
        pulse
    }

    fn take(&mut self, now: Duration, input: Input) -> Result<(), Trouble> {
        match input {
            Input::Joined { agent, pid, build, address } => {
                self.joined(agent, pid, &build, address)
            }
            // Nobody computes any more; what is left to do is the servers' and the disk's.
            Input::Left { agent: Agent::Worker(_), .. }
            | Input::Worker(_, FromWorker::Failed(_))
                if matches!(self.phase, Phase::Ending(_)) =>
            {
                Ok(())
            }
            Input::Left { agent, how } => {
                let (name, reason) = (agent.to_string(), how.clone());
                self.record(What::Lost { agent: name, pid: 0, reason }, how.clone());
                Err(lost(agent, &how))
            }
            Input::Worker(worker, said) => self.worker_said(now, worker, said),
            Input::Server(server, said, squares) => self.server_said(now, server, said, squares),
            Input::Scored(part, batch, scores) => self.scored(now, part, batch, scores),
            Input::ManifestWritten(written) => self.manifest_written(now, written),
            Input::Stop(reason) => {
                if !self.course.stopping() {
                    self.course.stop();
                    self.record(What::Stopping { reason: reason.clone() }, reason);
                }
                match self.phase {
                    // Nothing is under way that could be finished.
                    Phase::Gathering => self.end(End::Interrupted),
                    // What is leased is finished first; scores are given up.
                    Phase::Training if !self.leased.is_empty() => {}
                    // The weights are saved; `resume` scores them.
                    Phase::Scoring(_, Some(_)) => self.finish(End::Interrupted),
                    Phase::Training | Phase::Scoring(_, None) => self.go_on(now)?,
                    Phase::Ending(_) | Phase::Failing(_) | Phase::Over => {}
                }
                Ok(())
            }
        }
    }

    fn worker_said(&mut self, now: Duration, worker: u32, said: FromWorker) -> Result<(), Trouble> {
        match said {
            FromWorker::Ready { engine, threads } => {
                let (agent, pid) = (Agent::Worker(worker), self.members.pid(Agent::Worker(worker)));
                self.members.ready(agent).map_err(Trouble::new)?;
                let joined = What::Joined {
                    agent: agent.to_string(),
                    pid,
                    engine: Some(engine),
                    threads: Some(threads),
                };
                self.record(joined, "it has its data and the parameters");
                if self.members.everyone_is_ready() {
                    self.begin_training(now)?;
                }
            }
            FromWorker::Pace { examples, busy_seconds, waiting_seconds, .. } => {
                let per_shard = self.config.batch.div_ceil(u64::from(self.config.shards)).max(1);
                let shards = examples as f64 / per_shard as f64;
                self.members.pace(worker, (examples, shards), busy_seconds, waiting_seconds);
            }
            FromWorker::Failed(trouble) => {
                return Err(Trouble {
                    message: format!("worker-{worker} cannot go on: {}", trouble.message),
                    ..trouble
                });
            }
            // The shell passes it on as `Input::Scored`.
            FromWorker::Evaluated { .. } => {}
            _ => {}
        }
        Ok(())
    }

    fn server_said(
        &mut self,
        now: Duration,
        server: u32,
        said: FromServer,
        squares: Vec<f64>,
    ) -> Result<(), Trouble> {
        let at = server as usize;
        match said {
            FromServer::Ready => {
                let (agent, pid) = (Agent::Server(server), self.members.pid(Agent::Server(server)));
                self.members.ready(agent).map_err(Trouble::new)?;
                let (agent, engine, threads) = (agent.to_string(), None, None);
                self.record(What::Joined { agent, pid, engine, threads }, "it has its blocks");
                if self.members.servers_are(Standing::Ready) {
                    let joined = self.members.joined_workers();
                    joined.into_iter().for_each(|worker| self.begin_worker(worker));
                }
            }
            FromServer::Summed { step } => {
                self.expect_step(server, step)?;
                self.gather.squares(at, squares).map_err(Trouble::new)?;
                self.clip(step)?;
            }
            FromServer::Applied { step } => {
                self.expect_step(server, step)?;
                if self.config.clip_norm.is_none() {
                    self.gather.squares(at, squares).map_err(Trouble::new)?;
                }
                self.gather.applied(at);
                self.commit(now)?;
            }
            FromServer::Counted { step, loss_sum, correct, read } => {
                self.expect_step(server, step)?;
                self.gather.counted(Counted { loss_sum, correct, read });
                self.commit(now)?;
            }
            FromServer::Missing { .. } | FromServer::Pulled { .. } | FromServer::Alive => {}
            FromServer::Load { seconds, busy_seconds, bytes_out, .. } => {
                self.members.load(server, seconds, busy_seconds, bytes_out);
            }
            FromServer::Saved { step, file, sha256, bytes } => {
                self.part_saved(server, step, (file, sha256, bytes));
            }
            FromServer::NotSaved { step, why } => {
                return Err(Trouble::new(format!(
                    "server-{server} cannot write its part of the checkpoint of step {step}: {why}"
                )));
            }
            FromServer::Failed(trouble) => {
                return Err(Trouble {
                    message: format!("server-{server} cannot go on: {}", trouble.message),
                    ..trouble
                });
            }
        }
        Ok(())
    }

    /// Does what the course says next, as far as it can be done now.
    fn go_on(&mut self, now: Duration) -> Result<(), Trouble> {
        // A stop lets what is leased come to its end.
        if !self.leased.is_empty() {
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
                    let what = self.course.validated(self.seconds(now), None);
                    self.record(what, "every batch of the epoch is committed");
                }
                Next::Validate => {
                    let why = "every batch of the epoch is committed";
                    self.score(HeldOut::Validation, None, why);
                    return Ok(());
                }
                Next::Save { is_best, reason } => {
                    // One checkpoint at a time: the next one waits.
                    if self.saving.is_some() {
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
                        Some(part) => self.score(part, Some(end), "the last step is committed"),
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
        match self.saving {
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
        let whole = |saving: &Saving| saving.parts.iter().all(Option::is_some);
        if self.saving.as_ref().is_some_and(whole) {
            self.phase = Phase::Failing(trouble);
        } else {
            self.failed(trouble);
        }
    }

    fn failed(&mut self, trouble: Trouble) {
        self.over("failed", Some(trouble.message.clone()), Some(trouble));
    }

    fn over(&mut self, outcome: &str, reason: Option<String>, trouble: Option<Trouble>) {
        self.phase = Phase::Over;
        let (outcome, state) = (outcome.to_owned(), self.course.state().clone());
        let (step, state) = (state.step, Some(Box::new(state)));
        let ended = What::Ended { outcome, reason, step, weights_sha256: None, trouble, state };
        self.record(ended, "nothing is left to do");
        for worker in 0..self.config.workers {
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
}

fn lost(agent: Agent, how: &str) -> Trouble {
    Trouble::new(format!("{agent} was lost: {how}"))
}
