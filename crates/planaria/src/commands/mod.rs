//! One file per command.
//!
//! A command checks its input, calls the library and prints. Shared here: stdout.

pub mod agent;
pub mod audit;
pub mod chaos;
pub mod completions;
pub mod data;
pub mod detach;
pub mod doctor;
pub mod down;
pub mod evaluate;
pub mod init;
pub mod logs;
pub mod plan;
pub mod resume;
pub mod run;
pub mod runs;
#[cfg(test)]
pub(crate) mod samples;
pub mod scale;
pub mod schema;
pub mod status;
pub mod stop;
pub mod train;

use crate::cli::{Cli, Command};
use crate::screen;
use planaria_control::program;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Exit, Failure, Result};
use planaria_runs::run_dir::DEFAULT_RUNS;
use planaria_text::number::counted;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Runs a command; its success may still be an exit code of its own.
pub fn run(cli: Cli, process: Stopwatch) -> Result<Option<Exit>> {
    program::is_of_build(crate::BUILD);
    program::has_agents();
    let talk = screen::talk(cli.quiet);
    match cli.command {
        Command::Train(options) => train::run(&options, talk, process),
        Command::Run(options) => run::run(&options, talk, process),
        Command::Resume(options) => resume::run(&options, talk, process),
        Command::Evaluate(options) => evaluate::run(&options, talk).map(|()| None),
        Command::Runs(options) => runs::run(&options, talk).map(|()| None),
        Command::Status(options) => status::run(&options, talk).map(|()| None),
        Command::Stop(options) => stop::run(&options, talk).map(|()| None),
        Command::Scale(options) => scale::run(&options, talk).map(|()| None),
        Command::Logs(options) => logs::run(&options, talk).map(|()| None),
        Command::Audit(options) => audit::run(&options, talk),
        Command::Chaos(options) => chaos::run(&options, talk),
        Command::Down(options) => down::run(&options, talk).map(|()| None),
        Command::Doctor(options) => doctor::run(&options, talk),
        Command::Plan(options) => plan::run(&options).map(|()| None),
        Command::Data(what) => data::run(&what, talk).map(|()| None),
        Command::Init(options) => init::run(&options, talk).map(|()| None),
        Command::Schema => schema::run().map(|()| None),
        Command::Completions(options) => completions::completions(&options).map(|()| None),
        Command::Man(options) => completions::man(&options).map(|()| None),
        Command::Agent(role) => agent::run(&role),
    }
}

/// Writes data to stdout. A reader that went away, as `head` does, is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    print_on(text).map(drop)
}

/// Writes data to stdout; false once its reader is gone.
pub(crate) fn print_on(text: &str) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        // Whatever reads it is full or broken, and no run: there is nothing to resume.
        written => written
            .map(|()| true)
            .map_err(|e| Failure::failed(format!("cannot write to stdout: {e}"))),
    }
}

/// Whether there is a folder of runs; one that was named must exist.
pub(crate) fn runs_in(dir: &Path) -> Result<bool> {
    match dir.metadata() {
        Ok(found) if found.is_dir() => Ok(true),
        // There was no run here yet.
        Err(e) if dir == Path::new(DEFAULT_RUNS) && e.kind() == ErrorKind::NotFound => Ok(false),
        _ => Err(Failure::user(format!("there is no folder `{}`", dir.display()))
            .hint("name a folder of runs, such as `--dir runs`")),
    }
}

/// `3 min ago`.
pub(crate) fn ago(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s} s ago"),
        60..3600 => format!("{} min ago", s / 60),
        3600..86_400 => format!("{} h ago", s / 3600),
        _ => format!("{} ago", counted(s / 86_400, "day")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_well() {
        assert_eq!(
            [-3.0, 59.9, 60.0, 7200.0, 90_000.0, 2e5].map(ago),
            ["0 s ago", "59 s ago", "1 min ago", "2 h ago", "1 day ago", "2 days ago"]
        );
    }
}
