//! What a run in one process trains: a network, or a linear model.
//!
//! Owns the weights, and the reading of what they are trained and scored on. Never decides when.

use super::Step;
use super::linear::Linear;
use crate::data::{classes, data_trouble, targets};
use crate::session::Batch;
use planaria_data::{Batch as Examples, DataSet, Loader, Part, Reader, Schedule};
use planaria_learn::scores::numbers::Counting;
use planaria_learn::{Network, Scores, Settings, StepResult, Trainer, Weights, engines};
use planaria_numerics::digest::Digest;
use planaria_numerics::schedule::{self, Progress};
use planaria_protocol::checkpoint::{PartInfo, PartView, write_part};
use planaria_protocol::message::{EVALUATION_BATCH, HeldOut, Trouble};
use planaria_protocol::methods::solo::Report;
use planaria_recipe::sections::Remedy;
use planaria_recipe::{Plan, Recipe};
use std::borrow::Cow;
use std::path::Path;

/// A network or a linear model, and what is read for it.
pub struct Learner {
    model: Model,
    recipe: Recipe,
    data: DataSet,
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

/// What a checkpoint holds.
pub struct Snapshot<'a> {
    pub parameters: Cow<'a, [f32]>,
    /// Slots of the optimizer.
    pub slots: Vec<&'a [f32]>,
    pub state: Cow<'a, [f32]>,
}

impl Learner {
    /// As a plan says, at its start.
    pub fn new(plan: &Plan, data: &DataSet, threads: usize) -> Result<Self, Trouble> {
        let network = Network::of(&plan.recipe, plan.input).map_err(Trouble::wrong_input)?;
        let classes = classes(plan, &network);
        let model = match plan.recipe.train.traits().is_linear {
            true => Model::Linear(Box::new(Linear::new(plan, data)?)),
            false => {
                let settings = Settings::of(&plan.recipe, threads);
                let trainer = engines::trainer(network, settings);
                Model::Network(trainer.map_err(Trouble::wrong_input)?)
            }
        };
        let (recipe, data) = (plan.recipe.clone(), data.clone());
        Ok(Self { model, recipe, data, classes, batches: None, held_out: None })
    }

    /// Goes back to saved weights.
    pub fn restore(&mut self, weights: &Weights) -> Result<(), Trouble> {
        match &mut self.model {
            Model::Linear(linear) => linear.restore(&weights.state),
            Model::Network(trainer) => trainer
                .restore(weights)
                .map_err(|e| Trouble::new(format!("the checkpoint does not fit the network: {e}"))),
        }
    }

    /// Takes a step. Steps come one after another.
    pub(super) fn step(&mut self, step: Step) -> Result<Report, Trouble> {
        let rate = self.learning_rate(step.step);
        let (result, read) = match &mut self.model {
            Model::Linear(linear) => linear.step(step.step, step.batch, rate)?,
            Model::Network(trainer) => {
                let reader = match &mut self.batches {
                    Some(reader) => reader,
                    none => none.insert(training(&self.recipe, &self.data, step)?),
                };
                step_network(trainer.as_mut(), reader, step, rate, self.recipe.remedy())?
            }
        };
        let StepResult { loss_sum, correct, gradient_norm, .. } = result;
        let Step { step, began, .. } = step;
        Ok(Report::Stepped { step, began, loss_sum, correct, gradient_norm, read })
    }

    fn learning_rate(&self, step: u64) -> f32 {
        let train = &self.recipe.train;
        let steps_per_epoch = train.steps_per_epoch(self.data.train.len() as usize) as u64;
        let steps = steps_per_epoch * train.epochs as u64;
        schedule::learning_rate(train, Progress { step, steps_per_epoch, steps })
    }

    /// Scores of one batch; the next one of the same part is read ahead.
    pub(super) fn score(&mut self, batch: Batch) -> Result<Scores, Trouble> {
        let ahead = match self.held_out.take().filter(|ahead| ahead.next == batch) {
            Some(ahead) => ahead,
            None => Ahead { next: batch, reader: scoring(&self.recipe, &self.data, batch)? },
        };
        let Ahead { next, mut reader } = ahead;
        let read = match reader.next() {
            Some(read) => read.map_err(data_trouble)?,
            None => return Err(Trouble::new("there is no such held-out batch")),
        };
        let counting = self.counting(batch);
        let scores = match &mut self.model {
            Model::Network(trainer) => score(trainer.as_mut(), &read, self.classes, counting),
            Model::Linear(linear) => linear.score(&read, self.classes, counting),
        };
        reader.recycle(read);
        let next = Batch { batch: next.batch + 1, ..next };
        self.held_out = Some(Ahead { next, reader });
        Ok(scores)
    }

