//! Training from a program: the same as `planaria train`, as a value with methods.
//!
//! Owns the way from a recipe, written in a file or put together here, to a finished run; the
//! command line is a thin layer over it. Never prints data, and never listens for signals: a program
//! that wants Ctrl-C to save does as `commands/train.rs` does.
//!
//! # Layout
//! - [`layers`]: layers in a few words
//! - `resuming`: going on with a run
//! - [`scaling`]: the same training with more and more workers

pub mod layers;
pub(crate) mod resuming;
pub mod scaling;
pub mod script;

use crate::library::script::Script;
use crate::screen;
use planaria_control::detached;
use planaria_control::jobs::Machines;
use planaria_control::jobs::train::alone::Session;
use planaria_control::jobs::train::cluster;
use planaria_control::jobs::train::ending::Finished;
use planaria_control::jobs::train::kept;
use planaria_control::jobs::train::{Job, remove_unbegun};
use planaria_control::live::control;
use planaria_control::size::{cluster_size, idle_workers, memory_bytes, training_threads};
use planaria_control::stopping;
use planaria_control::survey::{Survey, anchor, check_output, check_setup};
use planaria_control::talk::{Progress, Talk};
use planaria_control::{memory, program};
use planaria_protocol::checkpoint::{Checkpoint, Found};
use planaria_protocol::launch::Size;
use planaria_recipe::pool::Workers;
use planaria_recipe::train::{Optimizer, Schedule};
use planaria_recipe::{Diagnostics, JobKind, Layer, Plan, Source, to_yaml};
use planaria_runs::clock::{self, Stopwatch};
use planaria_runs::failure::{Failure, Result};
use planaria_runs::run_dir::RunDir;
use planaria_runs::traces::report::Report;
use planaria_text::number::counted;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A training to be: a recipe, and how it is to be run.
///
/// Every method that says something about the recipe overrides what the recipe's file says, as
/// `--set` does; mistakes are found by [`Planaria::train`], all at once.
///
/// # In one process
/// ```
/// use planaria::{Outcome, Planaria};
/// use planaria::layers::{dense, flatten};
///
/// let runs = tempfile::tempdir()?;
/// let report = Planaria::new("tiny")
///     .data("digits")
///     .examples(500)
///     .model([flatten(), dense(10)])
///     .epochs(3)
///     .batch(20)
///     .set("train.optimizer.sgd.learning_rate", "0.1")
///     .output_dir(runs.path())
///     .quiet(true)
///     .train()?;
/// assert_eq!(report.outcome, Outcome::Completed);
/// assert!(report.accuracy.is_some_and(|accuracy| accuracy > 0.3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # On several processes
/// Workers and servers are processes of the `planaria` program. It is the one given to
/// [`Planaria::program`]; else this program itself if it is that program; else a `planaria` beside
/// this program, or on `PATH`. It must be of the same build as this library, which is checked before
/// anything is started.
/// ```no_run
/// let report = planaria::Planaria::from_recipe("examples/digits.yaml")
///     .workers(3)
///     .servers(1)
///     .set("train.shards", "4")
///     .program("target/release/planaria")
///     .train()?;
/// println!("{:?} has {:?}", report.weights_sha256, report.accuracy);
/// # Ok::<(), planaria::Failure>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is done before `train`"]
pub struct Planaria {
    base: Base,
    sets: Vec<String>,
    workers: Option<usize>,
    threads: Option<u16>,
    program: Option<PathBuf>,
    folder: Option<PathBuf>,
    talk: Talk,
    process: Stopwatch,
    begin: Option<Begin>,
    machines: Option<Machines>,
}

/// What is done with a run's folder as soon as there is one.
type Begin = fn(&Path) -> Result<()>;

/// Where a recipe begins.
#[derive(Debug, Clone)]
enum Base {
    File(PathBuf),
    Name(String),
}

