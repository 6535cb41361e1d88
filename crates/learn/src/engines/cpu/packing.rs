//! Weights packed for the kernels, once per step for all shards, cut into tasks for the threads.

use super::parts::Parts;
use crate::engines::cpu::kernels::direct;
use crate::engines::cpu::kernels::simd::{Isa, LANES};
use crate::engines::cpu::program::Compiled;

/// Packing, task by task.
pub struct Packing {
    tasks: Vec<PackTask>,
}

enum PackTask {
    Conv(usize),
    /// Input blocks `from..to` of a dense layer.
    Dense(usize, usize, usize),
}

impl Packing {
    /// Blocks of 16 inputs per task.
    const DENSE_BLOCKS: usize = 16;

    /// The tasks of a network.
    pub fn new(compiled: &Compiled) -> Self {
        let mut tasks: Vec<_> = (0..compiled.convs.len()).map(PackTask::Conv).collect();
        for (i, d) in compiled.denses.iter().enumerate() {
            if d.backward.is_empty() {
                continue;
            }
            let blocks = d.inputs.div_ceil(LANES);
            for from in (0..blocks).step_by(Self::DENSE_BLOCKS) {
                tasks.push(PackTask::Dense(i, from, (from + Self::DENSE_BLOCKS).min(blocks)));
            }
        }
        Self { tasks }
    }

    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Runs one task.
    ///
    /// # Safety
    /// No task runs twice at once.
    pub unsafe fn run(
        &self,
        task: usize,
        isa: Isa,
        compiled: &Compiled,
        parameters: &[f32],
        packed: &Parts<'_, f32>,
        scratch: &mut Vec<f32>,
    ) {
        match self.tasks[task] {
            PackTask::Conv(c) => {
                let conv = &compiled.convs[c];
                // SAFETY: packs of different convolutions lie apart.
                let (forward, backward) = unsafe {
                    (packed.range(conv.forward.clone()), packed.range(conv.backward.clone()))
                };
                conv.pack(isa, parameters, (forward, backward), scratch);
            }
            PackTask::Dense(d, from, to) => {
                let dense = &compiled.denses[d];
                let block = LANES * dense.units;
                let start = dense.backward.start;
                // SAFETY: packs of different blocks lie apart.
                let out = unsafe { packed.range(start + from * block..start + to * block) };
                let kernel = &parameters[dense.kernel.clone()];
                let rows = &kernel[from * block..(to * block).min(kernel.len())];
                let columns = rows.len() / dense.units;
                direct::pack(dense.units, columns, |o, i| rows[i * dense.units + o], out);
            }
        }
    }
}
