//! `planaria train`: a recipe to a trained network.

use crate::cli;
use crate::clock::{self, Stopwatch};
use crate::commands::{
    Survey, begin, check_output, cluster_size, memory_bytes, print, training_threads,
};
use crate::failure::{Exit, Result};
use crate::memory;
use crate::progress::{Progress, Style};
use crate::run_dir::RunDir;
use crate::traces::number::{counted, duration, grouped, percent, short};
use crate::traces::report::{Outcome, Report};
use crate::training::ending::Finished;
use crate::training::interrupt;
use crate::training::run_loop::Job;
use planaria_recipe::{Source, to_yaml};
use std::path::Path;

/// Trains, prints, and says what to exit with.
pub fn run(options: &cli::Train, style: Style, process: Stopwatch) -> Result<Option<Exit>> {
    interrupt::listen(style);
    let mut survey = Survey::default();
    let sets = sets(options);
    let planned =
        Source::load_and_plan(&options.recipe.recipe, &sets, |recipe| survey.open(recipe, style));
    let (source, plan) = match planned {
        Ok(planned) => planned,
        Err(mistakes) => return Err(survey.failure(&mistakes)),
    };
    let data = survey.data.expect("a plan is made from opened data");
    check_output(&source)?;
    let asked = options.processes.threads;
    let (threads, size) = (training_threads(asked, &plan), cluster_size(asked, &plan));
    memory::check(memory_bytes(&plan, threads, size))?;
    let recipe_text = to_yaml(&plan.recipe);
    let now = clock::unix_seconds() as u64;
    let run = RunDir::create(Path::new(&plan.recipe.output.dir), &plan.recipe.name, now)?;
    run.write("recipe.yaml", recipe_text.as_bytes())?;
    interrupt::begin(run.path());
    Progress::new(style).note(&format!(
        "run {}: {} examples, {} parameters",
        run.path().display(),
        grouped(data.train.len()),
        grouped(plan.parameters)
    ));
    let job = Job { plan, data, run, recipe_text, threads, style, process };
    begin(job, size, None, options.json)
}

/// Changes to the recipe: those asked for by key, then those that have options of their own.
fn sets(options: &cli::Train) -> Vec<String> {
    let cli::Processes { workers, servers, .. } = options.processes;
    let own = [("workers", workers), ("servers", servers)];
    let own = own.iter().filter_map(|(key, n)| n.map(|n| format!("pool.{key}={n}")));
    options.recipe.sets.iter().cloned().chain(own).collect()
}

/// Prints how a session ended.
pub(crate) fn conclude(finished: Finished, json: bool, style: Style) -> Result<Option<Exit>> {
    let Finished { report, path, failure } = finished;
    if json {
        print(&report.to_json())?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    Progress::new(style).note(&summary(&report, &path));
    Ok((report.outcome == Outcome::Interrupted).then_some(Exit::Interrupted))
}

fn summary(report: &Report, path: &Path) -> String {
    let path = path.display();
    if report.outcome == Outcome::Interrupted {
        let step = grouped(report.steps);
        return format!("interrupted at step {step}; go on with: planaria resume {path}");
    }
    let mut text = format!(
        "{}: {}, {} in {}",
        report.outcome.text(),
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
    if let Some(part) = &report.evaluated_on {
        let figures = [
            report.accuracy.map(|v| format!("accuracy {}", percent(v))),
            report.loss.map(|v| format!("loss {}", short(v))),
            report.mae.map(|v| format!("mean absolute error {}", short(v))),
        ];
        let figures: Vec<String> = figures.into_iter().flatten().collect();
        text += &format!("\n{part}: {}", figures.join(", "));
    }
    text + &format!("\n{path}/report.html")
}
