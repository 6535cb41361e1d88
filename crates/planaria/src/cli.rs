//! The command line: what can be asked, and how it is explained.
//!
//! Owns names, defaults and help texts. Never does anything.

mod agent;
mod beginning;
mod leaving;
mod resuming;

use crate::chaos::words::lasting;
use crate::chaos::{Share, Span, Target, Victims};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

pub use agent::Role;
pub use beginning::{Data, DataGet, Init};
pub use resuming::Resume;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed: the training, the data or the disk
  2    something to mend in the command, the recipe or a file
  3    of `audit`: events are missing; what is still proven is told
  130  interrupted by Ctrl-C, SIGTERM or SIGHUP, after saving
  131  stopped at once, without saving: a second Ctrl-C, or one before the first step

Data goes to stdout, everything else to stderr.";

/// Trains neural networks on whatever machines can be had, and loses nothing.
#[derive(Debug, Parser)]
#[command(name = "planaria", version, after_help = EXIT_CODES, propagate_version = true)]
pub struct Cli {
    /// Say nothing on stderr but errors.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// What this process was asked. A run starts its agents one after another and waits for them, so
    /// nothing is built for them of what people can ask.
    pub fn of_process() -> Self {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next().is_some_and(|first| first == "agent") {
            let words: Vec<OsString> = arguments.collect();
            return Self { quiet: false, command: Command::Agent(Role::of(&words)) };
        }
        Self::parse()
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train the network of a recipe.
    #[command(after_help = "\
Examples:
  planaria train examples/digits.yaml
  planaria train mnist.yaml --set train.epochs=3 --set train.optimizer.sgd.learning_rate=0.1
  planaria train mnist.yaml --json > report.json
  planaria train mnist.yaml --workers 3 --servers 1
  planaria train mnist.yaml --scaling 1,2,4
  planaria train mnist.yaml --detach

Everything goes to a folder `runs/<name>-<timestamp>/`: the resolved recipe, metrics, TensorBoard
events, checkpoints, the model (the last weights; the best are in `checkpoints/best`) and a report.
Ctrl-C saves and stops; `planaria resume` goes on with the same bits.")]
    Train(Train),
    /// Run a TensorFlow, PyTorch, JAX, Horovod, MPI or plain script of your own, unchanged.
    #[command(after_help = "\
Examples:
  planaria run examples/scripts/torch_ddp.yaml
  planaria run train.py --workers 4
  planaria run train.py --workers 4 --pool lab.yaml --outputs '*.pt' -- --lr 0.1
  planaria run train.py --framework tensorflow --roles chief=1,worker=2,ps=1 --pool lab.yaml
  planaria run train.py --torchrun --workers 8 --pool lab.yaml

The folder of the script goes to every machine of the pool, without what git ignores; its processes
are told of each other as the framework wants it (TF_CONFIG, MASTER_ADDR, torchrun…). What they
write is shown with their names and kept in `runs/<name>-<timestamp>/logs`, figures in
`metrics.jsonl`, files that match `outputs` in `outputs`. Processes that fail are started again, up
to `max_restarts` times. The exit code is that of the process that failed first. docs/scripts.md
says the rest.")]
    Run(Box<Run>),
    /// Go on with a run that was interrupted.
    #[command(after_help = "\
Examples:
  planaria resume runs/digits-20250131-120000
  planaria resume digits-20250131-120000 --workers 5
  planaria resume --set train.epochs=40

The run (the newest when left out) goes on from what was kept last and ends with the same weights as if
it had never stopped, on as many processes as you like. --set changes where it is computed (`pool`,
`setup`), what is kept (`output`) and when it ends (`train.epochs`, `train.early_stopping`), so that a
run that has ended can be trained for longer; the run's recipe.yaml says so from then on.")]
    Resume(Resume),
    /// Score a trained network on some data.
    #[command(after_help = "\
Examples:
  planaria evaluate runs/mnist-20250131-120000 --data data/mnist
  planaria evaluate mnist-20250131-120000 --data data/mnist --checkpoint best --json

In a folder that holds both, the test files are taken, not those for training.")]
    Evaluate(Evaluate),
    /// List runs, newest first.
    #[command(after_help = "\
Examples:
  planaria runs
  planaria runs --dir /mnt/runs --json

States: running, completed, stopped early, interrupted (stopped and saved), failed, and killed: the
run has not ended, and no process is at work on it. `planaria resume` goes on with the last three.")]
    Runs(Runs),
    /// Show where a run stands, and what can be done next.
    #[command(after_help = "\
Examples:
  planaria status
  planaria status digits-20250131-120000 --json

A live run on several processes is asked; any other is told from its events.jsonl.")]
    Status(Status),
    /// Ask a live run to save and stop.
    #[command(after_help = "\
Examples:
  planaria stop digits-20250131-120000
  planaria stop digits-20250131-120000 --wait && planaria resume digits-20250131-120000

It stops as by Ctrl-C: after the step under way, saved. Exit code 2 says that it is not running.")]
    Stop(Stop),
    /// Ask a live run to go on with more or fewer workers or machines.
    #[command(after_help = "\
Examples:
  planaria scale digits-20250131-120000 workers=4
  planaria scale digits-20250131-120000 machines=+2
  planaria scale digits-20250131-120000 workers=1 --json

Workers join and leave while the training goes on, and machines of a pool come and go with them; the weights come out the same. A number below
the recipe's `pool.workers.min` is the new least size. Exit code 2 says that it is not running, or is one process.")]
    Scale(Scale),
    /// Print what the processes of a run have logged.
    #[command(after_help = "\
Examples:
  planaria logs digits-20250131-120000
  planaria logs digits-20250131-120000 worker-2 --tail 20
  planaria logs digits-20250131-120000 -f

Lines of several processes are merged by time; those of a script, which tell no time, stand process
by process. -f goes on until the run ends.")]
    Logs(Logs),
    /// Prove that a run read every example exactly once per epoch.
    #[command(after_help = "\
Examples:
  planaria audit digits-20250131-120000
  planaria audit digits-20250131-120000 --json

Adds up what every committed step read, as events.jsonl has it, over all losses and restarts, and
compares it with the data. Exit code 1 says that it does not add up, and why.")]
    Audit(Audit),
    /// Break a live run on purpose, to see that it survives.
    #[command(after_help = "\
Examples:
  planaria chaos digits-20250131-120000
  planaria chaos digits-20250131-120000 --kill worker,server,coordinator --every 1s..3s --for 10m
  planaria chaos digits-20250131-120000 --pause 2s --slow --drop 5% --seed 7
  planaria chaos digits-20250131-120000 --drop 100% --target worker-2

Only processes of this run are touched. Ctrl-C ends it, and what was stopped goes on. Exit code 1
says that the run failed meanwhile.")]
    Chaos(Chaos),
    /// Give back the machines that runs hold.
    #[command(after_help = "\
Examples:
  planaria down digits-20250131-120000
  planaria down --all

A live run is stopped first, saved. Runs give back what they hold when they end; this is for those
that could not, because they were killed or a machine did not answer. What cannot be given back is
told with the reason, and stays written down in the run's folder: exit code 1.")]
    Down(Down),
    /// Show what works here for each provider, and what to install.
    #[command(after_help = "\
Examples:
  planaria doctor
  planaria doctor mnist.yaml
  planaria doctor --leaks
  planaria doctor --leaks --fix

With a recipe, its machines are tried for real: reached, a program started there, and all of it
removed again. --leaks lists what providers still hold for runs that do not live. Exit code 1 says
that something the recipe asks for does not work, or that leaks are left. Of a script's recipe it is
also seen whether its Python, with its framework, is there.")]
    Doctor(Doctor),
    /// Show what a recipe would do, without doing it.
    #[command(after_help = "\
Examples:
  planaria plan examples/digits.yaml
  planaria plan mnist.yaml --set 'model={preset: resnet20}' --json
  planaria plan examples/scripts/torch_ddp.yaml

A recipe with a `script` is checked as `planaria run` does, and nothing is created.")]
    Plan(Plan),
    /// Write a recipe for a table, or for a folder of images, that can be trained at once.
    #[command(after_help = "\
Examples:
  planaria init houses.csv
  planaria init houses.csv --label price -o - | planaria plan -
  planaria init data/mnist

Looks at the first rows (at most 100,000, and 32 MiB) and guesses the header, the delimiter, the
label, and which columns are numbers, categories, or of no use; comments in the recipe say why. It
is written beside the data, `houses.yaml` for `houses.csv`.")]
    Init(Init),
    /// Fetch public data sets.
    #[command(
        subcommand,
        after_help = "\
Examples:
  planaria data list
  planaria data get mnist
  planaria data get cifar10 --to /data/cifar10
  planaria data get mnist --from http://mirror.lab/mnist

Every file is compared with its published SHA-256. `curl` or `wget` fetches; an interrupted
download continues where it stopped."
    )]
    Data(Data),
    /// Print the JSON Schema of recipes, for editors.
    #[command(after_help = "\
