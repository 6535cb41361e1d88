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
    /// Scores that are not like the others are an error.
    pub fn take(&mut self, batch: u64, scores: Scores) -> Result<Option<Scores>, String> {
        let place = usize::try_from(batch).ok().filter(|batch| *batch < self.scores.len());
        let place = place.ok_or_else(|| format!("there is no batch {batch} to score"))?;
        if self.scores.iter().flatten().next().is_some_and(|first| !first.is_like(&scores)) {
            return Err(format!("the scores of batch {batch} are of another network"));
        }
        if self.scores[place].replace(scores).is_none() {
            self.missing -= 1;
        }
        if self.missing > 0 {
            return Ok(None);
        }
        // Nothing plus the first is the first: a sum begins at zero.
        Ok(self.scores.iter().flatten().cloned().reduce(|mut sum, scores| {
            sum.add(&scores);
            sum
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_added_in_order_and_strange_ones_refused() {
        let mut scoring = Scoring::new(HeldOut::Test, 3);
        let dealt: Vec<_> = scoring.deal(2).collect();
        assert_eq!(dealt, [0..1, 1..3]);
        let scores = || Scores::new(4, 4);
        assert_eq!(scoring.take(2, scores()), Ok(None));
        assert!(scoring.take(3, scores()).unwrap_err().contains("no batch 3"));
        assert!(scoring.take(1, Scores::new(5, 5)).unwrap_err().contains("another network"));
        assert_eq!(scoring.take(0, scores()), Ok(None));
        assert_eq!(scoring.take(0, scores()), Ok(None), "once more is once");
        assert_eq!(scoring.take(1, scores()), Ok(Some(scores())));
    }
}
