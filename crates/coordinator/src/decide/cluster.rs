//! A run on many processes: members, rounds, leases, commits, checkpoints.
//!
//! A pure state machine. [`Cluster::step`] takes the time and what has happened, and returns what
//! to do, each with its reason. The shell around it sends, writes and reports back. When anything
//! is lost the run ends with one error that names it.

use super::course::{Course, Done, End, Next};
use super::deal::{deal, redeal};
use super::gather::{Counted, Gather};
use super::member::{Members, Standing};
use super::scoring::Scoring;
use planaria_learn::Scores;
use planaria_numerics::aggregate::{clip_factor, shard_range};
use planaria_protocol::event::{Pulse, What};
use planaria_protocol::message::Share;
use planaria_protocol::message::{
    Agent, FromServer, FromWorker, HeldOut, Shelf, Steps, ToServer, ToWorker, Trouble,
};
use planaria_protocol::state::State;
use std::borrow::Cow;
use std::time::Duration;

/// How long a round should take: short enough to stop soon and to deal anew, long enough that
/// nobody waits for leases.
const ROUND_SECONDS: f64 = 0.05;
/// Most steps of a round.
const ROUND_STEPS_MAX: u64 = 256;
/// Rounds that are leased at a time: the one under way and the next.
const ROUNDS_AHEAD: usize = 2;
/// Seconds between looks at whether the shards should be dealt anew.
const REDEAL_SECONDS: f64 = 0.5;

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
        let sizes = (0..config.servers).map(|s| blocks_of(&config, s).len()).collect();
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
        if !matches!(self.phase, Phase::Over)
            && let Err(trouble) = self.take(now, input)
        {
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
            Phase::Ending(_) => "saving".into(),
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
            Input::Left { agent, how } => Err(lost(agent, &how)),
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
                    Phase::Ending(_) | Phase::Over => {}
                }
                Ok(())
            }
        }
    }

    fn joined(
        &mut self,
        agent: Agent,
        pid: u32,
        build: &str,
        address: Option<String>,
    ) -> Result<(), Trouble> {
        if build != self.config.build {
            let own = &self.config.build;
            return Err(Trouble {
                message: format!("{agent} runs build {build}, but the run began with {own}"),
                hint: Some("the program was replaced while it started; start the run again".into()),
                fix_input: true,
            });
        }
        self.members.join(agent, pid, address).map_err(failed)?;
        if matches!(agent, Agent::Server(_)) && self.members.servers_are(Standing::Joined) {
            for server in 0..self.config.servers {
                let blocks = blocks_of(&self.config, server);
                let (checkpoint, step) = (self.config.checkpoint.clone(), self.course.state().step);
                let begin = ToServer::Begin { blocks, checkpoint, step };
                self.decide(Action::ToServer(server, begin), "every server has joined");
            }
        }
        if let Agent::Worker(worker) = agent
            && self.members.servers_are(Standing::Ready)
        {
            self.begin_worker(worker);
        }
        Ok(())
    }

    fn begin_worker(&mut self, worker: u32) {
        let shelf = |server| Shelf {
            server,
            address: self.members.address(server),
            blocks: blocks_of(&self.config, server),
        };
        let servers = (0..self.config.servers).map(shelf).collect();
        let step = self.course.state().step;
        let begin = ToWorker::Begin { servers, step };
        self.decide(Action::ToWorker(worker, begin), "every server is ready");
    }

    fn worker_said(&mut self, now: Duration, worker: u32, said: FromWorker) -> Result<(), Trouble> {
        match said {
            FromWorker::Ready { engine, threads } => {
                let (agent, pid) = (Agent::Worker(worker), self.members.pid(Agent::Worker(worker)));
                self.members.ready(agent).map_err(failed)?;
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
            FromWorker::Pace { examples, busy_seconds, waiting_seconds, step } => {
                let _ = step;
                let per_step = self.config.batch.div_ceil(u64::from(self.config.shards)).max(1);
                let shards = examples as f64 / per_step as f64;
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
        }
        Ok(())
    }

    fn begin_training(&mut self, now: Duration) -> Result<(), Trouble> {
        let speeds: Vec<_> = (0..self.config.workers).map(|w| (w, 1.0)).collect();
        self.shares = deal(self.config.shards, &speeds);
        let step = self.course.state().step;
        self.record_deal(step, "workers count as equally fast until they are measured".into());
        self.phase = Phase::Training;
        (self.stepped, self.redealt) = (now, now);
        self.go_on(now)
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
                self.members.ready(agent).map_err(failed)?;
                let (agent, engine, threads) = (agent.to_string(), None, None);
                self.record(What::Joined { agent, pid, engine, threads }, "it has its blocks");
                if self.members.servers_are(Standing::Ready) {
                    let joined = self.members.joined_workers();
                    joined.into_iter().for_each(|worker| self.begin_worker(worker));
                }
            }
            FromServer::Summed { step } => {
                self.expect_step(server, step)?;
                self.gather.squares(at, squares).map_err(failed)?;
                self.clip(step)?;
            }
            FromServer::Applied { step } => {
                self.expect_step(server, step)?;
                if self.config.clip_norm.is_none() {
                    self.gather.squares(at, squares).map_err(failed)?;
                }
                self.gather.applied(at);
                self.commit(now)?;
            }
            FromServer::Counted { step, loss_sum, correct, read } => {
                self.expect_step(server, step)?;
                self.gather.counted(Counted { loss_sum, correct, read });
                self.commit(now)?;
            }
            FromServer::Load { seconds, busy_seconds, bytes_out } => {
                self.members.load(server, seconds, busy_seconds, bytes_out);
            }
            FromServer::Saved { step, file, sha256, bytes } => {
                self.part_saved(server, step, (file, sha256, bytes));
            }
            FromServer::NotSaved { step, why } => {
                return Err(failed(format!(
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

    /// Messages of a step can only be of the one that is being gathered.
    fn expect_step(&self, server: u32, step: u64) -> Result<(), Trouble> {
        let own = self.course.state().step;
        if step == own {
            return Ok(());
        }
        Err(failed(format!("server-{server} speaks of step {step} while step {own} is gathered")))
    }

    /// Once all squares are there, lets every server update.
    fn clip(&mut self, step: u64) -> Result<(), Trouble> {
        let (Some(norm), Some(limit)) = (self.gather.norm(), self.config.clip_norm) else {
            return Ok(());
        };
        self.check_finite("the gradient's norm", norm)?;
        let factor = clip_factor(norm, limit);
        for server in 0..self.config.servers {
            if blocks_of(&self.config, server).is_empty() {
                continue;
            }
            let clip = ToServer::Clip { step, factor };
            self.decide(Action::ToServer(server, clip), "every block is summed");
        }
        Ok(())
    }

    /// Commits the step if everything is there.
    fn commit(&mut self, now: Duration) -> Result<(), Trouble> {
        let Some(counted) = self.gather.complete() else { return Ok(()) };
        self.check_finite("the loss", counted.loss_sum)?;
        if let Some(norm) = self.gather.norm() {
            self.check_finite("the gradient's norm", norm)?;
        }
        let step = self.course.state().step;
        for server in 0..self.config.servers {
            let commit = ToServer::Commit { step };
            self.decide(Action::ToServer(server, commit), "every server has applied the step");
        }
        self.gather.clear();
        // Scores are of weights that are no longer the last.
        self.scores = None;
        let seconds = now.saturating_sub(self.stepped).as_secs_f64();
        self.stepped = now;
        let typical = self.step_seconds.get_or_insert(seconds);
        *typical += 0.2 * (seconds - *typical);
        let examples = counted.read.count;
        let Counted { loss_sum, correct, read } = counted;
        let done = Done { loss_sum, correct, examples, seconds, read };
        if let Some(what) = self.course.stepped(self.seconds(now), &done) {
            self.record(what, "a line is due");
        }
        let step = step + 1;
        self.leased.retain(|round| round.steps().end > step);
        self.go_on(now)
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

    /// The part to score at the end, if the scores at hand are not of it.
    fn last_part(&self) -> Option<HeldOut> {
        let [validation, test] = self.config.held_out;
        match (validation > 0, test > 0) {
            (_, true) => Some(HeldOut::Test),
            (true, false) if self.scores.is_none() => Some(HeldOut::Validation),
            _ => None,
        }
    }

    /// Leases rounds ahead, within what the course wants trained.
    fn lease(&mut self, now: Duration) {
        let Next::Train(segment) = self.course.next() else { return };
        while self.leased.len() < ROUNDS_AHEAD {
            let from = self.leased.last().map_or(segment.first_step, |r| r.steps().end);
            let left = segment.steps().end.saturating_sub(from);
            if left == 0 {
                break;
            }
            self.maybe_redeal(now, from);
            let first = segment.batches.start + (from - segment.first_step);
            let batches = first..first + self.round_steps().min(left);
            let round = Steps { epoch: segment.epoch, batches, first_step: from };
            for server in 0..self.config.servers {
                let (steps, shares) = (round.clone(), self.shares.clone());
                let round = ToServer::Round { steps, shares };
                self.decide(Action::ToServer(server, round), "the round before is under way");
            }
            for share in self.shares.clone().into_iter().filter(|s| !s.shards.is_empty()) {
                let (steps, shards) = (round.clone(), share.shards);
                let lease = ToWorker::Lease { steps, shards };
                self.decide(Action::ToWorker(share.worker, lease), "the round before is under way");
            }
            self.leased.push(round);
        }
    }

    fn round_steps(&self) -> u64 {
        let fit = self.step_seconds.map_or(1.0, |seconds| ROUND_SECONDS / seconds);
        (fit as u64).clamp(1, ROUND_STEPS_MAX)
    }

    fn maybe_redeal(&mut self, now: Duration, step: u64) {
        if now.saturating_sub(self.redealt).as_secs_f64() < REDEAL_SECONDS {
            return;
        }
        self.redealt = now;
        let Some(speeds) = self.members.speeds() else { return };
        if let Some((shares, reason)) = redeal(self.config.shards, &speeds, &self.shares) {
            self.shares = shares;
            self.record_deal(step, reason);
        }
    }

    fn record_deal(&mut self, step: u64, reason: String) {
        let shares = self.shares.clone();
        self.record(What::Dealt { step, shares, reason: reason.clone() }, reason);
    }

    fn score(&mut self, part: HeldOut, end: Option<End>, why: &'static str) {
        let batches = self.config.held_out[usize::from(part == HeldOut::Test)];
        let scoring = Scoring::new(part, batches);
        let step = self.course.state().step;
        for (worker, batches) in (0..).zip(scoring.deal(self.config.workers as usize)) {
            if !batches.is_empty() {
                let evaluate = ToWorker::Evaluate { part, step, batches };
                self.decide(Action::ToWorker(worker, evaluate), why);
            }
        }
        self.phase = Phase::Scoring(scoring, end);
    }

    fn scored(
        &mut self,
        now: Duration,
        part: HeldOut,
        batch: u64,
        scores: Scores,
    ) -> Result<(), Trouble> {
        let Phase::Scoring(scoring, end) = &mut self.phase else { return Ok(()) };
        if scoring.part != part {
            return Ok(());
        }
        let Some(scores) = scoring.take(batch, scores) else { return Ok(()) };
        let end = end.take();
        let figures = (scores.loss(), scores.accuracy());
        self.scores = Some((part, scores));
        match end {
            Some(end) => self.finish(end),
            None => {
                self.phase = Phase::Training;
                let what = self.course.validated(self.seconds(now), Some(figures));
                self.record(what, "every batch of the validation part is scored");
                self.go_on(now)?;
                self.stepped = now;
            }
        }
        Ok(())
    }

    fn save(&mut self, is_best: bool, reason: String) {
        let state = self.course.state().clone();
        let step = state.step;
        let parts = vec![None; self.config.servers as usize];
        self.saving = Some(Saving { state, is_best, reason: reason.clone(), parts });
        self.course.saved();
        self.decide(Action::Save(step), reason);
    }

    fn part_saved(&mut self, server: u32, step: u64, part: (String, String, u64)) {
        let Some(saving) = self.saving.as_mut().filter(|s| s.state.step == step) else { return };
        saving.parts[server as usize] = Some(part);
        if saving.parts.iter().all(Option::is_some) {
            let saving = Box::new(saving.clone());
            self.decide(Action::WriteManifest(saving), "every part is on the disk");
        }
    }

    fn manifest_written(
        &mut self,
        now: Duration,
        written: Result<String, String>,
    ) -> Result<(), Trouble> {
        let folder = written.map_err(failed)?;
        let Some(Saving { state, is_best, reason, .. }) = self.saving.take() else { return Ok(()) };
        let saved = What::Saved { step: state.step, is_best, folder, reason };
        self.record(saved, "its manifest is on the disk");
        match &self.phase {
            Phase::Ending(end) => self.end(end.clone()),
            // Another checkpoint may have waited for this one.
            Phase::Training if self.leased.is_empty() => self.go_on(now)?,
            _ => {}
        }
        Ok(())
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

    fn fail(&mut self, trouble: Trouble) {
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

    fn check_finite(&self, what: &str, value: f64) -> Result<(), Trouble> {
        if value.is_finite() {
            return Ok(());
        }
        let step = self.course.state().step;
        let rate = self.course.learning_rate(step);
        Err(Trouble {
            // Steps count from 1 for people.
            message: format!("training failed at step {}: {what} is {value}", step + 1),
            hint: Some(format!(
                "lower the learning rate (it was {rate}), add `warmup_steps` or set `clip_norm`"
            )),
            fix_input: false,
        })
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

/// The blocks of a server: about as many each, in order.
fn blocks_of(config: &Config, server: u32) -> std::ops::Range<u32> {
    let range = shard_range(config.blocks as usize, config.servers as usize, server as usize);
    range.start as u32..range.end as u32
}

fn lost(agent: Agent, how: &str) -> Trouble {
    failed(format!("{agent} was lost: {how}"))
}

fn failed(message: String) -> Trouble {
    Trouble { message, hint: None, fix_input: false }
}
