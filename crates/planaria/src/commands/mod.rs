//! One file per command.
//!
//! A command checks its input, calls the library and prints. Shared here: stdout.

pub mod evaluate;
pub mod plan;
pub mod resume;
pub mod schema;
pub mod train;

use crate::agent;
use crate::cli::{Cli, Command};
use crate::clock::Stopwatch;
use crate::failure::{Context, Exit, Result};
use crate::progress::Style;
use std::io::{ErrorKind, Write};

/// Runs a command; its success may still be an exit code of its own.
pub fn run(cli: Cli, process: Stopwatch) -> Result<Option<Exit>> {
    let style = Style::of_stderr(cli.quiet);
    match cli.command {
        Command::Train(options) => train::run(&options, style, process),
        Command::Resume(options) => resume::run(&options, style, process),
        Command::Evaluate(options) => evaluate::run(&options, style).map(|()| None),
        Command::Plan(options) => plan::run(&options).map(|()| None),
        Command::Schema => schema::run().map(|()| None),
        Command::Agent(role) => agent::run(&role),
    }
}

/// Writes data to stdout. A reader that went away, as `head` does, is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context(|| "cannot write to stdout".into()),
    }
}
