//! What one thread works in: arena, scratch and sums. Made once, used for every shard.

use crate::buffer::Buffer;
use crate::engines::cpu::kernels::winograd::{self, CONVOLUTION_ELEMENTS, WEIGHT_ELEMENTS};
use crate::engines::cpu::kernels::{gemm, pooled};
use crate::engines::cpu::program::conv::Method;
use crate::engines::cpu::program::{Compiled, Program};
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::tree::tree_scratch;

/// One thread's memory.
pub struct Workspace {
    /// Examples it has room for.
    pub capacity: usize,
    /// Tensors of all images.
    pub arena: Buffer,
    /// Tensors of one image.
    pub scratch: Buffer,
    /// Transformed input and output tiles of a convolution, then gathered input and gradient tiles
    /// of a weight gradient. Together, so that they share a huge page.
    tiles: Buffer,
    /// Length of a plane of tiles.
    plane: usize,
    /// Weight gradient in the transformed domain, zero between stages.
    pub gathered: Buffer,
    pub waiting: usize,
    /// Packing space of matrix products and lists.
    pub packing: Buffer,
    /// Padded input of each convolution; borders stay zero.
    pub padded: Vec<Buffer>,
    /// Padded gradient of each convolution; borders stay zero.
    pub padded_gradient: Vec<Buffer>,
    /// Each normalisation's numbers.
    pub norms: Vec<NormState>,
}

/// A normalisation's sums and what follows from them.
pub struct NormState {
    /// Values per channel in the sums.
    pub count: f64,
    /// Where sums are counted from: the shard's first pixel.
    pub origin: Buffer,
    /// Sums over the shard.
    pub sum: Vec<f64>,
    /// Sums of squares, or of products in the backward pass.
    pub square: Vec<f64>,
    /// Mean per channel.
    pub mean: Buffer,
    /// 1/σ per channel.
    pub inverse: Buffer,
    pub scale: Buffer,
    /// beta − mean · gamma/σ
    pub shift: Buffer,
    /// Coefficients of the input gradient.
    pub a: Buffer,
    pub b: Buffer,
    pub c: Buffer,
}

impl NormState {
    fn new(channels: usize) -> Self {
        let buffer = || Buffer::new(channels);
        Self {
            count: 0.0,
            origin: buffer(),
            sum: vec![0.0; channels],
            square: vec![0.0; channels],
            mean: buffer(),
            inverse: buffer(),
            scale: buffer(),
            shift: buffer(),
            a: buffer(),
            b: buffer(),
            c: buffer(),
        }
    }

    /// Clears the sums for the next pass.
    pub fn clear(&mut self) {
        self.sum.fill(0.0);
        self.square.fill(0.0);
    }
}

/// What a thread needs besides a workspace.
pub struct ThreadScratch {
    pub pack: Vec<f32>,
    /// Of summing over shards.
    pub sum: Vec<f32>,
}

impl ThreadScratch {
    /// With room for any work that the thread may take.
    pub fn new(compiled: &Compiled, shards: usize) -> Self {
        let kernel = compiled.convs.iter().map(|c| c.kernel.len()).max().unwrap_or(0);
        let sum = tree_scratch(BLOCK, shards);
        Self { pack: Vec::with_capacity(kernel), sum: Vec::with_capacity(sum) }
    }
}

impl Workspace {
    /// Room for `capacity` examples of `program`.
    pub fn new(compiled: &Compiled, program: &Program, capacity: usize) -> Self {
        let winograd = compiled.convs.iter().filter(|c| c.method == Method::Winograd);
        let (mut plane, mut gathered) = (0, 0);
        for c in winograd {
            let (ci, co) = (c.input[2], c.filters);
            // The input gradient goes the other way through the same scratch.
            plane = winograd::plane(ci.max(co)).max(plane);
            gathered = gathered.max(winograd::WEIGHT_ELEMENTS * ci * co);
        }
        for c in compiled.convs.iter().filter(|c| c.suits_pooled_gradient()) {
            gathered = gathered.max(c.kernel.len());
        }
        let mut packing = 0;
        for d in &compiled.denses {
            packing = packing
                .max(gemm::scratch_len(capacity, d.inputs.max(d.units)))
                .max(gemm::scratch_len(d.inputs.min(gemm::M_BLOCK), capacity));
        }
        for c in &compiled.convs {
            packing = packing.max(pooled::scratch_len(c.window.out_w));
        }
        Self {
            capacity,
            arena: Buffer::new(program.arena_len * capacity),
            scratch: Buffer::new(program.scratch_len),
            tiles: Buffer::new(2 * plane * (CONVOLUTION_ELEMENTS + WEIGHT_ELEMENTS)),
            plane,
            gathered: Buffer::new(gathered),
            waiting: 0,
            packing: Buffer::new(packing),
            padded: compiled.convs.iter().map(|c| Buffer::new(c.padded_len())).collect(),
            padded_gradient: compiled
                .convs
                .iter()
                .map(|c| Buffer::new(c.padded_gradient_len()))
                .collect(),
            norms: compiled.norms.iter().map(|n| NormState::new(n.channels())).collect(),
        }
    }

    /// Scratch for a convolution's transformed input and output tiles.
    pub fn tiles(&mut self) -> (*mut f32, *mut f32) {
        let (v, m) = self.tiles.split_at_mut(self.plane * CONVOLUTION_ELEMENTS);
        (v.as_mut_ptr(), m.as_mut_ptr())
    }

    /// Where a weight gradient's input and gradient tiles gather.
    pub fn gathering(&mut self) -> (*mut f32, *mut f32) {
        let from = 2 * self.plane * CONVOLUTION_ELEMENTS;
        let (v, m) = self.tiles[from..].split_at_mut(self.plane * WEIGHT_ELEMENTS);
        (v.as_mut_ptr(), m.as_mut_ptr())
    }
}
