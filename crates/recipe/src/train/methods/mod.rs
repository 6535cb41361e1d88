//! Training methods as recipes know them: one file for each, with its settings and what follows from
//! them. What a method asks of the rest of a recipe is its file of `rules`.
//!
//! Owns the list of methods. Others ask a run's [`Traits`], never which method it has.

mod coded;
mod sync;

use super::Train;
pub use coded::{Coded, LinearPrecision};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the work of a step is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Shards of each batch to workers, parameters on servers: any network.
    #[default]
    Sync,
    /// Coded data: linear models, whose workers may leave and come at any moment.
    Coded,
}

/// What follows from a method for those who do not care which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// As recipes and reports write it.
    pub name: &'static str,
    /// Why weights may depend on the machines that took part, where they may.
    pub bits_differ: Option<&'static str>,
    /// Whether parameters live on servers; else the coordinator has them.
    pub has_servers: bool,
    /// Whether batches are cut into `train.shards`, and all examples are one batch otherwise.
    pub has_shards: bool,
    /// Whether it trains linear models, whose weights are kept in double precision.
    pub is_linear: bool,
    /// Most workers that can take part; no limit where it is left out.
    pub workers_max: Option<usize>,
    /// With fewer workers the run waits.
    pub workers_needed: usize,
}

/// Whether reports of the method of this name count shards.
pub fn has_shards(method: &str) -> bool {
    method == sync::NAME
}

impl Train {
    /// What follows from the method.
    pub fn traits(&self) -> Traits {
        match self.code() {
            None => sync::traits(),
            Some(code) => coded::traits(code),
        }
    }

    /// Steps in one epoch of so many examples.
    pub fn steps_per_epoch(&self, examples: usize) -> usize {
        match self.code() {
            None => sync::steps_per_epoch(self, examples),
            Some(code) => coded::steps_per_epoch(code, self, examples),
        }
    }

    /// Rows of so many examples that each worker stores, where it stores any.
    pub fn rows_per_worker(&self, examples: usize) -> Option<usize> {
        self.code().map(|code| code.height(examples))
    }

    /// Epochs between checkpoints where a recipe says nothing.
    pub fn checkpoint_epochs(&self) -> u64 {
        match self.method {
            Method::Sync => sync::CHECKPOINT_EPOCHS,
            Method::Coded => coded::checkpoint_epochs(self),
        }
    }

    /// The code, where the method is coded.
    pub fn code(&self) -> Option<&Coded> {
        self.coded.as_ref().filter(|_| self.method == Method::Coded)
    }

    /// Whether a batch that the recipe leaves out is all examples.
    pub(crate) fn takes_all_examples(&self) -> bool {
        match self.method {
            Method::Sync => false,
            Method::Coded => true,
        }
    }
}
