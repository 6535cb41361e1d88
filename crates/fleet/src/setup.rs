//! What each machine needs before it can work.
//!
//! Owns the order of the steps, what makes one the same as one that was done before (its hash), and
//! what is told of them. Never starts a process: [`Hands`] do, on the machine.

use crate::host::words::Outcome;
use crate::provider::Fault;
use std::time::Duration;

/// What can be done on a machine, by whoever has a channel to its host.
pub trait Hands {
    /// Whether a step with this mark was done before.
    fn is_done(&mut self, mark: &str) -> Result<bool, Fault>;

    /// Writes a file: absolute, `~/…`, or relative to the run's folder there. Whole or not at all.
    fn put(&mut self, path: &str, mode: u32, bytes: &mut dyn std::io::Read) -> Result<(), Fault>;

    /// Runs a command with `sh -c`, and leaves the mark if it ended well; what it writes, both
    /// streams, goes to `output` as it comes.
    fn run(
        &mut self,
        command: &Command<'_>,
        output: &mut dyn FnMut(&[u8]),
    ) -> Result<Outcome, Fault>;
}

/// A command for a machine.
#[derive(Debug, Clone)]
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
