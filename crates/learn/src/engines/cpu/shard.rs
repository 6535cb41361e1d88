//! Runs a compiled program on the examples of one shard, on one thread.
//!
//! Pointers are used because an operation may read and write the same slot (in-place gradients);
//! the compiled program has placed every slot within arena, scratch and inputs.

use super::convolve::Convolver;
use super::normalise;
use super::parts::Parts;
use super::workspace::Workspace;
use crate::engines::Score;
use crate::engines::cpu::kernels::norm::{self, Addend, Pixels, Reduce};
use crate::engines::cpu::kernels::pooled::{self, Pooled};
use crate::engines::cpu::kernels::simd::{Isa, LANES};
use crate::engines::cpu::kernels::winograd::Epilogue;
use crate::engines::cpu::kernels::{pointwise, pool};
use crate::engines::cpu::program::conv::{Conv, transpose};
use crate::engines::cpu::program::{
    Bias, Compiled, Finish, NormAddend, Operation, Place, Program, Size, Slot, Stage,
};
use crate::loss::{Objective, Targets};
use planaria_numerics::random::{Purpose, Stream};
use std::ops::Range;
use std::ptr::{null, null_mut};

/// What a program runs on.
#[derive(Clone, Copy)]
pub struct Shard<'a> {
    pub isa: Isa,
    pub compiled: &'a Compiled,
    pub parameters: &'a [f32],
    pub packed: &'a [f32],
    /// Biases of convolutions with a normalisation folded in (inference only).
    pub folded: &'a [Vec<f32>],
    pub inputs: &'a [f32],
    pub examples: usize,
    pub targets: Targets<'a>,
    pub objective: Objective,
    pub draw: Draw,
}

/// What a shard's random numbers depend on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Draw {
    /// The recipe's seed.
    pub seed: u64,
    /// Step, counted over the whole run.
    pub step: u64,
    /// Number of the shard.
    pub shard: u32,
}

/// What a program writes.
pub struct Results<'a> {
    /// Others may read and write ranges that are final (see `Compiled::finals`), so that no
    /// reference to the whole is made while a program runs.
    pub gradients: Parts<'a, f32>,
    pub stats: &'a mut [f32],
    pub score: Score,
}

impl Results<'_> {
    /// Of a program that writes none.
    pub fn none() -> Self {
        Self { gradients: Parts::new(&mut [], 1), stats: &mut [], score: Score::default() }
    }
}

/// Runs all stages; calls `done` with the number of each when it is done.
pub fn run(
    shard: &Shard<'_>,
    program: &Program,
    ws: &mut Workspace,
    results: &mut Results<'_>,
    mut done: impl FnMut(usize),
) {
    assert!(shard.examples <= ws.capacity, "workspace holds the shard");
    assert!(shard.inputs.len() >= shard.examples * program.sizes[0].len());
    let mut run = Run { shard, program, ws, results };
    for (number, stage) in program.stages.iter().enumerate() {
        run.stage(stage);
        done(number);
    }
}

pub(super) struct Run<'r, 's, 'g> {
    pub(super) shard: &'r Shard<'s>,
    program: &'r Program,
    pub(super) ws: &'r mut Workspace,
    pub(super) results: &'r mut Results<'g>,
}

impl<'r> Run<'r, '_, '_> {
    fn stage(&mut self, stage: &Stage) {
        // SAFETY: the program placed every slot within the workspace made for it.
        unsafe {
            if stage.whole_shard {
                for operation in &stage.operations {
                    self.whole(operation);
                }
            } else {
                for image in 0..self.shard.examples {
                    for operation in &stage.operations {
                        self.image(operation, image);
                    }
                }
            }
        }
        for finish in &stage.finish {
            self.finish(*finish);
        }
    }

    fn size(&self, slot: Slot) -> Size {
        self.program.sizes[slot.0]
    }

