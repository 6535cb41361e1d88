//! A few neighbouring blocks: what arrives for them, and their values before and after a step.
//!
//! The unit that threads work on. The values lie in the region; a step that is never committed
//! leaves no trace in those before it. No lock is held while a link is read: a worker that hangs in
//! the middle of sending keeps no other from bringing the same blocks.

use super::region::Piece;
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

/// A step that is gathered. A step may be gathered again after a loss, with other segments; what
/// was sent for the first time then counts no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// Times the server had begun by then.
    pub era: u64,
    pub step: u64,
}

/// Where blocks of a gradient come from.
#[derive(Debug, Clone, Copy)]
pub struct FromLink {
    pub link: u64,
    /// Which of the round's segments the link brings them of.
    pub segment: usize,
}

/// Values that follow a message, to be read once and in order.
pub trait Bulk {
    /// Bytes left.
    fn bytes(&self) -> usize;

    /// The next values.
    fn read(&mut self, into: &mut [f32]) -> Result<(), planaria_protocol::Error>;

    /// Leaves so many values out.
    fn skip(&mut self, values: usize) -> Result<(), planaria_protocol::Error>;
}

/// What comes of one segment of a chunk.
#[derive(Debug)]
struct Arrival {
    turn: Option<Turn>,
    /// Whether all of it was brought.
    is_complete: bool,
    /// The worker that brings it.
    sources: Vec<Source>,
    /// A buffer that is not in use.
    free: Option<Vec<f32>>,
}

/// One link that brings a segment of a chunk.
#[derive(Debug)]
struct Source {
    link: u64,
    /// One bit for each block that is there.
    blocks: u64,
    /// The blocks' values; away while they are read.
    values: Option<Vec<f32>>,
}

/// Inputs, sums and values of a chunk.
#[derive(Debug)]
pub struct Values {
    /// The values after the steps.
    pub piece: Piece,
    /// Sum of squares of each block's gradient.
    pub squares: [f64; CHUNK_BLOCKS],
    /// The summed and scaled gradient: all of it where it must wait to be clipped, else one block.
    gradient: Vec<f32>,
    /// By segment, where all its blocks have come.
    inputs: Vec<Option<Vec<f32>>>,
    /// The last step that the values were updated by; it may not be committed.
    pub updated: Option<Turn>,
    /// What is gathered.
    turn: Option<Turn>,
    /// Segments of it that have not all come.
    missing: usize,
    scratch: Vec<f32>,
}

#[derive(Debug)]
pub struct Chunk {
    len: usize,
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
    /// They had come already.
    Late,
}

/// How blocks follow their gradients in one step.
#[derive(Debug, Clone, Copy)]
pub struct Update<'a> {
    pub optimizer: &'a Optimizer,
    pub step: u64,
    pub learning_rate: f32,
}

impl Chunk {
    /// The chunk with these values, which up to `segments` segments send to.
    pub fn new(piece: Piece, segments: usize) -> Self {
        let arrival =
            || Arrival { turn: None, is_complete: false, sources: Vec::new(), free: None };
        let len = piece.len();
        let values = Values {
            piece,
            squares: [0.0; CHUNK_BLOCKS],
            gradient: Vec::new(),
            inputs: (0..segments).map(|_| None).collect(),
            updated: None,
            turn: None,
            missing: 0,
            scratch: Vec::new(),
        };
        let arrivals = (0..segments).map(|_| Mutex::new(arrival())).collect();
        Self { len, arrivals, values: Mutex::new(values) }
    }

    pub fn blocks(&self) -> usize {
        self.len.div_ceil(BLOCK)
    }

