//! Scoring a held-out part on many workers: who scores which batches, and the sum in their order.

use planaria_learn::Scores;
use planaria_protocol::message::HeldOut;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

/// Patience with the first batch ever, and with the next ones: so much, and so many times the
/// longest that one took.
const FIRST: Duration = Duration::from_secs(10);
const LEAST: Duration = Duration::from_millis(300);
const TIMES: u32 = 5;

/// A part that is being scored.
#[derive(Debug)]
pub struct Scoring {
    pub part: HeldOut,
    /// When a batch last came in, or was given out.
    pub progressed: Duration,
    /// Times it was late since.
    pub times_late: u32,
    /// The longest that a batch took.
    pub longest: Option<Duration>,
    scores: Vec<Option<Scores>>,
    /// By batch: who scores it.
    holders: Vec<Option<u32>>,
    missing: usize,
}

impl Scoring {
    /// Of so many batches, one of which has taken at most `longest` before.
    pub fn new(part: HeldOut, batches: u64, now: Duration, longest: Option<Duration>) -> Self {
        let missing = usize::try_from(batches).unwrap_or(usize::MAX);
        Self {
            part,
            progressed: now,
            times_late: 0,
            longest,
            scores: vec![None; missing],
            holders: vec![None; missing],
            missing,
        }
    }

    /// Deals out what no worker has, in runs that are about as long for each of `workers`.
    pub fn deal(&mut self, workers: &[u32]) -> Vec<(u32, Range<u64>)> {
        let free = |at: &usize| self.scores[*at].is_none() && self.holders[*at].is_none();
        let free: Vec<usize> = (0..self.scores.len()).filter(free).collect();
        let mut dealt: Vec<(u32, Range<u64>)> = Vec::new();
        for (i, worker) in workers.iter().enumerate() {
            let share = i * free.len() / workers.len()..(i + 1) * free.len() / workers.len();
            for at in &free[share] {
                self.holders[*at] = Some(*worker);
                let batch = *at as u64;
                match dealt.last_mut() {
                    Some((w, run)) if w == worker && run.end == batch => run.end += 1,
                    _ => dealt.push((*worker, batch..batch + 1)),
                }
            }
        }
        dealt
    }

    /// The workers that have batches that are not scored.
    pub fn holders(&self) -> BTreeSet<u32> {
        let open = self.holders.iter().zip(&self.scores).filter(|(_, score)| score.is_none());
        open.filter_map(|(holder, _)| *holder).collect()
    }

    /// Takes a worker's batches away that it has not scored.
    pub fn release(&mut self, worker: u32) {
        for (holder, score) in self.holders.iter_mut().zip(&self.scores) {
            if *holder == Some(worker) && score.is_none() {
                *holder = None;
            }
        }
    }

    /// Whether it is taking too long.
    pub fn is_late(&self, now: Duration) -> bool {
        let limit = self.longest.map_or(FIRST, |longest| LEAST + TIMES * longest);
        // Twice as long each time, so that a worker that has to enter first can.
        let limit = limit * (1 << self.times_late.min(8));
        self.missing > 0 && now.saturating_sub(self.progressed) > limit
    }

    /// Takes in the scores of a batch; all scores, added in the order of batches, once all are there.
    /// Scores that are not like the others are an error.
    pub fn take(
        &mut self,
        now: Duration,
        batch: u64,
        scores: Scores,
    ) -> Result<Option<Scores>, String> {
        let place = usize::try_from(batch).ok().filter(|batch| *batch < self.scores.len());
        let place = place.ok_or_else(|| format!("there is no batch {batch} to score"))?;
        if self.scores.iter().flatten().next().is_some_and(|first| !first.is_like(&scores)) {
            return Err(format!("the scores of batch {batch} are of another network"));
        }
        // The first counts; all others say the same.
        if self.scores[place].is_some() {
            return Ok(None);
        }
        let took = now.saturating_sub(self.progressed);
        self.longest = Some(self.longest.map_or(took, |longest| longest.max(took)));
        (self.progressed, self.times_late) = (now, 0);
        self.scores[place] = Some(scores);
        self.missing -= 1;
        self.times_late = 0;
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
        let now = Duration::ZERO;
        let mut scoring = Scoring::new(HeldOut::Test, 3, now, None);
        assert_eq!(scoring.deal(&[4, 7]), [(4, 0..1), (7, 1..3)]);
        assert_eq!(scoring.deal(&[4, 7]), [], "everything is given out");
        let scores = || Scores::new(4, 4);
        assert_eq!(scoring.take(now, 2, scores()), Ok(None));
        assert!(scoring.take(now, 3, scores()).unwrap_err().contains("no batch 3"));
        assert!(scoring.take(now, 1, Scores::new(5, 5)).unwrap_err().contains("another network"));
        assert_eq!(scoring.holders(), [4, 7].into());
        scoring.release(7);
        assert_eq!(scoring.holders(), [4].into());
        assert_eq!(scoring.deal(&[4]), [(4, 1..2)]);
        assert_eq!(scoring.take(now, 0, scores()), Ok(None));
        assert_eq!(scoring.take(now, 0, scores()), Ok(None), "once more is once");
        assert!(scoring.is_late(LEAST * 2) && !scoring.is_late(LEAST / 2));
        assert_eq!(scoring.take(now, 1, scores()), Ok(Some(scores())));
        assert!(!scoring.is_late(LEAST * 2));
    }
}
