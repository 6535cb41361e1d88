//! What a run in one process trains: a network, or a linear model.
//!
//! Owns the weights, and the reading of what they are trained and scored on. Never decides when.

use crate::jobs::train::alone::evaluation::{self, failure};
use crate::jobs::train::alone::linear::Linear;
use crate::jobs::train::{self, Job};
use planaria_data::{DataSet, Loader, Reader, Schedule};
use planaria_learn::{Examples, Scores, StepResult, Trainer, Weights};
use planaria_numerics::digest::Digest;
use planaria_protocol::message::{EVALUATION_BATCH, HeldOut};
use planaria_protocol::methods::solo::Report;
use planaria_recipe::Plan;
use planaria_runs::failure::{Failure, Result};
use planaria_worker::data::targets;
use planaria_worker::methods::solo::Step;
use planaria_worker::session::Batch;
use std::borrow::Cow;

/// A network or a linear model, and what is read for it.
pub struct Learner {
    model: Model,
    /// Classes told apart; 0 for regression.
    classes: usize,
    /// Training batches, from the next step's on.
    batches: Option<Reader>,
    held_out: Option<Ahead>,
}

enum Model {
    Network(Box<dyn Trainer>),
    /// A linear model, whose data are all in memory.
    Linear(Box<Linear>),
}

/// Held-out batches that are read ahead.
struct Ahead {
    next: Batch,
    reader: Reader,
}

/// Why a step could not be taken.
pub enum Unstepped {
    /// It cannot be computed.
    Computing(planaria_learn::Error),
    Other(Failure),
}

impl From<Failure> for Unstepped {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

/// What a checkpoint holds.
pub struct Snapshot<'a> {
    pub parameters: Cow<'a, [f32]>,
    /// Slots of the optimizer.
    pub slots: Vec<&'a [f32]>,
    pub state: Cow<'a, [f32]>,
}

impl Learner {
    /// As a plan says, at its start.
    pub fn new(plan: &Plan, data: &DataSet, threads: usize) -> Result<Self> {
        let model = match plan.recipe.train.traits().is_linear {
            true => Model::Linear(Box::new(Linear::new(plan, data)?)),
            false => Model::Network(train::trainer(plan, threads)?),
        };
        let classes = train::classes(plan, &train::network(plan)?);
        Ok(Self { model, classes, batches: None, held_out: None })
    }

    /// Goes back to saved weights.
    pub fn restore(&mut self, weights: Weights) -> Result<()> {
        match &mut self.model {
            Model::Linear(linear) => linear.restore(&weights.state),
            Model::Network(trainer) => trainer.restore(&weights).map_err(|e| {
                Failure::failed(format!("the checkpoint does not fit the network: {e}"))
            }),
        }
    }

    /// Takes a step. Steps come one after another.
    pub fn step(
        &mut self,
        job: &Job,
        step: Step,
        rate: f32,
    ) -> std::result::Result<Report, Unstepped> {
        let (result, read) = match &mut self.model {
            Model::Linear(linear) => linear.step(step.step, step.batch, rate)?,
            Model::Network(trainer) => {
                let reader = match &mut self.batches {
                    Some(reader) => reader,
                    none => none.insert(training(job, step)?),
                };
                step_network(trainer.as_mut(), reader, step, rate)?
            }
        };
        let StepResult { loss_sum, correct, gradient_norm, .. } = result;
        Ok(Report::Stepped { step: step.step, loss_sum, correct, gradient_norm, read })
    }

    /// Scores of one batch; the next one of the same part is read ahead.
    pub fn score(&mut self, job: &Job, batch: Batch) -> Result<Scores> {
        let ahead = match self.held_out.take().filter(|ahead| ahead.next == batch) {
            Some(ahead) => ahead,
            None => Ahead { next: batch, reader: scoring(job, batch)? },
        };
        let Ahead { next, mut reader } = ahead;
        let read = match reader.next() {
            Some(read) => read.map_err(failure)?,
            None => return Err(Failure::failed("there is no such held-out batch")),
        };
        let scores = match &mut self.model {
            Model::Network(trainer) => evaluation::score(trainer.as_mut(), &read, self.classes),
            Model::Linear(linear) => linear.score(&read, self.classes),
        };
        reader.recycle(read);
        let next = Batch { batch: next.batch + 1, ..next };
        self.held_out = Some(Ahead { next, reader });
        Ok(scores)
    }

