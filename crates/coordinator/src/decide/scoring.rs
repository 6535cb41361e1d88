//! Scoring a held-out part on many workers: who scores which batches, and the sum in their order.

use planaria_learn::Scores;
use planaria_protocol::message::HeldOut;
use std::ops::Range;

/// A part that is being scored.
#[derive(Debug)]
pub struct Scoring {
    /// The part.
    pub part: HeldOut,
    scores: Vec<Option<Scores>>,
    missing: usize,
}

impl Scoring {
    /// Of so many batches.
    pub fn new(part: HeldOut, batches: u64) -> Self {
        let missing = usize::try_from(batches).unwrap_or(usize::MAX);
        Self { part, scores: vec![None; missing], missing }
    }

    /// Batches for each of `workers` workers.
    pub fn deal(&self, workers: usize) -> impl Iterator<Item = Range<u64>> {
        let n = self.scores.len();
        (0..workers).map(move |w| (w * n / workers) as u64..((w + 1) * n / workers) as u64)
    }

    /// Takes in the scores of a batch; all scores, added in the order of batches, once all are there.
    pub fn take(&mut self, batch: u64, scores: Scores) -> Option<Scores> {
        let place = self.scores.get_mut(usize::try_from(batch).ok()?)?;
        if place.replace(scores).is_none() {
            self.missing -= 1;
        }
        if self.missing > 0 {
            return None;
        }
        let mut all = self.scores.iter().flatten();
        let mut sum = all.next()?.clone();
        // Nothing plus the first is the first: a sum begins at zero.
        all.for_each(|scores| sum.add(scores));
        Some(sum)
    }
}
