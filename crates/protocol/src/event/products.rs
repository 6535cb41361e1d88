//! What the workers of a coded run have done in a while. Plain data.

use serde::{Deserialize, Serialize};

/// What workers of a coded run have done for some steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Products {
    /// Rows that were multiplied, in both products of a step.
    pub rows: u64,
    /// Rows that were asked of others than first meant to.
    pub extra_rows: u64,
    /// Rows of what machines store that changed hands between two plans, because machines or their
    /// speeds had changed.
    #[serde(default)]
    pub moved_rows: u64,
    /// Those of them that need not have: half the transition waste, which counts a row that a machine
    /// takes beyond what its load had to grow by, and the one that it drops for it.
    #[serde(default)]
    pub wasted_rows: u64,
    /// Bytes of products and entries that went from worker to worker.
    pub sent_bytes: u64,
    /// Bytes of weights and sums, to and from the coordinator.
    pub weights_bytes: u64,
    /// Seconds of computing, of all workers.
    pub busy_seconds: f64,
    /// Of these, of decoding.
    pub decode_seconds: f64,
}

impl Products {
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.extra_rows += other.extra_rows;
        self.moved_rows += other.moved_rows;
        self.wasted_rows += other.wasted_rows;
        self.sent_bytes += other.sent_bytes;
        self.weights_bytes += other.weights_bytes;
        self.busy_seconds += other.busy_seconds;
        self.decode_seconds += other.decode_seconds;
    }
}
