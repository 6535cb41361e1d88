//! What the coordinator and the workers of a synchronous run say to each other.
//!
//! Shards of each step are leased to workers, which get parameters from servers and send them
//! gradients over links of their own ([`Push`](crate::message::Push) and
//! [`Pull`](crate::message::Pull)). Messages of every step hold no lists, so reading them allocates
//! nothing.

use crate::terms::{ServerRange, Sha256, Steps};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// From the coordinator to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// All servers are there: connect to them and get ready.
    Begin { servers: Vec<ServerRange> },
    /// Leases: compute these shards of these steps. Several leases may be of the same step.
    Lease {
        /// The steps, each as soon as its parameters are there.
        steps: Steps,
        /// The shards of each.
        shards: Range<u32>,
        /// Whether the worker has first to enter, at the first of the steps: pull the parameters,
        /// say their hashes (`Holds`) and wait for `Entered`.
        enter: bool,
    },
    /// The parameters after `step` steps that the worker holds are the run's: compute.
    Entered {
        /// Steps done.
        step: u64,
    },
}

/// From a worker to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// A lease was worked off.
    Pace {
        /// The step after its last.
        step: u64,
        examples: u64,
        /// Seconds of computing.
        busy_seconds: f64,
        /// Seconds of waiting for parameters, data or leases.
        waiting_seconds: f64,
    },
    /// Entering: the SHA-256 of the parameters after `step` steps as it holds them, by server.
    Holds {
        /// Steps done.
        step: u64,
        /// Of each server's blocks, in the order of servers.
        sha256: Vec<Sha256>,
    },
    /// It missed the parameters after `step` steps, and must enter again.
    Behind {
        /// Steps done.
        step: u64,
    },
    /// Its link to a server has ended.
    Cut { server: u32, why: String },
}
