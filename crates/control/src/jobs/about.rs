//! What commands say of a job, and which of them are not for every kind.
//!
//! Owns the questions; each kind answers in its folder.

use crate::jobs::{script, train};
use planaria_recipe::JobKind;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::run_dir;
use std::path::Path;

/// A command that not every kind of job can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Audit,
    Chaos,
    Evaluate,
    Resume,
    /// To so many workers, where workers were asked for.
    Scale(Option<u32>),
}

/// Why a job cannot take a command, and what to do instead.
pub struct Refusal {
    pub why: &'static str,
    pub instead: String,
}

/// What one kind of job answers. `path` is the run's folder as people write it.
pub trait About {
    /// What a first Ctrl-C leads to.
    fn stopping(&self) -> &'static str;
    /// What a second one has led to, and what can be done then.
    fn quit(&self, path: &str) -> String;
    /// What a run does that `planaria stop` asked to stop.
    fn stops(&self) -> &'static str;
    /// The command that takes up a run that was stopped, or does its work once more.
    fn again(&self, path: &str) -> String;
    /// Its runs, as in "run X is a script's".
    fn owner(&self) -> &'static str;
    fn refuses(&self, command: Command, path: &str) -> Option<Refusal>;
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
