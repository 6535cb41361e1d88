//! How rows of the data lie in blocks, and encoding them.
//!
//! Row i of m lies in block i / q at place i mod q, where q = ⌈m / threshold⌉; the last block is
//! filled up with rows of zeros. What a slot stores is q rows: place r is the combination, by its
//! row of the generator, of the blocks' rows at place r.
//!
//! Owns the cut and the encoding, which takes the data's rows in their order, some at a time,
//! dense or sparse, once. Never reads anything: rows are handed in.

use super::{
    Error, Slot,
    generator::Generator,
    scalar::{Element, Scalar},
};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The cut of `rows` rows into `threshold` blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    rows: usize,
    threshold: usize,
}

impl Blocks {
    /// The cut; an error where there is nothing to cut.
    pub fn new(rows: usize, threshold: usize) -> Result<Self, Error> {
        if rows == 0 || threshold == 0 {
            return Err(Error::NoRows);
        }
        Ok(Self { rows, threshold })
    }

    /// Rows of the data.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Blocks there are.
    pub fn threshold(self) -> usize {
        self.threshold
    }

    /// Rows of a block: what each slot stores.
    pub fn height(self) -> usize {
        self.rows.div_ceil(self.threshold)
    }

    /// Where a row of the data lies: its block, and its place there.
    pub fn place(self, row: usize) -> (usize, usize) {
        (row / self.height(), row % self.height())
    }

    /// The rows of the data that lie at `places` of `block`; fewer, or none, where the block is
    /// filled up.
    pub fn data_rows(self, block: usize, places: &Range<usize>) -> Range<usize> {
        let first = block * self.height();
        (first + places.start).min(self.rows)..(first + places.end).min(self.rows)
    }
}

/// Some rows of the data, one after another.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a, E> {
    /// All values, row by row.
    Dense {
        /// Values in a row.
        width: usize,
        values: &'a [E],
    },
    /// Compressed rows: row i has the entries `starts[i]..starts[i + 1]`.
    Sparse {
        /// Values that a row would have.
        width: usize,
        /// Where rows start, and where the last ends.
        starts: &'a [usize],
        /// Column of each entry.
        columns: &'a [u32],
        /// Value of each entry.
        values: &'a [E],
    },
}

impl<E: Element> Rows<'_, E> {
    pub fn width(&self) -> usize {
        match self {
            Rows::Dense { width, .. } | Rows::Sparse { width, .. } => *width,
        }
    }

    /// How many rows.
    pub fn count(&self) -> usize {
        match self {
            Rows::Dense { width, values } => values.len().checked_div(*width).unwrap_or(0),
            Rows::Sparse { starts, .. } => starts.len().saturating_sub(1),
        }
    }

    /// Calls `each` with column and value of every entry of `row`.
    pub fn for_each(&self, row: usize, mut each: impl FnMut(usize, E)) {
        match self {
            Rows::Dense { width, values } => {
                let row = &values[row * width..][..*width];
                row.iter().enumerate().for_each(|(column, value)| each(column, *value));
            }
            Rows::Sparse { starts, columns, values, .. } => {
                for i in starts[row]..starts[row + 1] {
                    each(columns[i] as usize, values[i]);
                }
            }
        }
    }

    /// An error unless rows have `width` columns, as their lengths and column numbers say too.
    pub(super) fn check(&self, width: usize) -> Result<(), Error> {
        let found = match self {
            Rows::Dense { width: own, values } if values.len() % own.max(&1) != 0 => {
                values.len() % own
            }
            Rows::Dense { width, .. } => *width,
            Rows::Sparse { width: own, starts, columns, values } => {
                let ends = starts.windows(2).all(|s| s[0] <= s[1])
                    && starts.last().is_none_or(|end| *end <= columns.len().min(values.len()));
                match columns.iter().find(|column| **column as usize >= *own) {
                    Some(column) => *column as usize + 1,
                    None if ends => *own,
                    None => 0,
                }
            }
        };
        if found == width { Ok(()) } else { Err(Error::Width { expected: width, found }) }
    }
}

/// Encodes for one slot, from all rows of the data in their order. The result does not depend on
/// how many come at a time, nor on whether they come dense or sparse: a coded value is one chain
/// over the blocks, ascending.
#[derive(Debug)]
pub struct Encoder<'g, E: Element> {
    generator: &'g Generator<E::Scalar>,
    slot: Slot,
    blocks: Blocks,
    width: usize,
    places: Range<usize>,
    next: usize,
    coded: Vec<E>,
}

impl<'g, E: Element> Encoder<'g, E> {
    /// An encoder for `places` of what `slot` stores: all of them, or a joiner's first ones.
    pub fn new(
        generator: &'g Generator<E::Scalar>,
        slot: Slot,
        blocks: Blocks,
        width: usize,
        places: Range<usize>,
    ) -> Result<Self, Error> {
        generator.check_slot(slot)?;
        let places = places.start..places.end.min(blocks.height());
        let coded = vec![E::default(); places.len() * width];
        Ok(Self { generator, slot, blocks, width, places, next: 0, coded })
    }

    /// The next rows of the data, the first of which is row `first`.
    pub fn push(&mut self, first: usize, rows: &Rows<'_, E>) -> Result<(), Error> {
        rows.check(self.width)?;
        if first != self.next || first + rows.count() > self.blocks.rows() {
            let found = if first == self.next { first + rows.count() } else { first };
            return Err(Error::Order { expected: self.next, found });
        }
        for i in 0..rows.count() {
            self.add(first + i, i, rows);
        }
        self.next += rows.count();
        Ok(())
    }

    /// Whether the rows that `block` has at these places add anything to what is encoded.
    pub fn needs(&self, block: usize) -> bool {
        self.generator.coefficient(self.slot, block) != E::Scalar::ZERO
    }

    /// The next rows of the data, up to row `end`, add nothing: they lie at other places, or in
    /// blocks that are not [needed](Self::needs). An error where one does.
    pub fn skip(&mut self, end: usize) -> Result<(), Error> {
        let end = end.min(self.blocks.rows());
        for block in 0..self.blocks.threshold() {
            let needed = self.blocks.data_rows(block, &self.places);
            let passed = needed.start.max(self.next)..needed.end.min(end);
            if self.needs(block) && !passed.is_empty() {
                return Err(Error::Order { expected: passed.start, found: end });
            }
        }
        self.next = self.next.max(end);
        Ok(())
    }

    /// What the slot stores, row by row, once all rows were pushed or skipped.
    pub fn finish(self) -> Result<Vec<E>, Error> {
        if self.next != self.blocks.rows() {
            return Err(Error::Order { expected: self.next, found: self.blocks.rows() });
        }
        Ok(self.coded)
    }

    fn add(&mut self, data_row: usize, i: usize, rows: &Rows<'_, E>) {
        let (block, place) = self.blocks.place(data_row);
        let coefficient = self.generator.coefficient(self.slot, block);
        if !self.places.contains(&place) || coefficient == E::Scalar::ZERO {
            return;
        }
        let coded = &mut self.coded[(place - self.places.start) * self.width..][..self.width];
        rows.for_each(i, |column, value| {
            let sum = coded[column].widen().plus(coefficient.times(value.widen()));
            coded[column] = E::narrow(sum);
        });
    }
}
