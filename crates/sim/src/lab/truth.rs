//! What a run in one process makes of a recipe, and what of it can be compared.

use planaria_learn::{Scores, Weights};
use planaria_protocol::event::{Figures, What};
use planaria_protocol::message::HeldOut;
use planaria_protocol::state::{State, Tally};

/// What a run in one process makes of a recipe.
#[derive(Debug, Default)]
pub struct Truth {
    /// What training had changed after each step.
    pub weights: Vec<Weights>,
    /// How far it had come in the end, times left out.
    pub state: State,
    /// Its figures, times left out.
    pub figures: Vec<What>,
    /// The scores of its last weights.
    pub scores: Option<(HeldOut, Scores)>,
}

/// Something that must hold and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A state without what depends on time and on how often the run was resumed.
pub fn timeless_state(state: State) -> State {
    let still = |tally: Tally| Tally { seconds: 0.0, ..tally };
    State {
        this_epoch: still(state.this_epoch),
        since_line: still(state.since_line),
        seconds_training: 0.0,
        seconds_total: 0.0,
        seconds_to_first_step: None,
        resumes: 0,
        ..state
    }
}

/// Figures without what depends on time.
pub fn timeless_what(what: What) -> What {
    let still =
        |figures: Figures| Figures { examples_per_second: None, training_seconds: 0.0, ..figures };
    match what {
        What::Steps(figures) => What::Steps(still(figures)),
        What::Epoch { figures, validation_loss, validation_accuracy, read, exact } => {
            let figures = still(figures);
            What::Epoch { figures, validation_loss, validation_accuracy, read, exact }
        }
        other => other,
    }
}
