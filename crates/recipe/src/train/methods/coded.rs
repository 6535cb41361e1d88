//! `method: coded`: linear models on coded data, of which any few workers have all.

use super::Traits;
use crate::train::Train;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The code of `method: coded`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Coded {
    /// Workers that are enough: each stores 1/threshold of the data, and with fewer the run waits.
    #[schemars(range(min = 1, max = 32))]
    pub threshold: usize,
    /// Workers that there can be at a time.
    #[schemars(range(min = 1, max = 32))]
    pub machines: usize,
    /// Numbers that are computed with.
    #[serde(default)]
    pub precision: LinearPrecision,
    /// What features are multiplied by to become whole numbers (`precision: exact`); needed where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub scale: Option<u32>,
}

impl Coded {
    /// Rows of each block: what a worker stores.
    pub fn height(&self, examples: usize) -> usize {
        examples.div_ceil(self.threshold.max(1))
    }

    /// Places of a step of about `batch` examples: the same range of every block.
    pub fn places(&self, batch: usize, examples: usize) -> usize {
        let height = self.height(examples);
        if batch >= examples { height } else { (batch / self.threshold.max(1)).clamp(1, height) }
    }
}

/// Numbers that a linear model is computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinearPrecision {
    /// Single precision.
    F32,
    /// Double precision.
    #[default]
    F64,
    /// Whole numbers over a prime field: the same bytes whoever was there.
    Exact,
}

impl LinearPrecision {
    /// As recipes write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Exact => "exact",
        }
    }

    /// Why a feature cannot be computed with exactly, and what to do about it.
    pub fn not_whole(feature: &str) -> (String, &'static str) {
        let why = format!(
            "`precision: exact` computes with whole numbers below 16,777,216, but feature \
             `{feature}` has others"
        );
        let hint = "set `train.coded.scale`, such as 64, which rounds by at most 1/128; or bin the \
                    column";
        (why, hint)
    }
}

/// Checkpoints of a whole run, about.
const CHECKPOINTS: u64 = 20;

/// Epochs between checkpoints where a recipe says nothing: an epoch may be a single step, and the
/// coordinator keeps every step anyway.
pub(super) fn checkpoint_epochs(train: &Train) -> u64 {
    (train.epochs as u64).div_ceil(CHECKPOINTS)
}

/// What others ask of it.
pub(super) fn traits(code: &Coded) -> Traits {
    Traits {
        name: "coded",
        // Sums of coded floats depend, in their last bits, on which machines were there.
        bits_differ: (code.precision != LinearPrecision::Exact).then_some(
            "Weights differ in their last bits, as coded sums of floats do; `precision: exact` \
             has the same bits.",
        ),
        has_servers: false,
        has_shards: false,
        is_linear: true,
        workers_max: Some(code.machines),
        workers_needed: code.threshold,
    }
}

/// Steps in one epoch: ranges of places, the same of every block.
pub(super) fn steps_per_epoch(code: &Coded, train: &Train, examples: usize) -> usize {
    code.height(examples).div_ceil(code.places(train.batch, examples).max(1))
}
