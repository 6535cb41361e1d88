//! A run in one process: the same decisions and the same worker as on many, as two values that hand
//! each other what they say.
//!
//! Owns what is trained, and does what both ask for. All decisions are [`Run`](SoloRun)'s; all that
//! happens goes to the [`Journal`] and from there to the [`Recorder`]. Never formats anything.

use crate::jobs::train::alone::learner::{Learner, Unstepped};
use crate::jobs::train::alone::ledger::Ledger;
use crate::jobs::train::ending::{self, Ended};
use crate::jobs::train::identity::{Identity, Lengths};
use crate::jobs::train::recorder::Recorder;
use crate::jobs::train::{Job, facts, network, unwritten};
use crate::stopping;
use crate::talk::Progress;
use planaria_coordinator::methods::solo::{self, SoloRun, WORKER};
use planaria_coordinator::run::course::Setup;
use planaria_coordinator::run::{Action, Begun, Config, Input, Origin, Saving, Scored};
use planaria_learn::{Scores, Weights};
use planaria_protocol::checkpoint::{Checkpoint, Part, PartInfo, PartView, Shelf, write_part};
use planaria_protocol::event::{Started, What};
use planaria_protocol::journal::{self, Journal};
use planaria_protocol::launch::Size;
use planaria_protocol::message::{Agent, Errand, FromWorker, HeldOut, Join, Trouble};
use planaria_protocol::state::State;
use planaria_runs::clock::{self, Stopwatch};
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::{CHECKPOINTS, RunDir};
use planaria_worker::methods::solo::{Do, Solo};
use planaria_worker::session::{Batch, Effect, Worker};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two updates of the picture; people cannot read faster.
const PULSE_EVERY: Duration = Duration::from_millis(100);
/// Time between looks at what follows from time alone, while there is nothing to do.
const TICK_EVERY: Duration = Duration::from_millis(20);

/// One process.
const SIZE: Size = Size { workers: 1, workers_min: 1, servers: 0, threads: 0 };

/// A run under way.
pub struct Session {
    pub job: Job,
    pub learner: Learner,
    pub recorder: Recorder,
    pub journal: Journal,
    setup: Setup,
    run: SoloRun,
    worker: Worker<Solo>,
    /// What the run has still to be told.
    inputs: VecDeque<Input>,
    /// Scores of a batch on their way to the run.
    scores: Option<Scores>,
    /// Scores of the last weights, once it has ended.
    pub last_scores: Option<(HeldOut, Scores)>,
    /// How it has ended.
    ended: Option<Ended>,
    /// Steps that are in no event yet.
    ledger: Ledger,
    /// The folder of the checkpoint under way.
    folder: Option<PathBuf>,
    /// Why the newest checkpoint could not be written.
    unsaved: Option<String>,
    identity: Identity,
    shelf: Shelf,
    /// Started with this session.
    clock: Stopwatch,
    is_stopping: bool,
    /// When the last pulse was shown.
    pulsed: Option<Duration>,
}

impl Session {
    /// Sets a run up from its start, or from a checkpoint.
    pub fn new(job: Job, checkpoint: Option<Checkpoint>) -> Result<Self> {
        let recipe = &job.plan.recipe;
        let mut learner = Learner::new(&job.plan, &job.data, job.threads)?;
        let recipe_file = job.run.file("recipe.yaml");
        let identity = Identity::new(recipe_file, &job.recipe_text, recipe, &job.data);
        let (state, generation) = match checkpoint {
            None => {
                let examples_per_epoch = job.data.train.len();
                (State { examples_per_epoch, ..State::default() }, 0)
            }
            Some(Checkpoint { manifest, weights }) => {
                identity.check(&manifest)?;
                let weights = Weights {
                    parameters: weights.parameters,
                    state: weights.state,
                    optimizer: weights.optimizer,
                };
                learner.restore(weights)?;
                let resumes = manifest.state.resumes + 1;
                (State { resumes, ..manifest.state }, manifest.generation)
            }
        };
        let facts = facts(&job.plan, &job.data, &network(&job.plan)?);
        let setup = Setup::of(recipe, &facts);
        let progress = Progress::new(job.talk);
        let recorder = Recorder::open(&job.run, state.step, state.epoch, progress)?;
        let session = planaria_coordinator::run::Session {
            config: Config::of(&facts, SIZE, ""),
            setup: setup.clone(),
            seconds_before: state.seconds_total + job.process.seconds(),
            origin: Origin { state, ..Origin::default() },
        };
        Ok(Self {
            recorder,
            journal: open_journal(&job.run, generation)?,
            shelf: job.run.shelf(recipe.output.keep),
            run: solo::run(session),
            worker: Worker::new(Solo::default(), "", Duration::ZERO),
            setup,
            inputs: VecDeque::new(),
            scores: None,
            last_scores: None,
            ended: None,
            ledger: Ledger::default(),
            folder: None,
            unsaved: None,
            clock: Stopwatch::start(),
            is_stopping: false,
            pulsed: None,
            identity,
            job,
            learner,
        })
    }

