//! `planaria train`: a recipe to a trained network.

use crate::cli;
use crate::commands::{detach, print};
use crate::library::Planaria;
use crate::library::scaling::{self, Studied, worker_counts};
use crate::signals;
use planaria_control::jobs::train::ending::Finished;
use planaria_control::talk::{Progress, Talk};
use planaria_recipe::from_stdin;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Exit, Result};
use planaria_runs::outcome::{against_the_mean, errors_brief, errors_text};
use planaria_runs::summary::GivenUp;
use planaria_runs::traces::report::{Outcome, Report};
use planaria_text::number::{counted, duration, grouped, percent, short};
use std::path::Path;

/// Trains, prints, and says what to exit with.
pub fn run(options: &cli::Train, talk: Talk, process: Stopwatch) -> Result<Option<Exit>> {
    let talk = detach::talk(options.detached, talk);
    let mut training = Planaria::from_recipe(&options.recipe.recipe)
        .sets(options.recipe.sets.iter().cloned())
        .talking(talk, process);
    let cli::Processes { workers, servers, threads } = options.processes;
    if let Some(workers) = workers {
        training = training.workers(workers.into());
    }
    if let Some(servers) = servers {
        training = training.servers(servers.into());
    }
    if let Some(threads) = threads {
        training = training.threads(threads);
    }
    if options.detach {
        return detach::run(training, talk, from_stdin(&options.recipe.recipe));
    }
    signals::listen(talk);
    if options.detached {
        training = training.beginning(detach::settle);
    }
    match &options.scaling {
        None => conclude(training.run()?, options.json, talk),
        Some(counts) => study(&training, &worker_counts(counts)?, options.json, talk),
    }
}

/// Trains with each number of workers and prints what came of it.
fn study(training: &Planaria, workers: &[u16], json: bool, talk: Talk) -> Result<Option<Exit>> {
    let Studied { study, folder } = scaling::run(training, workers, talk)?;
    let mut progress = Progress::new(talk);
    if json {
        print(&study.to_json())?;
    } else if !study.runs.is_empty() {
        print(&study.table())?;
    }
    study.remarks().iter().for_each(|remark| progress.note(remark));
    if !study.runs.is_empty() {
        progress.note(&format!("{}/scaling.html", folder.display()));
    }
    Ok((!study.complete).then_some(Exit::Interrupted))
}

/// Prints how a session ended.
pub(crate) fn conclude(finished: Finished, json: bool, talk: Talk) -> Result<Option<Exit>> {
    let Finished { report, path, failure } = finished;
    if json {
        print(&report.to_json())?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    Progress::new(talk).note(&summary(&report, &path));
    Ok(match (report.outcome, report.steps) {
        (Outcome::Interrupted, 0) => Some(Exit::Unsaved),
        (Outcome::Interrupted, _) => Some(Exit::Interrupted),
        _ => None,
    })
}

fn summary(report: &Report, path: &Path) -> String {
    let path = path.display();
    if report.outcome == Outcome::Interrupted {
        let when = match report.steps {
            0 => "before the first step".into(),
            step => format!("at step {}", grouped(step)),
        };
        return format!("interrupted {when}; go on with: planaria resume {path}");
    }
    let errors = report.errors().map(|errors| format!("{}; ", errors_brief(&errors)));
    let mut text = format!(
        "{}: {}{}, {} in {}",
        report.outcome.text(),
        errors.unwrap_or_default(),
        counted(report.epochs, "epoch"),
        counted(report.steps, "step"),
        duration(report.seconds_training)
    );
    if let Some(speed) = report.examples_per_second {
        text += &format!(" ({} examples/s)", grouped(speed.round() as u64));
    }
    if let Some(reason) = &report.reason {
        text += &format!("\n{reason}");
    }
    for GivenUp { machine, reason } in &report.machines_given_up {
        let reason = reason.lines().next().unwrap_or_default();
        text += &format!("\ngiven up: {machine}: {reason}");
    }
    if let Some(part) = &report.evaluated_on {
        let figures = [
            report.accuracy.map(|v| format!("accuracy {}", percent(v))),
            report.errors().map(|errors| errors_text(&errors)),
            report.loss.map(|v| format!("loss {}{}", short(v), loss_units(report))),
            report.positive.as_ref().map(|p| format!("F1 of `{}` {}", p.class, percent(p.f1))),
        ];
        let figures: Vec<String> = figures.into_iter().flatten().collect();
        text += &format!("\n{part}: {}", figures.join(", "));
        if let Some(advice) = report.errors().and_then(|errors| against_the_mean(&errors)) {
            text += &format!("\n{advice}");
        }
    }
    text + &format!("\n{path}/report.html")
}

/// Losses of standardised labels are in no units of the user's.
fn loss_units(report: &Report) -> &'static str {
    if report.target_scale.is_some() { " (of the standardised label)" } else { "" }
}
