//! The course of a run: take steps, validate, save, end.
//!
//! Owns the order of these, and the counting that a checkpoint keeps. The same course drives a run
//! in one process and a run in many, so that both write the same checkpoints and the same events.
//! Never does any of it: the caller acts, and says what came of it.

use super::record::Record;
use super::watch::{Rule, observe};
use planaria_learn::Scores;
use planaria_numerics::digest::Digest;
use planaria_numerics::regression::Errors;
use planaria_numerics::schedule;
use planaria_protocol::event::{Activity, Figures, Pulse, What};
use planaria_protocol::launch::Facts;
use planaria_protocol::message::Steps;
use planaria_protocol::state::{State, Tally};
use planaria_recipe::Recipe;
use planaria_recipe::sections::Remedy;
use planaria_recipe::train::{Monitor, Train};

/// Lines of metrics by steps in a whole run, about.
const STEP_LINES: u64 = 400;

/// What does not change while a run trains.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Epochs in all.
    pub epochs: u64,
    /// Steps in one of them.
    pub steps_per_epoch: u64,
    /// Whether examples have classes.
    pub classification: bool,
    /// Whether there is a part to validate on.
    pub has_validation: bool,
    /// Epochs between checkpoints, at least 1.
    pub checkpoint_epochs: u64,
    /// Steps between checkpoints inside an epoch; 0: none.
    pub checkpoint_steps: u64,
    /// What the best epoch is chosen by.
    pub rule: Rule,
    /// Digest of the whole training part, which each epoch's must equal.
    pub examples: Digest,
    /// What to try where numbers leave their range.
    pub remedy: Remedy,
    /// The recipe's section, for the learning rate.
    pub train: Train,
}

impl Setup {
    /// What follows from a recipe and what is known of its data.
    pub fn of(recipe: &Recipe, facts: &Facts) -> Self {
        let classification = facts.classes > 0;
        Self {
            epochs: recipe.train.epochs as u64,
            steps_per_epoch: recipe.train.steps_per_epoch(facts.examples as usize) as u64,
            classification,
            has_validation: facts.validation > 0,
            checkpoint_epochs: match recipe.output.checkpoint_epochs {
                0 => recipe.train.checkpoint_epochs(),
                epochs => epochs,
            },
            checkpoint_steps: recipe.output.checkpoint_steps,
            rule: Rule::new(recipe.train.early_stopping.as_ref(), classification),
            examples: facts.digest,
            remedy: recipe.remedy(),
            train: recipe.train.clone(),
        }
    }

    /// Steps in all.
    pub fn steps(&self) -> u64 {
        self.epochs * self.steps_per_epoch
    }

    /// Learning rate of a step.
    pub fn learning_rate(&self, step: u64) -> f32 {
        let (steps_per_epoch, steps) = (self.steps_per_epoch, self.steps());
        let progress = schedule::Progress { step, steps_per_epoch, steps };
        schedule::learning_rate(&self.train, progress)
    }

    /// Steps between lines of metrics: a function of the recipe, so a resumed run writes the same.
    pub fn line_every(&self) -> u64 {
        self.steps().div_ceil(STEP_LINES).max(1)
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Take steps: these batches of this epoch, up to the epoch's end or the next checkpoint. Each
    /// is told to [`Course::stepped`].
    Train(Steps),
    /// All batches of the epoch are done: score the validation part, where there is one, and tell
    /// [`Course::validated`].
    Validate,
    /// Write a checkpoint of the state as it is now, and tell [`Course::saved`].
    Save {
        /// It is the best epoch so far.
        is_best: bool,
        /// Why it is written.
        reason: String,
    },
    /// The run is over, or is to be left as it is.
    End(End),
}

/// Why a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// All epochs are done.
    Completed,
    /// Early stopping ended it, for this reason.
    StoppedEarly(String),
    /// A stop was asked for; everything is saved.
    Interrupted,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Done {
    /// Sum of the loss over the examples.
    pub loss_sum: f64,
    /// Examples whose class was right.
    pub correct: u64,
    /// Examples in the step.
    pub examples: u64,
    /// Seconds since the last step, or since training began or went on.
    pub seconds: f64,
    /// The examples that were read.
    pub read: Digest,
}

/// Figures on the validation part.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Validation {
    pub loss: Option<f64>,
    /// Of classes.
    pub accuracy: Option<f64>,
    /// Of numbers to predict.
    pub errors: Option<Errors>,
}

