//! What methods share that train a network by gradients, with parameters on servers.
//!
//! Owns the moving of numbers: examples in, parameters in, gradients out. Never decides what is
//! computed: that is the method's.
//!
//! # Layout
//! - [`read_ahead`]: examples read ahead of use
//! - [`parameters`]: parameters of two steps, filled by many links
//! - [`compute`]: shards of one step: compute, push; [`evaluate`]: scores on held-out examples
//! - [`servers`]: links to servers, and the threads that read them

pub mod compute;
pub mod evaluate;
pub mod parameters;
pub mod read_ahead;
pub mod servers;

use planaria_protocol::message::Steps;
use std::ops::Range;

/// Shards of one step, of one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The step, over the whole run.
    pub step: u64,
    /// How many leases of this session came before its own.
    pub lease: u64,
    /// Epoch of the step.
    pub epoch: u64,
    /// Batch of the epoch.
    pub batch: u64,
    pub shards: Range<u32>,
}

/// What is left of a lease.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    /// Leases of this session before it.
    pub number: u64,
    pub steps: Steps,
    pub shards: Range<u32>,
    /// The step of its next task.
    pub next: u64,
}

impl Lease {
    pub fn new(number: u64, steps: Steps, shards: Range<u32>) -> Self {
        Self { number, next: steps.first_step, steps, shards }
    }

    /// Its next task.
    pub fn task(&self) -> Task {
        Task {
            step: self.next,
            lease: self.number,
            epoch: self.steps.epoch,
            batch: self.steps.batches.start + (self.next - self.steps.first_step),
            shards: self.shards.clone(),
        }
    }

    pub fn is_worked_off(&self) -> bool {
        self.next >= self.steps.steps().end
    }
}