    /// How numbers of a held-out batch are counted.
    fn counting(&self, batch: Batch) -> Counting {
        let part = match batch.part {
            HeldOut::Validation => &self.data.validation,
            HeldOut::Test => &self.data.test,
        };
        let scale = self.data.target_scale().unwrap_or_default();
        let first = batch.batch * EVALUATION_BATCH as u64;
        Counting::new(scale, first, part.as_ref().map_or(0, Part::len))
    }

    /// Writes the weights, which are those after `step` steps, as a checkpoint's only part.
    pub(super) fn save(&self, step: u64, folder: &Path) -> Result<PartInfo, String> {
        let Snapshot { parameters, slots, state } = self.snapshot();
        let (parameters, slots, state) = (&*parameters, &*slots, &*state);
        let view = PartView { step, start: 0, parameters, slots, state };
        write_part(folder, 0, &view)
            .map_err(|e| format!("cannot write `{}`: {e}", folder.display()))
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

    /// Trained parameters.
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
    remedy: Remedy,
) -> Result<(StepResult, Digest), Trouble> {
    let batch = match reader.next() {
        Some(batch) => batch.map_err(data_trouble)?,
        None => return Err(Trouble::new("the training data ended too soon")),
    };
    debug_assert_eq!((batch.epoch, batch.step), (step.epoch, step.batch));
    let targets = targets(&batch.targets);
    let examples = planaria_learn::Examples { inputs: &batch.inputs, targets };
    let result =
        trainer.step(step.step, rate, examples).map_err(|e| failed(step, remedy.at(rate), e))?;
    let read = batch.digest();
    reader.recycle(batch);
    Ok((result, read))
}

/// Why a step could not be computed, for people: they count steps from 1.
fn failed(step: Step, hint: String, error: planaria_learn::Error) -> Trouble {
    let what = match error {
        planaria_learn::Error::NotFinite { what, value, .. } => format!("{what} is {value}"),
        other => other.to_string(),
    };
    Trouble::new(format!("training failed at step {}: {what}", step.step + 1)).hint(hint)
}

/// Scores of one batch of examples.
pub fn score(
    trainer: &mut dyn Trainer,
    batch: &Examples,
    classes: usize,
    counting: Counting,
) -> Scores {
    let width = trainer.network().output().len();
    let mut scores = Scores::new(width, classes).counting(counting);
    let (mut outputs, mut scratch) = (vec![0.0; batch.len() * width], vec![0.0; width]);
    trainer.predict(&batch.inputs, &mut outputs);
    let targets = targets(&batch.targets);
    let loss_sum = trainer.objective().sum(&outputs, targets, &mut scratch);
    scores.count(&outputs, targets, loss_sum);
    scores
}

/// Training batches from a step on.
fn training(recipe: &Recipe, data: &DataSet, step: Step) -> Result<Reader, Trouble> {
    let (normalize, augment) = (&recipe.data.normalize, &recipe.data.augment);
    let loader = Loader::training(data.train.clone(), recipe.seed, normalize, augment);
    let epochs = step.epoch..recipe.train.epochs as u64;
    let schedule = Schedule { batch: recipe.train.batch, epochs, step: step.batch };
    Reader::start(loader.map_err(data_trouble)?, schedule).map_err(data_trouble)
}

/// Held-out batches from one on.
fn scoring(recipe: &Recipe, data: &DataSet, batch: Batch) -> Result<Reader, Trouble> {
    let part = match batch.part {
        HeldOut::Validation => &data.validation,
        HeldOut::Test => &data.test,
    };
    let part = part.clone().ok_or_else(|| Trouble::new("there is no such held-out part"))?;
    let loader = Loader::evaluation(part, &recipe.data.normalize).map_err(data_trouble)?;
    let schedule = Schedule { batch: EVALUATION_BATCH, epochs: 0..1, step: batch.batch };
    Reader::start(loader, schedule).map_err(data_trouble)
}
