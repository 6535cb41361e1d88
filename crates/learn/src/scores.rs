//! How good outputs are: accuracy, the confusion matrix and what follows from it, or errors of
//! regression.
//!
//! Counts exactly. Sums are made over each batch from zero and then added up in the order of the
//! batches, so that batches may be counted apart, by any worker, and added. Never runs a network.
//!
//! # Layout
//! - [`Scores`] (here): what is counted, and what follows from it
//! - [`numbers`]: how numbers are counted: their units, their spread, and a sample of predictions
//! - `bits`: sums as JSON holds them

mod bits;
pub mod numbers;

use crate::loss::Targets;
use numbers::{Counting, Pair, Spread};
use planaria_numerics::regression::Errors;
use serde::{Deserialize, Serialize};

/// Counts over some examples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    outputs: usize,
    examples: u64,
    #[serde(with = "bits")]
    loss_sum: f64,
    /// Rows are true classes, columns predicted ones; empty for regression.
    confusion: Vec<Vec<u64>>,
    #[serde(with = "bits")]
    squared_sum: f64,
    #[serde(with = "bits")]
    absolute_sum: f64,
    values: u64,
    /// The true numbers, where there is one for each example.
    #[serde(default, skip_serializing_if = "Spread::is_empty")]
    truth: Spread,
    /// Some examples' true numbers and predictions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pairs: Vec<Pair>,
    /// How the next numbers are counted; nothing that was counted.
    #[serde(skip)]
    counting: Counting,
}

/// One class's figures; a share with nothing to divide by is 0, as in scikit-learn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    pub class: String,
    /// Right among those predicted to be of the class.
    pub precision: f64,
    /// Found among those that are of the class.
    pub recall: f64,
    /// Harmonic mean of the two.
    pub f1: f64,
    /// Examples of the class.
    pub support: u64,
}

/// Means over the classes that occur or were predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Macro {
    pub precision: f64,
    pub recall: f64,
    pub f1: f64,
}

