//! `planaria stop`: asks a live run to save and end.
//!
//! A run on several processes is asked through its coordinator; a run in one process, and a script's,
//! by SIGTERM to the process that holds its lock.

use crate::cli;
use crate::clock::Stopwatch;
use crate::cluster::console::{Console, News};
use crate::cluster::control;
use crate::cluster::detached::Away;
use crate::failure::{Failure, Result};
use crate::progress::{Progress, Style};
use crate::run_dir::history::{History, Standing};
use crate::run_dir::lock::Holder;
use crate::run_dir::{self, find};
use crate::scripts;
use crate::traces::number::grouped;
use planaria_protocol::event::What;
use std::path::Path;
use std::time::Duration;

/// How long a coordinator may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether the run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Stops and says so.
pub fn run(options: &cli::Stop, style: Style) -> Result<()> {
    let folder = find(&options.run)?;
    let path = folder.display();
    if let Some(away) = Away::find(&folder)? {
        return elsewhere(away, options, style);
    }
    let holder = Holder::of(&folder)?;
    if !holder.is_live() {
        return Err(not_running(&History::read(&folder)?));
    }
    let mut progress = Progress::new(style);
    request(&folder, holder)?;
    let does = doing(&folder);
    if !options.wait {
        progress.note(&format!("run {path} {does}; planaria status {path} tells when"));
        return Ok(());
    }
    progress.note(&format!("run {path} {does}"));
    while Holder::of(&folder)?.is_live() {
        std::thread::park_timeout(LOOK_EVERY);
    }
    progress.note(&ended(&History::read(&folder)?));
    Ok(())
}

/// What a run does that was asked to stop.
pub(crate) fn doing(folder: &Path) -> &'static str {
    match run_dir::job(folder) {
        Some(_) => "ends its processes, brings outputs back and stops",
        None => "is saving and stops",
    }
}

/// How a run ended that was waited for.
fn ended(history: &History) -> String {
    let path = history.folder.display().to_string();
    let step = grouped(history.step);
    match (history.state, &history.script) {
        (Standing::Interrupted, Some(_)) => {
            format!("stopped; run it once more with: {}", scripts::once_more(&path))
        }
        (state, Some(_)) => format!("run {path} {}", state.text()),
        (Standing::Interrupted, None) => {
            format!("stopped after step {step}; go on with: planaria resume {path}")
        }
        (state, None) => format!("run {path} {} after step {step}", state.text()),
    }
}

/// Asks a live run to save and stop.
pub(crate) fn request(folder: &Path, holder: Holder) -> Result<()> {
    // A coordinator that cannot be reached is about to begin or to end; its command can be.
    match control::connect(folder) {
        Ok(Some(console)) if ask(&console) => Ok(()),
        _ => signal(folder, holder),
    }
}

/// Stops a run that is left to machines.
fn elsewhere(mut away: Away, options: &cli::Stop, style: Style) -> Result<()> {
    if away.follow(style)? {
        away.ask(&["stop", "RUN"])?;
        let text = format!("run {} is saving and stops", options.run);
        Progress::new(style).note(&text);
    }
    while options.wait && away.follow(style)? {
        std::thread::park_timeout(PATIENCE / 10);
    }
    Ok(())
}

/// The mistake of asking something of a run that has ended.
pub(crate) fn not_running(history: &History) -> Failure {
    let path = history.folder.display();
    let how = match history.state {
        // Its lock was let go of just now.
        Standing::Running => "it has just ended".into(),
        Standing::Killed => "its process is gone".into(),
        state if history.script.is_some() => format!("it {}", past(state)),
        state => format!("it {} after step {}", past(state), grouped(history.step)),
    };
    let failure = Failure::user(format!("run `{path}` is not running: {how}"));
    match (history.state.is_done(), &history.script) {
        (true, _) => failure,
        (false, Some(_)) => {
            let again = scripts::once_more(&path.to_string());
            failure.hint(format!("`{again}` runs it once more"))
        }
        (false, None) => failure.hint(format!("go on with it by `planaria resume {path}`")),
    }
}

fn past(state: Standing) -> &'static str {
    match state {
        Standing::Completed => "has completed",
        Standing::StoppedEarly => "has stopped early",
        Standing::Interrupted => "was interrupted",
        Standing::Failed => "has failed",
        Standing::Running | Standing::Killed => "has ended",
    }
}

/// Asks a coordinator, and waits until it has said that it stops.
fn ask(console: &Console) -> bool {
    console.stop("`planaria stop` asked for it");
    let clock = Stopwatch::start();
    while clock.elapsed() < PATIENCE {
        match console.next(PATIENCE) {
            News::Event(event) => {
                match event.what {
                    // Another may have said so, and be gone.
                    What::Stopping { .. } if event.generation == console.generation() => {
                        return true;
                    }
                    What::Ended { .. } => return true,
                    _ => {}
                }
            }
            News::Pulse(_) | News::Pool(_) | News::Resize(_) | News::Kill { .. } => {}
            News::Finish => return true,
            News::Nothing | News::Gone(_) => return false,
        }
    }
    false
}

/// Sends SIGTERM to the process that works on the run, which is looked up once more: between the
/// two looks it may have become another.
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
    // SAFETY: sends a signal, and touches no memory.
    if unsafe { libc::kill(pid as libc::pid_t, libc::SIGTERM) } == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        e => Err(Failure::failed(format!("cannot signal process {pid}: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_not_running_says_how_it_ended() {
        let mut history = History::of(Path::new("runs/net-1"), Holder::Nobody, &[]);
        for (state, expect, hint) in [
            (Standing::Completed, "it has completed after step 0", false),
            (Standing::Interrupted, "it was interrupted after step 0", true),
            (Standing::Killed, "its process is gone", true),
        ] {
            history.state = state;
            let failure = not_running(&history);
            assert_eq!(failure.message, format!("run `runs/net-1` is not running: {expect}"));
            assert_eq!((failure.exit, failure.hint.is_some()), (crate::failure::Exit::User, hint));
        }
    }

    #[test]
    fn a_script_has_no_steps() {
        let mut history = History::of(Path::new("runs/x-1"), Holder::Nobody, &[]);
        let job = crate::scripts::layout::tests::job("script: {file: a.py}");
        history.is_of(crate::scripts::story::Story::of(&job, &[]));
        history.state = Standing::Interrupted;
        let again = "planaria run runs/x-1/recipe.yaml";
        assert_eq!(ended(&history), format!("stopped; run it once more with: {again}"));
        let failure = not_running(&history).to_string();
        assert!(failure.contains("is not running: it was interrupted\n"), "{failure}");
        assert!(failure.contains(&format!("`{again}` runs it once more")), "{failure}");
    }
}
