//! What is said in a run whose only worker holds the parameters itself: one process, and no servers.
//!
//! These words never travel: the run and its worker are values in the same process, and what is said
//! is handed over.

use crate::checkpoint::PartInfo;
use crate::terms::Steps;
use planaria_numerics::digest::Digest;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// From the coordinator to the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Take these steps, one after another.
    Train(Steps),
    /// Write the parameters as they are, after `step` steps, to this folder.
    Save { step: u64, folder: String },
}

/// From the worker to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// A step is computed and applied.
    Stepped {
        step: u64,
        /// When it began; what the process did before (a checkpoint, say) is no part of it.
        began: Duration,
        /// Sum of the loss over the examples.
        loss_sum: f64,
        /// Examples whose class was right.
        correct: u64,
        /// Norm of the gradient before clipping.
        gradient_norm: f64,
        /// The examples that were read.
        read: Digest,
    },
    /// The parameters are on the disk; or why not.
    Saved { step: u64, written: Result<PartInfo, String> },
}
