//! How far a run has come: counted by the coordinator, kept in checkpoints.
//!
//! Plain data. Never holds weights, and never asks the clock.

use planaria_numerics::digest::Digest;
use serde::{Deserialize, Serialize};

/// Position and running sums at the end of a step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// Steps done.
    pub step: u64,
    /// Whole epochs done, validation included.
    pub epoch: u64,
    /// Batches done of the epoch under way; with `epoch` this is where the data goes on.
    pub batch: u64,
    /// Training examples seen.
    pub examples: u64,
    /// Training examples in an epoch; other data would not be the same run.
    pub examples_per_epoch: u64,
    /// Examples read in the epoch under way, as their readers counted them.
    pub read: Digest,
    /// Whole epochs in which every example was read exactly once.
    pub exact_epochs: u64,
    /// Sums over the epoch under way.
    pub this_epoch: Tally,
    /// Sums since the last line of metrics.
    pub since_line: Tally,
    /// The best epoch and the patience left.
    pub watch: Watch,
    /// Whether early stopping has ended the run.
    pub stopped: Option<String>,
    /// Seconds of taking steps, all sessions together.
    pub seconds_training: f64,
    /// Seconds of everything, all sessions together, pauses left out.
    pub seconds_total: f64,
    /// Seconds from the start of the command to the end of the first step.
    pub seconds_to_first_step: Option<f64>,
    /// Times the run was resumed.
    pub resumes: u64,
}

/// Sums over some steps.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Sum of the losses of the examples.
    pub loss_sum: f64,
    /// Examples classified right.
    pub correct: u64,
    pub examples: u64,
    /// Seconds the steps took.
    pub seconds: f64,
}

impl Tally {
    /// Mean loss.
    pub fn loss(&self) -> Option<f64> {
        finite(self.loss_sum / self.examples as f64)
    }

    /// Share classified right.
    pub fn accuracy(&self) -> Option<f64> {
        finite(self.correct as f64 / self.examples as f64)
    }

    /// Examples per second.
    pub fn speed(&self) -> Option<f64> {
        finite(self.examples as f64 / self.seconds)
    }
}

/// What was seen of the figure that decides which epoch is best.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Watch {
    /// The best epoch.
    pub best: Option<Best>,
    /// The figure that patience is counted from.
    pub reference: Option<f64>,
    /// Epochs since the reference.
    pub epochs_waited: u64,
}

/// An epoch and its figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The figure watched.
    pub value: f64,
    /// Its epoch, from 1.
    pub epoch: u64,
    /// Steps done by then.
    pub step: u64,
}

/// The value, unless it is infinite or not a number (which JSON cannot hold).
pub fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
