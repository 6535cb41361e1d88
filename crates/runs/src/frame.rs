//! What is shown of a run beside its pulse: what does not change, and what comes once in an epoch.

use planaria_protocol::event::Started;

/// What of a run a pulse does not tell.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Frame {
    /// The recipe's name; not shown where a run is one process.
    pub name: String,
    /// Epochs in all.
    pub epochs: u64,
    /// Steps in all.
    pub steps: u64,
    /// Of the newest epoch that was validated.
    pub validation_loss: Option<f64>,
}

impl Frame {
    /// The frame of a session.
    pub fn of(started: &Started) -> Self {
        let steps = started.epochs * started.steps_per_epoch;
        let (name, epochs) = (started.recipe.clone(), started.epochs);
        Self { name, epochs, steps, validation_loss: None }
    }
}
