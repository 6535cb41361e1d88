//! What computes networks: [`Engine`] is the seam, [`KINDS`] says which engines there are.
//!
//! Nothing outside this folder knows which engine computes. A new one is a folder here that
//! implements [`Engine`] (and [`Trainer`], where whole steps in one process are to be as fast as it
//! can make them) and a line in [`KINDS`].
//!
//! Would they fit? CUDA: `compute` copies a run's examples and parameters to the device, runs the
//! shards on streams, and calls `ready` from the thread that waits for each piece's copy back;
//! buffers on the device are made in `new`. An imported ONNX graph: its initialisers in the order of
//! the flat parameters, `predict` through the runtime; what only predicts refuses to be a
//! [`Trainer`].

pub mod cpu;

use crate::loss::{Objective, Targets};
use crate::network::Network;
use crate::{Error, Isa};
use planaria_numerics::tree::Segment;
use planaria_recipe::Recipe;
use planaria_recipe::train::{Loss, Optimizer};
use std::ops::Range;

/// Computes some shards of each step, on flat buffers: parameters and examples in; sums of gradients,
/// statistics and scores out.
///
/// Contract: the results of a shard are a function of (network, settings, step, shard, parameters,
/// examples), the same bits from every engine of the same kind, whatever other shards it computes,
/// on how many threads, before or after what. All memory is planned when an engine is made or a run
/// is longer than all before; a steady step allocates nothing. Never updates parameters and never
/// knows where gradients go.
pub trait Engine: Send {
    /// Kind and variant, such as `cpu-avx512`. Variants of a kind give the same bits.
    fn name(&self) -> &'static str;

    fn network(&self) -> &Network;

    /// The loss and its constants.
    fn objective(&self) -> Objective;

    /// Threads that compute.
    fn threads(&self) -> usize;

    /// Computes the shards of `work` until `is_over` says that they are no longer needed; it is
    /// asked before every shard. Says how many were computed: if not all, nothing was handed out,
    /// and [`Self::result`] is worth nothing.
    ///
    /// `ready` is called, from any thread and perhaps from several at once, once for each segment of
    /// the run and piece of the parameters, as soon as every shard of the run has passed the piece.
    /// All calls have returned when this does. It must not panic: other threads would wait for ever.
    fn compute(&mut self, work: Work<'_>, hooks: Hooks<'_>) -> usize;

    /// Score and flat statistics of a shard of the last run.
    fn result(&self, shard: usize) -> (Score, &[f32]);

    /// Outputs of any number of examples (logits, where the loss takes logits) with these
    /// parameters and this state, which are kept as prepared until [`Self::forget`].
    fn predict(&mut self, weights: (&[f32], &[f32]), inputs: &[f32], outputs: &mut [f32]);

    /// The weights to predict with have changed.
    fn forget(&mut self);
}

/// Trains one network in one process: an engine with the optimizer, which may fuse the two.
///
/// Contract: the same bits as an [`Engine`] of its kind, the shards' tree and the optimizer of
/// `numerics` give, one after the other.
pub trait Trainer: Send {
    /// As [`Engine::name`].
    fn name(&self) -> &'static str;

    fn network(&self) -> &Network;

    /// The loss and its constants.
    fn objective(&self) -> Objective;

    /// Threads that compute.
    fn threads(&self) -> usize;

    /// The flat parameters.
    fn parameters(&self) -> &[f32];

    /// The flat state.
    fn state(&self) -> &[f32];

    /// The optimizer's slots, each as long as the parameters.
    fn slots(&self) -> Vec<&[f32]>;

    /// Goes back to saved weights.
    fn restore(&mut self, weights: &Weights) -> Result<(), Error>;

    /// One step (numbered from 0 over the whole run) on one batch.
    ///
    /// A loss or gradient that is not finite is an error and ends training: parameters may be half
    /// updated then, and only saved weights are good to go on with.
    fn step(
        &mut self,
        step: u64,
        learning_rate: f32,
        batch: Examples<'_>,
    ) -> Result<StepResult, Error>;

    /// Outputs of any number of examples (logits, where the loss takes logits).
    fn predict(&mut self, inputs: &[f32], outputs: &mut [f32]);

