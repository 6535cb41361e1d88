//! `method: sync`: shards of each batch to workers, parameters on servers; any network.

use super::{Kind, Traits};
use crate::train::Train;

pub(super) struct Method;

impl Kind for Method {
    fn traits(&self, _train: &Train) -> Traits {
        Traits {
            name: "sync",
            bits_differ: None,
            has_servers: true,
            has_shards: true,
            is_linear: false,
            memory_hint: "lower `train.batch`, `train.shards` or `--threads`, or make the network smaller",
            workers_max: None,
            workers_needed: 1,
        }
    }

    /// The last may be a smaller batch.
    fn steps_per_epoch(&self, train: &Train, examples: usize) -> usize {
        examples.div_ceil(train.batch.max(1))
    }

    fn checkpoint_epochs(&self, _train: &Train) -> u64 {
        1
    }

    fn own_keys(&self, train: &Train) -> Vec<(&'static str, &'static str)> {
        let hint = "leave it out, or use `method: sync`";
        (train.redundancy > 0).then_some(("redundancy", hint)).into_iter().collect()
    }
}
