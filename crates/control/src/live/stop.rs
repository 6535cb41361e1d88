//! Asks a live run to save and end.
//!
//! A run on several processes is asked through its coordinator; a run in one process, and a script's,
//! by SIGTERM to the process that holds its lock. Never waits for the end.

use crate::live::console::{Console, News};
use crate::live::control;
use planaria_protocol::event::What;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::run_dir::lock::Holder;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::time::Duration;

/// How long a coordinator may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks a live run to save and stop.
pub fn request(folder: &Path, holder: Holder) -> Result<()> {
    // A coordinator that cannot be reached is about to begin or to end; its command can be.
    match control::connect(folder) {
        Ok(Some(console)) if ask(&console) => Ok(()),
        _ => signal(folder, holder),
    }
}

/// Asks a coordinator, and waits until it has said that it stops.
fn ask(console: &Console) -> bool {
    console.stop("`planaria stop` asked for it");
    let answer = console.wait_for(PATIENCE, |news| match news {
        News::Event(event) => match event.what {
            // Another may have said so, and be gone.
            What::Stopping { .. } if event.generation == console.generation() => Some(()),
            What::Ended { .. } => Some(()),
            _ => None,
        },
        News::Finish => Some(()),
        _ => None,
    });
    answer.is_some()
}

/// Sends SIGTERM to the process that holds the run's lock. Reads the lock again first, because
/// another process may hold it by now.
fn signal(folder: &Path, seen: Holder) -> Result<()> {
    let holder = Holder::of(folder)?;
    if !holder.is_live() {
        return Ok(());
    }
    let path = folder.display();
    let pid = match holder {
        Holder::Process { pid, listens: true } if holder == seen => pid,
        Holder::Process { pid, listens: false } => {
            let message = format!("run `{path}` is part of process {pid}, which would not save");
            return Err(Failure::user(message).hint("stop it from within that program"));
        }
        _ => {
            let message = format!("run `{path}` is only just starting or ending");
            return Err(Failure::failed(message).hint("try again in a moment"));
        }
    };
    let Some(number) = Pid::from_raw(pid as i32) else { return Ok(()) };
    match kill_process(number, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(e) => Err(Failure::failed(format!("cannot signal process {pid}: {e}"))),
    }
}