impl Validation {
    /// The figures of some scores.
    pub fn of(scores: &Scores) -> Self {
        Self { loss: scores.loss(), accuracy: scores.accuracy(), errors: scores.errors() }
    }
}

/// A run under way.
#[derive(Debug, Clone)]
pub struct Course {
    setup: Setup,
    state: State,
    /// A checkpoint that is due: whether it is the best, and why.
    due: Option<(bool, String)>,
    /// Whether something has happened that no checkpoint holds.
    unsaved: bool,
    stopping: bool,
    /// Steps and seconds of the run when this session began.
    before: (u64, f64),
    /// Seconds of the run when this session began its first step.
    training_since: Option<f64>,
}

impl Course {
    /// A run that stands at `state`.
    pub fn new(setup: Setup, state: State) -> Self {
        Self {
            due: None,
            // Only a run that has not begun stands at a state that no checkpoint holds.
            unsaved: state.step == 0,
            stopping: false,
            before: (state.step, state.seconds_total),
            training_since: None,
            setup,
            state,
        }
    }

    /// A run that another process has left like this.
    pub fn restored(setup: Setup, record: &Record) -> Self {
        let course = Self::new(setup, record.state.clone());
        Self { due: record.due.clone(), unsaved: record.unsaved, ..course }
    }

    /// What another process needs to go on.
    pub fn record(&self) -> Record {
        Record { due: self.due.clone(), unsaved: self.unsaved, ..Record::new(self.state.clone()) }
    }

    /// A checkpoint that was taken care of has not come about.
    pub fn not_saved(&mut self) {
        self.unsaved = true;
    }

    /// What to do next. Asking changes nothing.
    pub fn next(&self) -> Next {
        if let Some((is_best, reason)) = self.due.clone() {
            return Next::Save { is_best, reason };
        }
        if let Some(reason) = &self.state.stopped {
            return Next::End(End::StoppedEarly(reason.clone()));
        }
        if self.state.epoch >= self.setup.epochs {
            return Next::End(End::Completed);
        }
        if self.stopping {
            if !self.unsaved {
                return Next::End(End::Interrupted);
            }
            return Next::Save { is_best: false, reason: "a stop was asked for".into() };
        }
        if self.state.batch < self.setup.steps_per_epoch {
            return Next::Train(self.steps());
        }
        Next::Validate
    }

    /// A step was taken. Its figures, with those of the steps before it, where a line is due.
    pub fn stepped(&mut self, seconds_total: f64, done: &Done) -> Option<What> {
        self.training_since.get_or_insert(seconds_total - done.seconds);
        let state = &mut self.state;
        state.step += 1;
        state.batch += 1;
        state.examples += done.examples;
        state.read = state.read.combine(done.read);
        state.seconds_training += done.seconds;
        state.seconds_total = seconds_total;
        state.seconds_to_first_step.get_or_insert(seconds_total - self.before.1);
        for tally in [&mut state.this_epoch, &mut state.since_line] {
            tally.loss_sum += done.loss_sum;
            tally.correct += done.correct;
            tally.examples += done.examples;
            tally.seconds += done.seconds;
        }
        self.unsaved = true;
        let every = self.setup.checkpoint_steps;
        // The end of the epoch writes one of its own.
        if every > 0
            && state.step.is_multiple_of(every)
            && state.batch < self.setup.steps_per_epoch
            && !self.stopping
        {
            let reason = match every {
                1 => "every step".to_owned(),
                every => format!("every {every} steps"),
            };
            self.due = Some((false, reason));
        }
        if !state.step.is_multiple_of(self.setup.line_every()) {
            return None;
        }
        let tally = std::mem::take(&mut state.since_line);
        Some(What::Steps(self.figures(&tally)))
    }

