//! The recipe's top level and its smaller sections.

use crate::model::Model;
use crate::pool::Pool;
use crate::setup::Step;
use crate::table::{LabelKind, Standardize, Table};
use crate::train::Train;
use serde::{Deserialize, Serialize};

/// A whole recipe, every default filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Names the run directory.
    pub name: String,
    /// Everything random follows from it.
    #[serde(default)]
    pub seed: u64,
    /// Where machines come from.
    #[serde(default)]
    pub pool: Pool,
    /// What machines need before they can work: steps, in order, on each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<Step>,
    /// What is learned from.
    pub data: Data,
    /// What is learned.
    pub model: Model,
    /// How it is learned.
    #[serde(default)]
    pub train: Train,
    /// What is kept.
    #[serde(default)]
    pub output: Output,
}

impl Recipe {
    /// The parts that decide what a step computes. A run may go on with other machines, keep other
    /// checkpoints and end at another epoch; two recipes that agree in this are one run's.
    pub fn of_steps(&self) -> Self {
        let train = Train { epochs: 0, early_stopping: None, ..self.train.clone() };
        let (pool, setup, output) = (Pool::default(), Vec::new(), Output::default());
        Self { pool, setup, output, train, ..self.clone() }
    }

    /// What to try where numbers have left their range: the loss is NaN or infinity.
    pub fn remedy(&self) -> Remedy {
        let table = self.data.table.as_ref();
        let labels = table.is_some_and(|t| t.target == LabelKind::Number && !t.standardize_target);
        let columns = table.is_some_and(|t| t.standardize == Standardize::All(false));
        Remedy { labels, columns }
    }
}

/// What to try where numbers have left their range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Remedy {
    /// Labels could be standardised.
    labels: bool,
    /// A table's columns could be.
    columns: bool,
}

impl Remedy {
    /// As a hint; the learning rate was so much.
    pub fn at(self, learning_rate: f32) -> String {
        let Self { labels, columns } = self;
        let mut hint = format!(
            "lower `learning_rate` (it was {learning_rate}), add `warmup_steps` or set `clip_norm`"
        );
        let unscaled = [(labels, "standardize_target"), (columns, "standardize")];
        for (_, key) in unscaled.iter().filter(|(is_unscaled, _)| *is_unscaled) {
            hint += &format!("; `data.table.{key}` is false, and true keeps numbers small");
        }
        hint
    }
}
/// The word for the built-in data (a file or folder of that name is `./digits`).
pub const DIGITS: &str = "digits";

crate::json::json!(Data);

/// The `data` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// `digits` (drawn from the seed), or a file or folder of examples, relative to the current directory, or else to the recipe's folder.
    pub train: String,
    /// Held-out examples: a path, or a share of `train` (such as 0.1) set aside by the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<Part>,
    /// Examples to validate on after each epoch: a path, or a share of `train`.
    /// A tenth of `train` when left out; `null` for none.
    #[serde(default = "tenth")]
    pub validation: Option<Part>,
    /// Format of the files; `auto` looks at them.
    #[serde(default)]
    pub format: Format,
    /// How the columns of a table (`format: csv` or `libsvm`) become features and labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<Table>,
    /// Examples to use: how many `digits` draws, or at most how many of the files' are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 1, max = 1_000_000_000)))]
    pub examples: Option<usize>,
    /// How pixel values are scaled.
    #[serde(default)]
    pub normalize: Normalize,
    /// Random changes to training examples.
    #[serde(default)]
    pub augment: Augment,
}

impl Data {
    /// Paths of files and folders in it; `digits` is none.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let held_out = [&mut self.validation, &mut self.test].into_iter().flatten();
        let own = held_out.filter_map(|part| match part {
            Part::Path(path) => Some(path),
            Part::Share(_) => None,
        });
        std::iter::once(&mut self.train).chain(own).filter(|path| path.as_str() != DIGITS)
    }
}

/// A held-out part of the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Part {
    /// Share of the training examples, above 0 and below 1.
    Share(f64),
    /// A file or folder of its own.
    Path(String),
}

/// File formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Look at the files.
    #[default]
    Auto,
    /// MNIST's idx files, plain or .gz.
    Idx,
    /// CIFAR-10's binary batches, .bin or .xz.
    Cifar10,
    /// A table of comma-separated values, plain, .gz or .xz; `table` says what its columns are.
    Csv,
    /// LIBSVM's sparse text, `label index:value …` with indices from 1; plain, .gz or .xz.
    Libsvm,
}

/// How values are scaled before training: (value/255 − mean) / std for bytes, (value − mean) / std for floats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Normalize {
    /// Mean of each channel; one number serves all.
    pub mean: Vec<f32>,
    /// Standard deviation of each channel; one number serves all.
    pub std: Vec<f32>,
}

impl Default for Normalize {
    fn default() -> Self {
        Self { mean: vec![0.0], std: vec![1.0] }
    }
}

/// Random changes, drawn by (seed, epoch, example).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Augment {
    /// Zero pixels added on each side before a random crop back to size.
    #[cfg_attr(test, schemars(range(min = 0, max = 512)))]
    pub crop_padding: usize,
    /// Mirror left to right half of the time.
    pub horizontal_flip: bool,
    /// Side of a square set to zero at a random place; 0 for none.
    #[cfg_attr(test, schemars(range(min = 0, max = 4096)))]
    pub cutout: usize,
}

/// The `output` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Output {
    /// Folder of run directories.
    pub dir: String,
    /// Write a checkpoint at the end of every so many epochs, and of the last. 0 is every epoch; of
    /// a coded run, whose epochs may be single steps, about 20 in all.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub checkpoint_epochs: u64,
    /// Also write a checkpoint every so many steps; 0 writes them at the end of epochs only.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub checkpoint_steps: u64,
    /// Checkpoints kept besides the best.
    #[cfg_attr(test, schemars(range(min = 1, max = 1000)))]
    pub keep: usize,
}

impl Default for Output {
    fn default() -> Self {
        Self { dir: "runs".into(), checkpoint_epochs: 0, checkpoint_steps: 0, keep: 2 }
    }
}

fn tenth() -> Option<Part> {
    Some(Part::Share(0.1))
}
