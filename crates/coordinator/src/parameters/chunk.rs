//! A few neighbouring blocks: what arrives for them, and their values before and after a step.
//!
//! The unit that threads work on. Values are kept twice, so that a step that is never committed
//! leaves no trace.

use planaria_learn::kernels::buffer::Buffer;
use planaria_numerics::aggregate::{self, BLOCK};
use planaria_numerics::optimizer;
use planaria_numerics::tree::{self, Segment};
use planaria_recipe::train::Optimizer;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

/// Blocks per chunk (512 KiB): small enough that sending one hides behind summing the next, large
/// enough that waking threads for it does not show. Measured on network A of docs/benchmarks.md: 8
/// blocks gave 0.75 times the steps of 28.
pub const CHUNK_BLOCKS: usize = 32;

/// Parameters per chunk.
pub const CHUNK: usize = CHUNK_BLOCKS * BLOCK;

/// What one segment is sending of a chunk.
#[derive(Debug)]
struct Arrival {
    /// The step it is of.
    step: u64,
    /// One bit for each block that is there.
    blocks: u64,
    /// The blocks' values; with [`Values`] once they are all there.
    values: Option<Buffer>,
}

/// Values of a chunk after some step.
#[derive(Debug)]
pub struct Slot {
    /// Parameters.
    pub parameters: Buffer,
    /// The optimizer's numbers.
    pub optimizer: Vec<Buffer>,
}

impl Slot {
    fn new(len: usize, slots: usize) -> Self {
        let optimizer = (0..slots).map(|_| Buffer::new(len)).collect();
        Self { parameters: Buffer::new(len), optimizer }
    }
}

/// Inputs, sums and values of a chunk.
#[derive(Debug)]
pub struct Values {
    /// Two slots: after step t in slot t mod 2.
    pub slots: [Slot; 2],
    /// Sum of squares of each block's gradient.
    pub squares: [f64; CHUNK_BLOCKS],
    /// The summed and scaled gradient.
    gradient: Buffer,
    /// By segment, where all its blocks have come.
    inputs: Vec<Option<Buffer>>,
    /// Segments that have not all come.
    missing: usize,
    scratch: Vec<f32>,
}

/// A chunk.
#[derive(Debug)]
pub struct Chunk {
    len: usize,
    /// By segment. The thread that reads a segment's link holds the lock while it reads.
    arrivals: Vec<Mutex<Arrival>>,
    values: Mutex<Values>,
}

/// What became of blocks that came in.
#[derive(Debug)]
pub enum Arrived<'a> {
    /// More is to come.
    Waiting,
    /// The chunk is complete.
    Complete(MutexGuard<'a, Values>),
    /// Some of these blocks had come already.
    Twice,
}

/// How blocks follow their gradients in one step.
#[derive(Debug, Clone, Copy)]
pub struct Update<'a> {
    /// The rule.
    pub optimizer: &'a Optimizer,
    /// The step.
    pub step: u64,
    /// Its learning rate.
    pub learning_rate: f32,
}

impl Chunk {
    /// `len` parameters with `slots` optimizer slots, which up to `segments` segments send to.
    pub fn new(len: usize, slots: usize, segments: usize) -> Self {
        let arrival = || Arrival { step: u64::MAX, blocks: 0, values: None };
        let values = Values {
            slots: [Slot::new(len, slots), Slot::new(len, slots)],
            squares: [0.0; CHUNK_BLOCKS],
            gradient: Buffer::new(len),
            inputs: (0..segments).map(|_| None).collect(),
            missing: 0,
            scratch: Vec::new(),
        };
        let arrivals = (0..segments).map(|_| Mutex::new(arrival())).collect();
        Self { len, arrivals, values: Mutex::new(values) }
    }

    /// Blocks in it.
    pub fn blocks(&self) -> usize {
        self.len.div_ceil(BLOCK)
    }

    /// Its values.
    pub fn values(&self) -> MutexGuard<'_, Values> {
        self.values.lock().expect("no thread panics while it holds a chunk")
    }

    /// Starts gathering a step from `segments` segments.
    pub fn expect(&self, segments: usize) {
        self.values().missing = segments;
    }

    /// Takes in blocks `first..first + count` of this chunk from a segment: `read` fills them.
    pub fn arrive<E>(
        &self,
        segment: usize,
        step: u64,
        blocks: Range<usize>,
        read: impl FnOnce(&mut [f32]) -> Result<(), E>,
    ) -> Result<Arrived<'_>, E> {
        let mut guard =
            self.arrivals[segment].lock().expect("no thread panics while it holds an arrival");
        let arrival = &mut *guard;
        if arrival.step != step {
            arrival.step = step;
            arrival.blocks = 0;
        }
        let bits = ((1u64 << blocks.len()) - 1) << blocks.start;
        if arrival.blocks & bits != 0 {
            return Ok(Arrived::Twice);
        }
        let values = arrival.values.get_or_insert_with(|| {
            // What was summed in the last step is free again; the first step brings it into being.
            self.values().inputs[segment].take().unwrap_or_else(|| Buffer::new(self.len))
        });
        let range = blocks.start * BLOCK..(blocks.end * BLOCK).min(self.len);
        read(&mut values[range])?;
        arrival.blocks |= bits;
        if arrival.blocks.count_ones() as usize != self.blocks() {
            return Ok(Arrived::Waiting);
        }
        let mut values = self.values();
        values.inputs[segment] = arrival.values.take();
        values.missing -= 1;
        Ok(if values.missing == 0 { Arrived::Complete(values) } else { Arrived::Waiting })
    }
}

impl Values {
    /// Finishes the tree over the shards, scales the sum and notes each block's squares.
    pub fn sum(&mut self, shards: usize, segments: &[Segment], scale: f32) {
        let Self { gradient, inputs, scratch, squares, .. } = self;
        for (square, range) in squares.iter_mut().zip(aggregate::blocks(gradient.len())) {
            let values = |s: usize| {
                let input = inputs[s].as_ref().expect("a complete chunk has every segment");
                &input[range.clone()]
            };
            let out = &mut gradient[range.clone()];
            *square = tree::tree_sum_segments(shards, segments, values, scale, out, scratch);
        }
    }

    /// Whether every block's sum of squares is finite.
    pub fn is_finite(&self) -> bool {
        self.squares.iter().all(|s| s.is_finite())
    }

    /// Multiplies the gradient.
    pub fn clip(&mut self, factor: f32) {
        self.gradient.iter_mut().for_each(|g| *g *= factor);
    }

    /// Makes the values after the step from those before it, in the other slot. Block by block, so
    /// that they stay in the cache.
    pub fn update(&mut self, update: Update<'_>) {
        let after = (update.step + 1) as usize % 2;
        let [even, odd] = &mut self.slots;
        let (from, to) = if after == 0 { (odd, even) } else { (even, odd) };
        for r in aggregate::blocks(self.gradient.len()) {
            let parameters = &mut to.parameters[r.clone()];
            parameters.copy_from_slice(&from.parameters[r.clone()]);
            let mut slots: [&mut [f32]; optimizer::SLOTS_MAX] = Default::default();
            let count = to.optimizer.len();
            for ((slot, to), from) in slots.iter_mut().zip(&mut to.optimizer).zip(&from.optimizer) {
                *slot = &mut to[r.clone()];
                slot.copy_from_slice(&from[r.clone()]);
            }
            let Update { optimizer: rule, step, learning_rate } = update;
            let gradient = &self.gradient[r.clone()];
            optimizer::update(rule, step, learning_rate, parameters, gradient, &mut slots[..count]);
        }
    }
}
