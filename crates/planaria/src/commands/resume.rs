//! `planaria resume`: goes on with a run from its last whole checkpoint.

use crate::cli;
use crate::commands::{detach, print, train};
use crate::library::{self, processes};
use crate::signals;
use planaria_control::detached;
use planaria_control::detached::watching::{self, Watched};
use planaria_control::jobs::train::Job;
use planaria_control::jobs::train::identity::Identity;
use planaria_control::jobs::train::kept;
use planaria_control::jobs::{about::Command, permit};
use planaria_control::leftovers;
use planaria_control::memory;
use planaria_control::size::{cluster_size, memory_bytes, training_threads};
use planaria_control::stopping;
use planaria_control::survey::Survey;
use planaria_control::talk::{Progress, Talk};
use planaria_protocol::checkpoint::{Checkpoint, Found, Unreadable};
use planaria_protocol::plain;
use planaria_recipe::{JobKind, Plan, Source};
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Exit, Failure, Result};
use planaria_runs::number::grouped;
use planaria_runs::run_dir::{RunDir, find, unreadable};
use planaria_runs::traces::report::{Outcome, Report};

/// Goes on, prints, and says what to exit with.
pub fn run(options: &cli::Resume, talk: Talk, process: Stopwatch) -> Result<Option<Exit>> {
    let talk = detach::talk(options.leaving.detached, talk);
    let folder = find(&options.run)?;
    permit(&folder, Command::Resume)?;
    if options.leaving.detach {
        return detach::here(talk, Some(&folder));
    }
    signals::listen(talk);
    if options.watch && watching::watch(&folder, talk)? == Watched::Over {
        return Ok(None);
    }
    detached::take_over(&folder, talk)?;
    let run = RunDir::open(&options.run)?;
    let mut progress = Progress::new(talk);
    leftovers::clear(run.path(), &mut |text| progress.note(text));
    if let Some(report) = finished(&run) {
        progress.note(&format!(
            "run {} has {} after {} steps; nothing is left to do",
            run.path().display(),
            report.outcome.text(),
            grouped(report.steps)
        ));
        return if options.json { print(&report.to_json()).map(|()| None) } else { Ok(None) };
    }
    let path = run.file("recipe.yaml");
    let recipe_text =
        plain::read_text(&path).context(|| format!("cannot read `{}`", path.display()))?;
    let mut survey = Survey::default();
    let name = path.display().to_string();
    let planned = Source::parse_and_plan(&name, recipe_text.as_bytes(), &[], |recipe| {
        survey.open(recipe, talk)
    });
    let mut plan = match planned {
        Ok((_, plan)) => plan,
        Err(mistakes) => return Err(survey.failure(&mistakes)),
    };
    let data = survey.data.expect("a plan is made from opened data");
    let (found, word) = checkpoint(&run, &plan, &mut progress)?;
    // Before anything is said of going on.
    let identity = Identity::new(path, &recipe_text, &plan.recipe, &data);
    if let Some(found) = &found {
        identity.check(&found.checkpoint.manifest)?;
        if let Some(remark) = identity.unproven(&found.checkpoint.manifest) {
            progress.note(&format!("warning: {remark}"));
        }
    }
    kept::check_data(run.path(), &identity.data_name, &identity.data)?;
    // How many processes there are is no part of what is computed, so it may change.
    let traits = plan.recipe.train.traits();
    if options.processes.servers.is_some_and(|servers| servers > 0) && !traits.has_servers {
        let message = format!("`--servers`: `method: {}` has no servers", traits.name);
        return Err(Failure::user(message).hint("leave it out"));
    }
    let pool = &mut plan.recipe.pool;
    if let Some(workers) = options.processes.workers {
        pool.workers = pool.workers.at_most(workers.into());
        // Several need one; a run that had none was one process.
        if pool.servers == Some(0) {
            pool.servers = None;
        }
    }
    if let Some(servers) = options.processes.servers {
        pool.servers = Some(servers.into());
    }
    if options.leaving.detached {
        detach::settle(run.path())?;
    }
    stopping::begin(run.path(), JobKind::Train);
    let asked = options.processes.threads;
    let (threads, size) = (training_threads(asked, &plan), cluster_size(asked, &plan));
    // What a killed session has left is later than its last checkpoint.
    let left = size.and_then(|_| kept::record(run.path())).map(|record| record.state.step);
    let at = found.as_ref().map_or(0, |found| found.checkpoint.manifest.state.step);
    let word = match left.filter(|left| *left > at) {
        Some(left) => {
            format!("run {} goes on after step {}", run.path().display(), grouped(left))
        }
        None => word,
    };
    progress.note(&format!("{word}: {}", processes(&plan, size, threads)));
    if !plan.recipe.pool.has_machines() {
        memory::check(&plan, memory_bytes(&plan, threads, size))?;
    }
    let program = library::program(size, None)?;
    let job = Job { plan, data, run, recipe_text, threads, talk, process, program, machines: None };
    train::conclude(library::train(job, size, found)?, options.json, talk)
}

/// Where the run goes on (nothing if it stopped before its first checkpoint), and that in words.
fn checkpoint(
    run: &RunDir,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<(Option<Found<Checkpoint>>, String)> {
    let path = run.path().display();
    let newest = run.checkpoint_folder(plan.recipe.output.keep).newest();
    let newest = match newest {
        // What was kept may do without.
        Err(Unreadable::NoneWhole(damaged)) if kept::record(run.path()).is_some() => {
            damaged.iter().for_each(|why| progress.note(&format!("warning: {why}")));
            None
        }
        newest => newest.map_err(unreadable)?,
    };
    let Some(found) = newest else {
        return Ok((None, format!("run {path} has no checkpoint yet and starts from step 0")));
    };
    for damaged in &found.damaged {
        progress.note(&format!("warning: {damaged}"));
    }
    let state = &found.checkpoint.manifest.state;
    if state.epoch > plan.recipe.train.epochs as u64 {
        return Err(Failure::failed(format!(
            "checkpoint `{}` is beyond the end of the run",
            found.path.display()
        )));
    }
    let word = format!("run {path} goes on after step {}", grouped(state.step));
    Ok((Some(found), word))
}

/// The report of a run that has come to its end.
fn finished(run: &RunDir) -> Option<Report> {
    let report: Report =
        serde_json::from_slice(&plain::read(&run.file("report.json")).ok()?).ok()?;
    matches!(report.outcome, Outcome::Completed | Outcome::StoppedEarly).then_some(report)
}