    /// All that a checkpoint holds.
    pub fn snapshot(&self) -> Snapshot<'_> {
        match &self.model {
            Model::Network(trainer) => Snapshot {
                parameters: Cow::Borrowed(trainer.parameters()),
                slots: trainer.slots(),
                state: Cow::Borrowed(trainer.state()),
            },
            Model::Linear(linear) => Snapshot {
                parameters: Cow::Owned(linear.weights().parameters(linear.model())),
                slots: Vec::new(),
                state: Cow::Owned(linear.weights().state()),
            },
        }
    }

    /// What tells weights from others beside the parameters: a network's state, or the bits of a
    /// linear model's weights.
    pub fn values(&self) -> Cow<'_, [f32]> {
        match &self.model {
            Model::Network(trainer) => Cow::Borrowed(trainer.state()),
            Model::Linear(linear) => Cow::Owned(linear.weights().weight_state()),
        }
    }

    /// Trained numbers.
    pub fn parameter_count(&self) -> usize {
        match &self.model {
            Model::Network(trainer) => trainer.parameters().len(),
            Model::Linear(linear) => linear.model().weights(),
        }
    }

    /// Engine and instruction set.
    pub fn engine(&self) -> String {
        match &self.model {
            Model::Network(trainer) => trainer.name().to_owned(),
            Model::Linear(linear) => linear.engine(),
        }
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        match &self.model {
            Model::Network(trainer) => trainer.threads(),
            Model::Linear(_) => 1,
        }
    }

    /// What is worth saying before it begins.
    pub fn remark(&self) -> Option<String> {
        match &self.model {
            Model::Network(_) => None,
            Model::Linear(linear) => linear.remark(),
        }
    }
}

/// One step of a network, on the batch that comes next.
fn step_network(
    trainer: &mut dyn Trainer,
    reader: &mut Reader,
    step: Step,
    rate: f32,
) -> std::result::Result<(StepResult, Digest), Unstepped> {
    let batch = match reader.next() {
        Some(batch) => batch.map_err(failure)?,
        None => return Err(Failure::failed("the training data ended too soon").into()),
    };
    debug_assert_eq!((batch.epoch, batch.step), (step.epoch, step.batch));
    let examples = Examples { inputs: &batch.inputs, targets: targets(&batch.targets) };
    let result = trainer.step(step.step, rate, examples).map_err(Unstepped::Computing)?;
    let read = batch.digest();
    reader.recycle(batch);
    Ok((result, read))
}

/// Training batches from a step on.
fn training(job: &Job, step: Step) -> Result<Reader> {
    let recipe = &job.plan.recipe;
    let (part, data) = (job.data.train.clone(), &recipe.data);
    let loader = Loader::training(part, recipe.seed, &data.normalize, &data.augment);
    let epochs = step.epoch..recipe.train.epochs as u64;
    let schedule = Schedule { batch: recipe.train.batch, epochs, step: step.batch };
    Reader::start(loader.map_err(failure)?, schedule).map_err(failure)
}

/// Held-out batches from one on.
fn scoring(job: &Job, batch: Batch) -> Result<Reader> {
    let part = match batch.part {
        HeldOut::Validation => &job.data.validation,
        HeldOut::Test => &job.data.test,
    };
    let part = part.clone().ok_or_else(|| Failure::failed("there is no such held-out part"))?;
    let loader = Loader::evaluation(part, &job.plan.recipe.data.normalize).map_err(failure)?;
    let schedule = Schedule { batch: EVALUATION_BATCH, epochs: 0..1, step: batch.batch };
    Reader::start(loader, schedule).map_err(failure)
}