    /// Distance between a slot's images.
    pub(super) fn stride(&self, slot: Slot) -> usize {
        match self.program.places[slot.0] {
            Place::Input => self.size(slot).len(),
            _ => self.size(slot).len().next_multiple_of(LANES),
        }
    }

    pub(super) fn at(&mut self, slot: Slot, image: usize) -> *mut f32 {
        match self.program.places[slot.0] {
            Place::Input => {
                let from = image * self.size(slot).len();
                self.shard.inputs[from..].as_ptr().cast_mut()
            }
            Place::Arena(offset) => {
                let from = offset * self.ws.capacity + image * self.stride(slot);
                debug_assert!(from + self.size(slot).len() <= self.ws.arena.len());
                self.ws.arena.as_mut_ptr().wrapping_add(from)
            }
            Place::Scratch(offset) => self.ws.scratch.as_mut_ptr().wrapping_add(offset),
            Place::Nowhere => unreachable!("used slots have a place"),
        }
    }

    /// One image of a slot.
    pub(super) unsafe fn slice<'s>(&mut self, slot: Slot, image: usize) -> &'s mut [f32] {
        let len = self.size(slot).len();
        // SAFETY: the place holds the image; operations name distinct slots where it matters.
        unsafe { std::slice::from_raw_parts_mut(self.at(slot, image), len) }
    }

    fn pixels(&self, slot: Slot) -> Pixels {
        let size = self.size(slot);
        Pixels { count: size.pixels, channels: size.channels }
    }

