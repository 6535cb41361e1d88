//! Trains one network in this process: shards on threads, then the optimizer.
//!
//! A step has three parts, between which the threads meet: weights are packed for the kernels,
//! shards are computed into gradient buffers of their own, and blocks of parameters are summed over
//! the shards' fixed tree and updated. Which thread does what never matters to the result.

use super::normalise;
use super::packing::Packing;
use super::parts::{Parts, draw};
use super::predictor::Predictor;
use super::shard::{Draw, Results, Score, Shard, run};
use super::threads::{Crew, Meeting};
use super::workspace::Workspace;
use crate::Error;
use crate::kernels::buffer::Buffer;
use crate::kernels::simd::Isa;
use crate::loss::{Objective, Targets};
use crate::network::Network;
use crate::program::{Compiled, compile};
use planaria_numerics::aggregate::{self, BLOCK, shard_range};
use planaria_numerics::optimizer;
use planaria_recipe::train::{Loss, Optimizer};
use std::sync::atomic::AtomicUsize;

/// Some examples, one after another.
#[derive(Debug, Clone, Copy)]
pub struct Examples<'a> {
    /// As many values per example as the network's input has, channels innermost.
    pub inputs: &'a [f32],
    /// What they should give.
    pub targets: Targets<'a>,
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
    /// Flat parameters.
    pub parameters: Vec<f32>,
    /// Flat state.
    pub state: Vec<f32>,
    /// The optimizer's slots, each as long as the parameters.
    pub optimizer: Vec<Vec<f32>>,
}

/// Trains one network on several threads.
pub struct Trainer {
    network: Network,
    settings: Settings,
    compiled: Compiled,
    isa: Isa,
    crew: Crew,
    parameters: Buffer,
    state: Vec<f32>,
    slots: Vec<Buffer>,
    packed: Buffer,
    shards: Vec<ShardBuffers>,
    gradient: Buffer,
    workspaces: Vec<Workspace>,
    predictor: Predictor,
}

/// What one shard writes.
struct ShardBuffers {
    gradients: Buffer,
    stats: Vec<f32>,
    score: Score,
}

impl Trainer {
    /// Initialised from the seed.
    pub fn new(network: Network, settings: Settings) -> Self {
        let compiled = compile(&network, settings.loss);
        let threads = settings.threads.clamp(1, 1024);
        let capacity = settings.batch.div_ceil(settings.shards);
        let objective =
            Objective { loss: settings.loss, label_smoothing: settings.label_smoothing };
        let (parameters, state) = network.initialise(settings.seed);
        let count = parameters.len();
        let shards = (0..settings.shards)
            .map(|_| ShardBuffers {
                gradients: Buffer::new(count),
                stats: vec![0.0; network.stats_count()],
                score: Score::default(),
            })
            .collect();
        Self {
            isa: settings.isa.unwrap_or_else(Isa::detect),
            crew: Crew::new(threads),
            parameters: parameters.as_slice().into(),
            state,
            slots: (0..optimizer::slots(&settings.optimizer)).map(|_| Buffer::new(count)).collect(),
            packed: Buffer::new(compiled.packed_len),
            shards,
            gradient: Buffer::new(count),
            workspaces: (0..threads.min(settings.shards))
                .map(|_| Workspace::new(&compiled, &compiled.training, capacity))
                .collect(),
            predictor: Predictor::new(objective),
            network,
            settings,
            compiled,
        }
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Name of the engine and instruction set, such as `cpu-avx512`.
    pub fn engine(&self) -> &'static str {
        self.isa.name()
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.crew.threads()
    }

    /// The loss and its constants.
    pub fn objective(&self) -> Objective {
        Objective { loss: self.settings.loss, label_smoothing: self.settings.label_smoothing }
    }

    /// The flat parameters.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// The flat state.
    pub fn state(&self) -> &[f32] {
        &self.state
    }

    /// A copy of all that training changes.
    pub fn weights(&self) -> Weights {
        Weights {
            parameters: self.parameters.to_vec(),
            state: self.state.clone(),
            optimizer: self.slots.iter().map(|s| s.to_vec()).collect(),
        }
    }

