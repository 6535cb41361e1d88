//! `method: sync`: shards of each batch to workers, parameters on servers; any network.

use super::Traits;
use crate::train::Train;

/// As recipes and reports write it.
pub(super) const NAME: &str = "sync";

/// Epochs between checkpoints where a recipe says nothing.
pub(super) const CHECKPOINT_EPOCHS: u64 = 1;

/// What others ask of it.
pub(super) fn traits() -> Traits {
    Traits {
        name: NAME,
        bits_differ: None,
        has_servers: true,
        has_shards: true,
        is_linear: false,
        workers_max: None,
        workers_needed: 1,
    }
}

/// Steps in one epoch; the last may be a smaller batch.
pub(super) fn steps_per_epoch(train: &Train, examples: usize) -> usize {
    examples.div_ceil(train.batch.max(1))
}
