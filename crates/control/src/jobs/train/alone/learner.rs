//! What a run in one process trains: a network, or a linear model.
//!
//! Owns what the two have in common for whoever steps, scores and saves them. Never decides when.

use crate::jobs::train::alone::evaluation;
use crate::jobs::train::alone::linear::Linear;
use crate::jobs::train::trainer;
use planaria_data::{DataSet, Part};
use planaria_learn::{Scores, Trainer, Weights};
use planaria_recipe::Plan;
use planaria_runs::failure::{Failure, Result};
use std::borrow::Cow;

/// A network or a linear model.
pub enum Learner {
    Network(Box<dyn Trainer>),
    /// A linear model, whose data are all in memory.
    Linear(Box<Linear>),
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
        match plan.recipe.train.code() {
            Some(_) => Ok(Self::Linear(Box::new(Linear::new(plan, data)?))),
            None => Ok(Self::Network(trainer(plan, threads)?)),
        }
    }

    /// Goes back to saved weights.
    pub fn restore(&mut self, weights: Weights) -> Result<()> {
        match self {
            Self::Linear(linear) => linear.restore(&weights.state),
            Self::Network(trainer) => trainer.restore(&weights).map_err(|e| {
                Failure::failed(format!("the checkpoint does not fit the network: {e}"))
            }),
        }
    }

    /// All that a checkpoint holds.
    pub fn snapshot(&self) -> Snapshot<'_> {
        match self {
            Self::Network(trainer) => Snapshot {
                parameters: Cow::Borrowed(trainer.parameters()),
                slots: trainer.slots(),
                state: Cow::Borrowed(trainer.state()),
            },
            Self::Linear(linear) => Snapshot {
                parameters: Cow::Owned(linear.weights().parameters(linear.model())),
                slots: Vec::new(),
                state: Cow::Owned(linear.weights().state()),
            },
        }
    }

    /// What tells weights from others beside the parameters: a network's state, or the bits of a
    /// linear model's weights.
    pub fn values(&self) -> Cow<'_, [f32]> {
        match self {
            Self::Network(trainer) => Cow::Borrowed(trainer.state()),
            Self::Linear(linear) => Cow::Owned(linear.weights().weight_state()),
        }
    }

    /// Trained numbers.
    pub fn parameter_count(&self) -> usize {
        match self {
            Self::Network(trainer) => trainer.parameters().len(),
            Self::Linear(linear) => linear.model().weights(),
        }
    }

    /// Scores on a part, or nothing if a stop was asked for on the way.
    pub fn evaluate(&mut self, plan: &Plan, part: &Part, classes: usize) -> Result<Option<Scores>> {
        match self {
            Self::Network(trainer) => {
                evaluation::evaluate(trainer.as_mut(), part, &plan.recipe.data.normalize, classes)
            }
            Self::Linear(linear) => linear.evaluate(part, classes),
        }
    }

    /// Engine and instruction set.
    pub fn engine(&self) -> String {
        match self {
            Self::Network(trainer) => trainer.name().to_owned(),
            Self::Linear(linear) => linear.engine(),
        }
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        match self {
            Self::Network(trainer) => trainer.threads(),
            Self::Linear(_) => 1,
        }
    }
}