    /// Goes back to saved weights.
    pub fn restore(&mut self, weights: &Weights) -> Result<(), Error> {
        let check = |what: &str, found: usize, wanted: usize| {
            if found == wanted {
                return Ok(());
            }
            Err(Error::Mismatch(format!(
                "saved weights have {found} {what}, this network and optimizer need {wanted}"
            )))
        };
        check("parameters", weights.parameters.len(), self.parameters.len())?;
        check("state values", weights.state.len(), self.state.len())?;
        check("optimizer slots", weights.optimizer.len(), self.slots.len())?;
        for slot in &weights.optimizer {
            check("values in an optimizer slot", slot.len(), self.parameters.len())?;
        }
        self.parameters.copy_from_slice(&weights.parameters);
        self.state.copy_from_slice(&weights.state);
        for (own, saved) in self.slots.iter_mut().zip(&weights.optimizer) {
            own.copy_from_slice(saved);
        }
        self.predictor.forget();
        Ok(())
    }

    /// One step (numbered from 0 over the whole run) on one batch.
    ///
    /// A loss or gradient that is not finite is an error and ends training: parameters may be half
    /// updated then, and only saved weights are good to go on with.
    pub fn step(
        &mut self,
        step: u64,
        learning_rate: f32,
        batch: Examples<'_>,
    ) -> Result<StepResult, Error> {
        let examples = batch.inputs.len() / self.network.input().len();
        assert!(examples <= self.settings.batch, "a batch has at most `batch` examples");
        self.predictor.forget();
        let fused = self.settings.clip_norm.is_none();
        let squares = self.compute(step, learning_rate, batch, examples, fused);
        let result = self.result(examples, &squares);
        let not_finite = |what, value| Error::NotFinite { what, value, step };
        if !result.loss_sum.is_finite() {
            return Err(not_finite("the loss", result.loss_sum));
        }
        if !result.gradient_norm.is_finite() {
            return Err(not_finite("the gradient's norm", result.gradient_norm));
        }
        if let Some(limit) = self.settings.clip_norm {
            let factor = aggregate::clip_factor(result.gradient_norm, limit);
            self.update(step, learning_rate, factor);
        }
        self.fold_stats();
        Ok(result)
    }

    fn result(&self, examples: usize, squares: &[f64]) -> StepResult {
        let mut scores: Vec<Score> = self.shards.iter().map(|s| s.score).collect();
        aggregate::tree_fold(&mut scores, |a, b| {
            a.loss += b.loss;
            a.correct += b.correct;
        });
        StepResult {
            loss_sum: scores[0].loss,
            correct: scores[0].correct,
            examples: examples as u64,
            gradient_norm: squares.iter().sum::<f64>().sqrt(),
        }
    }

