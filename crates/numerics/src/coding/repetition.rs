//! Redundancy for work that is not linear: every part is computed by several workers.
//!
//! Fractional repetition (Tandon and others 2017): workers are dealt out over parts, each part to
//! more of them than may be lost, and one survivor of each part is enough. All holders of a part
//! compute the same sum in the same order, so it does not matter whose counts. Owns who computes
//! what; never sees gradients.

use super::Error;
use std::ops::Range;

/// Workers dealt out over parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repetition {
    workers: usize,
    parts: usize,
}

impl Repetition {
    /// Parts for `workers`, of which any `redundancy` may be lost: worker w computes part
    /// w mod parts. Where the numbers do not divide, some parts have a holder more.
    pub fn new(workers: usize, redundancy: usize) -> Result<Self, Error> {
        let copies = redundancy + 1;
        if workers < copies {
            return Err(Error::Redundancy { workers, copies });
        }
        Ok(Self { workers, parts: workers / copies })
    }

    /// How many parts there are.
    pub fn parts(self) -> usize {
        self.parts
    }

    /// The part that `worker` computes.
    pub fn part_of(self, worker: usize) -> usize {
        worker % self.parts
    }

    /// Who computes `part`, ascending.
    pub fn holders(self, part: usize) -> impl Iterator<Item = usize> {
        (part..self.workers).step_by(self.parts)
    }

    /// Which of `shards` shards are in `part`.
    pub fn shards(self, part: usize, shards: usize) -> Range<usize> {
        part * shards / self.parts..(part + 1) * shards / self.parts
    }

    /// For each part the first of its holders that `answered`; an error where none did.
    pub fn choose(self, answered: impl Fn(usize) -> bool) -> Result<Vec<usize>, Error> {
        (0..self.parts)
            .map(|part| {
                self.holders(part)
                    .find(|worker| answered(*worker))
                    .ok_or_else(|| Error::PartLost { part, holders: self.holders(part).collect() })
            })
            .collect()
    }
}
