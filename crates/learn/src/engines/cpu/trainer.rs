//! Trains one network in this process: shards on threads, then the optimizer.
//!
//! A step has three parts, between which the threads meet: weights are packed for the kernels,
//! shards are computed into gradient buffers of their own, and blocks of parameters are summed over
//! the shards' fixed tree and updated. Which thread does what never matters to the result.

use super::packing::Packing;
use super::parts::{Claims, Parts};
use super::predictor::Predictor;
use super::shard::Draw;
use super::threads::{Meeting, ThreadPool};
use super::workspace::{ThreadScratch, Workspace};
use super::{Cpu, ShardGradient};
use crate::Error;
use crate::buffer::Buffer;
use crate::engines::{Examples, Score, Settings, StepResult, Trainer, Weights};
use crate::loss::Objective;
use crate::network::Network;
use crate::statistics::Statistics;
use planaria_numerics::aggregate::{self, BLOCK, shard_range};
use planaria_numerics::{optimizer, tree};

/// Trains one network on several threads.
pub struct CpuTrainer {
    engine: Cpu,
    settings: Settings,
    pool: ThreadPool,
    parameters: Buffer,
    state: Vec<f32>,
    slots: Vec<Buffer>,
    packed: Buffer,
    shards: Vec<ShardGradient>,
    gradient: Buffer,
    workspaces: Vec<Workspace>,
    threads: Vec<ThreadScratch>,
    packing: Packing,
    /// Packing, shards and blocks, taken anew each round.
    claims: [Claims; 3],
    round: usize,
    /// Sum of squares of each block's gradient.
    squares: Vec<f64>,
    scores: Vec<Score>,
    statistics: Statistics,
    predictor: Predictor,
}

impl CpuTrainer {
    /// Initialised from the seed.
    pub fn new(network: Network, settings: Settings) -> Self {
        let objective =
            Objective { loss: settings.loss, label_smoothing: settings.label_smoothing };
        let engine = Cpu::new(network, objective, settings.isa);
        let threads = settings.threads.clamp(1, 1024);
        let capacity = settings.batch.div_ceil(settings.shards);
        let (parameters, state) = engine.network.initialise(settings.seed);
        let count = parameters.len();
        let packing = Packing::new(&engine.compiled);
        Self {
            pool: ThreadPool::new(threads),
            parameters: parameters.as_slice().into(),
            state,
            slots: (0..optimizer::slots(&settings.optimizer)).map(|_| Buffer::new(count)).collect(),
            packed: Buffer::new(engine.compiled.packed_len),
            shards: (0..settings.shards).map(|_| engine.shard_gradient()).collect(),
            gradient: Buffer::new(count),
            workspaces: (0..threads.min(settings.shards))
                .map(|_| engine.workspace(capacity))
                .collect(),
            threads: (0..threads)
                .map(|_| ThreadScratch::new(&engine.compiled, settings.shards))
                .collect(),
            claims: [packing.len(), settings.shards, count.div_ceil(BLOCK)].map(Claims::new),
            round: 0,
            packing,
            squares: vec![0.0; count.div_ceil(BLOCK)],
            scores: vec![Score::default(); settings.shards],
            statistics: Statistics::new(&engine.network),
            predictor: Predictor::new(),
            engine,
            settings,
        }
    }

    fn result(&mut self, examples: usize) -> StepResult {
        let scores = &mut self.scores;
        scores.iter_mut().zip(&self.shards).for_each(|(score, shard)| *score = shard.score);
        tree::tree_fold(scores, |a, b| {
            a.loss += b.loss;
            a.correct += b.correct;
        });
        StepResult {
            loss_sum: scores[0].loss,
            correct: scores[0].correct,
            examples: examples as u64,
            gradient_norm: self.squares.iter().sum::<f64>().sqrt(),
        }
    }

