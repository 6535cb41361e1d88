//! What can go wrong, by what the caller must do about it.

/// Errors of networks and training.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The layers do not fit together: fix the recipe.
    #[error("{0}")]
    Shape(String),
    /// Saved weights belong to another network: fix the input.
    #[error("{0}")]
    Mismatch(String),
    /// Training has run away: stop.
    #[error("{what} is {value} at step {step}")]
    NotFinite {
        /// What is not a finite number.
        what: &'static str,
        value: f64,
        /// At which step.
        step: u64,
    },
}
