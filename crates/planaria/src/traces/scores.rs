//! How good outputs are: accuracy, the confusion matrix and what follows from it, or errors of
//! regression.
//!
//! Counts exactly and adds in the order of the examples, so the figures do not depend on batches
//! or threads. Never runs a network.

use crate::training::state::finite;
use planaria_learn::Targets;
use serde::{Deserialize, Serialize};

/// Counts over some examples.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    outputs: usize,
    examples: u64,
    loss_sum: f64,
    /// Rows are true classes, columns predicted ones; empty for regression.
    confusion: Vec<Vec<u64>>,
    squared_sum: f64,
    absolute_sum: f64,
    values: u64,
}

/// One class's figures; a share with nothing to divide by is 0, as in scikit-learn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// The class.
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
    /// Mean precision.
    pub precision: f64,
    /// Mean recall.
    pub recall: f64,
    /// Mean F1.
    pub f1: f64,
}

impl Scores {
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
        }
    }

    /// Counts some examples: their outputs, targets and the sum of their losses.
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

    fn count_errors(&mut self, outputs: &[f32], values: impl Iterator<Item = f32>) {
        for (output, value) in outputs.iter().zip(values) {
            let error = f64::from(*output) - f64::from(value);
            self.squared_sum += error * error;
            self.absolute_sum += error.abs();
            self.values += 1;
        }
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