impl Planaria {
    /// A recipe to be put together here; [`Planaria::data`] and a model are needed at least.
    pub fn new(name: impl Into<String>) -> Self {
        Self::from(Base::Name(name.into()))
    }

    /// The recipe in a file.
    pub fn from_recipe(path: impl Into<PathBuf>) -> Self {
        Self::from(Base::File(path.into()))
    }

    /// A TensorFlow, PyTorch or other script of one's own, to be run unchanged on a pool.
    pub fn script(file: impl AsRef<Path>) -> Script {
        Script::new(file)
    }

    fn from(base: Base) -> Self {
        program::is_of_build(crate::BUILD);
        Self {
            base,
            sets: Vec::new(),
            workers: None,
            threads: None,
            program: None,
            folder: None,
            talk: screen::talk(false),
            process: Stopwatch::start(),
            begin: None,
            machines: None,
        }
    }

    /// What is learned from: `digits`, or a file or folder of examples.
    pub fn data(self, train: impl AsRef<Path>) -> Self {
        self.put("data.train", &train.as_ref().to_string_lossy())
    }

    /// Examples to use.
    pub fn examples(self, examples: usize) -> Self {
        self.put("data.examples", &examples)
    }

    /// The network, layer by layer; see [`layers`].
    pub fn model(self, layers: impl IntoIterator<Item = Layer>) -> Self {
        let layers: Vec<Layer> = layers.into_iter().collect();
        self.put("model", &serde_json::json!({ "layers": layers }))
    }

    /// A ready-made network, such as `resnet20`.
    pub fn preset(self, name: &str) -> Self {
        self.put("model", &serde_json::json!({ "preset": name }))
    }

    /// Passes over the training examples.
    pub fn epochs(self, epochs: usize) -> Self {
        self.put("train.epochs", &epochs)
    }

    /// Examples per step.
    pub fn batch(self, examples: usize) -> Self {
        self.put("train.batch", &examples)
    }

    /// How parameters follow their gradients.
    pub fn optimizer(self, optimizer: Optimizer) -> Self {
        self.put("train.optimizer", &optimizer)
    }

    /// How the learning rate changes.
    pub fn schedule(self, schedule: Schedule) -> Self {
        self.put("train.schedule", &schedule)
    }

    /// What everything random follows from.
    pub fn seed(self, seed: u64) -> Self {
        self.put("seed", &seed)
    }

    /// Worker processes; the result does not depend on it. Where the recipe says how many there must
    /// be at least, that goes on to hold, as far as so many have it.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Server processes; the result does not depend on it.
    pub fn servers(self, servers: usize) -> Self {
        self.put("pool.servers", &servers)
    }

    /// Threads of each process that computes; the cores are shared out when left out. The result
    /// does not depend on it.
    pub fn threads(mut self, threads: u16) -> Self {
        self.threads = Some(threads);
        self
    }

    /// The folder of runs, in which this one gets a folder of its own.
    pub fn output_dir(self, folder: impl AsRef<Path>) -> Self {
        self.put("output.dir", &folder.as_ref().to_string_lossy())
    }

