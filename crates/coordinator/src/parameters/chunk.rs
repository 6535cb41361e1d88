//! A few neighbouring blocks: what arrives for them, and their values before and after a step.
//!
//! The unit that threads work on. Values are kept twice, so that a step that is never committed
//! leaves no trace.

use planaria_numerics::aggregate::{self, BLOCK};
use planaria_numerics::optimizer;
use planaria_numerics::tree::{self, Segment};
use planaria_recipe::train::Optimizer;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

/// Blocks per chunk (512 KiB): small enough that sending one hides behind summing the next, large
/// enough that waking threads for it does not show: with 8 blocks it did, on small networks.
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
    values: Option<Vec<f32>>,
}

/// Values of a chunk after some step.
#[derive(Debug)]
pub struct Slot {
    /// Parameters.
    pub parameters: Vec<f32>,
    /// The optimizer's numbers.
    pub optimizer: Vec<Vec<f32>>,
}

impl Slot {
    fn new(len: usize, slots: usize) -> Self {
        Self { parameters: vec![0.0; len], optimizer: vec![vec![0.0; len]; slots] }
    }
}

/// Inputs, sums and values of a chunk.
#[derive(Debug)]
pub struct Values {
    /// Two slots: after step t in slot t mod 2.
    pub slots: [Slot; 2],
    /// Sum of squares of each block's gradient.
    pub squares: [f64; CHUNK_BLOCKS],
    /// The summed and scaled gradient: all of it where it must wait to be clipped, else one block.
    gradient: Vec<f32>,
    /// By segment, where all its blocks have come.
    inputs: Vec<Option<Vec<f32>>>,
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
            gradient: Vec::new(),
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
            // A step that is over is counted already.
            if arrival.step != u64::MAX && step < arrival.step {
                return Ok(Arrived::Twice);
            }
            arrival.step = step;
            arrival.blocks = 0;
        }
        let bits = ((1u64 << blocks.len()) - 1) << blocks.start;
        if arrival.blocks & bits != 0 {
            return Ok(Arrived::Twice);
        }
        let values = arrival.values.get_or_insert_with(|| {
            // What was summed in the last step is free again; the first step brings it into being.
            self.values().inputs[segment].take().unwrap_or_else(|| vec![0.0; self.len])
        });
        let range = blocks.start * BLOCK..(blocks.end * BLOCK).min(self.len);
        read(&mut values[range])?;
        arrival.blocks |= bits;
        if arrival.blocks.count_ones() as usize != self.blocks() {
            return Ok(Arrived::Waiting);
        }
        let mut values = self.values();
        values.inputs[segment] = arrival.values.take();
        let Some(missing) = values.missing.checked_sub(1) else { return Ok(Arrived::Twice) };
        values.missing = missing;
        Ok(if missing == 0 { Arrived::Complete(values) } else { Arrived::Waiting })
    }
}

impl Values {
    /// Finishes the tree over the shards, scales the sum, notes each block's squares, and keeps the
    /// gradient for [`Values::clip_and_update`].
    pub fn sum(&mut self, tree: Tree<'_>) {
        let len = self.slots[0].parameters.len();
        self.gradient.resize(len, 0.0);
        let Self { gradient, inputs, scratch, squares, .. } = self;
        for (square, range) in squares.iter_mut().zip(aggregate::blocks(len)) {
            let out = &mut gradient[range.clone()];
            *square = sum_block(tree, inputs, range, out, scratch);
        }
    }

    /// Updates from the gradient that was kept, times `factor`.
    pub fn clip_and_update(&mut self, factor: f32, update: Update<'_>) {
        let Self { gradient, slots, .. } = self;
        for range in aggregate::blocks(gradient.len()) {
            let gradient = &mut gradient[range.clone()];
            gradient.iter_mut().for_each(|g| *g *= factor);
            update_block(slots, range, gradient, update);
        }
    }

    /// Sums and updates block by block, so that a block stays in the cache in between. Says whether
    /// all sums are finite; the values after the step are worth nothing if not.
    pub fn sum_and_update(&mut self, tree: Tree<'_>, update: Update<'_>) -> bool {
        let len = self.slots[0].parameters.len();
        self.gradient.resize(BLOCK.min(len), 0.0);
        let Self { gradient, inputs, scratch, squares, slots, .. } = self;
        for (square, range) in squares.iter_mut().zip(aggregate::blocks(len)) {
            let gradient = &mut gradient[..range.len()];
            *square = sum_block(tree, inputs, range.clone(), gradient, scratch);
            update_block(slots, range, gradient, update);
        }
        squares.iter().all(|square| square.is_finite())
    }
}

/// How the segments of a step become one gradient.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'a> {
    /// Shards of a step.
    pub shards: usize,
    /// What is sent of them.
    pub segments: &'a [Segment],
    /// What the sum is multiplied by.
    pub scale: f32,
}

/// One block's gradient, and the sum of its squares.
fn sum_block(
    tree: Tree<'_>,
    inputs: &[Option<Vec<f32>>],
    range: Range<usize>,
    out: &mut [f32],
    scratch: &mut Vec<f32>,
) -> f64 {
    let values = |segment: usize| {
        let input = inputs[segment].as_ref().expect("a complete chunk has every segment");
        &input[range.clone()]
    };
    tree::tree_sum_segments(tree.shards, tree.segments, values, tree.scale, out, scratch)
}

/// Makes one block's values after the step from those before it, in the other slot.
fn update_block(
    slots: &mut [Slot; 2],
    range: Range<usize>,
    gradient: &[f32],
    Update { optimizer: rule, step, learning_rate }: Update<'_>,
) {
    let [even, odd] = slots;
    let (from, to) = if step.is_multiple_of(2) { (even, odd) } else { (odd, even) };
    let parameters = &mut to.parameters[range.clone()];
    parameters.copy_from_slice(&from.parameters[range.clone()]);
    let mut views: [&mut [f32]; optimizer::SLOTS_MAX] = Default::default();
    let count = to.optimizer.len();
    for ((view, to), from) in views.iter_mut().zip(&mut to.optimizer).zip(&from.optimizer) {
        *view = &mut to[range.clone()];
        view.copy_from_slice(&from[range.clone()]);
    }
    optimizer::update(rule, step, learning_rate, parameters, gradient, &mut views[..count]);
}