impl Scores {
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("scores have string keys only")
    }

    pub fn to_value(&self) -> serde_json::Value {
        // Through text, because single-precision numbers are shortest there.
        serde_json::from_slice(&self.to_json()).expect("it was just written")
    }

    pub fn from_json(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// Nothing counted yet, for `outputs` values per example and `classes` classes (0: regression).
    pub fn new(outputs: usize, classes: usize) -> Self {
        Self {
            outputs,
            examples: 0,
            loss_sum: 0.0,
            confusion: vec![vec![0; classes]; classes],
            squared_sum: 0.0,
            absolute_sum: 0.0,
            values: 0,
            truth: Spread::default(),
            pairs: Vec::new(),
            counting: Counting::default(),
        }
    }

    /// The same, where numbers are counted so.
    #[must_use]
    pub fn counting(self, counting: Counting) -> Self {
        Self { counting, ..self }
    }

    /// Counts a batch: its examples' outputs, targets and the sum of their losses.
    pub fn count(&mut self, outputs: &[f32], targets: Targets<'_>, loss_sum: f64) {
        self.loss_sum += loss_sum;
        self.examples += (outputs.len() / self.outputs.max(1)) as u64;
        match targets {
            Targets::Classes(classes) if !self.confusion.is_empty() => {
                for (row, class) in outputs.chunks_exact(self.outputs).zip(classes) {
                    self.confusion[*class as usize][predicted(row)] += 1;
                }
            }
            // Regression on labels takes them as numbers.
            Targets::Classes(classes) => {
                self.count_errors(outputs, classes.iter().map(|c| *c as f32))
            }
            Targets::Values(values) => self.count_errors(outputs, values.iter().copied()),
        }
    }

    fn count_errors(&mut self, outputs: &[f32], values: impl Iterator<Item = f32> + Clone) {
        let (mut squared, mut absolute) = (0.0, 0.0);
        let scale = self.counting.scale;
        for (output, value) in outputs.iter().zip(values.clone()) {
            let error = scale.std * (f64::from(*output) - f64::from(value));
            squared += error * error;
            absolute += error.abs();
            self.values += 1;
        }
        self.squared_sum += squared;
        self.absolute_sum += absolute;
        if self.outputs == 1 {
            let restored = |value: f32| scale.restored(f64::from(value));
            self.truth.add(&Spread::of(values.clone().map(restored)));
            self.pairs.extend(self.counting.pairs(outputs, values));
        }
    }

    /// Whether both are of the same outputs and classes, so that they can be added.
    pub fn is_like(&self, other: &Self) -> bool {
        self.outputs == other.outputs && self.confusion.len() == other.confusion.len()
    }

    /// Adds what was counted apart. Adding batches one by one in their order gives the same bits as
    /// counting them in that order.
    pub fn add(&mut self, other: &Self) {
        assert!(self.is_like(other), "scores are of the same outputs and classes");
        self.examples += other.examples;
        self.loss_sum += other.loss_sum;
        for (own, other) in self.confusion.iter_mut().zip(&other.confusion) {
            own.iter_mut().zip(other).for_each(|(a, b)| *a += b);
        }
        self.squared_sum += other.squared_sum;
        self.absolute_sum += other.absolute_sum;
        self.values += other.values;
        self.truth.add(&other.truth);
        self.pairs.extend(&other.pairs);
    }

    /// Examples counted.
    pub fn examples(&self) -> u64 {
        self.examples
    }

    /// Mean loss.
    pub fn loss(&self) -> Option<f64> {
        finite(self.loss_sum / self.examples as f64)
    }

    /// Share classified right; `None` for regression.
    pub fn accuracy(&self) -> Option<f64> {
        let right: u64 = self.confusion.iter().enumerate().map(|(i, row)| row[i]).sum();
        if self.confusion.is_empty() { None } else { finite(right as f64 / self.examples as f64) }
    }

    /// Mean squared error of regression.
    pub fn mse(&self) -> Option<f64> {
        finite(self.squared_sum / self.values as f64)
    }

    /// Mean absolute error of regression.
    pub fn mae(&self) -> Option<f64> {
        finite(self.absolute_sum / self.values as f64)
    }

    /// How far predictions are off, in the label's units; nothing for classes.
    pub fn errors(&self) -> Option<Errors> {
        if !self.confusion.is_empty() {
            return None;
        }
        let r2 = self.truth.squares().and_then(|squares| finite(1.0 - self.squared_sum / squares));
        Some(Errors { rmse: self.mse()?.sqrt(), mae: self.mae()?, r2 })
    }

    /// Some examples' true numbers and predictions, in the label's units.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Rows are true classes, columns predicted ones.
    pub fn confusion(&self) -> &[Vec<u64>] {
        &self.confusion
    }

    /// Figures of each class.
    pub fn per_class(&self, names: &[String]) -> Vec<ClassScores> {
        (0..self.confusion.len())
            .map(|class| {
                let right = self.confusion[class][class];
                let support = self.confusion[class].iter().sum();
                let (precision, recall) =
                    (share(right, self.predictions(class)), share(right, support));
                ClassScores {
                    class: names.get(class).cloned().unwrap_or_else(|| class.to_string()),
                    precision,
                    recall,
                    f1: share(2 * right, self.predictions(class) + support),
                    support,
                }
            })
            .collect()
    }

    /// Unweighted means over the classes that occur or were predicted, as in scikit-learn.
    pub fn macro_average(&self) -> Option<Macro> {
        let classes = self.per_class(&[]);
        let seen: Vec<_> = classes
            .iter()
            .enumerate()
            .filter(|(i, c)| c.support > 0 || self.predictions(*i) > 0)
            .map(|(_, c)| c)
            .collect();
        let mean = |of: fn(&ClassScores) -> f64| {
            seen.iter().map(|c| of(c)).sum::<f64>() / seen.len() as f64
        };
        (!seen.is_empty()).then(|| Macro {
            precision: mean(|c| c.precision),
            recall: mean(|c| c.recall),
            f1: mean(|c| c.f1),
        })
    }

    fn predictions(&self, class: usize) -> u64 {
        self.confusion.iter().map(|row| row[class]).sum()
    }
}

/// The class of one example's outputs: the first largest, or the sign of a single output.
fn predicted(row: &[f32]) -> usize {
    if let [only] = row {
        return usize::from(*only > 0.0);
    }
    let mut best = 0;
    for (i, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = i;
        }
    }
    best
}

