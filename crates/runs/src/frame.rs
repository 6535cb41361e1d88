//! What of a run does not change while it is shown.

use planaria_protocol::event::Started;

/// What of a run does not change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// The recipe's name; not shown where a run is one process.
    pub name: String,
    /// Epochs in all.
    pub epochs: u64,
    /// Steps in all.
    pub steps: u64,
}

impl Frame {
    /// The frame of a session.
    pub fn of(started: &Started) -> Self {
        let steps = started.epochs * started.steps_per_epoch;
        Self { name: started.recipe.clone(), epochs: started.epochs, steps }
    }
}
