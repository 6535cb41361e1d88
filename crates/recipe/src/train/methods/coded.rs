//! `method: coded`: linear models on coded data, of which any few workers have all.

use super::{Kind, StoredRows, Traits};
use crate::train::Train;
use serde::{Deserialize, Serialize};

/// The code of `method: coded`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Coded {
    /// Workers that are enough: each stores 1/threshold of the data, and with fewer the run waits.
    #[cfg_attr(test, schemars(range(min = 1, max = 32)))]
    pub threshold: usize,
    /// Workers that there can be at a time.
    #[cfg_attr(test, schemars(range(min = 1, max = 32)))]
    pub machines: usize,
    /// Numbers that are computed with.
    #[serde(default)]
    pub precision: LinearPrecision,
    /// What features are multiplied by to become whole numbers (`precision: exact`); needed where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 1, max = 1_048_576)))]
    pub scale: Option<u32>,
}

crate::json::json!(Option<Coded>);

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LinearPrecision {
    /// Single precision.
    F32,
    /// Double precision.
    #[default]
    F64,
    /// Whole numbers over a prime field: the same bytes for any members.
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

pub(super) struct Method;

impl Kind for Method {
    fn traits(&self, train: &Train) -> Traits {
        let code = code(train);
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
            memory_hint: "coded rows are stored in full, also those of sparse files: raise \
                          `threshold` or set `precision: f32` in `train.coded`, drop columns, or use \
                          a pool of machines",
            workers_max: Some(code.machines),
            workers_needed: code.threshold,
        }
    }

    /// Ranges of places, the same of every block.
    fn steps_per_epoch(&self, train: &Train, examples: usize) -> usize {
        let code = code(train);
        code.height(examples).div_ceil(code.places(train.batch, examples).max(1))
    }

    /// An epoch may be a single step, and the coordinator keeps every step anyway.
    fn checkpoint_epochs(&self, train: &Train) -> u64 {
        (train.epochs as u64).div_ceil(CHECKPOINTS)
    }

    fn takes_all_examples(&self) -> bool {
        true
    }

    fn stored_rows(&self, train: &Train, examples: usize) -> Option<StoredRows> {
        let code = code(train);
        let value_bytes = if code.precision == LinearPrecision::F32 { 4 } else { 8 };
        Some(StoredRows { count: code.height(examples), value_bytes })
    }

    fn own_keys(&self, train: &Train) -> Vec<(&'static str, &'static str)> {
        let weights = "leave it out, or train a linear model with `method: coded`";
        let keys = [
            (train.coded.is_some(), "coded", "add `method: coded`, or leave `coded` out"),
            (train.l2 != 0.0, "l2", "set `weight_decay` of the optimizer"),
            (!train.class_weights.is_empty(), "class_weights", weights),
        ];
        keys.into_iter().filter(|(is_set, ..)| *is_set).map(|(_, key, hint)| (key, hint)).collect()
    }
}

impl Train {
    /// The code, where the method is coded.
    pub fn code(&self) -> Option<&Coded> {
        self.coded.as_ref().filter(|_| self.method == super::Method::Coded)
    }
}

/// The code; of one machine where a recipe that was not checked has none.
fn code(train: &Train) -> Coded {
    let none = Coded { threshold: 1, machines: 1, precision: LinearPrecision::F64, scale: None };
    train.coded.unwrap_or(none)
}
