//! How numbers to predict are counted: in the label's units, with the spread of the true ones, and
//! with a few predictions to draw.
//!
//! Which predictions are kept follows from an example's place in its part, so it is the same
//! whichever worker counts it. Never decides whether examples have numbers or classes.

use super::bits;
use planaria_numerics::regression::TargetScale;
use serde::{Deserialize, Serialize};

/// Predictions of a part that are kept, at most.
pub const PAIRS_MAX: u64 = 1000;

/// A true number and its prediction, in the label's units.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair(pub f32, pub f32);

/// In which units a batch's numbers are counted, and which of its predictions are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counting {
    /// How labels were scaled to be learned.
    pub scale: TargetScale,
    /// Place of the batch's first example in its part.
    first: u64,
    /// Examples of the part; 0 keeps no predictions.
    part: u64,
}

impl Counting {
    /// Of labels scaled so, for a batch that begins at this place of a part of so many examples.
    pub fn new(scale: TargetScale, first: u64, part: u64) -> Self {
        Self { scale, first, part }
    }

    /// The batch's share of the predictions that are kept: evenly spaced ones of the part.
    pub(super) fn pairs<'a>(
        &self,
        outputs: &'a [f32],
        values: impl Iterator<Item = f32> + 'a,
    ) -> impl Iterator<Item = Pair> + 'a {
        let Self { scale, first, part } = *self;
        let every = part.div_ceil(PAIRS_MAX).max(1);
        let restored = move |value: f32| scale.restored(f64::from(value)) as f32;
        let all = (first..part).zip(outputs.iter().zip(values));
        all.filter(move |(place, _)| place.is_multiple_of(every))
            .map(move |(_, (output, value))| Pair(restored(value), restored(*output)))
            // JSON holds no other, and no picture shows it.
            .filter(|Pair(truth, predicted)| truth.is_finite() && predicted.is_finite())
    }
}

/// Count and mean of some numbers, and the sum of squared distances from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    count: u64,
    #[serde(with = "bits")]
    mean: f64,
    #[serde(with = "bits")]
    squares: f64,
}

impl Spread {
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (count, sum) = values.clone().fold((0, 0.0), |(n, sum), value| (n + 1, sum + value));
        if count == 0 {
            return Self::default();
        }
        let mean = sum / count as f64;
        let squares = values.fold(0.0, |sum, value| sum + (value - mean) * (value - mean));
        Self { count, mean, squares }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds numbers that were counted apart (Chan, Golub and LeVeque 1979: a sum of squares would
    /// cancel where the mean is large).
    pub(super) fn add(&mut self, other: &Self) {
        if self.is_empty() {
            *self = *other;
        } else if !other.is_empty() {
            let (own, more) = (self.count as f64, other.count as f64);
            let (all, gap) = (own + more, other.mean - self.mean);
            self.count += other.count;
            self.mean += gap * (more / all);
            self.squares += other.squares + gap * gap * (own * more / all);
        }
    }

    /// The sum of squared distances from the mean; nothing where all numbers are the same.
    pub(super) fn squares(&self) -> Option<f64> {
        (self.squares.is_finite() && self.squares > 0.0).then_some(self.squares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Targets;
    use crate::scores::Scores;

    /// Scores of a part of `values`, batch by batch, as many workers make them.
    fn scored(scale: TargetScale, outputs: &[f32], values: &[f32], batch: usize) -> Scores {
        let all = values.len() as u64;
        let parts = outputs.chunks(batch).zip(values.chunks(batch)).enumerate();
        let parts = parts.map(|(number, (outputs, values))| {
            let counting = Counting::new(scale, (number * batch) as u64, all);
            let mut scores = Scores::new(1, 0).counting(counting);
            scores.count(outputs, Targets::Values(values), 0.0);
            Scores::from_json(&scores.to_json()).unwrap()
        });
        parts
            .reduce(|mut sum, scores| {
                sum.add(&scores);
                sum
            })
            .unwrap()
    }

    #[test]
    fn errors_are_in_the_labels_units() {
        let scale = TargetScale { mean: 1000.0, std: 10.0 };
        // True: 990, 1000, 1010, 1020; predicted: 1000, 1000, 1000, 1020.
        let scores = scored(scale, &[0.0, 0.0, 0.0, 2.0], &[-1.0, 0.0, 1.0, 2.0], 3);
        let errors = scores.errors().unwrap();
        assert_eq!((errors.rmse, errors.mae), (50f64.sqrt(), 5.0));
        let r2 = 1.0 - 200.0 / 500.0;
        assert!((errors.r2.unwrap() - r2).abs() < 1e-12, "{errors:?}");
        assert_eq!(scores.pairs()[0], Pair(990.0, 1000.0));
    }

    #[test]
    fn a_large_mean_does_not_hide_the_variance() {
        let scale = TargetScale { mean: 1.6e9, std: 1e-3 };
        let values: Vec<f32> = (0..1000).map(|i| (i % 7) as f32 - 3.0).collect();
        let outputs: Vec<f32> = values.iter().map(|value| value / 2.0).collect();
        let r2 = scored(scale, &outputs, &values, 64).errors().unwrap().r2.unwrap();
        assert!((r2 - 0.75).abs() < 1e-3, "{r2}");
    }

    #[test]
    fn labels_that_are_all_the_same_have_no_r2() {
        let errors = scored(TargetScale::default(), &[1.0, 2.0], &[3.0, 3.0], 1).errors().unwrap();
        assert_eq!((errors.r2, errors.mae), (None, 1.5));
        let mut classes = Scores::new(2, 2);
        classes.count(&[1.0, 0.0], Targets::Classes(&[0]), 0.0);
        assert_eq!((classes.errors(), classes.pairs()), (None, &[][..]));
    }

    #[test]
    fn a_few_predictions_of_a_large_part_are_kept_on_any_number_of_workers() {
        let part = 2500;
        let values: Vec<f32> = (0..part).map(|i| i as f32).collect();
        let kept = |batch: usize| -> Vec<Pair> {
            let batches = values.chunks(batch).enumerate().flat_map(|(number, values)| {
                let first = (number * batch) as u64;
                let counting = Counting::new(TargetScale::default(), first, part);
                counting.pairs(values, values.iter().copied()).collect::<Vec<_>>()
            });
            batches.collect()
        };
        let (few, many) = (kept(256), kept(100));
        assert_eq!(few, many);
        assert_eq!((few.len(), few[1]), (834, Pair(3.0, 3.0)));
        let odd = Counting::new(TargetScale::default(), 0, 2);
        let pairs = odd.pairs(&[f32::NAN, 1.0], [0.0, f32::INFINITY].into_iter());
        assert_eq!(pairs.count(), 0, "what is not finite cannot be drawn");
    }
}