    /// Any key of the recipe; the value is YAML, such as `4` or `{sgd: {momentum: 0.9}}`.
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.sets.push(format!("{key}={value}"));
        self
    }

    /// Whether nothing is said on stderr.
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.talk = screen::talk(quiet);
        self
    }

    /// The `planaria` program that workers and servers are processes of.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Trains to the end. A run that failed is an error; one that was stopped is a report whose
    /// outcome says so.
    pub fn train(self) -> Result<Report> {
        let Finished { report, failure, .. } = self.run()?;
        match failure {
            Some(failure) => Err(failure),
            None => Ok(report),
        }
    }

    /// Overrides as `--set` writes them.
    pub(crate) fn sets(mut self, sets: impl IntoIterator<Item = String>) -> Self {
        self.sets.extend(sets);
        self
    }

    /// How it talks, and when its process began.
    pub(crate) fn talking(mut self, talk: Talk, process: Stopwatch) -> Self {
        (self.talk, self.process) = (talk, process);
        self
    }

    /// What is done with the run's folder as soon as there is one.
    pub(crate) fn beginning(mut self, begin: Begin) -> Self {
        self.begin = Some(begin);
        self
    }

    /// Machines that are there already, in the place of those of the recipe's pool.
    pub(crate) fn machines(mut self, machines: Machines) -> Self {
        self.machines = Some(machines);
        self
    }

    /// As if its process had begun now.
    pub(crate) fn since_now(mut self) -> Self {
        self.process = Stopwatch::start();
        self
    }

    /// Exactly this folder for the run.
    pub(crate) fn folder(mut self, folder: PathBuf) -> Self {
        self.folder = Some(folder);
        self
    }

    /// The recipe as it is after all overrides, checked as far as that goes without data.
    pub(crate) fn source(&self) -> Result<Source> {
        Ok(self.read(&self.all_sets())?)
    }

    fn read(&self, sets: &[String]) -> Result<Source, Diagnostics> {
        match &self.base {
            Base::File(path) => Source::load(path, sets),
            Base::Name(name) => Source::parse(BUILT, &built(name), sets),
        }
    }

    /// All overrides. How many workers there are at least is in the recipe, so it is looked up.
    fn all_sets(&self) -> Vec<String> {
        let Some(max) = self.workers else { return self.sets.clone() };
        let workers = match self.read(&self.sets) {
            Ok(source) => source.recipe().pool.workers.at_most(max),
            // What is wrong with it is found again, and told then.
            Err(_) => Workers::Count(max),
        };
        self.clone().put("pool.workers", &workers).sets
    }

    /// Trains to the end, however that comes.
    pub(crate) fn run(self) -> Result<Finished> {
        let (job, size) = self.job()?;
        let folder = job.run.path().to_path_buf();
        train(job, size, None).inspect_err(|_| remove_unbegun(&folder))
    }

    /// Leaves the training to the machines of the recipe's pool. The folder of the run.
    pub(crate) fn detach(self) -> Result<PathBuf> {
        let threads = self.threads;
        let (job, _) = self.job()?;
        let folder = job.run.path().to_path_buf();
        detached::beginning::begin(job, threads).inspect_err(|_| remove_unbegun(&folder))
    }

    /// Checks everything, and makes the run's folder.
    fn job(self) -> Result<(Job, Option<Size>)> {
        let mut survey = Survey::default();
        let open = |recipe: &mut _| {
            anchor(recipe);
            survey.open_fitting(recipe, self.talk)
        };
        let sets = self.all_sets();
        let planned = match &self.base {
            Base::File(path) => Source::load_and_plan(path, &sets, open),
            Base::Name(name) => Source::parse_and_plan(BUILT, &built(name), &sets, open),
        };
        let (source, plan) = match planned {
            Ok(planned) => planned,
            Err(mistakes) => return Err(survey.failure(&mistakes)),
        };
        if let Some(remark) = &survey.remark {
            Progress::new(self.talk).note(&format!("warning: {remark}"));
        }
        let data = survey.data.expect("a plan is made from opened data");
        check_output(&source, &source.recipe().output.dir)?;
        if plan.recipe.pool.has_machines() && self.machines.is_none() {
            check_setup(&source, &plan.recipe.setup)?;
        }
        planaria_worker::methods::check(&plan.recipe, plan.input, &data).map_err(Failure::from)?;
        let threads = training_threads(self.threads, &plan);
        let size = cluster_size(self.threads, &plan);
        if !plan.recipe.pool.has_machines() {
            memory::check(&plan, memory_bytes(&plan, threads, size))?;
        }
        let program = program(size, self.program.as_deref())?;
        let recipe_text = to_yaml(&plan.recipe);
        let run = match self.folder {
            Some(folder) => RunDir::create_at(folder),
            None => {
                let now = clock::unix_seconds() as u64;
                RunDir::create(Path::new(&plan.recipe.output.dir), &plan.recipe.name, now)
            }
        };
        let run = run.map_err(|failure| match failure.hint {
            None => failure.hint("runs go where `output.dir` says: name another folder there"),
            Some(_) => failure,
        })?;
        run.write("recipe.yaml", recipe_text.as_bytes())?;
        stopping::begin(run.path(), JobKind::Train);
        if let Some(begin) = self.begin {
            begin(run.path())?;
        }
        let text = format!(
            "run {}: {}, {}, {}",
            run.path().display(),
            processes(&plan, size, threads),
            counted(data.train.len(), "example"),
            counted(plan.parameters, "parameter")
        );
        let mut progress = Progress::new(self.talk);
        progress.note(&text);
        plan.batch_note().iter().for_each(|note| progress.note(&format!("note: {note}")));
        if let Some((_, text)) = idle_workers(&plan, size) {
            progress.note(&format!("warning: {text}"));
        }
        let (talk, process, machines) = (self.talk, self.process, self.machines);
        Ok((Job { plan, data, run, recipe_text, threads, talk, process, program, machines }, size))
    }

    fn put(self, key: &str, value: &(impl Serialize + ?Sized)) -> Self {
        // JSON is YAML.
        let value = serde_json::to_string(value).expect("plain values have string keys only");
        self.set(key, &value)
    }
}