    /// A copy of all that training changes.
    fn weights(&self) -> Weights {
        Weights {
            parameters: self.parameters().to_vec(),
            state: self.state().to_vec(),
            optimizer: self.slots().iter().map(|slot| slot.to_vec()).collect(),
        }
    }
}

/// A kind of engine. Where there is no device, or a network has a layer that it does not have, it
/// says so when it is made ([`Error::Engine`]), and never later.
pub struct Kind {
    pub name: &'static str,
    /// Its variants that work on this machine, the fastest last.
    pub here: fn() -> Vec<&'static str>,
    pub engine: fn(Network, Settings) -> Result<Box<dyn Engine>, Error>,
    pub trainer: fn(Network, Settings) -> Result<Box<dyn Trainer>, Error>,
}

/// Every engine there is, the default first. A new one is a line here.
pub const KINDS: &[Kind] = &[cpu::KIND];

/// An engine for a worker's shards.
pub fn engine(network: Network, settings: Settings) -> Result<Box<dyn Engine>, Error> {
    (KINDS[0].engine)(network, settings)
}

/// What trains a whole network in one process.
pub fn trainer(network: Network, settings: Settings) -> Result<Box<dyn Trainer>, Error> {
    (KINDS[0].trainer)(network, settings)
}

/// Shards of one step that are computed together.
#[derive(Debug, Clone)]
pub struct Work<'a> {
    /// Counted over the whole run, from 0.
    pub step: u64,
    pub parameters: &'a [f32],
    pub shards: Range<usize>,
    /// Examples that all shards of the step have together.
    pub examples_in_step: usize,
    /// The examples of these shards alone, in order.
    pub batch: Examples<'a>,
}

/// What is asked and told while shards are computed.
#[derive(Clone, Copy)]
pub struct Hooks<'a> {
    /// Told what is ready, as [`Engine::compute`] says.
    pub ready: &'a (dyn Fn(Ready<'_>) + Sync),
    /// Whether the shards are not needed any more.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
}

/// A sum that is ready.
#[derive(Debug, Clone)]
pub struct Ready<'a> {
    /// Over these shards.
    pub segment: Segment,
    /// Of these blocks of parameters.
    pub blocks: Range<usize>,
    /// The sum, not scaled.
    pub values: &'a [f32],
}

/// Some examples, one after another.
#[derive(Debug, Clone, Copy)]
pub struct Examples<'a> {
    /// As many values per example as the network's input has, channels innermost.
    pub inputs: &'a [f32],
    /// What they should give.
    pub targets: Targets<'a>,
}

/// What a shard gives back besides gradients.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Sum of the loss over the examples.
    pub loss: f64,
    /// Examples whose class was right.
    pub correct: u64,
}

/// How a network is trained.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Starting values and dropout follow from it.
    pub seed: u64,
    /// Most examples in a step.
    pub batch: usize,
    /// Shards a batch is cut into; part of the arithmetic.
    pub shards: usize,
    /// Threads that compute; not part of the arithmetic.
    pub threads: usize,
    /// What is minimised.
    pub loss: Loss,
    /// Share of a class' target spread over all classes.
    pub label_smoothing: f32,
    /// How parameters follow gradients.
    pub optimizer: Optimizer,
    /// Largest global norm of the gradient.
    pub clip_norm: Option<f32>,
    /// Instruction set; the fastest there is when left out.
    pub isa: Option<Isa>,
}

impl Settings {
    /// As a recipe says, on so many threads, with the fastest instruction set there is.
    pub fn of(recipe: &Recipe, threads: usize) -> Self {
        let train = &recipe.train;
        Self {
            seed: recipe.seed,
            batch: train.batch,
            shards: train.shards,
            threads,
            loss: train.loss,
            label_smoothing: train.label_smoothing,
            optimizer: train.optimizer.clone(),
            clip_norm: train.clip_norm,
            isa: None,
        }
    }
}

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepResult {
    /// Sum of the loss over the examples.
    pub loss_sum: f64,
    /// Examples whose class was right.
    pub correct: u64,
    /// Examples in the step.
    pub examples: u64,
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
}

/// All that training changes; checkpoints hold exactly this.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    pub parameters: Vec<f32>,
    pub state: Vec<f32>,
    /// The optimizer's slots, each as long as the parameters.
    pub optimizer: Vec<Vec<f32>>,
}
