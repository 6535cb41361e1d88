//! The run loop: steps, epochs, validation, checkpoints.
//!
//! One owner of the trainer and the run's state. It decides through [`watch`](super::watch) and
//! tells [`Recorder`] what happened. Never formats anything.

use crate::clock::Stopwatch;
use crate::failure::{Failure, Result};
use crate::progress::{Progress, Style};
use crate::run_dir::RunDir;
use crate::run_dir::checkpoint::Checkpoint;
use crate::run_dir::shelf::Shelf;
use crate::traces::report::sha256;
use crate::training::evaluation::{class_count, evaluate, failure, targets};
use crate::training::recorder::{Recorder, Size};
use crate::training::state::State;
use crate::training::watch::Rule;
use crate::training::{ending, interrupt};
use planaria_data::{DataSet, Loader, Reader, Schedule};
use planaria_learn::{Examples, Network, Scores, Settings, Trainer};
use planaria_numerics::schedule;
use planaria_recipe::train::Monitor;
use planaria_recipe::{Plan, Recipe};
use std::time::Duration;

/// What a session of a run works on.
#[derive(Debug)]
pub struct Job {
    /// The checked recipe and what follows from it.
    pub plan: Plan,
    /// The opened data.
    pub data: DataSet,
    /// Where everything goes.
    pub run: RunDir,
    /// The resolved recipe as it is in the run's folder.
    pub recipe_text: String,
    /// Threads that compute shards.
    pub threads: usize,
    /// How to talk.
    pub style: Style,
    /// Started with the process.
    pub process: Stopwatch,
}

/// Why the loop ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// All epochs are done.
    Completed,
    /// Early stopping ended it, for this reason.
    StoppedEarly(String),
    /// A stop was asked for; everything is saved.
    Interrupted,
}

/// A run under way.
pub struct Session {
    pub(super) job: Job,
    pub(super) trainer: Trainer,
    pub(super) state: State,
    pub(super) recorder: Recorder,
    pub(super) rule: Rule,
    /// Scores of the epoch just done, until the weights change again.
    pub(super) validation: Option<Scores>,
    size: Size,
    shelf: Shelf,
    recipe_sha256: String,
    total: Stopwatch,
}

impl Session {
    /// Sets a run up from its start, or from a checkpoint.
    pub fn new(job: Job, checkpoint: Option<Checkpoint>) -> Result<Self> {
        let recipe = &job.plan.recipe;
        let mut trainer = trainer(&job.plan, job.threads)?;
        let size = Size {
            epochs: recipe.train.epochs as u64,
            steps_per_epoch: job.data.train.len().div_ceil(recipe.train.batch as u64),
            classification: class_count(
                job.plan.classes,
                recipe.train.loss,
                trainer.network().output().len(),
            ) > 0,
        };
        let recipe_sha256 = sha256(job.recipe_text.as_bytes());
        let examples_per_epoch = job.data.train.len();
        let state = match checkpoint {
            None => State { examples_per_epoch, ..State::default() },
            Some(checkpoint) => {
                same_run(&job, &checkpoint, &recipe_sha256)?;
                trainer.restore(&checkpoint.weights).map_err(|e| {
                    Failure::failed(format!("the checkpoint does not fit the network: {e}"))
                })?;
                State { resumes: checkpoint.state.resumes + 1, ..checkpoint.state }
            }
        };
        let before = Duration::try_from_secs_f64(state.seconds_total).unwrap_or_default();
        let recorder = Recorder::open(&job.run, &state, size, Progress::new(job.style))?;
        Ok(Self {
            rule: Rule::new(recipe.train.early_stopping.as_ref(), size.classification),
            shelf: job.run.shelf(recipe.output.keep),
            total: Stopwatch::resume(before + job.process.elapsed()),
            validation: None,
            job,
            trainer,
            state,
            recorder,
            size,
            recipe_sha256,
        })
    }

    /// Trains to the end and writes what is left to write.
    pub fn run(mut self) -> Result<ending::Finished> {
        let end = self.train();
        self.state.seconds_total = self.total.seconds();
        ending::finish(self, end)
    }

