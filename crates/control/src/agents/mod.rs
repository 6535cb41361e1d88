//! What each process of a run does, once it has its orders.
//!
//! Owns how coordinator, servers, workers and hosts begin. What they have in common (orders from
//! standard input, the log) is the command's, and the work is in the coordinator's, the worker's and
//! the fleet's crates.
//!
//! # Layout
//! - [`coordinator`]: of training; `coded`: what one of a coded run has besides
//! - [`host`]: the one process on a machine of a pool; [`mirror`]: what is new in a detached run
//! - [`task`]: around a process of a user's script

mod coded;
pub mod coordinator;
pub mod host;
pub mod mirror;
pub mod task;

use planaria_coordinator::parameters;
use planaria_fleet::host::calling::Calling;
use planaria_fleet::provider::Machine;
use planaria_protocol::launch::{Launch, Trust};
use planaria_protocol::message::Trouble;
use planaria_runs::clock::SystemClock;
use planaria_runs::failure::Failure;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where an agent writes what it does, line by line.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What the controller of a detached run is told.
#[derive(Serialize, Deserialize)]
pub struct Orders {
    /// The resolved recipe, as it is in the run's folder.
    pub recipe: String,
    /// Threads of each process that computes, where that was asked for.
    pub threads: Option<u16>,
    /// The machines, of which the controller's own is one.
    pub machines: Vec<Machine>,
    /// What hosts that call must know, in hexadecimal.
    pub secret: String,
    /// The controller's certificate, under the authority that theirs are of.
    pub trust: Trust,
    /// For the host of the controller's own machine; its addresses are without port.
    pub own: Calling,
}

/// A process' trouble as this one's failure.
pub fn failure(trouble: Trouble) -> Failure {
    let failure = if trouble.fix_input {
        Failure::user(trouble.message)
    } else {
        Failure::failed(trouble.message)
    };
    match trouble.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Holds a range of the parameters to the end of the run.
pub fn serve(launch: &Launch, index: u32, log: Log) -> Result<(), Trouble> {
    parameters::serve::run(launch, index, Arc::new(SystemClock::start()), log)
}

/// Computes to the end of the run.
pub fn work(launch: &Launch, index: u32, log: Log) -> Result<(), Trouble> {
    planaria_worker::methods::run(launch, index, &SystemClock::start(), log)
}
