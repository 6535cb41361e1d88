//! One worker of a coded run: where it sits, and what it has.

use crate::run::members::Pace;
use planaria_numerics::coding::Slot;
use planaria_protocol::methods::coded::Effort;

/// Seconds of computing that a measurement is made of, at least.
const MEASURED_SECONDS: f64 = 0.02;

/// How a worker got the rows of its slot.
#[derive(Debug, Clone, Copy)]
pub struct Fetched {
    /// Its machine had them.
    pub cached: bool,
    /// Bytes that came from the source for them.
    pub downloaded: u64,
}

/// A worker that has opened its data.
#[derive(Debug, Clone, Default)]
pub struct Seat {
    /// Where other workers reach it.
    pub address: String,
    /// Slots whose rows its machine has.
    pub kept: Vec<Slot>,
    /// Where it sits.
    pub slot: Option<Slot>,
    /// Where the rows of its slot came from, once they are there.
    pub fetched: Option<Fetched>,
    /// The round whose weights it was sent last.
    pub knows: Option<u64>,
    /// The step whose weights it was sent last to score with.
    pub scores_with: Option<u64>,
    /// Rows that it has multiplied.
    pub rows: u64,
    /// What is not in a measurement yet.
    lately: Pace,
}

impl Seat {
    /// One without a slot, whose machine has the rows of some.
    pub fn new(address: String, kept: Vec<Slot>) -> Self {
        Self { address, kept, ..Self::default() }
    }

    /// It has done something more. Its pace, once enough was done to say.
    pub fn pace(&mut self, done: &Effort) -> Option<Pace> {
        self.rows += done.rows;
        self.lately.examples += done.rows;
        self.lately.busy_seconds += done.busy_seconds;
        self.lately.waiting_seconds += done.waiting_seconds;
        // A moment says nothing: what is done in it may be none of the rows, or all.
        (self.lately.busy_seconds >= MEASURED_SECONDS).then(|| std::mem::take(&mut self.lately))
    }
}
