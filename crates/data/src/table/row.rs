//! One row of a table as bytes: its label, then a number or the code of a name for each column, or
//! where its LIBSVM entries are.

use super::Body;
use crate::error::Error;

/// A label: a number, or the code of a class.
pub(super) const LABEL_BYTES: usize = 8;
/// A row of a LIBSVM file: its label, its first entry, and how many it has.
pub(super) const SPARSE_BYTES: usize = LABEL_BYTES + 16;
/// An entry of one: column and value.
pub(super) const ENTRY_BYTES: usize = 12;

/// A row as it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    record: &'a [u8],
    entries: &'a [u8],
}

impl<'a> Row<'a> {
    /// With its entries, if the table has any; `room` is for those that are not in memory.
    pub fn new(record: &'a [u8], body: &'a Body, room: &'a mut Vec<u8>) -> Result<Self, Error> {
        let entries: &[u8] = match body {
            Body::Columns(_) => &[],
            Body::Sparse(blob) => {
                let (first, count) = (long(record, LABEL_BYTES), long(record, LABEL_BYTES + 8));
                blob.read(first * ENTRY_BYTES as u64, count as usize * ENTRY_BYTES, room)?
            }
        };
        Ok(Self { record, entries })
    }

    pub fn label_number(&self) -> f64 {
        self.number(0)
    }

    pub fn label_code(&self) -> u32 {
        long(self.record, 0) as u32
    }

    /// The number at a byte of the row; NaN where it is missing.
    pub fn number(&self, at: usize) -> f64 {
        f64::from_bits(long(self.record, at))
    }

    /// The code of the name at a byte of the row.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(bytes(self.record, at))
    }

    /// Columns and values of a LIBSVM row, columns ascending.
    pub fn entries(&self) -> impl Iterator<Item = (u32, f64)> + 'a {
        self.entries
            .chunks_exact(ENTRY_BYTES)
            .map(|entry| (u32::from_le_bytes(bytes(entry, 0)), f64::from_bits(long(entry, 4))))
    }
}

fn long(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(record, at))
}

fn bytes<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    *record[at..].first_chunk().expect("a record holds what its columns say")
}
