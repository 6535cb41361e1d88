//! What each machine needs before it can work.
//!
//! Owns the order of the steps, what makes one the same as one that was done before (its hash), and
//! what is shown of them. Never starts a process on a machine: [`Hands`] do.
//!
//! # Layout
//! - `prepare`: steps with all that they name, before anything exists
//! - `apply`: the steps of one machine, one after another
//! - `script`: what `sh` is told; `files`, `template`: what goes there; `ansible`: what is done
//!   from this machine, and `plays`: how it is ended there
//! - [`secrets`]: looked up; [`crate::redact`] takes them out of what is shown

mod ansible;
mod apply;
mod files;
pub(crate) mod plays;
mod prepare;
mod script;
pub mod secrets;
pub mod template;

pub use ansible::inventory;
pub use prepare::{Prepared, Setup};

use crate::guarded::Guards;
use crate::made::Made;
use crate::messages::TaskOutcome;
use crate::provider::{Fault, Machine, Tag};
use planaria_protocol::clock::Clock;
use std::path::Path;
use std::time::Duration;

/// What can be done on a machine over the channel to its host.
pub trait Hands {
    /// Whether a step with this mark was done before.
    fn is_done(&mut self, mark: &str) -> Result<bool, Fault>;

    /// Whether what a step with this mark made is still there as the set-up left it. A mark that does
    /// not hold any more is taken away.
    fn is_intact(&mut self, mark: &str, made: &Made) -> Result<bool, Fault>;

    /// Has the mark say what the step made, as it is now.
    fn seal(&mut self, mark: &str, made: &Made) -> Result<(), Fault>;

    /// Writes a file: absolute, `~/…`, or relative to the run's folder there. Whole or not at all.
    fn put(&mut self, path: &str, mode: u32, bytes: &mut dyn std::io::Read) -> Result<(), Fault>;

    /// Runs a command with `sh -c` in the run's folder there, and leaves the mark if it ended well;
    /// what it writes, both streams, goes to `output` as it comes.
    fn run(
        &mut self,
        command: &Command<'_>,
        output: &mut dyn FnMut(&[u8]),
    ) -> Result<TaskOutcome, Fault>;
}

/// A command for a machine.
#[derive(Clone)]
pub struct Command<'a> {
    /// Skipped where this mark is there, which it leaves.
    pub mark: Option<&'a str>,
    /// For `sh -c`.
    pub text: &'a str,
    /// Variables set for it alone.
    pub env: &'a [(String, String)],
    /// How long it may take.
    pub within: Duration,
}

impl std::fmt::Debug for Command<'_> {
    /// Without the values of variables, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        let Self { mark, text, within, .. } = self;
        write!(f, "Command({mark:?}, {text:?}, {names:?}, {within:?})")
    }
}

/// A machine to set up, and what is around it.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    pub run: &'a Tag,
    pub machine: &'a Machine,
    /// All machines of the run that are known, with [`crate::provider::Provider::inventory`]'s words;
    /// this one among them.
    pub machines: &'a [(Machine, String)],
    /// A folder here for inventories, in the run's folder.
    pub folder: &'a Path,
    /// Tells the time.
    pub clock: &'a dyn Clock,
    /// Whether the result is not wanted any more.
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// Told the title of each step that begins, and nothing when it has ended.
    pub on_step: &'a dyn Fn(Option<&str>),
    /// Between two attempts; five seconds unless a test is in a hurry.
    pub pause: Option<Duration>,
    /// The program that plays playbooks: `ansible-playbook`.
    pub ansible: &'a str,
    /// What keeps that program.
    pub guards: &'a Guards,
}

/// What became of a machine's steps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Summary {
    /// Steps that were done now.
    pub done: usize,
    /// Steps that had been done before.
    pub skipped: usize,
    /// How long all of it took.
    pub seconds: f64,
}

#[cfg(test)]
mod tests;
