//! Signatures agreed on before the engine is in place.
#![expect(unused_variables, missing_docs, reason = "replaced by the engine")]
use planaria_recipe::{
    Layer, Shape,
    train::{Loss, Optimizer},
};
use std::ops::Range;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Targets of some examples.
#[derive(Debug, Clone, Copy)]
pub enum Targets<'a> {
    /// One class per example.
    Classes(&'a [u32]),
    /// `outputs` values per example.
    Values(&'a [f32]),
}

/// Some examples, one after another.
#[derive(Debug, Clone, Copy)]
pub struct Examples<'a> {
    /// `shape.len()` values per example, channels innermost.
    pub inputs: &'a [f32],
    pub targets: Targets<'a>,
}

/// Whether a tensor is trained or only kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Parameter,
    State,
}

/// A named part of the flat parameters or state.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub kind: Kind,
    pub shape: Vec<usize>,
    pub range: Range<usize>,
}

/// A network's plan: what is where in the flat buffers.
#[derive(Debug, Clone)]
pub struct Network {}
impl Network {
    pub fn new(layers: &[Layer], input: Shape) -> Result<Self, Error> {
        todo!()
    }
    /// Named ranges in plan order.
    pub fn tensors(&self) -> &[Tensor] {
        todo!()
    }
    pub fn parameter_count(&self) -> usize {
        todo!()
    }
    pub fn state_count(&self) -> usize {
        todo!()
    }
    pub fn output(&self) -> Shape {
        todo!()
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub seed: u64,
    pub batch: usize,
    pub shards: usize,
    pub threads: usize,
    pub loss: Loss,
    pub label_smoothing: f32,
    pub optimizer: Optimizer,
    pub clip_norm: Option<f32>,
}

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepResult {
    pub loss_sum: f64,
    pub correct: u64,
    pub examples: u64,
    pub gradient_norm: f64,
}

/// All that training changes; checkpoints hold exactly this.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    pub parameters: Vec<f32>,
    pub state: Vec<f32>,
    pub optimizer: Vec<Vec<f32>>,
}

/// Trains one network in this process on several threads.
pub struct Trainer {}
impl Trainer {
    /// Initialised from the seed.
    pub fn new(network: Network, settings: Settings) -> Self {
        todo!()
    }
    pub fn network(&self) -> &Network {
        todo!()
    }
    /// Name of the engine and instruction set, such as `cpu-avx512`.
    pub fn engine(&self) -> &'static str {
        todo!()
    }
    pub fn threads(&self) -> usize {
        todo!()
    }
    /// One step (numbered from 0 over the whole run) on one batch; a shard per range of it.
    /// An error names a loss or gradient that is not finite; weights are then as before.
    pub fn step(
        &mut self,
        step: u64,
        learning_rate: f32,
        batch: Examples<'_>,
    ) -> Result<StepResult, Error> {
        todo!()
    }
    /// Outputs (logits; `output().len()` per example) of any number of examples.
    pub fn predict(&mut self, inputs: &[f32], outputs: &mut [f32]) {
        todo!()
    }
    /// Sum of the loss over examples given predict's outputs.
    pub fn loss(&self, outputs: &[f32], targets: Targets<'_>) -> f64 {
        todo!()
    }
    pub fn weights(&self) -> Weights {
        todo!()
    }
    pub fn restore(&mut self, weights: &Weights) -> Result<(), Error> {
        todo!()
    }
    /// Hex SHA-256 input: little-endian f32 parameters in plan order, then state.
    pub fn parameters(&self) -> &[f32] {
        todo!()
    }
    pub fn state(&self) -> &[f32] {
        todo!()
    }
}