    /// Packs, computes shards and sums them; with `fused` updates parameters in the same pass,
    /// unless a shard's loss is not finite. Returns the sum of squares of each block's gradient.
    fn compute(
        &mut self,
        step: u64,
        learning_rate: f32,
        batch: Examples<'_>,
        examples: usize,
        fused: bool,
    ) -> Vec<f64> {
        let blocks = self.parameters.len().div_ceil(BLOCK);
        let scale = 1.0 / examples.max(1) as f32;
        let threads = self.crew.threads();
        let (meeting, next_pack, next_shard, next_block) =
            (Meeting::default(), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let mut squares = vec![0f64; blocks];
        let packing = Packing::new(&self.compiled);
        let objective = self.objective();
        let parameters = Parts::new(&mut self.parameters, BLOCK);
        let gradient = Parts::new(&mut self.gradient, BLOCK);
        let slots: Vec<_> = self.slots.iter_mut().map(|s| Parts::new(s, BLOCK)).collect();
        let square_cells = Parts::new(&mut squares, 1);
        let packed = Parts::new(&mut self.packed, 1);
        let shards = Parts::new(&mut self.shards, 1);
        let workspaces = Parts::new(&mut self.workspaces, 1);
        let (compiled, settings, isa) = (&self.compiled, &self.settings, self.isa);
        let (stride, units) = (self.network.input().len(), self.network.output().len());
        self.crew.run(|thread| {
            // SAFETY: between meetings each part is written by the one thread that drew its number,
            // and parts that others read are not written.
            unsafe {
                while let Some(task) = draw(&next_pack, packing.len()) {
                    packing.run(task, isa, compiled, parameters.all(), &packed);
                }
                meeting.wait(threads);
                if thread < workspaces.len() {
                    let ws = &mut workspaces.part(thread)[0];
                    while let Some(v) = draw(&next_shard, settings.shards) {
                        let range = shard_range(examples, settings.shards, v);
                        let shard = Shard {
                            isa,
                            compiled,
                            parameters: parameters.all(),
                            packed: packed.all(),
                            folded: &[],
                            inputs: &batch.inputs[range.start * stride..range.end * stride],
                            examples: range.len(),
                            targets: batch.targets.part(range.start, range.end, units),
                            objective,
                            draw: Draw { seed: settings.seed, step, shard: v as u32 },
                        };
                        compute_shard(&shard, ws, &mut shards.part(v)[0]);
                    }
                }
                meeting.wait(threads);
                let finite = shards.all().iter().all(|s| s.score.loss.is_finite());
                let mut scratch = vec![];
                while let Some(block) = draw(&next_block, blocks) {
                    let from = block * BLOCK;
                    let sum = gradient.part(block);
                    let to = from + sum.len();
                    let shard = |v: usize| &shards.all()[v].gradients[from..to];
                    let square =
                        aggregate::tree_sum(settings.shards, shard, scale, sum, &mut scratch);
                    square_cells.part(block)[0] = square;
                    if fused && finite && square.is_finite() {
                        let mut slots: Vec<&mut [f32]> =
                            slots.iter().map(|s| s.part(block)).collect();
                        let p = parameters.part(block);
                        let o = &settings.optimizer;
                        optimizer::update(o, step, learning_rate, p, sum, &mut slots);
                    }
                }
            }
        });
        squares
    }

    /// Updates parameters from the summed gradient, scaled by `factor`.
    fn update(&mut self, step: u64, learning_rate: f32, factor: f32) {
        let len = self.parameters.len();
        for r in aggregate::blocks(len) {
            let g = &mut self.gradient[r.clone()];
            g.iter_mut().for_each(|g| *g *= factor);
            let mut slots: Vec<&mut [f32]> =
                self.slots.iter_mut().map(|s| &mut s[r.clone()]).collect();
            let p = &mut self.parameters[r.clone()];
            optimizer::update(&self.settings.optimizer, step, learning_rate, p, g, &mut slots);
        }
    }

    /// Merges the shards' statistics and moves the running averages.
    fn fold_stats(&mut self) {
        if self.state.is_empty() {
            return;
        }
        let compiled = &self.compiled;
        aggregate::tree_fold(&mut self.shards, |a, b| {
            normalise::merge_stats(compiled, &mut a.stats, &b.stats);
        });
        normalise::update_running(compiled, &self.shards[0].stats, &mut self.state);
    }

    /// Outputs of any number of examples (logits, where the loss takes logits).
    pub fn predict(&mut self, inputs: &[f32], outputs: &mut [f32]) {
        let weights = (&*self.parameters, self.state.as_slice());
        self.predictor.prepare(&self.compiled, self.isa, self.crew.threads(), weights);
        let (units, crew) = (self.network.output().len(), &self.crew);
        self.predictor.run(&self.compiled, self.isa, crew, inputs, units, outputs);
    }
}

fn compute_shard(shard: &Shard<'_>, ws: &mut Workspace, out: &mut ShardBuffers) {
    for range in &shard.compiled.cleared {
        out.gradients[range.clone()].fill(0.0);
    }
    if shard.examples == 0 {
        out.gradients.fill(0.0);
    }
    out.stats.fill(0.0);
    let mut results =
        Results { gradients: &mut out.gradients, stats: &mut out.stats, score: Score::default() };
    run(shard, &shard.compiled.training, ws, &mut results);
    out.score = results.score;
}
