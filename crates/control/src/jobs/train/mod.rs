//! Training a network or a linear model, from a checked recipe to its report.
//!
//! Owns a training as the command sees it: its processes, what is told of them, and what is written
//! when they are done. All decisions on the training are the coordinator's. Never computes.
//!
//! # Layout
//! - [`cluster`]: on many processes; [`foreground`]: these, started, watched and replaced
//! - [`launch`]: what the processes are told; [`kept`]: where they keep what others go on from
//! - [`meeting`]: how the coordinator is reached
//! - [`alone`]: in one process
//! - [`identity`]: what must be the same for a run to go on
//! - [`recorder`]: events to metrics and lines on the screen; `page`: the run's page;
//!   [`telling`]: both
//! - [`ending`]: what is written when a session ends
//! - [`methods`]: what a training method needs besides

pub mod alone;
pub mod cluster;
pub mod ending;
pub mod foreground;
pub mod identity;
pub mod kept;
pub mod launch;
pub mod meeting;
pub mod methods;
mod page;
pub mod recorder;
pub mod telling;

use crate::jobs::Machines;
use crate::talk::Talk;
use alone::evaluation::class_count;
use planaria_data::DataSet;
use planaria_learn::{Network, Settings, Trainer, engines};
use planaria_protocol::journal;
use planaria_protocol::launch::Facts;
use planaria_recipe::Plan;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::run_dir::RunDir;
use std::path::PathBuf;

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

/// What is known of a run's data and network.
pub fn facts(plan: &Plan, data: &DataSet, network: &Network) -> Facts {
    let examples = |part: &Option<planaria_data::Part>| part.as_ref().map_or(0, |p| p.len());
    let marks: Vec<_> = data.marks.iter().map(|m| (m.name.clone(), m.content.clone())).collect();
    Facts {
        input: plan.input,
        classes: classes(plan, network) as u32,
        examples: data.train.len(),
        digest: data.train.digest(),
        validation: examples(&data.validation),
        test: examples(&data.test),
        parameters: network.parameter_count() as u64,
        coding: methods::coding(&plan.recipe, &marks, data),
        marks,
    }
}

/// Classes told apart; 0 for regression.
pub fn classes(plan: &Plan, network: &Network) -> usize {
    class_count(plan.classes, plan.recipe.train.loss, network.output().len())
}

/// The network of a plan.
pub fn network(plan: &Plan) -> Result<Network> {
    Network::of(&plan.recipe, plan.input).map_err(Failure::user)
}

/// The network of a plan, ready to train.
pub fn trainer(plan: &Plan, threads: usize) -> Result<Box<dyn Trainer>> {
    Ok(engines::trainer(network(plan)?, Settings::of(&plan.recipe, threads)))
}
