//! Training a network or a linear model, from a checked recipe to its report.
//!
//! Owns a training as the command sees it: its processes, what is shown of them, and what is
//! written when they are done. All decisions on the training are the coordinator's. Never computes.
//!
//! # Layout
//! - [`cluster`]: on many processes; [`foreground`]: these, started, watched and replaced
//! - [`launch`]: what the processes are told; [`kept`]: where they keep what others go on from
//! - [`connecting`]: how the coordinator is reached; [`vouching`]: by what processes know each other
//! - [`copies`]: of checkpoints, on another machine
//! - [`alone`]: in one process; [`about`]: what commands say of it
//! - [`identity`]: what must be the same for a run to go on
//! - [`recorder`]: events to metrics and lines on the screen; `page`: the run's page;
//!   [`display`]: both
//! - [`origin`]: the checkpoint that a run goes on from; [`machines`]: what it needs of a pool
//! - [`ending`]: what is written when a session ends
//! - [`linear`]: the weights of a linear model as a file

pub mod about;
pub mod alone;
pub mod cluster;
pub mod connecting;
pub mod copies;
pub mod display;
pub mod ending;
pub mod foreground;
pub mod identity;
pub mod kept;
pub mod launch;
mod linear;
pub mod machines;
pub mod origin;
mod pace;
mod page;
pub mod recorder;
pub mod vouching;

use crate::jobs::Machines;
use crate::talk::Talk;
use planaria_data::DataSet;
use planaria_fleet::pool::resources;
use planaria_learn::Network;
use planaria_protocol::journal;
use planaria_recipe::Plan;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::run_dir::RunDir;
use std::fs;
use std::path::{Path, PathBuf};

/// Removes the folder of a new run that failed before it began: no event tells of it, and it holds no
/// machine.
pub fn remove_unbegun(folder: &Path) {
    let is_told = fs::metadata(folder.join(journal::FILE)).is_ok_and(|file| file.len() > 0);
    if !is_told && resources::held(folder).is_ok_and(|held| held.is_empty()) {
        let _ = fs::remove_dir_all(folder);
    }
}

/// What a session of a run works on.
#[derive(Debug)]
pub struct Job {
    /// The checked recipe and what follows from it.
    pub plan: Plan,
    /// The opened data.
    pub data: DataSet,
    /// Where everything goes.
    pub run: RunDir,
    /// The resolved recipe as it is in the run's folder.
    pub recipe_text: String,
    /// Threads that compute shards.
    pub threads: usize,
    /// How to talk.
    pub talk: Talk,
    /// Started with the process.
    pub process: Stopwatch,
    /// The program that the run's other processes are started from; none in one process.
    pub program: Option<PathBuf>,
    /// Machines that are there already; those of the recipe's pool otherwise.
    pub machines: Option<Machines>,
}

pub fn unwritten() -> String {
    format!("cannot write `{}`", journal::FILE)
}

/// The network of a plan.
pub fn network(plan: &Plan) -> Result<Network> {
    Network::of(&plan.recipe, plan.input).map_err(Failure::user)
}
