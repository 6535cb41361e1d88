//! How a run ended, and how good its final weights are.

use planaria_learn::Scores;
use planaria_learn::scores::ClassScores;
pub use planaria_protocol::message::Outcome;

/// Figures of the second of two classes, which is the positive one.
pub fn positive(scores: &Scores, classes: &[String]) -> Option<ClassScores> {
    let per_class = scores.per_class(classes);
    <[ClassScores; 2]>::try_from(per_class).ok().map(|[_, positive]| positive)
}
