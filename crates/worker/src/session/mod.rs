//! A worker from joining the coordinator to the end of the run, the same for every method: it joins,
//! sends heartbeats, is revoked, scores held-out batches, joins again after a loss, and ends.
//!
//! # Layout
//! - [`worker`]: all of that as a value; pure
//! - [`method`]: the seam: what a method adds
//! - [`inbox`]: what has come and is not taken in yet
//! - [`scoring`]: held-out batches that are to be scored
//! - [`shell`]: the process around the value: the link to the coordinator, threads, the main loop

pub mod inbox;
pub mod method;
pub mod scoring;
pub mod shell;
pub mod worker;

pub use inbox::Inbox;
pub use method::{Batch, Effect, Input, Method, Session, Todo};
pub use worker::Worker;

use std::time::Duration;

/// Time between heartbeats.
pub const ALIVE: Duration = Duration::from_millis(250);

/// How long the coordinator, which sends a heartbeat twice a second, may be silent.
pub const SILENCE: Duration = Duration::from_secs(10);

/// How long a worker goes without a word from any coordinator.
pub const LEASE: Duration = Duration::from_secs(30);

/// How long sending what waits may take before a link is closed.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
