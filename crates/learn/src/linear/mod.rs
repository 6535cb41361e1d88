//! Linear models on coded or plain data: what a run on many machines and the reference in one
//! process have in common.
//!
//! A model is one column of weights for each output; the bias is the last weight of a column, and
//! data have a column of ones for it. Weights and the optimizer are f64 whatever the products are
//! computed in. Who multiplies, and whether rows are coded, is not known here.
//!
//! # Layout
//! - [`Model`] (here): sizes and what is minimised
//! - [`number`]: the numbers products are computed in, and the way there and back
//! - [`outcome`]: products and labels to slopes, losses and right answers
//! - [`weights`]: weights, their step, and how checkpoints hold them
//! - [`plain`]: both products on rows that are not coded: the reference
//!
//! # A step
//! 1. Product 1 of the step's rows: [`number::Number::weights`], then either [`plain`] or the code;
//!    [`number::Number::products`].
//! 2. [`Model::judge`] makes slopes of products and adds up losses.
//! 3. Product 2: [`number::Number::slopes`], the sums, [`number::Number::sums`].
//! 4. [`weights::Weights::step`] with the sums and the number of rows.
//!
//! Steps are full batches, or the same range of places of every block ([`Batches`]).

mod descent;
pub mod number;
pub mod outcome;
pub mod plain;
pub mod weights;

pub use outcome::{Outcome, Target};
pub use plain::Plain;
pub use weights::{Stepping, Weights};

use crate::Error;
use planaria_numerics::coding::blocks::Blocks;
use planaria_numerics::coding::slope::Task;
use planaria_recipe::model::Layer;
use planaria_recipe::train::{Loss, Train};
use planaria_recipe::{Recipe, Shape};
use std::ops::Range;

/// A linear model: its sizes and what is minimised.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// What is learned from a row's products.
    pub task: Task,
    /// Features of a row, the column of ones not counted.
    pub features: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// What an example of each class counts; empty where all count 1.
    pub class_weights: Vec<f64>,
}

impl Model {
    /// The model of a checked recipe whose examples are `input`; `class_names` in the order of
    /// their numbers, where there are classes.
    pub fn of(recipe: &Recipe, input: Shape, class_names: &[String]) -> Result<Self, Error> {
        let layers = recipe.model.layers.as_deref().unwrap_or_default();
        let Some(Layer::Dense(dense)) = layers.last() else {
            return Err(Error::Shape("a linear model is one `Dense` layer".into()));
        };
        let task = match recipe.train.loss {
            Loss::Mse => Task::LinearRegression,
            Loss::BinaryCrossEntropy => Task::Logistic,
            Loss::Hinge => Task::Hinge,
            Loss::SquaredHinge => Task::SquaredHinge,
            Loss::CrossEntropy => Task::Softmax { classes: dense.units },
        };
        let class_weights = class_weights(&recipe.train, class_names)?;
        Ok(Self { task, features: input.len(), bias: dense.use_bias, class_weights })
    }

    /// Values of a row as it is multiplied: the features, and one for the bias.
    pub fn width(&self) -> usize {
        self.features + usize::from(self.bias)
    }

    /// Columns of weights, and so products of a row.
    pub fn columns(&self) -> usize {
        self.task.columns()
    }

    /// Trained parameters.
    pub fn weights(&self) -> usize {
        self.width() * self.columns()
    }
}

fn class_weights(train: &Train, names: &[String]) -> Result<Vec<f64>, Error> {
    if train.class_weights.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(label) = train.class_weights.keys().find(|label| !names.contains(label)) {
        let known = names.join("`, `");
        return Err(Error::Shape(format!(
            "`train.class_weights` names the label `{label}`, but the training rows have `{known}`"
        )));
    }
    Ok(names.iter().map(|name| train.class_weights.get(name).copied().unwrap_or(1.0)).collect())
}

/// The steps of an epoch: ranges of places, in their order, the same in every epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    blocks: Blocks,
    places: usize,
}

impl Batches {
    /// Of `rows` training examples, as a coded recipe says.
    pub fn of(train: &Train, rows: usize) -> Result<Self, Error> {
        let shape = |why: String| Error::Shape(why);
        let code = train.code().ok_or_else(|| shape("the recipe has no code".into()))?;
        let blocks = Blocks::new(rows, code.threshold).map_err(|e| shape(e.to_string()))?;
        Ok(Self { blocks, places: code.places(train.batch, rows) })
    }

    /// How rows lie in blocks.
    pub fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// Steps in an epoch.
    pub fn len(&self) -> usize {
        self.blocks.height().div_ceil(self.places)
    }

    /// Whether there are none; there is always one.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The places of batch number `batch` of an epoch.
    pub fn places(&self, batch: usize) -> Range<usize> {
        let start = batch * self.places;
        start..(start + self.places).min(self.blocks.height())
    }

    /// The rows of the data of a batch: a range of each block, ascending, none of them padding.
    pub fn rows(&self, batch: usize) -> Vec<Range<usize>> {
        let places = self.places(batch);
        let rows = (0..self.blocks.threshold()).map(|b| self.blocks.data_rows(b, &places));
        rows.filter(|range| !range.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests;
