//! A run on many processes, seen from the command that started it.
//!
//! Owns the processes, the console that watches them, and what is written when they are done. All
//! decisions are the coordinator's. Never trains.
//!
//! # Layout
//! - [`launch`]: what the processes are told
//! - [`console`]: the link to the coordinator
//! - [`control`]: how other commands find a live run

pub mod console;
pub mod control;
pub mod launch;

use crate::agent::failure;
use crate::clock;
use crate::failure::{Context, Failure, Result};
use crate::progress::Progress;
use crate::run_dir::LOGS;
use crate::traces::report::{Outcome, peak_memory_of_children};
use crate::training::ending::{self, Finished, Means, Results};
use crate::training::identity::Identity;
use crate::training::interrupt;
use crate::training::recorder::Recorder;
use crate::training::run_loop::Job;
use console::{Console, News};
use control::Control;
use planaria_coordinator::journal::{self, Journal};
use planaria_fleet::local::{Exit, Local};
use planaria_learn::Scores;
use planaria_protocol::Secret;
use planaria_protocol::checkpoint::{Checkpoint, Found, Manifest};
use planaria_protocol::event::{Event, What};
use planaria_protocol::launch::{Launch, Size};
use planaria_protocol::message::{Agent, HeldOut, Trouble};
use planaria_protocol::state::State;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ChildStdout;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long a coordinator may take to say where it listens.
const COORDINATOR_START: Duration = Duration::from_secs(20);
/// How often signals and ended processes are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long processes may take to end by themselves when a run is over.
const FAREWELL: Duration = Duration::from_secs(5);

/// Trains on many processes and writes what is left to write.
pub fn run(job: Job, size: Size, found: Option<Found<Checkpoint>>) -> Result<Finished> {
    let origin = found.map(|found| Origin::new(&job, found)).transpose()?;
    let state = match &origin {
        None => State { examples_per_epoch: job.data.train.len(), ..State::default() },
        Some(origin) => {
            let state = origin.manifest.state.clone();
            State { resumes: state.resumes + 1, ..state }
        }
    };
    let generation = launch::generation(&job.run, origin.as_ref())?;
    let secret = Secret::random().map_err(Failure::failed)?;
    let launch = launch::launch(&job, size, (&secret, generation), (&state, origin.as_ref()))?;
    let progress = Progress::new(job.style);
    let recorder = Recorder::open(&job.run, state.step, state.epoch, progress)?;
    let story = Story::new(state);
    let mut watch = Watch { recorder, story, job, generation, exits: Vec::new() };
    let mut fleet = watch.fleet()?;
    let trained = watch.train(&mut fleet, launch, &secret);
    watch.exits.extend(fleet.end(FAREWELL));
    watch.catch_up();
    watch.finish(size, trained)
}

/// Where a run goes on from.
#[derive(Debug)]
pub struct Origin {
    /// The checkpoint's folder.
    pub folder: PathBuf,
    /// Its manifest, which fits this run.
    pub manifest: Manifest,
}

impl Origin {
    /// A checkpoint that was found, if it is of this run.
    fn new(job: &Job, found: Found<Checkpoint>) -> Result<Self> {
        let recipe_file = job.run.file("recipe.yaml");
        let recipe = &job.plan.recipe;
        let identity = Identity::new(recipe_file, &job.recipe_text, recipe, &job.data);
        let manifest = found.checkpoint.manifest;
        identity.check(&manifest)?;
        // A name such as `last` may come to mean another checkpoint while the run goes on.
        let folder = found.path.canonicalize();
        let folder = folder.context(|| format!("cannot find `{}`", found.path.display()))?;
        Ok(Self { folder, manifest })
    }
}

/// A run as its foreground sees it.
struct Watch {
    job: Job,
    recorder: Recorder,
    story: Story,
    generation: u64,
    /// Processes that have ended, in that order.
    exits: Vec<Exit>,
}

/// What the events have told so far.
struct Story {
    state: State,
    engine: String,
    threads: u32,
    scores: Option<(HeldOut, Scores)>,
    ended: Option<(String, Option<String>, Option<Trouble>)>,
}

impl Story {
    fn new(state: State) -> Self {
        Self { state, engine: String::new(), threads: 0, scores: None, ended: None }
    }

    fn take(&mut self, event: &Event) {
        match &event.what {
            What::Joined { engine: Some(engine), threads, .. } => {
                self.engine.clone_from(engine);
                self.threads += threads.unwrap_or(0);
            }
            What::Scored { part, scores, .. } => {
                let scores = serde_json::from_value(scores.clone()).ok();
                self.scores = scores.map(|scores| (*part, scores));
            }
            What::Ended { outcome, reason, trouble, state, .. } => {
                self.ended = Some((outcome.clone(), reason.clone(), trouble.clone()));
                if let Some(state) = state {
                    self.state = State { seconds_total: event.seconds, ..(**state).clone() };
                }
            }
            _ => {}
        }
    }
}

