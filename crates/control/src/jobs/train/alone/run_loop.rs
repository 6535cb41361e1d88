//! A run in one process: asks its course what comes next, does it, and says what came of it.
//!
//! One owner of what is trained. All decisions are the [`Course`]'s; all that happens goes to the
//! [`Journal`] and from there to the [`Recorder`]. Never formats anything.

use crate::jobs::train::alone::evaluation::failure;
use crate::jobs::train::alone::learner::Learner;
use crate::jobs::train::alone::ledger::Ledger;
use crate::jobs::train::ending;
use crate::jobs::train::identity::{Identity, Lengths};
use crate::jobs::train::recorder::Recorder;
use crate::jobs::train::{Job, classes, facts, network, unwritten};
use crate::stopping;
use crate::talk::Progress;
use planaria_coordinator::run::course::{Course, Done, End, Next, Setup};
use planaria_data::{Loader, Reader, Schedule};
use planaria_learn::Scores;
use planaria_learn::{Examples, StepResult, Weights};
use planaria_numerics::digest::Digest;
use planaria_protocol::checkpoint::{Checkpoint, Part, PartView, Shelf, write_part};
use planaria_protocol::event::{Activity, Started, What};
use planaria_protocol::journal::{self, Journal};
use planaria_protocol::message::Steps;
use planaria_protocol::state::State;
use planaria_recipe::Recipe;
use planaria_runs::clock::{self, Stopwatch};
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::{CHECKPOINTS, RunDir};
use planaria_worker::data::targets;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds between pulses; nobody can read faster.
const PULSE_SECONDS: f64 = 0.1;
/// How often the last checkpoint of a session is tried.
const LAST_TRIES: u32 = 5;
/// Time between these tries.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// A run under way.
pub struct Session {
    pub job: Job,
    pub learner: Learner,
    pub course: Course,
    pub recorder: Recorder,
    pub journal: Journal,
    /// Scores of the epoch just done, until the weights change again.
    pub validation: Option<Scores>,
    /// Steps that are in no event yet.
    ledger: Ledger,
    /// The newest checkpoint could not be written; whether it is the best.
    unsaved: Option<bool>,
    identity: Identity,
    shelf: Shelf,
    total: Stopwatch,
    /// When the last pulse was shown.
    pulse_at: f64,
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
        let before = Duration::try_from_secs_f64(state.seconds_total).unwrap_or_default();
        let progress = Progress::new(job.talk);
        let setup = Setup::of(recipe, &facts(&job.plan, &job.data, &network(&job.plan)?));
        Ok(Self {
            recorder: Recorder::open(&job.run, state.step, state.epoch, progress)?,
            journal: open_journal(&job.run, generation)?,
            shelf: job.run.shelf(recipe.output.keep),
            total: Stopwatch::resume(before + job.process.elapsed()),
            course: Course::new(setup, state),
            validation: None,
            ledger: Ledger::default(),
            unsaved: None,
            pulse_at: f64::NEG_INFINITY,
            identity,
            job,
            learner,
        })
    }

    /// Trains to the end and writes what is left to write.
    pub fn run(mut self) -> Result<ending::Finished> {
        self.emit(What::Started(self.started()))?;
        if let Learner::Linear(linear) = &self.learner
            && let Some(remark) = linear.remark()
        {
            self.recorder.note(&remark);
        }
        let end = self.train();
        self.tell_committed()?;
        ending::finish(self, end)
    }

    /// Something happened.
    pub fn emit(&mut self, what: What) -> Result<()> {
        let (seconds, unix_seconds) = (self.total.seconds(), clock::unix_seconds());
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

    fn train(&mut self) -> Result<End> {
        let mut reader = None;
        loop {
            if stopping::asked() && !self.course.stopping() {
                self.course.stop();
                self.emit(What::Stopping { reason: stopping::REASON.into() })?;
            }
            match self.course.next() {
                Next::Train(steps) => self.take_steps(&mut reader, &steps)?,
                Next::Validate => self.validate()?,
                Next::Save { is_best, reason } => self.save(is_best, reason)?,
                Next::End(end) => return self.save_at_last().map(|()| end),
            }
        }
    }

    /// Takes these steps, or as many as are taken before a stop is asked for.
    fn take_steps(&mut self, reader: &mut Option<Reader>, steps: &Steps) -> Result<()> {
        for step in steps.steps() {
            self.step(reader, step)?;
            if stopping::asked() {
                break;
            }
        }
        Ok(())
    }

    fn step(&mut self, reader: &mut Option<Reader>, step: u64) -> Result<()> {
        let watch = Stopwatch::start();
        let epoch = self.course.state().epoch;
        let (result, read) = self.compute(reader, step)?;
        self.validation = None;
        self.ledger.add(epoch, step, read);
        let done = Done {
            loss_sum: result.loss_sum,
            correct: result.correct,
            examples: result.examples,
            seconds: watch.seconds(),
            read,
        };
        let now = self.total.seconds();
        if let Some(what) = self.course.stepped(now, &done) {
            self.emit(what)?;
        }
        if now - self.pulse_at >= PULSE_SECONDS {
            self.pulse_at = now;
            self.recorder.pulse(&self.course.pulse(Activity::Training, "training", now));
        }
        Ok(())
    }

    /// One step of whatever is trained, and which examples were read.
    fn compute(&mut self, reader: &mut Option<Reader>, step: u64) -> Result<(StepResult, Digest)> {
        let rate = self.course.learning_rate(step);
        if let Learner::Linear(linear) = &mut self.learner {
            return linear.step(step, self.course.state().batch, rate);
        }
        let reader = match reader {
            Some(reader) => reader,
            none => none.insert(self.reader()?),
        };
        let batch = match reader.next() {
            Some(batch) => batch.map_err(failure)?,
            None => return Err(Failure::failed("the training data ended too soon")),
        };
        let state = self.course.state();
        debug_assert_eq!((batch.epoch, batch.step), (state.epoch, state.batch));
        let examples = Examples { inputs: &batch.inputs, targets: targets(&batch.targets) };
        let Learner::Network(trainer) = &mut self.learner else {
            return Err(Failure::failed("a linear model reads no batches"));
        };
        let result = trainer.step(step, rate, examples);
        let result = result.map_err(|e| self.not_finite(&e, rate))?;
        let read = batch.digest();
        reader.recycle(batch);
        Ok((result, read))
    }

    /// Scores the validation part, where there is one. A stop on the way leaves the state before
    /// it, so that a resumed run does it again.
    fn validate(&mut self) -> Result<()> {
        self.tell_committed()?;
        let scores = match self.job.data.validation.clone() {
            Some(part) => match self.evaluate(&part)? {
                Some(scores) => Some(scores),
                None => return Ok(()),
            },
            None => None,
        };
        let figures = scores.as_ref().map(|scores| (scores.loss(), scores.accuracy()));
        self.validation = scores;
        let what = self.course.validated(self.total.seconds(), figures);
        self.emit(what)
    }

    pub fn evaluate(&mut self, part: &planaria_data::Part) -> Result<Option<Scores>> {
        let plan = &self.job.plan;
        let classes = classes(plan, &network(plan)?);
        self.learner.evaluate(plan, part, classes)
    }

    /// Writes a checkpoint. One that cannot be written does not stop the run: the next one that is
    /// due may succeed, and the one before stands.
    fn save(&mut self, is_best: bool, reason: String) -> Result<()> {
        self.tell_committed()?;
        let step = self.course.state().step;
        if let Some(folder) = self.shelf.vanished() {
            self.emit(What::Vanished { folder })?;
        }
        let written = self.try_save(is_best, reason);
        self.course.saved();
        self.unsaved = written.is_err().then_some(is_best);
        match written {
            Ok(saved) => self.emit(saved),
            Err(failure) => self.emit(What::NotSaved { step, reason: failure.message }),
        }
    }

    /// Nothing comes after the end: a checkpoint that could not be written is tried a few times.
    fn save_at_last(&mut self) -> Result<()> {
        let Some(is_best) = self.unsaved else { return Ok(()) };
        self.recorder.note("the last checkpoint is tried again");
        for attempt in 1.. {
            match self.try_save(is_best, "it could not be written before".into()) {
                Ok(saved) => {
                    self.unsaved = None;
                    return self.emit(saved);
                }
                Err(failure) if attempt == LAST_TRIES => {
                    let path = self.job.run.path().display();
                    return Err(failure.hint(format!(
                        "free some space or mend the folder, then `planaria resume {path}` goes on \
                         from the checkpoint before"
                    )));
                }
                Err(_) => std::thread::park_timeout(BETWEEN_TRIES),
            }
        }
        Ok(())
    }

    fn try_save(&mut self, is_best: bool, reason: String) -> Result<What> {
        self.recorder.sync();
        let step = self.course.state().step;
        // A checkpoint counts on the events before it.
        let synced = self.journal.sync();
        let folder = synced.and_then(|()| self.write_checkpoint(is_best)).context(|| {
            let shelf = self.job.run.file(CHECKPOINTS);
            format!("cannot write a checkpoint of step {step} in `{}`", shelf.display())
        })?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let folder = format!("{CHECKPOINTS}/{name}");
        Ok(What::Saved { step, is_best, folder, reason })
    }

    fn write_checkpoint(&self, is_best: bool) -> io::Result<PathBuf> {
        let folder = self.shelf.begin(self.course.state().step)?;
        let written = self.fill_checkpoint(&folder, is_best);
        written.inspect_err(|_| self.shelf.abandon(&folder))?;
        Ok(folder)
    }

    fn fill_checkpoint(&self, folder: &Path, is_best: bool) -> io::Result<()> {
        let state = self.state();
        let snapshot = self.learner.snapshot();
        let view = PartView {
            step: state.step,
            start: 0,
            parameters: &snapshot.parameters,
            slots: &snapshot.slots,
            state: &snapshot.state,
        };
        let lengths = Lengths {
            parameters: view.parameters.len() as u64,
            state: view.state.len() as u64,
            slots: snapshot.slots.len() as u32,
        };
        let part = Part { info: write_part(folder, 0, &view)?, start: 0, end: lengths.parameters };
        let generation = self.journal.generation();
        let manifest = self.identity.manifest(generation, state, lengths, vec![part]);
        self.shelf.finish(folder, &manifest, is_best)
    }

    /// How far the run has come, up to this moment.
    pub fn state(&self) -> State {
        State { seconds_total: self.total.seconds(), ..self.course.state().clone() }
    }

    pub fn recipe(&self) -> &Recipe {
        &self.job.plan.recipe
    }

    fn started(&self) -> Started {
        let (recipe, setup) = (self.recipe(), self.course.setup());
        Started {
            run_id: self.job.run.id(),
            recipe: recipe.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            recipe_sha256: self.identity.recipe_sha256.clone(),
            step: self.course.state().step,
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

    fn reader(&self) -> Result<Reader> {
        let recipe = self.recipe();
        let data = &recipe.data;
        let part = self.job.data.train.clone();
        let loader = Loader::training(part, recipe.seed, &data.normalize, &data.augment);
        let state = self.course.state();
        let schedule = Schedule {
            batch: recipe.train.batch,
            epochs: state.epoch..self.course.setup().epochs,
            step: state.batch,
        };
        Reader::start(loader.map_err(failure)?, schedule).map_err(failure)
    }

    fn not_finite(&self, error: &planaria_learn::Error, rate: f32) -> Failure {
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
        let step = self.course.state().step + 1;
        Failure::failed(format!("training failed at step {step}: {what}")).hint(format!(
            "lower the learning rate (it was {rate}), add `warmup_steps` or set `clip_norm`{saved}"
        ))
    }
}

/// The run's events, open for those of a new generation; `before` is known to have been.
fn open_journal(run: &RunDir, before: u64) -> Result<Journal> {
    let path = run.file(journal::FILE);
    let open = |generation| Journal::open(&path, generation);
    journal::next_generation(&path, before).and_then(open).context(unwritten)
}