    pub fn values(&self) -> MutexGuard<'_, Values> {
        self.values.lock().expect("no thread panics while it holds a chunk")
    }

    /// Starts gathering a step from `segments` segments; with nothing, nothing more counts.
    pub fn expect(&self, turn: Option<Turn>, segments: usize) {
        let mut values = self.values();
        (values.turn, values.missing) = (turn, segments);
    }

    /// Whether all of a segment has come.
    pub fn has(&self, turn: Turn, segment: usize) -> bool {
        let arrival = self.arrival(segment);
        arrival.turn == Some(turn) && arrival.is_complete
    }

    /// Forgets what a link has brought that is not complete.
    pub fn leave(&self, link: u64) {
        for segment in 0..self.arrivals.len() {
            let mut arrival = self.arrival(segment);
            if let Some(at) = arrival.sources.iter().position(|s| s.link == link) {
                let source = arrival.sources.swap_remove(at);
                arrival.free = source.values.or(arrival.free.take());
            }
        }
    }

    /// Takes in some blocks of this chunk from a link's segment, whose values are next in `bulk`.
    pub fn arrive(
        &self,
        from: FromLink,
        turn: Turn,
        blocks: Range<usize>,
        bulk: &mut dyn Bulk,
    ) -> Result<Arrived<'_>, planaria_protocol::Error> {
        let bits = ((1u64 << blocks.len()) - 1) << blocks.start;
        let range = blocks.start * BLOCK..(blocks.end * BLOCK).min(self.len);
        let Some(mut values) = self.borrow(from, turn, bits) else {
            bulk.skip(range.len())?;
            return Ok(Arrived::Late);
        };
        let read = bulk.read(&mut values[range]);
        let bits = if read.is_ok() { bits } else { 0 };
        let arrived = self.give_back(from, turn, bits, values);
        read.map(|()| arrived)
    }

    /// The buffer that a link's blocks go to; nothing if they have come.
    fn borrow(&self, from: FromLink, turn: Turn, bits: u64) -> Option<Vec<f32>> {
        let FromLink { link, segment } = from;
        let mut arrival = self.arrival(segment);
        if arrival.turn < Some(turn) {
            let Arrival { sources, free, .. } = &mut *arrival;
            for source in sources.drain(..) {
                *free = source.values.or(free.take());
            }
            (arrival.turn, arrival.is_complete) = (Some(turn), false);
        }
        if arrival.turn != Some(turn) || arrival.is_complete {
            return None;
        }
        let at = arrival.sources.iter().position(|source| source.link == link);
        let at = at.unwrap_or_else(|| {
            arrival.sources.push(Source { link, blocks: 0, values: None });
            arrival.sources.len() - 1
        });
        if arrival.sources[at].blocks & bits == bits {
            return None;
        }
        let values = arrival.sources[at].values.take().or_else(|| arrival.free.take());
        Some(values.unwrap_or_else(|| {
            // What was summed in the last step is free again; the first step brings it into being.
            self.values().inputs[segment].take().unwrap_or_else(|| vec![0.0; self.len])
        }))
    }

    /// Notes what a link has brought. The first to have brought all is the segment's input.
    fn give_back(&self, from: FromLink, turn: Turn, bits: u64, buffer: Vec<f32>) -> Arrived<'_> {
        let FromLink { link, segment } = from;
        let mut arrival = self.arrival(segment);
        let at = arrival.sources.iter().position(|source| source.link == link);
        let Some(at) = at.filter(|_| arrival.turn == Some(turn) && !arrival.is_complete) else {
            // Another was faster, or its turn is over.
            return Arrived::Late;
        };
        let source = &mut arrival.sources[at];
        source.blocks |= bits;
        if source.blocks.count_ones() as usize != self.blocks() {
            source.values = Some(buffer);
            return Arrived::Waiting;
        }
        arrival.is_complete = true;
        arrival.sources.clear();
        arrival.free = None;
        let mut values = self.values();
        values.inputs[segment] = Some(buffer);
        if values.turn != Some(turn) {
            return Arrived::Late;
        }
        values.missing -= 1;
        if values.missing == 0 { Arrived::Complete(values) } else { Arrived::Waiting }
    }

    fn arrival(&self, segment: usize) -> MutexGuard<'_, Arrival> {
        self.arrivals[segment].lock().expect("no thread panics while it holds an arrival")
    }
}

impl Values {
    /// Finishes the tree over the shards, scales the sum, notes each block's squares, and keeps the
    /// gradient for [`Values::clip_and_update`].
    pub fn sum(&mut self, tree: Tree<'_>) {
        let len = self.piece.len();
        self.gradient.resize(len, 0.0);
        let Self { gradient, inputs, scratch, squares, .. } = self;
        for (square, range) in squares.iter_mut().zip(aggregate::blocks(len)) {
            let out = &mut gradient[range.clone()];
            *square = sum_block(tree, inputs, range, out, scratch);
        }
    }

    /// Updates from the gradient that was kept, times `factor`.
    pub fn clip_and_update(&mut self, factor: f32, update: Update<'_>) {
        let Self { gradient, piece, .. } = self;
        for range in aggregate::blocks(gradient.len()) {
            let gradient = &mut gradient[range.clone()];
            gradient.iter_mut().for_each(|g| *g *= factor);
            update_block(piece, range, gradient, update);
        }
    }

    /// Sums and updates block by block, so that a block stays in the cache in between. Says whether
    /// all sums are finite; the values after the step are worth nothing if not.
    pub fn sum_and_update(&mut self, tree: Tree<'_>, update: Update<'_>) -> bool {
        let len = self.piece.len();
        self.gradient.resize(BLOCK.min(len), 0.0);
        let Self { gradient, inputs, scratch, squares, piece, .. } = self;
        for (square, range) in squares.iter_mut().zip(aggregate::blocks(len)) {
            let gradient = &mut gradient[..range.len()];
            *square = sum_block(tree, inputs, range.clone(), gradient, scratch);
            update_block(piece, range, gradient, update);
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
    piece: &mut Piece,
    range: Range<usize>,
    gradient: &[f32],
    Update { optimizer: rule, step, learning_rate }: Update<'_>,
) {
    let (from, mut to) = piece.step(step);
    let (parameters, slots) = to.parts();
    let parameters = &mut parameters[range.clone()];
    parameters.copy_from_slice(&from.parameters[range.clone()]);
    let mut views: [&mut [f32]; optimizer::SLOTS_MAX] = Default::default();
    let count = slots.len();
    for ((view, to), from) in views.iter_mut().zip(slots).zip(from.optimizer()) {
        *view = &mut to[range.clone()];
        view.copy_from_slice(&from[range.clone()]);
    }
    optimizer::update(rule, step, learning_rate, parameters, gradient, &mut views[..count]);
    // While they are in the cache.
    piece.seal_block(step + 1, range.start / BLOCK);
}