impl Watch {
    fn fleet(&self) -> Result<Local> {
        let logs = self.job.run.file(LOGS);
        fs::create_dir_all(&logs).context(|| format!("cannot create `{}`", logs.display()))?;
        let program = self.job.program.as_ref();
        let program = program.ok_or_else(|| Failure::failed("no program was found to start"))?;
        Ok(Local::new(program, &logs))
    }

    /// Starts every process and watches until the run is over.
    fn train(&mut self, fleet: &mut Local, launch: Launch, secret: &Secret) -> Result<()> {
        let (console, _control) = match self.start(fleet, launch, secret) {
            Ok(started) => started,
            Err(failure) => {
                self.exits.extend(fleet.exits(LOOK_EVERY));
                // Those that did start wait for the others, and would for ever.
                fleet.kill();
                return Err(failure);
            }
        };
        self.watch(fleet, &console)
    }

    fn start(
        &mut self,
        fleet: &mut Local,
        mut launch: Launch,
        secret: &Secret,
    ) -> Result<(Console, Control)> {
        let id = self.job.run.id();
        let start = |fleet: &mut Local, agent, launch: &Launch| {
            fleet.start(agent, &id, launch).map_err(Failure::failed)
        };
        let stdout = start(fleet, Agent::Coordinator, &launch)?;
        let address = address(fleet, stdout)?;
        launch.coordinator = Some(address.clone());
        launch.course = None;
        // Before anyone who might fail, so that it hears of it.
        let console = Console::connect(&address, secret, &launch).map_err(|failure| Failure {
            message: format!("the coordinator was lost: {}", failure.message),
            ..failure
        })?;
        for server in 0..launch.size.servers {
            start(fleet, Agent::Server(server), &launch)?;
        }
        for worker in 0..launch.size.workers {
            start(fleet, Agent::Worker(worker), &launch)?;
        }
        let control = Control::write(&self.job.run, &address, secret, &launch)?;
        Ok((console, control))
    }

    fn watch(&mut self, fleet: &Local, console: &Console) -> Result<()> {
        let mut asked = false;
        loop {
            match console.next(LOOK_EVERY) {
                News::Event(event) => {
                    self.story.take(&event);
                    self.recorder.take(&event);
                }
                News::Pulse(pulse) => self.recorder.pulse(&pulse),
                News::Nothing => {}
                News::Finish => return Ok(()),
                News::Gone(why) => {
                    return Err(Failure::failed(format!("the coordinator was lost: {why}")));
                }
            }
            if interrupt::asked() && !std::mem::replace(&mut asked, true) {
                console.stop(interrupt::REASON);
            }
            for exit in fleet.exits(Duration::ZERO) {
                if !exit.is_well() && exit.agent != Agent::Coordinator {
                    console.ended(exit.agent, exit.pid, &exit.how());
                }
                self.exits.push(exit);
            }
        }
    }

    /// Reads the coordinator's last words where it had no time to say them.
    fn catch_up(&mut self) {
        if self.story.ended.is_some() {
            return;
        }
        // What cannot be read was not written, and then the coordinator was lost indeed.
        let events = journal::read(&self.job.run.file(journal::FILE)).unwrap_or_default();
        let last = |e: &&Event| matches!(e.what, What::Scored { .. } | What::Ended { .. });
        for event in events.iter().filter(|e| e.generation == self.generation).filter(last) {
            self.story.take(event);
        }
    }

    /// Writes the last files from what the events and the last checkpoint hold.
    fn finish(self, size: Size, trained: Result<()>) -> Result<Finished> {
        let (outcome, reason, failure) = self.outcome(trained);
        let Self { job, recorder, mut story, generation, .. } = self;
        let weights = match job.run.shelf(job.plan.recipe.output.keep).named("last") {
            Ok(checkpoint) => {
                if story.ended.is_none() {
                    story.state = checkpoint.manifest.state;
                }
                checkpoint.weights
            }
            // Without a checkpoint nothing was learned that could be kept.
            Err(_) if outcome == Outcome::Failed || story.state.step == 0 => Default::default(),
            Err(unreadable) => return Err(Failure::failed(unreadable)),
        };
        if story.ended.is_none() {
            conclude(&job, generation, &story.state, reason.clone());
        }
        let means = Means {
            engine: story.engine,
            threads: story.threads as usize,
            workers: size.workers,
            servers: size.servers,
            generation,
        };
        let facts = ending::facts(&job.plan, &job.run, &job.process, means)?;
        let results = Results {
            plan: &job.plan,
            recipe_text: &job.recipe_text,
            facts: &facts,
            state: &story.state,
            lines: recorder.lines(),
            outcome,
            reason,
            scores: story.scores.as_ref().map(|(part, scores)| (*part, scores)),
            parameters: &weights.parameters,
            values: &weights.state,
            peak_memory_bytes: peak_memory_of_children(),
        };
        let report = results.report();
        let written = match (outcome, story.state.step) {
            // There is nothing to report of a run that was stopped before it began.
            (Outcome::Interrupted, 0) => Ok(()),
            _ => results.write(&job.run, &report),
        };
        let path = job.run.path().to_path_buf();
        match (written, failure) {
            (Err(unwritten), None) => Err(unwritten),
            (_, failure) => Ok(Finished { report, path, failure }),
        }
    }