/// The value, unless it is infinite or not a number.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_known_matrix() {
        let mut scores = Scores::new(3, 3);
        // True classes 0 0 1 1 1, predicted 0 1 1 1 0; class 2 never occurs.
        let rows = [[9., 1., 0.], [1., 9., 0.], [0., 2., 2.], [0., 2., 1.], [3., 3., 0.]];
        scores.count(&rows.concat(), Targets::Classes(&[0, 0, 1, 1, 1]), 2.5);
        assert_eq!(scores.confusion(), [[1, 1, 0], [1, 2, 0], [0, 0, 0]]);
        assert_eq!((scores.loss(), scores.accuracy()), (Some(0.5), Some(0.6)));
        let classes = scores.per_class(&["a".into()]);
        assert_eq!((classes[0].precision, classes[0].recall, classes[0].f1), (0.5, 0.5, 0.5));
        assert_eq!((classes[0].class.as_str(), classes[1].class.as_str()), ("a", "1"));
        assert_eq!((classes[2].f1, classes[2].support), (0.0, 0));
        let means = scores.macro_average().unwrap();
        assert!((means.f1 - (0.5 + 2.0 / 3.0) / 2.0).abs() < 1e-12);
    }

    #[test]
    fn batches_counted_apart_and_added_have_the_same_bits() {
        let value = |i: usize| (i * 7919 % 1000) as f32 / 777.0;
        let mut counted = Scores::new(1, 0);
        let mut added = Scores::new(1, 0);
        for batch in 0..7 {
            let outputs: Vec<f32> = (0..50).map(|i| value(50 * batch + i)).collect();
            let targets: Vec<f32> = (0..50).map(|i| value(911 * batch + 3 * i)).collect();
            let loss = f64::from(value(batch)) / 3.0;
            counted.count(&outputs, Targets::Values(&targets), loss);
            let mut own = Scores::new(1, 0);
            own.count(&outputs, Targets::Values(&targets), loss);
            let json = serde_json::to_string(&own).unwrap();
            added.add(&serde_json::from_str(&json).unwrap());
        }
        assert_eq!(counted.squared_sum.to_bits(), added.squared_sum.to_bits());
        assert_eq!(counted.absolute_sum.to_bits(), added.absolute_sum.to_bits());
        assert_eq!(counted, added);

        let (mut counted, mut added) = (Scores::new(2, 2), Scores::new(2, 2));
        for classes in [[0, 1], [1, 1]] {
            counted.count(&[3.0, 1.0, 0.0, 1.0], Targets::Classes(&classes), 0.1);
            let mut own = Scores::new(2, 2);
            own.count(&[3.0, 1.0, 0.0, 1.0], Targets::Classes(&classes), 0.1);
            added.add(&own);
        }
        assert_eq!(counted, added);
        assert_eq!(added.confusion(), [[1, 0], [1, 2]]);
    }

    #[test]
    fn a_loss_that_is_not_finite_is_still_so_elsewhere() {
        for sum in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-310, 0.1 + 0.2] {
            let mut scores = Scores::new(1, 2);
            scores.count(&[1.0], Targets::Classes(&[0]), sum);
            let json = serde_json::to_string(&scores).unwrap();
            let back: Scores = serde_json::from_str(&json).unwrap();
            assert_eq!(back.loss_sum.to_bits(), scores.loss_sum.to_bits(), "{json}");
            assert_eq!(back.loss().is_some(), sum.is_finite());
        }
        let broken = r#"{"outputs":1,"examples":0,"loss_sum":"x"}"#;
        assert!(serde_json::from_str::<Scores>(broken).is_err());
    }

    #[test]
    fn one_output_tells_two_classes_apart() {
        let mut scores = Scores::new(1, 2);
        scores.count(&[-1.0, 0.5, 2.0], Targets::Classes(&[0, 0, 1]), 0.0);
        assert_eq!(scores.confusion(), [[1, 1], [0, 1]]);
    }

    #[test]
    fn regression_has_errors_and_no_accuracy() {
        let mut scores = Scores::new(2, 0);
        scores.count(&[1.0, 2.0, 3.0, 4.0], Targets::Values(&[1.0, 0.0, 3.0, 3.0]), 5.0);
        assert_eq!(scores.examples(), 2);
        assert_eq!((scores.mse(), scores.mae()), (Some(1.25), Some(0.75)));
        assert_eq!((scores.accuracy(), scores.macro_average()), (None, None));
        let mut scores = Scores::new(1, 0);
        scores.count(&[1.5, 7.0], Targets::Classes(&[1, 9]), 0.0);
        assert_eq!(scores.mae(), Some(1.25), "labels as numbers");
    }
}