/// What messages call a recipe that has no file.
const BUILT: &str = "the recipe";

fn built(name: &str) -> Vec<u8> {
    serde_json::json!({ "name": name }).to_string().into_bytes()
}

/// The program of a run's processes; nothing where it has none.
pub(crate) fn program(size: Option<Size>, given: Option<&Path>) -> Result<Option<PathBuf>> {
    size.map(|_| program::find(given)).transpose()
}

/// Trains on as many processes as were asked for, from a checkpoint if there is one.
pub(crate) fn train(
    job: Job,
    size: Option<Size>,
    found: Option<Found<Checkpoint>>,
) -> Result<Finished> {
    control::forget(job.run.path());
    match size {
        None => {
            // One process goes on from checkpoints alone.
            kept::remove(job.run.path());
            Session::new(job, found.map(|found| found.checkpoint))?.run()
        }
        Some(size) => cluster::run(job, size, found),
    }
}

/// `3 workers × 1 thread, 1 server`; `1 process, 2 threads`.
pub(crate) fn processes(plan: &Plan, size: Option<Size>, threads: usize) -> String {
    match size {
        None => format!("1 process, {}", counted(threads as u64, "thread")),
        Some(size) => {
            let least = match size.workers_min {
                0 | 1 => String::new(),
                least => format!(" (at least {least})"),
            };
            let pool = &plan.recipe.pool;
            let each = match pool.has_machines() {
                false => format!(" × {}", counted(size.threads.into(), "thread")),
                true => format!(" on {}", counted(pool.machine_count() as u64, "machine")),
            };
            let workers = counted(size.workers.into(), "worker");
            format!("{workers}{least}{each}, {}", counted(size.servers.into(), "server"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_workers_is_the_most_there_are() {
        let training = || Planaria::new("a").data("digits").preset("mlp");
        let workers = |training: Planaria| {
            let workers = training.source().unwrap().recipe().pool.workers;
            (workers.min(), workers.max())
        };
        assert_eq!(workers(training().workers(3)), (1, 3));
        let ranged = || training().set("pool.workers", "{min: 4, max: 8}");
        assert_eq!(workers(ranged()), (4, 8));
        assert_eq!(workers(ranged().workers(6)), (4, 6));
        assert_eq!(workers(ranged().workers(2)), (2, 2));
        // The number asked for is beyond doubt; what is wrong besides is told.
        let wrong = training().set("pool.workers", "{min: 9, max: 8}");
        assert!(wrong.clone().source().is_err());
        assert_eq!(workers(wrong.workers(2)), (1, 2));
    }
}
