//! Where everything lies in a region: the header's fields and marks, and the slots.

use super::Shape;
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::optimizer::SLOTS_MAX;
use std::ops::Range;

/// Values begin on a page of their own.
const HEADER_BYTES: usize = PAGE_BYTES;
const PAGE_BYTES: usize = 4096;
/// No vector crosses a line.
const LINE_BYTES: usize = 64;
/// Of the sum of one block.
const SUM_BYTES: usize = size_of::<u64>();
/// The first two, and the copy.
const SLOTS: usize = 3;

/// The slot of the copy.
pub const THIRD: usize = 2;
/// The header's fields, one after another; the marks lie behind them.
pub const FIELDS_BYTES: usize = 128;
/// Where the marks lie, each on a line of its own.
pub const COMMITTED: usize = 256;
/// See [`COMMITTED`].
pub const APPLIED: usize = 320;
/// See [`COMMITTED`].
pub const SNAPSHOT: usize = 384;

/// Offsets and lengths of a region of some shape.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    slot_bytes: usize,
    /// Of the parameters, and of each of the optimizer's slots, with what is left of a line.
    section_bytes: usize,
    optimizer: usize,
    state: usize,
    /// Blocks of parameters.
    blocks: usize,
    /// Where the sums lie in a slot: one for each block, then those of the state.
    sums: usize,
    pub bytes: usize,
}

/// A run of values in every slot: where they begin in slot 0, in bytes, and how many they are.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub parameters: usize,
    pub optimizer: [usize; SLOTS_MAX],
    /// How many of those there are.
    pub slots: usize,
    /// Values in each.
    pub len: usize,
    /// From slot to slot.
    pub slot_bytes: usize,
    /// Where the sums of its blocks begin.
    pub sums: usize,
}

impl Run {
    /// Where the sum of one of its blocks lies in a slot.
    pub fn sum(&self, slot: usize, block: usize) -> usize {
        self.sums + slot * self.slot_bytes + block * SUM_BYTES
    }
}

impl Layout {
    /// Of a region of this shape.
    pub fn new(shape: &Shape) -> Self {
        let lines = |values: usize| (values * size_of::<f32>()).next_multiple_of(LINE_BYTES);
        let section_bytes = lines(shape.parameters);
        let sums = section_bytes * (1 + shape.optimizer) + lines(shape.state);
        let blocks = shape.parameters.div_ceil(BLOCK);
        let all_sums = (blocks + shape.state.div_ceil(BLOCK)) * SUM_BYTES;
        let slot_bytes = (sums + all_sums).next_multiple_of(PAGE_BYTES);
        let (optimizer, state) = (shape.optimizer, shape.state);
        let bytes = HEADER_BYTES + SLOTS * slot_bytes;
        Self { slot_bytes, section_bytes, optimizer, state, blocks, sums, bytes }
    }

    /// A slot's bytes.
    pub fn slot(&self, slot: usize) -> Range<usize> {
        let start = HEADER_BYTES + slot * self.slot_bytes;
        start..start + self.slot_bytes
    }

    /// `len` parameters from `from` on, where a block begins, and what the optimizer keeps of them.
    pub fn run(&self, from: usize, len: usize) -> Run {
        let section = |s: usize| HEADER_BYTES + s * self.section_bytes + from * size_of::<f32>();
        Run {
            parameters: section(0),
            optimizer: std::array::from_fn(|s| section(1 + s)),
            slots: self.optimizer,
            len,
            slot_bytes: self.slot_bytes,
            sums: HEADER_BYTES + self.sums + from / BLOCK * SUM_BYTES,
        }
    }

    pub fn state(&self) -> Run {
        let start = HEADER_BYTES + (1 + self.optimizer) * self.section_bytes;
        let (optimizer, slots) = ([start; SLOTS_MAX], 0);
        let sums = HEADER_BYTES + self.sums + self.blocks * SUM_BYTES;
        let (len, slot_bytes) = (self.state, self.slot_bytes);
        Run { parameters: start, optimizer, slots, len, slot_bytes, sums }
    }
}
