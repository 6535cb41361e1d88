//! What comes before the first training: data, and a recipe for it.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `planaria data`.
#[derive(Debug, Subcommand)]
pub enum Data {
    /// List the sets that can be fetched.
    List,
    /// Fetch a set into a folder, and print the folder.
    Get(DataGet),
}

/// Options of `data get`.
#[derive(Debug, Args)]
pub struct DataGet {
    /// As `planaria data list` names it.
    pub name: String,
    /// The folder; `data/NAME` when left out.
    #[arg(long, value_name = "FOLDER")]
    pub to: Option<PathBuf>,
    /// A mirror of your own, in the place of the public ones: where the files are.
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,
}

/// Options of `init`.
#[derive(Debug, Args)]
pub struct Init {
    /// A table (.csv, .tsv, .libsvm, also .gz or .xz), or idx or CIFAR-10 files.
    pub data: PathBuf,
    /// Column of a table that is learned: its name, or its number (1 is the first, -1 the last).
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub label: Option<String>,
    /// Where the recipe is written; `-` is stdout.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a recipe that is there.
    #[arg(long)]
    pub force: bool,
}