    /// Packs, computes shards and sums them; with `fused` updates parameters in the same pass,
    /// unless a shard's loss is not finite.
    fn compute(
        &mut self,
        step: u64,
        learning_rate: f32,
        batch: Examples<'_>,
        examples: usize,
        fused: bool,
    ) {
        self.round += 1;
        let (round, threads) = (self.round, self.pool.threads());
        let [packs, shard_claims, blocks] = &self.claims;
        let scale = 1.0 / examples.max(1) as f32;
        let meeting = Meeting::default();
        let parameters = Parts::new(&mut self.parameters, BLOCK);
        let gradient = Parts::new(&mut self.gradient, BLOCK);
        let slots = SlotParts::new(&mut self.slots);
        let squares = Parts::new(&mut self.squares, 1);
        let scratches = Parts::new(&mut self.threads, 1);
        let packed = Parts::new(&mut self.packed, 1);
        let shards = Parts::new(&mut self.shards, 1);
        let workspaces = Parts::new(&mut self.workspaces, 1);
        let (engine, settings, packing) = (&self.engine, &self.settings, &self.packing);
        self.pool.run(|thread| {
            // SAFETY (all of this closure): between meetings each part is written by the one thread
            // that took its number, and parts that others read are not written.
            let scratch = unsafe { &mut scratches.part(thread)[0] };
            packs.share(round, thread, threads, |task| unsafe {
                let (isa, compiled) = (engine.isa, &engine.compiled);
                packing.run(task, isa, compiled, parameters.all(), &packed, &mut scratch.pack);
            });
            meeting.wait(threads);
            if thread < workspaces.len() {
                let ws = unsafe { &mut workspaces.part(thread)[0] };
                shard_claims.share(round, thread, workspaces.len(), |v| {
                    let range = shard_range(examples, settings.shards, v);
                    let examples = engine.part(batch, range);
                    let draw = Draw { seed: settings.seed, step, shard: v as u32 };
                    // SAFETY: as above.
                    unsafe {
                        let weights = (parameters.all(), packed.all());
                        engine.gradient(ws, weights, examples, draw, &mut shards.part(v)[0]);
                    }
                });
            }
            meeting.wait(threads);
            let done = unsafe { shards.all() };
            let finite = done.iter().all(|s| s.score.loss.is_finite());
            blocks.share(round, thread, threads, |block| unsafe {
                let (from, sum) = (block * BLOCK, gradient.part(block));
                let to = from + sum.len();
                let shard = |v: usize| &done[v].gradients[from..to];
                let scratch = &mut scratch.sum;
                let square = tree::tree_sum(settings.shards, shard, scale, sum, scratch);
                squares.part(block)[0] = square;
                if fused && finite && square.is_finite() {
                    let (p, o) = (parameters.part(block), &settings.optimizer);
                    slots.with(block, |s| optimizer::update(o, step, learning_rate, p, sum, s));
                }
            });
        });
    }

    /// Updates parameters from the summed gradient, scaled by `factor`.
    fn update(&mut self, step: u64, learning_rate: f32, factor: f32) {
        let slots = SlotParts::new(&mut self.slots);
        for (block, r) in aggregate::blocks(self.parameters.len()).enumerate() {
            let g = &mut self.gradient[r.clone()];
            g.iter_mut().for_each(|g| *g *= factor);
            let p = &mut self.parameters[r];
            let o = &self.settings.optimizer;
            // SAFETY: one thread.
            unsafe {
                slots.with(block, |s| optimizer::update(o, step, learning_rate, p, g, s));
            }
        }
    }

    /// Merges the shards' statistics and moves the running averages.
    fn fold_stats(&mut self) {
        if self.state.is_empty() {
            return;
        }
        let statistics = &self.statistics;
        tree::tree_fold(&mut self.shards, |a, b| statistics.merge(&mut a.stats, &b.stats));
        statistics.update_running(&self.shards[0].stats, &mut self.state);
    }
}

impl Trainer for CpuTrainer {
    fn network(&self) -> &Network {
        &self.engine.network
    }

    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn objective(&self) -> Objective {
        self.engine.objective
    }

    fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    fn state(&self) -> &[f32] {
        &self.state
    }

    fn slots(&self) -> Vec<&[f32]> {
        self.slots.iter().map(|slot| &**slot).collect()
    }

    fn restore(&mut self, weights: &Weights) -> Result<(), Error> {
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

    fn step(
        &mut self,
        step: u64,
        learning_rate: f32,
        batch: Examples<'_>,
    ) -> Result<StepResult, Error> {
        let examples = batch.inputs.len() / self.engine.network.input().len();
        assert!(examples <= self.settings.batch, "a batch has at most `batch` examples");
        self.predictor.forget();
        let fused = self.settings.clip_norm.is_none();
        self.compute(step, learning_rate, batch, examples, fused);
        let result = self.result(examples);
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

    fn predict(&mut self, inputs: &[f32], outputs: &mut [f32]) {
        let weights = (&*self.parameters, self.state.as_slice());
        self.predictor.prepare(&self.engine, self.pool.threads(), weights);
        self.predictor.run(&self.engine, &self.pool, inputs, outputs);
    }
}

/// The optimizer's slots, cut into blocks.
struct SlotParts<'a> {
    parts: [Option<Parts<'a, f32>>; optimizer::SLOTS_MAX],
}

impl<'a> SlotParts<'a> {
    fn new(slots: &'a mut [Buffer]) -> Self {
        let mut slots = slots.iter_mut();
        Self { parts: std::array::from_fn(|_| slots.next().map(|s| Parts::new(s, BLOCK))) }
    }

    /// Calls `f` with one block of each slot.
    ///
    /// # Safety
    /// No other thread uses the block meanwhile.
    unsafe fn with(&self, block: usize, f: impl FnOnce(&mut [&mut [f32]])) {
        let count = self.parts.iter().flatten().count();
        // SAFETY: as the caller promises.
        let mut views = self.parts.each_ref().map(|p| match p {
            Some(p) => unsafe { p.part(block) },
            None => &mut [],
        });
        f(&mut views[..count]);
    }
}
