//! Options of `resume`.

use super::Processes;
use super::leaving::Leaving;
use clap::Args;

/// Options of `resume`.
#[derive(Debug, Args)]
pub struct Resume {
    /// The run's folder, or its name under `runs/` or the beginning of one; the newest run when left out.
    pub run: Option<String>,
    /// Change a key of the run's recipe, such as `train.epochs=40`; can be repeated. What a step computes
    /// stays as it is.
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "watch")]
    pub sets: Vec<String>,
    /// Print the report as one JSON document on stdout.
    #[arg(long)]
    pub json: bool,
    /// Watch a run that was left to its machines, and go on with it from here should the machine of its
    /// controller be lost; ends when the run does.
    #[arg(long, conflicts_with_all = ["detach", "detached"])]
    pub watch: bool,
    #[command(flatten)]
    pub leaving: Leaving,
    #[command(flatten)]
    pub processes: Processes,
}