    fn train(&mut self) -> Result<End> {
        if let Some(reason) = self.state.stopped.clone() {
            return Ok(End::StoppedEarly(reason));
        }
        let mut reader = self.reader()?;
        while self.state.epoch < self.size.epochs {
            while self.state.batch < self.size.steps_per_epoch {
                self.step(&mut reader)?;
                let steps = self.recipe().output.checkpoint_steps;
                let due = steps > 0 && self.state.step.is_multiple_of(steps);
                if interrupt::asked() {
                    self.save(false)?;
                    return Ok(End::Interrupted);
                }
                // The end of the epoch writes one of its own.
                if due && self.state.batch < self.size.steps_per_epoch {
                    self.save(false)?;
                }
            }
            if let Some(end) = self.end_epoch()? {
                return Ok(end);
            }
        }
        Ok(End::Completed)
    }

    fn step(&mut self, reader: &mut Reader) -> Result<()> {
        let watch = Stopwatch::start();
        let batch = match reader.next() {
            Some(batch) => batch.map_err(failure)?,
            None => return Err(Failure::failed("the training data ended too soon")),
        };
        debug_assert_eq!((batch.epoch, batch.step), (self.state.epoch, self.state.batch));
        let rate = self.learning_rate(self.state.step);
        let examples = Examples { inputs: &batch.inputs, targets: targets(&batch) };
        let result = self
            .trainer
            .step(self.state.step, rate, examples)
            .map_err(|e| self.not_finite(&e, rate))?;
        self.validation = None;
        reader.recycle(batch);
        self.state.count(&result, watch.seconds());
        self.state.seconds_total = self.total.seconds();
        let process = &self.job.process;
        self.state.seconds_to_first_step.get_or_insert_with(|| process.seconds());
        self.recorder.step(&mut self.state, rate)
    }

    /// Validates, keeps the best, and says whether the run ends here.
    fn end_epoch(&mut self) -> Result<Option<End>> {
        let validation = match self.job.data.validation.clone() {
            Some(part) => {
                let scores = self.evaluate(&part)?;
                if scores.is_none() {
                    // Validation is done again on resume: the state still stands before it.
                    self.save(false)?;
                    return Ok(Some(End::Interrupted));
                }
                scores
            }
            None => None,
        };
        self.state.seconds_total = self.total.seconds();
        let rate = self.learning_rate(self.state.step.saturating_sub(1));
        self.recorder.epoch(&self.state, rate, validation.as_ref())?;
        let figure = match (&validation, self.rule.monitor) {
            (Some(scores), Monitor::Loss) => scores.loss(),
            (Some(scores), Monitor::Accuracy) => scores.accuracy(),
            (None, Monitor::Loss) => self.state.this_epoch.loss(),
            (None, Monitor::Accuracy) => self.state.this_epoch.accuracy(),
        };
        self.validation = validation;
        let (epoch, step) = (self.state.epoch + 1, self.state.step);
        let verdict = self.state.watch.observe(&self.rule, figure, epoch, step);
        self.state.end_epoch();
        if self.state.epoch < self.size.epochs {
            self.state.stopped = verdict.stop.clone();
        }
        self.save(verdict.is_best)?;
        Ok(match (&self.state.stopped, interrupt::asked()) {
            (Some(reason), _) => Some(End::StoppedEarly(reason.clone())),
            (None, true) if self.state.epoch < self.size.epochs => Some(End::Interrupted),
            _ => None,
        })
    }

    pub(super) fn evaluate(&mut self, part: &planaria_data::Part) -> Result<Option<Scores>> {
        let classes = self.classes();
        evaluate(&mut self.trainer, part, &self.job.plan.recipe.data.normalize, classes)
    }

    pub(super) fn recipe(&self) -> &Recipe {
        &self.job.plan.recipe
    }

    /// Classes told apart; 0 for regression.
    pub(super) fn classes(&self) -> usize {
        let plan = &self.job.plan;
        let outputs = self.trainer.network().output().len();
        class_count(plan.classes, plan.recipe.train.loss, outputs)
    }

