//! Weights of a linear model, how they follow sums of product 2, and how checkpoints hold them.
//!
//! Weights are a run of [`Model::width`] for each column, the bias last. They and the optimizer are
//! f64 whatever products are computed in. A checkpoint's buffers are f32: its parameters are the
//! weights rounded, laid out as those of a `Dense` layer (so that a reader of networks can use
//! them), and its state is the bits of all f64, halves of 32 bits each. Plain multiplies and adds,
//! never fused: the same bits everywhere.

use super::Model;
use super::descent::{self, Constants};
use crate::Error;
use planaria_recipe::Recipe;
use planaria_recipe::train::Optimizer;

/// How weights follow their gradients.
#[derive(Debug, Clone, PartialEq)]
pub struct Stepping {
    constants: Constants,
    /// L2 regularisation, which the bias is left out of.
    l2: f64,
    /// Largest norm of the gradient.
    clip_norm: Option<f64>,
}

impl Stepping {
    /// As a recipe says.
    pub fn of(recipe: &Recipe) -> Self {
        let train = &recipe.train;
        Self::new(&train.optimizer, train.l2, train.clip_norm)
    }

    /// With these settings.
    pub fn new(optimizer: &Optimizer, l2: f64, clip_norm: Option<f32>) -> Self {
        let constants = Constants::of(optimizer);
        Self { constants, l2, clip_norm: clip_norm.map(descent::decimal) }
    }
}

/// All that training changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// A run of [`Model::width`] for each column.
    pub values: Vec<f64>,
    /// The optimizer's slots, each as long.
    pub slots: Vec<Vec<f64>>,
}

impl Weights {
    /// Where training begins: at zero, because what is minimised has no other minima.
    pub fn start(model: &Model, stepping: &Stepping) -> Self {
        let count = model.weights();
        let slots = vec![vec![0.0; count]; stepping.constants.slots()];
        Self { values: vec![0.0; count], slots }
    }

    /// One step. `sums` is product 2 over the `rows` rows of the step, laid out as weights are;
    /// `step` counts from 0. Gives the norm of the gradient before clipping. Weights that would not
    /// be finite are an error, and stay as they were.
    pub fn step(
        &mut self,
        model: &Model,
        stepping: &Stepping,
        step: u64,
        learning_rate: f32,
        rows: u64,
        sums: &[f64],
    ) -> Result<f64, Error> {
        let mut gradient = self.gradient(model, stepping, rows, sums);
        let norm = gradient.iter().fold(0.0, |sum, g| sum + g * g).sqrt();
        if !norm.is_finite() {
            return Err(Error::NotFinite { what: "the gradient's norm", value: norm, step });
        }
        if let Some(limit) = stepping.clip_norm.filter(|limit| norm > *limit) {
            gradient.iter_mut().for_each(|g| *g *= limit / norm);
        }
        let before = self.clone();
        let rate = descent::decimal(learning_rate);
        let slots = &mut self.slots;
        descent::update(&stepping.constants, step, rate, &mut self.values, &gradient, slots);
        if let Some(value) = self.values.iter().copied().find(|w| !w.is_finite()) {
            *self = before;
            return Err(Error::NotFinite { what: "a weight", value, step });
        }
        Ok(norm)
    }

    /// The mean over the rows, and the slope of the regularisation.
    fn gradient(&self, model: &Model, stepping: &Stepping, rows: u64, sums: &[f64]) -> Vec<f64> {
        assert_eq!(sums.len(), self.values.len(), "sums are laid out as weights are");
        let (width, rows) = (model.width(), rows.max(1) as f64);
        let gradient = |(i, (sum, weight)): (usize, (&f64, &f64))| {
            let is_bias = model.bias && i % width == width - 1;
            sum / rows + if is_bias { 0.0 } else { stepping.l2 * weight }
        };
        sums.iter().zip(&self.values).enumerate().map(gradient).collect()
    }

    /// The weights as a `Dense` layer's parameters: kernel by features, then biases.
    pub fn parameters(&self, model: &Model) -> Vec<f32> {
        let columns: Vec<&[f64]> = self.values.chunks_exact(model.width()).collect();
        let row = |i: usize| columns.iter().map(move |column| column[i] as f32);
        (0..model.width()).flat_map(row).collect()
    }

    /// All bits: weights, then slots; halves of 32 bits, the lower first.
    pub fn state(&self) -> Vec<f32> {
        self.bits(self.slots.iter())
    }

    /// The bits of the weights alone, by which they are told from others.
    pub fn weight_state(&self) -> Vec<f32> {
        self.bits([].iter())
    }

    fn bits<'a>(&'a self, slots: impl Iterator<Item = &'a Vec<f64>>) -> Vec<f32> {
        let values = std::iter::once(&self.values).chain(slots).flatten();
        let halves = |value: &f64| {
            let bits = value.to_bits();
            [f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)]
        };
        values.flat_map(halves).collect()
    }

    /// Weights from a checkpoint's state.
    pub fn restore(model: &Model, stepping: &Stepping, state: &[f32]) -> Result<Self, Error> {
        let count = model.weights();
        let expected = 2 * count * (1 + stepping.constants.slots());
        if state.len() != expected {
            return Err(Error::Mismatch(format!(
                "it holds {} values where a linear model of {count} weights has {expected}",
                state.len()
            )));
        }
        let join = |halves: &[f32]| {
            let (low, high) = (halves[0].to_bits(), halves[1].to_bits());
            f64::from_bits(u64::from(high) << 32 | u64::from(low))
        };
        let all: Vec<f64> = state.chunks_exact(2).map(join).collect();
        if let Some(value) = all.iter().find(|v| !v.is_finite()) {
            return Err(Error::Mismatch(format!("it holds {value}")));
        }
        let mut parts = all.chunks_exact(count.max(1)).map(<[f64]>::to_vec);
        Ok(Self { values: parts.next().unwrap_or_default(), slots: parts.collect() })
    }
}
