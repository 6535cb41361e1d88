//! The `planaria` binary: arguments to a command to an exit code.

use planaria::cli::Cli;
use planaria::clock::Stopwatch;
use planaria::screen;
use planaria_fleet::ending::PANICKED;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let process = Stopwatch::start();
    end_on_panic();
    match planaria::commands::run(Cli::of_process(), process) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(exit)) => ExitCode::from(exit.code()),
        Err(failure) => {
            // With stderr closed it cannot be told.
            let _ = std::io::stderr().write_all(screen::failed(&failure).as_bytes());
            ExitCode::from(failure.exit.code())
        }
    }
}

/// A thread that panics ends the process: the other threads would wait for it, and the run for the
/// process. The program is built without unwinding, so this is the last code that runs.
fn end_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        // SAFETY: ends the process, whatever its threads do; runs no handler that could wait for one.
        unsafe { libc::_exit(PANICKED) };
    }));
}
