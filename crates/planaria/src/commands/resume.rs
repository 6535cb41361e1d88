//! `planaria resume`: goes on with a run from its last whole checkpoint.

use crate::cli;
use crate::commands::{detach, print, train};
use crate::library::resuming::{Resuming, finished};
use crate::signals;
use planaria_control::detached;
use planaria_control::detached::watching::{self, Watched};
use planaria_control::jobs::{about::Command, permit};
use planaria_control::leftovers;
use planaria_control::talk::{Progress, Talk};
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Exit, Result};
use planaria_runs::run_dir::{RunDir, find_or_newest};
use planaria_text::number::counted;

/// Goes on, prints, and says what to exit with.
pub fn run(options: &cli::Resume, talk: Talk, process: Stopwatch) -> Result<Option<Exit>> {
    let talk = detach::talk(options.leaving.detached, talk);
    let folder = find_or_newest(options.run.as_deref())?;
    permit(&folder, Command::Resume)?;
    if options.leaving.detach {
        return detach::here(talk, Some(&folder), None);
    }
    signals::listen(talk);
    if options.watch && watching::watch(&folder, talk)? == Watched::Over {
        return Ok(None);
    }
    detached::take_over(&folder, talk)?;
    let run = RunDir::open(folder)?;
    let mut progress = Progress::new(talk);
    leftovers::clear(run.path(), &mut |text| progress.note(text));
    let resuming = Resuming {
        workers: options.processes.workers,
        servers: options.processes.servers,
        threads: options.processes.threads,
        sets: options.sets.clone(),
        begin: options.leaving.detached.then_some(detach::settle as _),
        machines: None,
    };
    if let Some(report) = finished(&run)
        && !resuming.goes_further(&run)?
    {
        progress.note(&format!(
            "run {} has {} after {}; nothing is left to do",
            run.path().display(),
            report.outcome.text(),
            counted(report.steps, "step")
        ));
        return if options.json { print(&report.to_json()).map(|()| None) } else { Ok(None) };
    }
    train::conclude(resuming.run(run, talk, process)?, options.json, talk)
}
