//! The `planaria` binary: arguments to a command to an exit code.

use planaria::cli::Cli;
use planaria::clock::Stopwatch;
use std::process::ExitCode;

fn main() -> ExitCode {
    let process = Stopwatch::start();
    match planaria::commands::run(Cli::of_process(), process) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(exit)) => ExitCode::from(exit.code()),
        Err(failure) => {
            // With stderr closed it cannot be told.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{failure}\n"));
            ExitCode::from(failure.exit.code())
        }
    }
}