    fn convolver(&self, number: usize) -> Convolver<'r> {
        let shard = self.shard;
        Convolver {
            isa: shard.isa,
            conv: &shard.compiled.convs[number],
            number,
            parameters: shard.parameters,
            packed: shard.packed,
        }
    }

    /// Start of a range of the gradients.
    pub(super) fn gradient(&mut self, range: &Range<usize>) -> *mut f32 {
        // SAFETY: the running stage writes it, so it is not final, and this thread's alone.
        unsafe { self.results.gradients.range(range.clone()) }.as_mut_ptr()
    }

    /// One operation on one image.
    unsafe fn image(&mut self, operation: &Operation, i: usize) {
        // SAFETY: see `stage`.
        unsafe {
            match operation {
                Operation::Conv { .. }
                | Operation::ConvWeights { .. }
                | Operation::ConvInput { .. }
                | Operation::PooledWeights { .. }
                | Operation::PooledInput { .. } => self.image_conv(operation, i),
                Operation::Sums { .. }
                | Operation::Norm { .. }
                | Operation::Reduce { .. }
                | Operation::NormInput { .. } => self.image_norm(operation, i),
                Operation::MaxPool { .. }
                | Operation::MaxPoolInput { .. }
                | Operation::AveragePool { .. }
                | Operation::AveragePoolInput { .. }
                | Operation::GlobalAverage { .. }
                | Operation::GlobalAverageInput { .. } => self.image_pool(operation, i),
                _ => self.image_pointwise(operation, i),
            }
        }
    }

    unsafe fn image_conv(&mut self, operation: &Operation, i: usize) {
        // SAFETY: see `stage`.
        unsafe {
            match *operation {
                Operation::Conv { conv, x, ref bias, plus, relu, y } => {
                    let bias = match bias {
                        Bias::None => null(),
                        Bias::Parameters(r) => self.shard.parameters[r.clone()].as_ptr(),
                        Bias::Folded => self.shard.folded[conv].as_ptr(),
                    };
                    let plus = plus.map_or(null(), |p| self.at(p, i).cast_const());
                    let (x, y) = (self.at(x, i), self.at(y, i));
                    self.convolver(conv).forward(self.ws, x, Epilogue { bias, plus, relu }, y);
                }
                Operation::ConvWeights { conv, x, dz } => {
                    let (x, dz) = (self.at(x, i), self.at(dz, i));
                    let c = self.convolver(conv);
                    let dw = self.gradient(&c.conv.kernel);
                    c.weight_gradient(self.ws, x, dz, dw);
                }
                Operation::ConvInput { conv, dz, dx, add } => {
                    let (dz, dx) = (self.at(dz, i), self.at(dx, i));
                    self.convolver(conv).input_gradient(self.ws, dz, dx, add);
                }
                Operation::PooledWeights { conv, x, g, which } => {
                    let c = self.convolver(conv).conv;
                    let db = c.bias.as_ref().map_or(null_mut(), |b| self.gradient(b));
                    let (x, g, which) = (self.at(x, i), self.at(g, i), self.at(which, i).cast());
                    let dw = self.ws.gathered.as_mut_ptr();
                    let scratch = self.ws.packing.as_mut_ptr();
                    let shape = pooled_shape(c);
                    pooled::weight_gradient(self.shard.isa, shape, x, g, which, (dw, db), scratch);
                }
                Operation::PooledInput { conv, g, which, dx } => {
                    let c = self.convolver(conv).conv;
                    let weights = self.shard.packed[c.backward.clone()].as_ptr();
                    let (g, which, dx) = (self.at(g, i), self.at(which, i).cast(), self.at(dx, i));
                    let shape = pooled_shape(c);
                    pooled::input_gradient(
                        self.shard.isa,
                        shape,
                        g,
                        which,
                        weights,
                        dx,
                        c.input[0],
                    );
                }
                _ => unreachable!("`image` sends convolutions here"),
            }
        }
    }

    unsafe fn image_norm(&mut self, operation: &Operation, i: usize) {
        let isa = self.shard.isa;
        // SAFETY: see `stage`.
        unsafe {
            match *operation {
                Operation::Sums { norm, z } => {
                    let (pixels, z) = (self.pixels(z), self.at(z, i));
                    let n = &mut self.ws.norms[norm];
                    n.count = (pixels.count * self.shard.examples) as f64;
                    if i == 0 {
                        z.copy_to_nonoverlapping(n.origin.as_mut_ptr(), pixels.channels);
                    }
                    let (sum, square) = (n.sum.as_mut_ptr(), n.square.as_mut_ptr());
                    norm::sums(isa, pixels, z, n.origin.as_ptr(), sum, square);
                }
                Operation::Norm { norm, z, addend, relu, y } => {
                    let addend = match addend {
                        NormAddend::None => Addend::None,
                        NormAddend::Tensor(t) => Addend::Image(self.at(t, i)),
                        NormAddend::Norm(other, t) => {
                            let t = self.at(t, i);
                            let n = &self.ws.norms[other];
                            Addend::Scaled(t, n.scale.as_ptr(), n.shift.as_ptr())
                        }
                    };
                    let (pixels, z, y) = (self.pixels(z), self.at(z, i), self.at(y, i));
                    let n = &self.ws.norms[norm];
                    let affine = (n.scale.as_ptr(), n.shift.as_ptr());
                    norm::apply(isa, pixels, z, affine, addend, relu, y);
                }
                Operation::Reduce { norm, g, y, z, second } => {
                    let pixels = self.pixels(z);
                    let y = y.map_or(null(), |y| self.at(y, i).cast_const());
                    let (g, z) = (self.at(g, i), self.at(z, i));
                    let first = self.reduce(norm, z);
                    let second = second.map(|(other, z2)| {
                        let z2 = self.at(z2, i);
                        self.reduce(other, z2)
                    });
                    norm::reduce(isa, pixels, g, y, first, second);
                }
                Operation::NormInput { norm, g, z, dz } => {
                    let pixels = self.pixels(z);
                    let (g, z, dz) = (self.at(g, i), self.at(z, i), self.at(dz, i));
                    let n = &self.ws.norms[norm];
                    let abc = (n.a.as_ptr(), n.b.as_ptr(), n.c.as_ptr());
                    norm::input_gradient(isa, pixels, g, z, abc, dz);
                }
                _ => unreachable!("`image` sends normalisations here"),
            }
        }
    }

    fn reduce(&mut self, norm: usize, z: *const f32) -> Reduce {
        let n = &mut self.ws.norms[norm];
        Reduce { z, mean: n.mean.as_ptr(), sum: n.sum.as_mut_ptr(), product: n.square.as_mut_ptr() }
    }

    unsafe fn image_pool(&mut self, operation: &Operation, i: usize) {
        let isa = self.shard.isa;
        // SAFETY: see `stage`.
        unsafe {
            match *operation {
                Operation::MaxPool { pool, x, y, which } => {
                    let (x, y, which) = (self.at(x, i), self.at(y, i), self.at(which, i).cast());
                    pool::max(isa, pool, x, y, which);
                }
                Operation::MaxPoolInput { pool, g, which, dx } => {
                    let (g, which, dx) = (self.at(g, i), self.at(which, i).cast(), self.at(dx, i));
                    pool::max_gradient(pool, g, which, dx);
                }
                Operation::AveragePool { pool, x, y } => {
                    let (x, y) = (self.at(x, i), self.at(y, i));
                    pool::average(isa, pool, x, y);
                }
                Operation::AveragePoolInput { pool, g, dx } => {
                    let (g, dx) = (self.at(g, i), self.at(dx, i));
                    pool::average_gradient(isa, pool, g, dx);
                }
                Operation::GlobalAverage { x, y } => {
                    let pixels = self.pixels(x);
                    let x = self.at(x, i);
                    let y = self.slice(y, i);
                    y.fill(0.0);
                    norm::channel_sums(isa, pixels, x, y.as_mut_ptr());
                    let share = 1.0 / pixels.count as f32;
                    y.iter_mut().for_each(|v| *v *= share);
                }
                Operation::GlobalAverageInput { g, dx } => {
                    let g = self.slice(g, i);
                    let dx = self.slice(dx, i);
                    let share = 1.0 / (dx.len() / g.len()) as f32;
                    for pixel in dx.chunks_exact_mut(g.len()) {
                        pixel.iter_mut().zip(&*g).for_each(|(d, g)| *d = g * share);
                    }
                }
                _ => unreachable!("`image` sends pools here"),
            }
        }
    }

    unsafe fn image_pointwise(&mut self, operation: &Operation, i: usize) {
        // SAFETY: see `stage`; slices are of distinct slots.
        unsafe {
            match *operation {
                Operation::BiasSum { ref bias, g } => {
                    let (pixels, g) = (self.pixels(g), self.at(g, i));
                    let db = self.gradient(bias);
                    norm::channel_sums(self.shard.isa, pixels, g, db);
                }
                Operation::Activate { f, x, y } => {
                    let channels = self.size(x).channels;
                    pointwise::activate(f, channels, self.slice(x, i), self.slice(y, i));
                }
                Operation::ActivateInput { f, x, y, g, dx } => {
                    let channels = self.size(x).channels;
                    let (x, y) = (self.slice(x, i), self.slice(y, i));
                    let (g, dx) = (self.slice(g, i), self.slice(dx, i));
                    pointwise::activate_gradient(f, channels, x, y, g, dx);
                }
                Operation::Mask { g, y } => {
                    pointwise::mask(self.slice(g, i), self.slice(y, i));
                }
                Operation::LayerNorm { ref gamma, ref beta, epsilon, x, y } => {
                    let p = self.shard.parameters;
                    let (gamma, beta) = (&p[gamma.clone()], &p[beta.clone()]);
                    pointwise::layer_norm(self.slice(x, i), gamma, beta, epsilon, self.slice(y, i));
                }
                Operation::LayerNormInput { ref gamma, ref beta, epsilon, x, g, dx } => {
                    let (x, g, dx) = (self.slice(x, i), self.slice(g, i), self.slice(dx, i));
                    let weights = &self.shard.parameters[gamma.clone()];
                    let grads = self.results.gradients.range(gamma.start..beta.end);
                    let grads = grads.split_at_mut(gamma.len());
                    pointwise::layer_norm_gradient(x, weights, epsilon, g, dx, grads);
                }
                Operation::Dropout { layer, rate, x, y } => {
                    let draw = self.shard.draw;
                    let which = u64::from(draw.shard) | (layer as u64) << 32;
                    let stream = Stream::new(draw.seed, Purpose::Dropout, draw.step, which);
                    let (x, y) = (self.slice(x, i), self.slice(y, i));
                    pointwise::dropout(&stream, i * x.len(), rate, x, y);
                }
                Operation::AddScaled { a, scale, b, relu, y } => {
                    let (a, b, y) = (self.slice(a, i), self.slice(b, i), self.slice(y, i));
                    pointwise::add_scaled(a, scale, b, relu, y);
                }
                Operation::ScaleInto { from, scale, add, to } => {
                    pointwise::scale_into(self.slice(from, i), scale, add, self.slice(to, i));
                }
                Operation::CopyChannels { from, from_at, to, to_at, count } => {
                    let (f, t) = (self.size(from).channels, self.size(to).channels);
                    let (from, to) = (self.slice(from, i), self.slice(to, i));
                    for (from, to) in from.chunks_exact(f).zip(to.chunks_exact_mut(t)) {
                        to[to_at..to_at + count].copy_from_slice(&from[from_at..from_at + count]);
                    }
                }
                _ => unreachable!("the other operations are told apart before"),
            }
        }
    }

    fn finish(&mut self, finish: Finish) {
        if self.shard.examples == 0 {
            return;
        }
        match finish {
            Finish::Norm(n) => {
                let norm = &self.shard.compiled.norms[n];
                let parameters = self.shard.parameters;
                normalise::forward(norm, &mut self.ws.norms[n], parameters, self.results.stats);
            }
            Finish::NormBackward(n) => {
                let norm = &self.shard.compiled.norms[n];
                let (state, all) = (&mut self.ws.norms[n], &self.results.gradients);
                let (gamma, beta) = (norm.plan.gamma.clone(), norm.plan.beta.clone());
                // SAFETY: as in `gradient`; the two lie apart.
                let gradients = unsafe { (all.range(gamma), all.range(beta)) };
                normalise::backward(norm, state, self.shard.parameters, gradients);
            }
            Finish::Weights(conv) => {
                let c = self.convolver(conv);
                let dw = self.gradient(&c.conv.kernel);
                if c.conv.pooled {
                    let turned = &mut self.ws.gathered[..c.conv.kernel.len()];
                    // SAFETY: as in `gradient`.
                    let dw = unsafe { self.results.gradients.range(c.conv.kernel.clone()) };
                    transpose(turned, turned.len() / c.conv.filters, dw);
                    turned.fill(0.0);
                } else {
                    // SAFETY: `dw` holds the kernel's gradient.
                    unsafe { c.finish_weight_gradient(self.ws, dw) };
                }
            }
        }
    }
}

fn pooled_shape(conv: &Conv) -> Pooled {
    Pooled {
        width: conv.input[1],
        channels: conv.input[2],
        filters: conv.filters,
        out_h: conv.window.out_h / 2,
        out_w: conv.window.out_w / 2,
    }
}

/// Copies the result of a program, whatever its place, into rows without gaps.
pub fn copy_output(shard: &Shard<'_>, program: &Program, ws: &mut Workspace, out: &mut [f32]) {
    let units = program.sizes[program.output.0].len();
    let mut results = Results::none();
    let mut run = Run { shard, program, ws, results: &mut results };
    for (i, row) in out.chunks_exact_mut(units).enumerate() {
        // SAFETY: the output's place holds all images.
        row.copy_from_slice(unsafe { run.slice(program.output, i) });
    }
}