    /// Trains to the end and writes what is left to write.
    pub fn run(mut self) -> Result<ending::Finished> {
        self.emit(What::Started(self.started()))?;
        if let Some(remark) = self.learner.remark() {
            self.recorder.note(&remark);
        }
        let ended = self.train();
        if ended.is_err() {
            self.give_up()?;
        }
        self.tell_committed()?;
        ending::finish(self, ended)
    }

    /// Something happened.
    pub fn emit(&mut self, what: What) -> Result<()> {
        let (seconds, unix_seconds) = (self.seconds(), clock::unix_seconds());
        let event = self.journal.record(seconds, unix_seconds, what).context(unwritten)?;
        self.recorder.take(&event);
        if let Some(trouble) = self.journal.trouble() {
            self.recorder.warn(&format!("{}: {trouble}", unwritten()));
        }
        Ok(())
    }

    /// Which steps were committed since the last time.
    fn tell_committed(&mut self) -> Result<()> {
        self.ledger.close().map_or(Ok(()), |committed| self.emit(committed))
    }

    /// Does what the worker says, one thing after another, until the run says that it is over.
    fn train(&mut self) -> Result<Ended> {
        loop {
            if let Some(ended) = self.ended.take() {
                return Ok(ended);
            }
            match self.worker.next(self.clock.elapsed()) {
                Some(effect) => self.act(effect)?,
                None => {
                    // A checkpoint waits to be tried again.
                    std::thread::park_timeout(TICK_EVERY);
                    self.tell_run(Input::worker(WORKER, FromWorker::Alive))?;
                    self.tell_run(Input::Tick)?;
                }
            }
        }
    }