Example:
  planaria schema > recipe.schema.json")]
    Schema,
    /// Print what a shell completes the words of this command line by.
    #[command(after_help = "\
Examples:
  planaria completions bash > ~/.local/share/bash-completion/completions/planaria
  planaria completions zsh > ~/.zfunc/_planaria
  planaria completions fish > ~/.config/fish/completions/planaria.fish")]
    Completions(Completions),
    /// Print a manual page, of the program or of one command.
    #[command(after_help = "\
Examples:
  planaria man | man -l -
  planaria man train | man -l -
  planaria man > ~/.local/share/man/man1/planaria.1")]
    Man(Man),
    /// A process of a run; started by `train` and `resume`.
    #[command(hide = true, subcommand)]
    Agent(Role),
}

/// How many processes; the result does not depend on it.
#[derive(Debug, Clone, Copy, Args)]
pub struct Processes {
    /// Worker processes, at most; as in the recipe when left out. The result does not depend on it.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub workers: Option<u16>,
    /// Server processes; as in the recipe when left out. The result does not depend on it.
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub servers: Option<u16>,
    /// Threads of each process that computes; the cores are shared out when left out. The result
    /// does not depend on it.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// `planaria run`.
#[derive(Debug, Args)]
pub struct Run {
    /// A recipe with a `script`, or the script itself.
    pub file: PathBuf,
    /// A recipe whose `pool` and `setup` are used with a script.
    #[arg(long, value_name = "RECIPE")]
    pub pool: Option<PathBuf>,
    /// What the script is written for: tensorflow, pytorch, jax, horovod, mpi or plain; told from
    /// what it imports when left out.
    #[arg(long)]
    pub framework: Option<String>,
    /// Worker processes; one when left out.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub workers: Option<u16>,
    /// Processes of each role: `chief=1,worker=2,ps=1`.
    #[arg(long, value_delimiter = ',', value_name = "ROLE=COUNT")]
    pub roles: Vec<String>,
    /// Worker processes on each machine: a number, `core` or `gpu`.
    #[arg(long, value_name = "COUNT")]
    pub per_machine: Option<String>,
    /// Start PyTorch by torchrun, elastic: one on each machine.
    #[arg(long)]
    pub torchrun: bool,
    /// Files to bring back, as patterns: `*.pt`, `logs/**`; can be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub outputs: Vec<String>,
    /// Python on the machines, such as `~/venv/bin/python`.
    #[arg(long)]
    pub python: Option<String>,
    /// Show this folder of event files in TensorBoard while it runs.
    #[arg(long, value_name = "FOLDER")]
    pub tensorboard: Option<String>,
    /// How often processes that fail are started again.
    #[arg(long, value_name = "COUNT")]
    pub max_restarts: Option<u32>,
    /// Names the run; the script's name when left out.
    #[arg(long)]
    pub name: Option<String>,
    /// Override a key of the recipe, such as `script.port=2222`; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Print the report as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub leaving: leaving::Leaving,
    /// Arguments of the script, after `--`; `{{index}}`, `{{worker_hosts}}`… are filled in.
    #[arg(last = true)]
    pub args: Vec<String>,
}

/// A recipe and changes to it.
#[derive(Debug, Args)]
pub struct RecipeArgs {
    /// The recipe file.
    pub recipe: PathBuf,
    /// Override a key of the recipe, such as `train.epochs=3`; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

/// Options of `train`.
#[derive(Debug, Args)]
pub struct Train {
    /// The recipe.
    #[command(flatten)]
    pub recipe: RecipeArgs,
    /// Print the report as one JSON document on stdout.
    #[arg(long)]
    pub json: bool,
    /// Train once with each of these numbers of workers, and compare: a table on stdout, and
    /// `scaling.html` and `scaling.json` beside the runs. Workers have one thread each unless
    /// `--threads` says otherwise.
    #[arg(long, value_name = "N,N,…", conflicts_with = "workers")]
    pub scaling: Option<String>,
    /// Leave the training to itself: once it has begun the run's name is printed, and neither the
    /// terminal nor this command is needed any more. `status`, `logs -f` and `stop` find it.
    #[arg(long, conflicts_with_all = ["scaling", "json"])]
    pub detach: bool,
    /// This is the process that `--detach` leaves behind.
    #[arg(long, hide = true, conflicts_with_all = ["scaling", "json", "detach"])]
    pub detached: bool,
    #[command(flatten)]
    pub processes: Processes,
}

/// Options of `runs`.
#[derive(Debug, Args)]
pub struct Runs {
    /// The folder of runs.
    #[arg(long, value_name = "FOLDER", default_value = planaria_runs::run_dir::DEFAULT_RUNS)]
    pub dir: PathBuf,
    /// Print the list as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// The run's folder, or its name under `runs/` or the beginning of one; the newest run when left out.
    pub run: Option<String>,
    /// Print everything as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Options of `stop`.
#[derive(Debug, Args)]
pub struct Stop {
    /// The run's folder, or its name under `runs/` or the beginning of one; the newest run when left out.
    pub run: Option<String>,
    /// Wait until it has stopped.
    #[arg(long)]
    pub wait: bool,
}

/// Options of `scale`.
#[derive(Debug, Args)]
pub struct Scale {
    /// The run (the newest when left out), and how many workers to go on with, from 1 to 1024
    /// (`workers=4`); or how many machines (`machines=4`), or by how many more or fewer (`machines=+2`,
    /// `machines=-1`).
    #[arg(value_name = "[RUN] CHANGE", num_args = 1..=2, required = true)]
    pub words: Vec<String>,
    /// Print what came of it as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Options of `logs`.
#[derive(Debug, Clone, Args)]
pub struct Logs {
    /// The run's folder, or its name under `runs/` or the beginning of one; the newest run when left out.
    pub run: Option<String>,
    /// Only this process, such as `worker-2`, `server-0`, `coordinator` or `ps-0`.
    pub process: Option<String>,
    /// Go on printing until the run ends.
    #[arg(long, short)]
    pub follow: bool,
    /// Begin with the last lines only; of each process, where it is a script's run.
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
}

/// Options of `audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// The run's folder, or its name under `runs/` or the beginning of one; the newest run when left out.
    pub run: Option<String>,
    /// Print everything as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Options of `chaos`.
#[derive(Debug, Args)]
pub struct Chaos {
    /// The run's folder, or its name under `runs/` or the beginning of one; the newest run when left out.
    pub run: Option<String>,
    /// Kill such processes; can be repeated. Workers, where no fault is named.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHO")]
    pub kill: Vec<Victims>,
    /// Stop a process for a while; for how long, `500ms..3s` when left out.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "500ms..3s")]
    #[arg(value_parser = lasting)]
    pub pause: Option<Span>,
    /// Give a worker a fiftieth of the time for a while; for how long, `2s..5s` when left out.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s..5s")]
    #[arg(value_parser = lasting)]
    pub slow: Option<Span>,
    /// Lose this share of what a process sends, for a while; 100% cuts it off.
    #[arg(long, value_name = "SHARE")]
    pub drop: Option<Share>,
    /// Time between faults, such as `500ms`, `2s` or `1s..3s`.
    #[arg(long, value_name = "TIME", default_value = "1s..3s", value_parser = lasting)]
    pub every: Span,
    /// How long to go on; until the run is over when left out. One fault is tried in any case.
    #[arg(long = "for", value_name = "TIME")]
    pub lasts: Option<Span>,
    /// What follows from the same seed is the same; a random one when left out.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Only this process, such as `worker-2`, `server-0` or `coordinator`.
    #[arg(long, value_name = "PROCESS")]
    pub target: Option<Target>,
    /// Print one JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Options of `down`.
#[derive(Debug, Args)]
pub struct Down {
    /// The run's folder, or its name in the folder of runs; the newest that holds something when
    /// left out.
    pub run: Option<String>,
    /// All runs of the folder.
    #[arg(long, conflicts_with = "run")]
    pub all: bool,
    /// The folder of runs.
    #[arg(long, value_name = "FOLDER", default_value = planaria_runs::run_dir::DEFAULT_RUNS)]
    pub dir: PathBuf,
    /// Cross out machines that cannot be given back, such as hosts that are gone for good or were never
    /// there. What may still run on them is not looked for again.
    #[arg(long)]
    pub forget: bool,
    /// Print what came of it as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// A recipe, whose machines are tried too.
    pub recipe: Option<PathBuf>,
    /// Override a key of the recipe, such as `pool.machines=2`; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "recipe")]
    pub sets: Vec<String>,
    /// List what providers still hold for runs that do not live.
    #[arg(long)]
    pub leaks: bool,
    /// Remove that, too.
    #[arg(long, requires = "leaks")]
    pub fix: bool,
    /// The folder of runs, for `--leaks`.
    #[arg(long, value_name = "FOLDER", default_value = planaria_runs::run_dir::DEFAULT_RUNS)]
    pub dir: PathBuf,
    /// Print everything as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Options of `evaluate`.
#[derive(Debug, Args)]
pub struct Evaluate {
    /// The run's folder, or its name under `runs/` or the beginning of one; the newest run when left out.
    pub run: Option<String>,
    /// `digits`, or a file or folder of examples.
    #[arg(long, value_name = "PATH")]
    pub data: String,
    /// Which weights to score.
    #[arg(long, value_enum, default_value_t = Which::Model)]
    pub checkpoint: Which,
    /// Print the scores as one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Threads that compute; one per core when left out.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Which weights of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// `model.safetensors`, the last weights.
    Model,
    /// `checkpoints/last`.
    Last,
    /// `checkpoints/best`.
    Best,
}

impl Which {
    /// As written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Last => "last",
            Self::Best => "best",
        }
    }
}

/// Options of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    pub shell: Shell,
}

/// A shell that completes words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Options of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// The page of this command.
    pub command: Option<String>,
}

/// Options of `plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// The recipe.
    #[command(flatten)]
    pub recipe: RecipeArgs,
    /// Print the plan as one JSON document.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
