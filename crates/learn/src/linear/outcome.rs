//! From products and labels to slopes, losses and right answers.
//!
//! Everything here is of single rows, in f64, with functions of `libm`; sums of losses over rows do
//! not depend on their order, so curves are the same however rows were dealt out. Labels are never coded. Never multiplies data.

use super::Model;
use crate::loss::Targets;
use crate::scores::Scores;
use planaria_numerics::coding::slope::Task;
use planaria_numerics::exact_sum::ExactSum;
use std::ops::AddAssign;

/// What a row is labelled with, as losses take it: a number, ±1, or the number of a class.
pub type Target = f64;

/// What came of some rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Sum of the losses, each times its class's weight.
    pub loss_sum: ExactSum,
    /// Rows whose class was right; 0 for numbers.
    pub correct: u64,
    pub rows: u64,
}

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.loss_sum.combine(&other.loss_sum);
        self.correct += other.correct;
        self.rows += other.rows;
    }
}

impl Model {
    /// The targets of some examples.
    pub fn targets(&self, labels: Targets<'_>) -> Vec<Target> {
        match (labels, self.task) {
            (Targets::Values(values), _) => values.iter().map(|v| f64::from(*v)).collect(),
            (Targets::Classes(list), Task::LinearRegression | Task::Softmax { .. }) => {
                list.iter().map(|c| f64::from(*c)).collect()
            }
            (Targets::Classes(list), _) => {
                list.iter().map(|c| if *c > 0 { 1.0 } else { -1.0 }).collect()
            }
        }
    }

    /// Replaces the products of some rows by their slopes, and says what came of the rows.
    pub fn judge(&self, products: &mut [f64], targets: &[Target]) -> Outcome {
        let outcome = self.outcome(products, targets);
        self.task.slopes(products, targets);
        if !self.class_weights.is_empty() {
            let rows = products.chunks_exact_mut(self.columns()).zip(targets);
            for (row, target) in rows {
                let weight = self.weight(*target);
                row.iter_mut().for_each(|slope| *slope *= weight);
            }
        }
        outcome
    }

    /// What came of some rows.
    pub fn outcome(&self, products: &[f64], targets: &[Target]) -> Outcome {
        let mut outcome = Outcome::default();
        for (row, target) in products.chunks_exact(self.columns()).zip(targets) {
            outcome.loss_sum.add(self.weight(*target) * loss(self.task, row, *target));
            outcome.correct += u64::from(right(self.task, row, *target));
            outcome.rows += 1;
        }
        outcome
    }

    /// Counts held-out rows. Their losses are not weighted, so that they can be compared.
    pub fn count(&self, products: &[f64], labels: Targets<'_>, scores: &mut Scores) {
        let targets = self.targets(labels);
        let rows = products.chunks_exact(self.columns()).zip(&targets);
        let loss_sum = rows.fold(0.0, |sum, (row, target)| sum + loss(self.task, row, *target));
        let outputs: Vec<f32> = products.iter().map(|z| *z as f32).collect();
        scores.count(&outputs, labels, loss_sum);
    }

    /// What a row of this target counts.
    fn weight(&self, target: Target) -> f64 {
        let class = match self.task {
            Task::Softmax { .. } => target as usize,
            _ => usize::from(target > 0.0),
        };
        self.class_weights.get(class).copied().unwrap_or(1.0)
    }
}

fn loss(task: Task, z: &[f64], y: Target) -> f64 {
    // A product that has left the range is no small loss, whichever side it lies on: `max` would
    // make 0 of what is not a number.
    if z.iter().any(|z| !z.is_finite()) {
        return f64::INFINITY;
    }
    match task {
        Task::LinearRegression => (z[0] - y) * (z[0] - y),
        Task::Logistic => {
            // ln(1 + e^(−yz)) without overflow.
            let a = y * z[0];
            (-a).max(0.0) + libm::log1p(libm::exp(-a.abs()))
        }
        Task::SquaredHinge => {
            let gap = (1.0 - y * z[0]).max(0.0);
            gap * gap
        }
        Task::Hinge => (1.0 - y * z[0]).max(0.0),
        Task::Softmax { .. } => {
            let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum = z.iter().fold(0.0, |sum, z| sum + libm::exp(*z - top));
            libm::log(sum) + top - z.get(y as usize).copied().unwrap_or(f64::NAN)
        }
    }
}

fn right(task: Task, z: &[f64], y: Target) -> bool {
    match task {
        Task::LinearRegression => false,
        Task::Softmax { .. } => {
            let best = (0..z.len()).fold(0, |best, i| if z[i] > z[best] { i } else { best });
            best == y as usize
        }
        _ => (z[0] > 0.0) == (y > 0.0),
    }
}