    /// The epoch is done, with these figures on the validation part; without one the training
    /// figures decide. A checkpoint of it is due next.
    pub fn validated(&mut self, seconds_total: f64, validation: Option<Validation>) -> What {
        debug_assert_eq!(validation.is_some(), self.setup.has_validation);
        self.state.seconds_total = seconds_total;
        let tally = std::mem::take(&mut self.state.this_epoch);
        let figures = self.figures(&tally);
        let figure = match (validation, self.setup.rule.monitor) {
            (Some(held_out), Monitor::Loss) => held_out.loss,
            (Some(held_out), Monitor::Accuracy) => held_out.accuracy,
            (None, Monitor::Loss) => tally.loss(),
            (None, Monitor::Accuracy) => tally.accuracy(),
        };
        let state = &mut self.state;
        let (epoch, step) = (state.epoch + 1, state.step);
        let verdict = observe(&mut state.watch, &self.setup.rule, figure, epoch, step);
        let read = std::mem::take(&mut state.read);
        let exact = read == self.setup.examples;
        state.exact_epochs += u64::from(exact);
        state.epoch = epoch;
        state.batch = 0;
        if epoch < self.setup.epochs {
            state.stopped = verdict.stop;
        }
        self.unsaved = true;
        // The best by what was held out is worth keeping whenever it comes.
        let is_due = epoch.is_multiple_of(self.setup.checkpoint_epochs.max(1))
            || epoch >= self.setup.epochs
            || self.state.stopped.is_some()
            || (verdict.is_best && self.setup.has_validation);
        if is_due {
            self.due = Some((verdict.is_best, format!("epoch {epoch} is done")));
        }
        let Validation { loss, accuracy, errors } = validation.unwrap_or_default();
        What::Epoch {
            figures,
            validation_loss: loss,
            validation_accuracy: accuracy,
            validation_errors: errors,
            read,
            exact,
        }
    }

    /// The checkpoint that [`Course::next`] asked for is taken care of.
    pub fn saved(&mut self) {
        self.due = None;
        self.unsaved = false;
    }

    /// A stop was asked for: save what is not saved, then end. A run that has come to its end in
    /// the meantime counts as completed.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether a stop was asked for.
    pub fn stopping(&self) -> bool {
        self.stopping
    }

    /// How far the run has come.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What does not change.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Learning rate of a step.
    pub fn learning_rate(&self, step: u64) -> f32 {
        self.setup.learning_rate(step)
    }

    /// Where the run is at this moment; the caller adds workers and servers.
    pub fn pulse(&self, activity: Activity, phase: &str, seconds_total: f64) -> Pulse {
        let state = &self.state;
        let done = (state.step - self.before.0) as f64;
        let left = self.setup.steps().saturating_sub(state.step) as f64;
        let seconds_left = self
            .training_since
            .map(|since| (seconds_total - since) / done * left)
            .filter(|seconds| seconds.is_finite());
        Pulse {
            activity,
            phase: phase.into(),
            seconds: seconds_total,
            epoch: state.epoch + 1,
            step: state.step,
            loss: state.this_epoch.loss(),
            accuracy: self.accuracy(&state.this_epoch),
            examples_per_second: state.this_epoch.speed(),
            seconds_left,
            workers: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// The steps up to the next checkpoint or the end of the epoch.
    fn steps(&self) -> Steps {
        let State { step, epoch, batch, .. } = self.state;
        let epoch_end = self.setup.steps_per_epoch;
        let end = match self.setup.checkpoint_steps {
            0 => epoch_end,
            every => epoch_end.min(batch + (every - step % every)),
        };
        Steps { epoch, batches: batch..end, first_step: step }
    }

    /// Figures of the steps in `tally`, the last of which is the last that was taken.
    fn figures(&self, tally: &Tally) -> Figures {
        Figures {
            step: self.state.step,
            epoch: self.state.epoch + 1,
            loss: tally.loss(),
            accuracy: self.accuracy(tally),
            learning_rate: self.learning_rate(self.state.step.saturating_sub(1)),
            examples_per_second: tally.speed(),
            training_seconds: tally.seconds,
        }
    }

    fn accuracy(&self, tally: &Tally) -> Option<f64> {
        tally.accuracy().filter(|_| self.setup.classification)
    }
}

#[cfg(test)]
mod tests;