    fn save(&mut self, is_best: bool) -> Result<()> {
        self.state.seconds_total = self.total.seconds();
        let checkpoint = Checkpoint {
            recipe_sha256: self.recipe_sha256.clone(),
            data: data_marks(&self.job),
            state: self.state.clone(),
            weights: self.trainer.weights(),
        };
        self.recorder.sync()?;
        self.shelf.add(&checkpoint, is_best)
    }

    fn reader(&self) -> Result<Reader> {
        let recipe = self.recipe();
        let data = &recipe.data;
        let part = self.job.data.train.clone();
        let loader = Loader::training(part, recipe.seed, &data.normalize, &data.augment);
        let schedule = Schedule {
            batch: recipe.train.batch,
            epochs: self.state.epoch..self.size.epochs,
            step: self.state.batch,
        };
        Reader::start(loader.map_err(failure)?, schedule).map_err(failure)
    }

    fn learning_rate(&self, step: u64) -> f32 {
        let (steps_per_epoch, steps) = (self.size.steps_per_epoch, self.size.steps());
        schedule::learning_rate(
            &self.recipe().train,
            schedule::Progress { step, steps_per_epoch, steps },
        )
    }

    fn not_finite(&self, error: &planaria_learn::Error, rate: f32) -> Failure {
        // Steps count from 1 for people, and from 0 in the engine.
        let what = match error {
            planaria_learn::Error::NotFinite { what, value, .. } => format!("{what} is {value}"),
            other => other.to_string(),
        };
        let saved = match self.shelf.newest() {
            Ok(Some(found)) => format!(
                "; step {} is kept in `{}`",
                found.checkpoint.state.step,
                found.path.display()
            ),
            _ => String::new(),
        };
        Failure::failed(format!("training failed at step {}: {what}", self.state.step + 1)).hint(
            format!(
                "lower the learning rate (it was {rate}), add `warmup_steps` or set `clip_norm`{saved}"
            ),
        )
    }
}

/// Refuses to go on with another recipe or other data.
fn same_run(job: &Job, checkpoint: &Checkpoint, recipe_sha256: &str) -> Result<()> {
    let changed = if checkpoint.recipe_sha256 != recipe_sha256 {
        format!("`{}` was changed after the run began", job.run.file("recipe.yaml").display())
    } else if checkpoint.state.examples_per_epoch != job.data.train.len() {
        format!(
            "`{}` gives {} training examples, but the run began with {}",
            job.plan.recipe.data.train,
            job.data.train.len(),
            checkpoint.state.examples_per_epoch
        )
    } else if let Some(name) = changed_data(&checkpoint.data, &data_marks(job)) {
        format!("the content of `{name}` was changed after the run began")
    } else {
        return Ok(());
    };
    Err(Failure::user(changed)
        .hint("put it back as it was, or start a new run with `planaria train`"))
}

/// What tells this run's data from other data.
fn data_marks(job: &Job) -> Vec<(String, String)> {
    job.data.marks.iter().map(|mark| (mark.name.clone(), mark.content.clone())).collect()
}

/// The first piece of data that is not what it was. Only content counts: files may have moved.
fn changed_data(before: &[(String, String)], now: &[(String, String)]) -> Option<String> {
    let pairs = before.iter().zip(now);
    let changed = pairs.clone().find(|((_, a), (_, b))| a != b).map(|(_, (name, _))| name);
    let extra = now.get(before.len()).or(before.get(now.len())).map(|(name, _)| name);
    changed.or(extra).cloned()
}

/// The network of a plan, ready to train.
pub fn trainer(plan: &Plan, threads: usize) -> Result<Trainer> {
    let recipe = &plan.recipe;
    let layers = recipe.model.layers.as_deref().unwrap_or_default();
    let network = Network::new(layers, plan.input).map_err(Failure::user)?;
    Ok(Trainer::new(
        network,
        Settings {
            seed: recipe.seed,
            batch: recipe.train.batch,
            shards: recipe.train.shards,
            threads,
            loss: recipe.train.loss,
            label_smoothing: recipe.train.label_smoothing,
            optimizer: recipe.train.optimizer.clone(),
            clip_norm: recipe.train.clip_norm,
            isa: None,
        },
    ))
}
