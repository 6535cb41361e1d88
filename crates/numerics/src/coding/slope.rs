//! The slope of the loss in each product: g = ∂ℓ/∂z, which is applied to decoded products.
//!
//! Labels and these functions are not coded: coding commutes with linear maps alone. In f64, with
//! functions of `libm`; f32 and exact products are converted by their owners. Never sums rows.

use serde::{Deserialize, Serialize};

/// What is learned from products. A target is a value, ±1, or the number of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// (z − y)².
    LinearRegression,
    /// ln(1 + e^(−yz)).
    Logistic,
    /// max(0, 1 − yz)².
    SquaredHinge,
    /// max(0, 1 − yz); its slope jumps, so weights may differ where a product lies at the edge.
    Hinge,
    /// Cross-entropy of a softmax over this many columns of weights.
    Softmax {
        /// Classes there are.
        classes: usize,
    },
}

impl Task {
    /// Columns of weights, and so products of a row.
    pub fn columns(self) -> usize {
        match self {
            Task::Softmax { classes } => classes,
            _ => 1,
        }
    }

    /// Replaces the products of some rows by their slopes. `targets` has one value for each row.
    pub fn slopes(self, products: &mut [f64], targets: &[f64]) {
        let columns = self.columns();
        assert_eq!(products.len(), targets.len() * columns, "a target for every row");
        if let Task::Softmax { .. } = self {
            for (row, class) in products.chunks_exact_mut(columns).zip(targets) {
                softmax(row, *class as usize);
            }
            return;
        }
        for (z, y) in products.iter_mut().zip(targets) {
            *z = match self {
                Task::LinearRegression => 2.0 * (*z - y),
                Task::Logistic => -y / (1.0 + libm::exp(y * *z)),
                Task::SquaredHinge => -2.0 * y * (1.0 - y * *z).max(0.0),
                Task::Hinge if y * *z < 1.0 => -y,
                Task::Hinge | Task::Softmax { .. } => 0.0,
            };
        }
    }
}

fn softmax(row: &mut [f64], class: usize) {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for z in row.iter_mut() {
        *z = libm::exp(*z - top);
        sum += *z;
    }
    for (column, z) in row.iter_mut().enumerate() {
        *z = *z / sum - f64::from(u8::from(column == class));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(task: Task, z: &[f64], y: f64) -> f64 {
        match task {
            Task::LinearRegression => (z[0] - y) * (z[0] - y),
            Task::Logistic => libm::log1p(libm::exp(-y * z[0])),
            Task::SquaredHinge => (1.0 - y * z[0]).max(0.0) * (1.0 - y * z[0]).max(0.0),
            Task::Hinge => (1.0 - y * z[0]).max(0.0),
            Task::Softmax { .. } => {
                libm::log(z.iter().map(|z| libm::exp(*z)).sum()) - z[y as usize]
            }
        }
    }

    #[test]
    fn slopes_are_those_of_the_losses() {
        let tasks = [Task::LinearRegression, Task::Logistic, Task::SquaredHinge, Task::Hinge];
        let one = tasks.iter().flat_map(|t| [(*t, 1.0, 1), (*t, -1.0, 1)]);
        for (task, y, columns) in one.chain([(Task::Softmax { classes: 4 }, 2.0, 4)]) {
            let z: Vec<f64> = (0..columns).map(|c| 0.3 - 0.45 * c as f64).collect();
            let mut slopes = z.clone();
            task.slopes(&mut slopes, &[y]);
            for c in 0..columns {
                let at = |step: f64| {
                    let mut z = z.clone();
                    z[c] += step;
                    loss(task, &z, y)
                };
                let differences = (at(1e-6) - at(-1e-6)) / 2e-6;
                assert!((slopes[c] - differences).abs() < 1e-8, "{task:?}, {y}, column {c}");
            }
        }
    }

    #[test]
    fn far_products_have_finite_slopes() {
        for (task, columns) in [(Task::Logistic, 1), (Task::Softmax { classes: 2 }, 2)] {
            let mut slopes: Vec<f64> = [1e4, -1e4][..columns].to_vec();
            task.slopes(&mut slopes, &[1.0]);
            assert!(slopes.iter().all(|g| g.is_finite()), "{slopes:?}");
        }
    }
}
