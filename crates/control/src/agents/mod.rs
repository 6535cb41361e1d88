//! What each process of a run does, once it has its orders.
//!
//! Owns how coordinator, servers, workers and hosts begin. What they have in common (orders from
//! standard input, the log) is the command's, and the work is in the coordinator's, the worker's and
//! the fleet's crates.
//!
//! # Layout
//! - [`coordinator`]: of training
//! - [`host`]: the one process on a machine of a pool; [`mirror`]: what is new in a detached run
//! - [`task`]: around a process of a user's script

pub mod coordinator;
pub mod host;
pub mod mirror;
pub mod task;

use planaria_coordinator::parameters;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Trouble;
use planaria_runs::clock::SystemClock;
use std::sync::Arc;

/// Where an agent writes what it does, line by line.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Holds a range of the parameters to the end of the run.
pub fn serve(launch: &Launch, index: u32, log: Log) -> Result<(), Trouble> {
    parameters::serve::run(launch, index, Arc::new(SystemClock::start()), log)
}

/// Computes to the end of the run.
pub fn work(launch: &Launch, index: u32, log: Log) -> Result<(), Trouble> {
    planaria_worker::methods::run(launch, index, &SystemClock::start(), log)
}
