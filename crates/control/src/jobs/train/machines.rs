//! The machines of a training, as its recipe asks for them.
//!
//! Owns what a training needs of a pool. Never raises a machine.

use crate::jobs::pooling::{Need, Pooling, secrets};
use crate::jobs::train::Job;
use planaria_fleet::pool::raise::Reach;
use planaria_runs::failure::Result;
use std::path::Path;

/// What the pool of a run is made of; nothing where the run is for this machine alone. Nothing is
/// created, and all that can be wrong before is found out.
pub fn pooling(job: &Job, program: &Path) -> Result<Option<Pooling>> {
    match job.plan.recipe.pool.has_machines() {
        true => Pooling::new(need(job, program)).map(Some),
        false => Ok(None),
    }
}

/// The same for machines that outlive the command; spare ones too, as it cannot get others later.
pub fn detached(job: &Job, program: &Path) -> Result<Pooling> {
    let machine_count = job.plan.recipe.pool.machines_held();
    Pooling::new(Need { is_detached: true, machine_count, ..need(job, program) })
}

fn need<'a>(job: &'a Job, program: &'a Path) -> Need<'a> {
    let recipe = &job.plan.recipe;
    // Machines of a detached run are set up already, from where it was started.
    let is_elsewhere = job.machines.is_some();
    Need {
        folder: job.run.path(),
        program,
        pool: &recipe.pool,
        steps: if is_elsewhere { &[] } else { &recipe.setup[..] },
        hidden: secrets(recipe),
        machine_count: recipe.pool.machine_count(),
        worker_count: recipe.pool.workers.max(),
        machines: job.machines.as_ref().map(|machines| machines.provider.clone()),
        is_detached: false,
        reach: Reach::NotNeeded,
        last: None,
    }
}
