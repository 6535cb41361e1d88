//! How a run ended, and how good its final weights are.

use planaria_learn::Scores;
use planaria_learn::scores::ClassScores;
use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All epochs were done.
    Completed,
    /// Ctrl-C or SIGTERM; `planaria resume` goes on.
    Interrupted,
    /// Early stopping ended it.
    StoppedEarly,
    Failed,
}

impl Outcome {
    /// As documents name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::StoppedEarly => "stopped_early",
            Self::Failed => "failed",
        }
    }

    /// By the name that documents have for it.
    pub fn named(name: &str) -> Self {
        let all = [Self::Completed, Self::Interrupted, Self::StoppedEarly];
        all.into_iter().find(|outcome| outcome.name() == name).unwrap_or(Self::Failed)
    }

    /// As a person reads it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::StoppedEarly => "stopped early",
            Self::Failed => "failed",
        }
    }
}

/// Figures of the second of two classes, which is the positive one.
pub fn positive(scores: &Scores, classes: &[String]) -> Option<ClassScores> {
    let per_class = scores.per_class(classes);
    <[ClassScores; 2]>::try_from(per_class).ok().map(|[_, positive]| positive)
}