    /// It cannot go on: the run is over, and what was committed is told.
    fn give_up(&mut self) -> Result<()> {
        let trouble = Trouble { fix_input: true, ..Trouble::new("it cannot go on") };
        let failed = Input::worker(WORKER, FromWorker::Failed(trouble));
        for decision in self.run.step(self.clock.elapsed(), failed) {
            if let Action::Record(what @ What::Committed { .. }) = decision.action {
                self.record(what)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, effect: Effect<Do>) -> Result<()> {
        match effect {
            Effect::Join => {
                self.worker.joined();
                self.tell_run(Input::Joined(join()))
            }
            Effect::Prepare => {
                self.worker.prepared(());
                Ok(())
            }
            Effect::Own(Do::Step(step)) => {
                let rate = self.setup.learning_rate(step.step);
                let report = self.learner.step(&self.job, step, rate);
                let report = report.map_err(|e| self.unstepped(e, rate))?;
                self.worker.answer(report);
                self.pulse();
                Ok(())
            }
            Effect::Own(Do::Save { step, folder }) => {
                let written = self.write_part(step, Path::new(&folder));
                self.tell_run(Input::PartWritten { step, written })
            }
            Effect::Score(batch) => self.score(batch),
            Effect::Tell(FromWorker::Evaluated { part, step, batch }, _) => {
                let Some(scores) = self.scores.take() else { return Ok(()) };
                let scored = Scored { worker: WORKER, part, step, batch, scores };
                self.worker_said(Input::Scored(Box::new(scored)))
            }
            Effect::Tell(said, _) => self.worker_said(Input::worker(WORKER, said)),
            Effect::Log(_) | Effect::Leave | Effect::End(_) => Ok(()),
        }
    }

    /// Tells the run what the worker says. Only then is it told of a stop: while a step is taken that
    /// the run does not know of, the parameters are not those of its last step.
    fn worker_said(&mut self, input: Input) -> Result<()> {
        self.tell_run(input)?;
        if stopping::asked() && !std::mem::replace(&mut self.is_stopping, true) {
            self.tell_run(Input::Stop(stopping::REASON.into()))?;
        }
        Ok(())
    }

    /// Tells the run what has happened, and does what it decides.
    fn tell_run(&mut self, input: Input) -> Result<()> {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            let now = self.clock.elapsed();
            for decision in self.run.step(now, input) {
                self.carry_out(now, decision.action)?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, now: Duration, action: Action) -> Result<()> {
        match action {
            Action::ToWorker { message, .. } => {
                self.worker.inbox().hear(now, message, Vec::new());
            }
            Action::Record(what) => return self.record(what),
            Action::BeginCheckpoint { step } => {
                let begun = self.begin_checkpoint(step);
                self.inputs.push_back(Input::CheckpointBegun(begun));
            }
            Action::WriteManifest(saving) => {
                let written = self.write_manifest(*saving);
                self.inputs.push_back(Input::ManifestWritten(written));
            }
            Action::Abandon => {
                if let Some(folder) = self.folder.take() {
                    self.shelf.abandon(&folder);
                }
            }
            // There are no other processes, and nothing is kept for them.
            Action::Keep(_)
            | Action::KeepState { .. }
            | Action::ToServer(..)
            | Action::WritePart { .. }
            | Action::Pool(_)
            | Action::Kill(..)
            | Action::Forget
            | Action::Restart
            | Action::End => {}
        }
        Ok(())
    }

    /// Writes an event down. Steps that were committed are told together, before what counts on
    /// them; the end is told when all files are written.
    fn record(&mut self, what: What) -> Result<()> {
        match what {
            What::Committed { epoch, first_step, end_step, read } => {
                self.ledger.add(epoch, first_step..end_step, read);
                Ok(())
            }
            // There is one process.
            What::Joined { .. } => Ok(()),
            What::Scored { part, scores, .. } => {
                let scores = serde_json::from_value(scores).map_err(Failure::failed)?;
                self.last_scores = Some((part, scores));
                Ok(())
            }
            What::Ended { outcome, reason, trouble, .. } => {
                let trouble = trouble.map(|trouble| self.explained(trouble));
                self.ended = Some(Ended::of(&outcome, reason, trouble));
                Ok(())
            }
            What::Steps(_) | What::Stopping { .. } => self.emit(what),
            what => {
                self.tell_committed()?;
                self.emit(what)
            }
        }
    }

    /// Scores one batch.
    fn score(&mut self, batch: Batch) -> Result<()> {
        if batch.part == HeldOut::Test && batch.batch == 0 {
            self.recorder.note("evaluating on the test part");
        }
        self.scores = Some(self.learner.score(&self.job, batch)?);
        self.worker.scored(batch, Some(Vec::new()));
        Ok(())
    }

    fn pulse(&mut self) {
        let now = self.clock.elapsed();
        if self.pulsed.is_none_or(|at| now.saturating_sub(at) >= PULSE_EVERY) {
            self.pulsed = Some(now);
            let mut pulse = self.run.pulse(now);
            pulse.workers.clear();
            self.recorder.pulse(&pulse);
        }
    }

    fn begin_checkpoint(&mut self, step: u64) -> Begun {
        self.recorder.sync();
        let vanished = self.shelf.vanished();
        // A checkpoint counts on the events before it.
        let begun = self.journal.sync().and_then(|()| self.shelf.begin(step));
        let folder = match begun {
            Ok(folder) => {
                self.folder = Some(folder.clone());
                Ok(folder.display().to_string())
            }
            Err(e) => {
                let why = e.to_string();
                self.cannot_save(step, e);
                Err(why)
            }
        };
        Begun { step, folder, vanished }
    }

    fn write_part(&mut self, step: u64, folder: &Path) -> std::result::Result<PartInfo, String> {
        let snapshot = self.learner.snapshot();
        let view = PartView {
            step,
            start: 0,
            parameters: &snapshot.parameters,
            slots: &snapshot.slots,
            state: &snapshot.state,
        };
        let written = write_part(folder, 0, &view);
        drop(snapshot);
        written.map_err(|e| self.cannot_save(step, e))
    }

    fn write_manifest(&mut self, saving: Saving) -> std::result::Result<String, String> {
        let step = saving.state.step;
        let Some(folder) = self.folder.take() else { return Err("it has no folder".into()) };
        let snapshot = self.learner.snapshot();
        let lengths = Lengths {
            parameters: snapshot.parameters.len() as u64,
            state: snapshot.state.len() as u64,
            slots: snapshot.slots.len() as u32,
        };
        let end = lengths.parameters;
        let parts = saving.parts.into_iter().flatten().map(|info| Part { info, start: 0, end });
        let generation = self.journal.generation();
        let state = State { seconds_total: self.seconds(), ..saving.state };
        let manifest = self.identity.manifest(generation, state, lengths, parts.collect());
        let finished = self.shelf.finish(&folder, &manifest, saving.is_best);
        drop(snapshot);
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        finished.map_err(|e| {
            self.shelf.abandon(&folder);
            self.cannot_save(step, e)
        })?;
        self.unsaved = None;
        Ok(format!("{CHECKPOINTS}/{name}"))
    }

    fn cannot_save(&mut self, step: u64, why: std::io::Error) -> String {
        let shelf = self.job.run.file(CHECKPOINTS);
        let why =
            format!("cannot write a checkpoint of step {step} in `{}`: {why}", shelf.display());
        self.unsaved = Some(why.clone());
        why
    }

    /// Seconds of the run.
    fn seconds(&self) -> f64 {
        self.run.seconds(self.clock.elapsed())
    }

    /// How far the run has come, up to this moment.
    pub fn state(&self) -> State {
        State { seconds_total: self.seconds(), ..self.run.state().clone() }
    }

    fn started(&self) -> Started {
        let (recipe, setup) = (&self.job.plan.recipe, &self.setup);
        Started {
            run_id: self.job.run.id(),
            recipe: recipe.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            recipe_sha256: self.identity.recipe_sha256.clone(),
            step: self.run.state().step,
            epochs: setup.epochs,
            steps_per_epoch: setup.steps_per_epoch,
            examples: self.job.data.train.len(),
            parameters: self.learner.parameter_count() as u64,
            classification: setup.classification,
            workers: 0,
            servers: 0,
            shards: recipe.train.shards as u32,
            batch: recipe.train.batch as u64,
            digest: setup.examples,
        }
    }

    /// Trouble of the run as a failure of this process.
    fn explained(&self, trouble: Trouble) -> Failure {
        let path = self.job.run.path().display();
        match &self.unsaved {
            Some(why) => Failure::failed(why).hint(format!(
                "free some space or mend the folder, then `planaria resume {path}` goes on from the \
                 checkpoint before"
            )),
            None => match trouble.hint {
                Some(hint) => Failure::failed(trouble.message).hint(hint),
                None => Failure::failed(trouble.message),
            },
        }
    }

    /// Why a step could not be taken, in words.
    fn unstepped(&self, why: Unstepped, rate: f32) -> Failure {
        let error = match why {
            Unstepped::Other(failure) => return failure,
            Unstepped::Computing(error) => error,
        };
        // Steps count from 1 for people, and from 0 in the engine.
        let what = match error {
            planaria_learn::Error::NotFinite { what, value, .. } => format!("{what} is {value}"),
            other => other.to_string(),
        };
        let saved = match self.shelf.newest_manifest() {
            Ok(Some(found)) => {
                format!("; step {} is kept in `{}`", found.checkpoint.step, found.path.display())
            }
            _ => String::new(),
        };
        let step = self.run.state().step + 1;
        Failure::failed(format!("training failed at step {step}: {what}")).hint(format!(
            "lower the learning rate (it was {rate}), add `warmup_steps` or set `clip_norm`{saved}"
        ))
    }
}

fn join() -> Join {
    Join {
        agent: Agent::Worker(WORKER),
        build: String::new(),
        pid: std::process::id(),
        machine: None,
        address: None,
        kept: None,
        errand: Errand::Work,
    }
}

/// The run's events, open for those of a new generation; `before` is known to have been.
fn open_journal(run: &RunDir, before: u64) -> Result<Journal> {
    let path = run.file(journal::FILE);
    let open = |generation| Journal::open(&path, generation);
    journal::next_generation(&path, before).and_then(open).context(unwritten)
}
