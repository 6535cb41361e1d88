//! Held-out batches that are to be scored, one after another, as any method holds them.
//!
//! Scores are added up in the order of batches by the coordinator, so they do not depend on which
//! worker scored what. Pure: when a batch may be scored is the method's to say.

use super::method::Batch;
use planaria_protocol::message::HeldOut;
use std::ops::Range;

/// Batches that are to be scored.
#[derive(Debug, Clone, Default)]
pub struct Scoring(Vec<Evaluation>);

/// What is left of an order to evaluate.
#[derive(Debug, Clone)]
struct Evaluation {
    part: HeldOut,
    step: u64,
    batches: Range<u64>,
    /// Where it stands among the method's other orders.
    place: u64,
}

impl Scoring {
    /// Orders that are held.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These batches are to be scored with the parameters after `step` steps. The place tells it
    /// from other orders of the same step.
    pub fn add(&mut self, part: HeldOut, step: u64, batches: Range<u64>, place: u64) {
        if !batches.is_empty() {
            self.0.push(Evaluation { part, step, batches, place });
        }
    }

    /// Step and place of the first, lowest step first.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.0.iter().map(|e| (e.step, e.place)).min()
    }

    /// The next batch of the first.
    pub fn take(&mut self) -> Option<Batch> {
        let at = self.at()?;
        let evaluation = &mut self.0[at];
        let (part, step, batch) = (evaluation.part, evaluation.step, evaluation.batches.start);
        evaluation.batches.start += 1;
        if evaluation.batches.is_empty() {
            self.0.remove(at);
        }
        Some(Batch { part, step, batch })
    }

    /// The first cannot be scored any more.
    pub fn skip(&mut self) {
        if let Some(at) = self.at() {
            self.0.remove(at);
        }
    }

    /// None is to be scored any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn at(&self) -> Option<usize> {
        let first = self.first()?;
        self.0.iter().position(|e| (e.step, e.place) == first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_step_comes_first_and_then_the_order_of_orders() {
        let mut scoring = Scoring::default();
        scoring.add(HeldOut::Test, 4, 0..1, 2);
        scoring.add(HeldOut::Validation, 3, 5..7, 1);
        scoring.add(HeldOut::Validation, 3, 8..8, 0);
        let batch = |part, step, batch| Some(Batch { part, step, batch });
        assert_eq!((scoring.len(), scoring.first()), (2, Some((3, 1))));
        assert_eq!(scoring.take(), batch(HeldOut::Validation, 3, 5));
        assert_eq!(scoring.take(), batch(HeldOut::Validation, 3, 6));
        assert_eq!(scoring.first(), Some((4, 2)));
        scoring.skip();
        assert_eq!((scoring.take(), scoring.is_empty()), (None, true));
    }
}
