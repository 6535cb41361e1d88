//! Numbers to predict: how they are scaled to be learned, and how far predictions are off.

use serde::{Deserialize, Serialize};

/// How a label becomes a target: (label − mean) / std. The default leaves labels as they are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TargetScale {
    pub mean: f64,
    pub std: f64,
}

impl Default for TargetScale {
    fn default() -> Self {
        Self { mean: 0.0, std: 1.0 }
    }
}

impl TargetScale {
    /// The target of a label.
    pub fn scaled(&self, label: f64) -> f64 {
        (label - self.mean) / self.std
    }

    /// What a target, or an output that was trained on targets, is in the label's units.
    pub fn restored(&self, target: f64) -> f64 {
        self.mean + self.std * target
    }
}

/// How far predictions are off, in the label's units.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Mean absolute error.
    pub mae: f64,
    /// Share of the labels' variance that predictions explain: 1 is right everywhere, 0 no better
    /// than always predicting the mean. Nothing where all labels are the same.
    pub r2: Option<f64>,
}

/// What R² is at most where predictions say no more than the labels' mean does.
const R2_OF_NOTHING: f64 = 0.005;

impl Errors {
    /// Whether always predicting the mean would have been about as good.
    pub fn is_no_better_than_the_mean(&self) -> bool {
        self.r2.is_some_and(|r2| r2 <= R2_OF_NOTHING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_comes_back() {
        let scale = TargetScale { mean: 250_000.0, std: 80_000.0 };
        assert_eq!(scale.scaled(330_000.0), 1.0);
        assert_eq!(scale.restored(scale.scaled(90_000.0)), 90_000.0);
        assert_eq!(TargetScale::default().scaled(-0.1).to_bits(), (-0.1f64).to_bits());
    }

    #[test]
    fn the_mean_is_what_a_prediction_must_beat() {
        let errors = |r2| Errors { rmse: 1.0, mae: 1.0, r2 };
        assert!(errors(Some(-3.0)).is_no_better_than_the_mean());
        assert!(errors(Some(0.004)).is_no_better_than_the_mean());
        assert!(!errors(Some(0.1)).is_no_better_than_the_mean());
        assert!(!errors(None).is_no_better_than_the_mean(), "labels that are all the same");
    }
}
