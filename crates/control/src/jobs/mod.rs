//! Kinds of job, and what they share.
//!
//! A kind is a folder: which processes there are, what each is told, and what their ends mean.
//! Getting machines, watching over processes, stopping and giving back are the same for all. Never
//! prints.
//!
//! # Layout
//! - [`about`]: what commands say of a job, and which of them are not for it
//! - [`controller`]: the loop around the machines and processes of any kind
//! - [`train`]: a network or a linear model, on one process or many
//! - [`script`]: the user's own script on the machines of a pool
//! - [`pooling`]: what a pool is made of, and how its machines meet the others; `steps`: what is told
//!   of their set-up

pub mod about;
pub mod controller;
pub mod pooling;
pub mod script;
mod steps;
pub mod train;

use about::{About, Command, Refusal};
use planaria_fleet::provider::Provider;
use planaria_recipe::JobKind;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::run_dir;
use std::path::Path;
use std::sync::Arc;

/// Machines that are there already.
#[derive(Clone)]
pub struct Machines {
    pub provider: Arc<dyn Provider>,
    /// The one that this process is on.
    pub own: String,
}

impl std::fmt::Debug for Machines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Machines({})", self.provider.name())
    }
}

/// What a kind of job answers.
pub fn about(kind: JobKind) -> &'static dyn About {
    match kind {
        JobKind::Train => &train::about::Train,
        JobKind::Script => &script::about::Script,
    }
}

/// What the run in a folder answers.
pub fn about_run(folder: &Path) -> &'static dyn About {
    about(run_dir::kind(folder))
}

/// Refuses a command that is not for the run in a folder.
pub fn permit(folder: &Path, command: Command) -> Result<()> {
    let path = folder.display().to_string();
    let about = about_run(folder);
    let Some(Refusal { why, instead }) = about.refuses(command, &path) else { return Ok(()) };
    Err(Failure::user(format!("run `{path}` is {}: {why}", about.owner())).hint(instead))
}
