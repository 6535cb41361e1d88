//! One file per command.
//!
//! A command checks its input, calls the library and prints. Shared here: data for a recipe,
//! stdout, threads.

pub mod evaluate;
pub mod plan;
pub mod resume;
pub mod schema;
pub mod train;

use crate::agent;
use crate::cli::{Cli, Command};
use crate::clock::Stopwatch;
use crate::cluster;
use crate::failure::{Context, Exit, Failure, Result};
use crate::memory;
use crate::progress::{Style, patiently};
use crate::training::run_loop::{Job, Session};
use planaria_data::{DataSet, Error, Facts, Kind};
use planaria_protocol::checkpoint::{Checkpoint, Found};
use planaria_protocol::launch::Size;
use planaria_recipe::{DataFacts, Diagnostics, Finding, Plan, Recipe, Source};
use std::io::{ErrorKind, Write};
use std::path::Path;

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

/// Threads that compute shards; more than there are shards would only wait.
pub(crate) fn training_threads(asked: Option<u16>, plan: &Plan) -> usize {
    threads(asked, plan.recipe.pool.threads).min(plan.recipe.train.shards).max(1)
}

/// The processes of a run; nothing where the command trains by itself.
pub(crate) fn cluster_size(asked: Option<u16>, plan: &Plan) -> Option<Size> {
    let pool = &plan.recipe.pool;
    if pool.is_one_process() {
        return None;
    }
    let workers = pool.workers;
    let threads = match threads(asked, pool.threads) {
        // The cores are shared out unless a number was asked for.
        cores if asked.is_none() && pool.threads == 0 => cores / workers,
        threads => threads,
    };
    let shards = plan.recipe.train.shards.div_ceil(workers);
    Some(Size {
        workers: workers as u32,
        servers: pool.server_count().max(1) as u32,
        threads: threads.min(shards).max(1) as u32,
    })
}

/// About the most memory that all processes of a run take together.
pub(crate) fn memory_bytes(plan: &Plan, threads: usize, size: Option<Size>) -> u64 {
    match size {
        None => memory::estimate_bytes(plan, threads),
        Some(size) => {
            memory::estimate_cluster_bytes(plan, size.workers as usize, size.threads as usize)
        }
    }
}

/// Trains on as many processes as the plan says, and prints how it ended.
pub(crate) fn begin(
    job: Job,
    size: Option<Size>,
    found: Option<Found<Checkpoint>>,
    json: bool,
) -> Result<Option<Exit>> {
    let style = job.style;
    let finished = match size {
        None => Session::new(job, found.map(|found| found.checkpoint))?.run()?,
        Some(size) => cluster::run(job, size, found)?,
    };
    train::conclude(finished, json, style)
}

/// The number of threads asked for, or one per core.
pub(crate) fn threads(asked: Option<u16>, recipe: usize) -> usize {
    match (asked, recipe) {
        (Some(threads), _) => usize::from(threads),
        (None, 0) => std::thread::available_parallelism().map_or(1, usize::from),
        (None, threads) => threads,
    }
}

/// What the recipe checker needs to know of opened data.
pub(crate) fn data_facts(facts: &Facts) -> DataFacts {
    DataFacts {
        input: facts.input,
        classes: facts.classes(),
        examples: usize::try_from(facts.train).unwrap_or(usize::MAX),
    }
}

/// Keeps what opening the data gave while the recipe is still being checked.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub data: Option<DataSet>,
    broken: Option<Failure>,
}

impl Survey {
    /// Opens the data of a recipe: facts of it, or a mistake at the key that named it.
    pub fn open(&mut self, recipe: &Recipe, style: Style) -> Result<DataFacts, Vec<Finding>> {
        let text = format!("reading {}", recipe.data.train);
        let opened = patiently(style, &text, || planaria_data::open(&recipe.data, recipe.seed));
        let facts = finding(opened, recipe, &mut self.broken).map(|data| self.data.insert(data))?;
        Ok(data_facts(&facts.facts))
    }

    /// The failure to report: one of the machine comes before mistakes in the recipe.
    pub fn failure(self, diagnostics: &Diagnostics) -> Failure {
        self.broken.unwrap_or_else(|| Failure::user(diagnostics))
    }
}

/// Refuses an `output.dir` that cannot hold runs.
pub(crate) fn check_output(source: &Source) -> Result<()> {
    let dir = &source.recipe().output.dir;
    let in_the_way = Path::new(dir).ancestors().find(|p| p.exists()).filter(|p| p.is_file());
    let Some(file) = in_the_way else { return Ok(()) };
    let message = format!("`{}` is a file, where a folder for runs is needed", file.display());
    let hint = "name another folder, such as `dir: runs`";
    Err(Failure::user(source.diagnose("output.dir", message, Some(hint))))
}

/// Turns an error of the user's data into a mistake in the recipe, and keeps any other in `broken`.
pub(crate) fn finding<T>(
    result: Result<T, Error>,
    recipe: &Recipe,
    broken: &mut Option<Failure>,
) -> Result<T, Vec<Finding>> {
    result.map_err(|error| match error.kind() {
        Kind::FixInput => {
            let missing = planaria_data::missing(&recipe.data, recipe.seed);
            let errors = if missing.is_empty() { vec![error] } else { missing };
            errors.iter().map(mistake).collect()
        }
        Kind::Retry => {
            *broken = Some(Failure::failed(error));
            Vec::new()
        }
    })
}

fn mistake(error: &Error) -> Finding {
    let mut finding = Finding::new(error.key().unwrap_or("data.train"), error.to_string());
    finding.hint = whereabouts(error);
    finding
}

/// Where a relative path that leads nowhere was looked for.
fn whereabouts(error: &Error) -> Option<String> {
    match error {
        Error::At { cause, .. } => whereabouts(cause),
        Error::Missing { path, .. } if path.is_relative() && !path.exists() => {
            let here = std::env::current_dir().ok()?;
            Some(format!("relative paths start at the current directory, `{}`", here.display()))
        }
        _ => None,
    }
}
