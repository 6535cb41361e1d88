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
