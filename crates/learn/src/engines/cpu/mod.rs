//! Runs programs: one thread computes one shard, many threads many shards side by side.
//!
//! [`Cpu`] is a network compiled for this machine: what it computes for a shard, on flat buffers.
//! [`CpuEngine`] uses it for a worker's shards, [`CpuTrainer`] for whole steps in one process.
//!
//! - `program`: graph to a schedule of kernels on placed memory
//! - [`kernels`]: the arithmetic, compiled for each instruction set

mod convolve;
pub mod kernels;
mod normalise;
mod packing;
mod parts;
mod predictor;
mod program;
mod runner;
mod shard;
mod threads;
mod trainer;
mod whole_shard;
mod workspace;

pub use runner::CpuEngine;
pub use shard::Draw;
pub use trainer::CpuTrainer;
pub use workspace::Workspace;

use crate::buffer::Buffer;
use crate::engines::cpu::kernels::simd::Isa;
use crate::engines::cpu::program::{Compiled, compile};
use crate::engines::{Examples, Kind, Score};
use crate::loss::Objective;
use crate::network::Network;
use packing::Packing;
use parts::Parts;
use shard::{Results, Shard, run};
use std::ops::Range;

pub const KIND: Kind = Kind {
    name: "cpu",
    here: || Isa::all().iter().map(|isa| isa.name()).collect(),
    engine: |network, settings| Ok(Box::new(CpuEngine::new(network, settings))),
    trainer: |network, settings| Ok(Box::new(CpuTrainer::new(network, settings))),
};

/// A network compiled for this machine.
pub struct Cpu {
    network: Network,
    objective: Objective,
    compiled: Compiled,
    isa: Isa,
}

/// What one shard gives: all that leaves the thread or machine that computed it.
pub struct ShardGradient {
    /// Sum of the gradient over the examples, flat.
    pub gradients: Buffer,
    /// Count, mean and M2 of each normalised channel.
    pub stats: Vec<f32>,
    /// Loss and right answers.
    pub score: Score,
}

impl Cpu {
    /// Compiles `network`; takes the fastest instruction set there is when `isa` is left out.
    pub fn new(network: Network, objective: Objective, isa: Option<Isa>) -> Self {
        let compiled = compile(&network, objective.loss);
        Self { network, objective, compiled, isa: isa.unwrap_or_else(Isa::detect) }
    }

    /// Name of the engine and instruction set, such as `cpu-avx512`.
    pub fn name(&self) -> &'static str {
        self.isa.name()
    }

    /// Memory for one thread to compute shards of up to `examples` examples.
    pub fn workspace(&self, examples: usize) -> Workspace {
        Workspace::new(&self.compiled, &self.compiled.training, examples)
    }

    /// Packs parameters for the kernels; once per step serves all shards.
    pub fn pack(&self, parameters: &[f32], packed: &mut Buffer) {
        if packed.len() != self.compiled.packed_len {
            *packed = Buffer::new(self.compiled.packed_len);
        }
        let packing = Packing::new(&self.compiled);
        let packed = Parts::new(packed, 1);
        let mut scratch = vec![];
        for task in 0..packing.len() {
            // SAFETY: one thread.
            unsafe {
                packing.run(task, self.isa, &self.compiled, parameters, &packed, &mut scratch);
            }
        }
    }

    /// Room for what a shard gives.
    pub fn shard_gradient(&self) -> ShardGradient {
        ShardGradient {
            gradients: Buffer::new(self.network.parameter_count()),
            stats: vec![0.0; self.network.stats_count()],
            score: Score::default(),
        }
    }

    /// Examples `range` of a batch.
    pub fn part<'a>(&self, batch: Examples<'a>, range: Range<usize>) -> Examples<'a> {
        let (stride, units) = (self.network.input().len(), self.network.output().len());
        Examples {
            inputs: &batch.inputs[range.start * stride..range.end * stride],
            targets: batch.targets.part(range.start, range.end, units),
        }
    }

    /// Gradient of one shard: the sum over its examples, with statistics and score.
    ///
    /// `weights` are flat parameters and the same packed; nothing else is read, and nothing but
    /// `ws` and `out` is written, so that any thread or machine computes the same.
    pub fn gradient(
        &self,
        ws: &mut Workspace,
        (parameters, packed): (&[f32], &[f32]),
        examples: Examples<'_>,
        draw: Draw,
        out: &mut ShardGradient,
    ) {
        self.gradient_by_stage(ws, (parameters, packed), examples, draw, out, |_, _| {});
    }

    /// [`Self::gradient`]; calls `done` after each stage of the pass with the stage's number and the
    /// gradients as they stand.
    pub fn gradient_by_stage(
        &self,
        ws: &mut Workspace,
        weights: (&[f32], &[f32]),
        examples: Examples<'_>,
        draw: Draw,
        out: &mut ShardGradient,
        mut done: impl FnMut(usize, &[f32]),
    ) {
        let gradients = Parts::new(&mut out.gradients, 1);
        let all = gradients.view(0..gradients.len());
        let mut results = Results { gradients, stats: &mut out.stats, score: Score::default() };
        // SAFETY: one thread, which does not write while `done` runs.
        self.run_shard(ws, weights, examples, draw, &mut results, |stage| unsafe {
            done(stage, all.all());
        });
        out.score = results.score;
    }

    /// The blocks of gradients (see [`planaria_numerics::aggregate::BLOCK`]) that are final once
    /// each stage of [`Self::gradient`] is done.
    pub fn finals(&self) -> &[Vec<Range<usize>>] {
        &self.compiled.finals
    }

    fn run_shard(
        &self,
        ws: &mut Workspace,
        (parameters, packed): (&[f32], &[f32]),
        examples: Examples<'_>,
        draw: Draw,
        out: &mut Results<'_>,
        done: impl FnMut(usize),
    ) {
        let count = examples.inputs.len() / self.network.input().len();
        let clear = |range| {
            // SAFETY: no stage is done, so that nothing is final and all is this thread's.
            unsafe { out.gradients.range(range) }.fill(0.0);
        };
        if count == 0 {
            clear(0..self.network.parameter_count());
        } else {
            self.compiled.cleared.iter().cloned().for_each(clear);
        }
        out.stats.fill(0.0);
        let shard = Shard {
            isa: self.isa,
            compiled: &self.compiled,
            parameters,
            packed,
            folded: &[],
            inputs: examples.inputs,
            examples: count,
            targets: examples.targets,
            objective: self.objective,
            draw,
        };
        run(&shard, &self.compiled.training, ws, out, done);
    }
}