    fn outcome(&self, trained: Result<()>) -> (Outcome, Option<String>, Option<Failure>) {
        let failed = |failure: Failure| {
            let reason = Some(failure.message.clone());
            (Outcome::Failed, reason, Some(failure))
        };
        let said = self.story.ended.clone();
        match (said, trained) {
            (Some((_, _, Some(trouble))), _) => failed(self.explain(failure(trouble))),
            (Some((outcome, reason, None)), _) => {
                let outcome = match outcome.as_str() {
                    "completed" => Outcome::Completed,
                    "stopped_early" => Outcome::StoppedEarly,
                    _ => Outcome::Interrupted,
                };
                (outcome, reason, None)
            }
            (None, Err(failure)) => failed(self.explain(failure)),
            (None, Ok(())) => {
                failed(self.explain(Failure::failed("the coordinator ended without a word")))
            }
        }
    }

    /// Says how the process that a failure names has ended, and where its log is.
    fn explain(&self, failure: Failure) -> Failure {
        let named = |exit: &&Exit| names(&failure.message, &exit.agent.to_string());
        let killed = |exit: &&Exit| exit.status.code().is_none();
        // Whoever was killed is the cause; the others only noticed.
        let unwell = || self.exits.iter().filter(|e| !e.is_well());
        let Some(exit) = unwell().find(killed).or_else(|| unwell().find(named)) else {
            return failure;
        };
        let log = self.job.run.file(LOGS).join(format!("{}.log", exit.agent));
        let message = match exit.status.code() {
            // It could still say what was wrong.
            Some(_) => failure.message,
            None => format!("{} (process {}) was lost: {}", exit.agent, exit.pid, exit.how()),
        };
        let hint = failure.hint.map_or_else(String::new, |hint| format!("{hint}; "));
        Failure { message, hint: Some(format!("{hint}its log is `{}`", log.display())), ..failure }
    }
}

/// Writes down that the session has failed, where the coordinator could not.
fn conclude(job: &Job, generation: u64, state: &State, reason: Option<String>) {
    let ended = What::Ended {
        outcome: Outcome::Failed.name().into(),
        reason,
        step: state.step,
        weights_sha256: None,
        trouble: None,
        state: Some(Box::new(state.clone())),
    };
    let seconds = state.seconds_total.max(job.process.seconds());
    let written = Journal::open(&job.run.file(journal::FILE), generation)
        .and_then(|mut journal| journal.record(seconds, clock::unix_seconds(), ended));
    // The failure itself is told in any case, and it may be that nothing can be written.
    drop(written);
}

/// Whether a message speaks of an agent: `worker-1` is not in `worker-12`.
fn names(message: &str, agent: &str) -> bool {
    message
        .match_indices(agent)
        .any(|(at, _)| !message[at + agent.len()..].starts_with(|next: char| next.is_ascii_digit()))
}

/// Where the coordinator listens: the first line it says.
fn address(fleet: &Local, stdout: Option<ChildStdout>) -> Result<String> {
    let (pass, passed) = channel();
    let read = move || {
        let mut line = String::new();
        let read = stdout.map(|out| BufReader::new(out).read_line(&mut line));
        // The other side may have stopped waiting.
        let _ = pass.send(matches!(read, Some(Ok(1..))).then_some(line));
    };
    std::thread::spawn(read);
    match passed.recv_timeout(COORDINATOR_START) {
        Ok(Some(line)) => Ok(line.trim().to_owned()),
        Ok(None) => {
            let exits = fleet.exits(Duration::from_secs(1));
            let how = exits.first().map_or_else(|| "it is silent".into(), Exit::how);
            Err(Failure::failed(format!("the coordinator did not start: {how}")))
        }
        Err(_) => Err(Failure::failed(format!(
            "the coordinator did not start within {} s",
            COORDINATOR_START.as_secs()
        ))),
    }
}
