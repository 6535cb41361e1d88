//! Operations on all examples of a shard at once: dense layers and the loss.

use super::shard::Run;
use crate::engines::cpu::kernels::gemm::{self, Product};
use crate::engines::cpu::kernels::norm::{self, Pixels};
use crate::engines::cpu::kernels::simd::LANES;
use crate::engines::cpu::kernels::tile::Start;
use crate::engines::cpu::program::{Operation, Slot};

impl Run<'_, '_, '_> {
    /// One operation on the whole shard.
    ///
    /// # Safety
    /// The program placed every slot within the workspace made for it.
    pub(super) unsafe fn whole(&mut self, operation: &Operation) {
        if self.shard.examples == 0 {
            return;
        }
        // SAFETY: see `stage`.
        unsafe {
            match *operation {
                Operation::Dense { dense, x, relu, y } => self.dense(dense, x, relu, y),
                Operation::DenseGradient { dense, x, g, dx } => {
                    self.dense_gradient(dense, x, g, dx);
                }
                Operation::Loss { outputs, g } => {
                    for i in 0..self.shard.examples {
                        let (outputs, g) = (self.slice(outputs, i), self.slice(g, i));
                        let (objective, targets) = (self.shard.objective, self.shard.targets);
                        self.results.score.loss += objective.evaluate(outputs, targets, i, g);
                        let correct = objective.is_correct(outputs, targets, i);
                        self.results.score.correct += u64::from(correct == Some(true));
                    }
                }
                _ => unreachable!("the others work image by image"),
            }
        }
    }

    unsafe fn dense(&mut self, dense: usize, x: Slot, relu: bool, y: Slot) {
        let d = &self.shard.compiled.denses[dense];
        let bias = d.bias.as_ref().map(|b| self.shard.parameters[b.clone()].as_ptr());
        let product = Product {
            m: self.shard.examples,
            n: d.units,
            k: d.inputs,
            a: self.at(x, 0),
            a_row: self.stride(x),
            a_col: 1,
            b: self.shard.parameters[d.kernel.clone()].as_ptr(),
            b_row: d.units,
            b_block: LANES,
            c: self.at(y, 0),
            c_row: self.stride(y),
            start: bias.map_or(Start::Zero, Start::Bias),
            relu,
            scratch: self.ws.packing.as_mut_ptr(),
        };
        // SAFETY: see `stage`; slots of whole-shard operations hold all examples.
        unsafe { gemm::product(self.shard.isa, product) };
    }

    unsafe fn dense_gradient(&mut self, dense: usize, x: Slot, g: Slot, dx: Option<Slot>) {
        let d = &self.shard.compiled.denses[dense];
        let n = self.shard.examples;
        // SAFETY: see `dense`.
        unsafe {
            if let Some(bias) = &d.bias {
                let pixels = Pixels { count: 1, channels: d.units };
                let db = self.gradient(bias);
                for i in 0..n {
                    norm::channel_sums(self.shard.isa, pixels, self.at(g, i), db);
                }
            }
            let weights = Product {
                m: d.inputs,
                n: d.units,
                k: n,
                a: self.at(x, 0),
                a_row: 1,
                a_col: self.stride(x),
                b: self.at(g, 0),
                b_row: self.stride(g),
                b_block: LANES,
                c: self.gradient(&d.kernel),
                c_row: d.units,
                start: Start::Zero,
                relu: false,
                scratch: self.ws.packing.as_mut_ptr(),
            };
            gemm::product(self.shard.isa, weights);
            let Some(dx) = dx else { return };
            let input = Product {
                m: n,
                n: d.inputs,
                k: d.units,
                a: self.at(g, 0),
                a_row: self.stride(g),
                a_col: 1,
                b: self.shard.packed[d.backward.clone()].as_ptr(),
                b_row: LANES,
                b_block: d.units * LANES,
                c: self.at(dx, 0),
                c_row: self.stride(dx),
                ..weights
            };
            gemm::product(self.shard.isa, input);
        }
    }
}
