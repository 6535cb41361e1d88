//! Training methods as recipes know them: one file for each, with its settings and what follows from
//! them. What a method asks of the rest of a recipe is its file of `rules`.
//!
//! Owns the list of methods. Others ask a run's [`Traits`], never which method it has.

mod coded;
mod sync;

use super::Train;
pub use coded::{Coded, LinearPrecision};
use serde::{Deserialize, Serialize};

/// Makes [`Method`] and all that asks each of them.
macro_rules! methods {
    ($($(#[$about:meta])* $variant:ident => $kind:path),* $(,)?) => {
        /// How the work of a step is shared out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(rename_all = "lowercase")]
        pub enum Method {
            $($(#[$about])* $variant),*
        }

        impl Method {
            const ALL: &[Self] = &[$(Self::$variant),*];

            fn kind(self) -> &'static dyn Kind {
                match self { $(Self::$variant => &$kind),* }
            }
        }
    };
}

methods! {
    /// Shards of each batch to workers, parameters on servers: any network.
    #[default]
    Sync => sync::Method,
    /// Coded data: linear models, whose workers may leave and come at any moment.
    Coded => coded::Method,
}

/// What follows from a method, for code that does not ask which it is.
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
    /// What lowers the memory that it takes.
    pub memory_hint: &'static str,
    /// Most workers that can take part; no limit where it is left out.
    pub workers_max: Option<usize>,
    /// With fewer workers the run waits.
    pub workers_needed: usize,
}

/// Rows that a worker stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRows {
    pub count: usize,
    /// Bytes of each number in them.
    pub value_bytes: u64,
}

/// What a method says of itself. What is asked of a recipe that was not checked may lack its settings.
trait Kind {
    /// What follows, for code that does not ask which method it is.
    fn traits(&self, train: &Train) -> Traits;

    /// Steps in one epoch of so many examples.
    fn steps_per_epoch(&self, train: &Train, examples: usize) -> usize;

    /// Epochs between checkpoints where a recipe says nothing.
    fn checkpoint_epochs(&self, train: &Train) -> u64;

    /// Whether a batch that the recipe leaves out is all examples.
    fn takes_all_examples(&self) -> bool {
        false
    }

    /// What each worker stores of so many examples, where it stores any.
    fn stored_rows(&self, train: &Train, examples: usize) -> Option<StoredRows> {
        let _ = (train, examples);
        None
    }

    /// Its own keys of `train` that are set, with what to do about each under another method.
    fn own_keys(&self, train: &Train) -> Vec<(&'static str, &'static str)> {
        let _ = train;
        Vec::new()
    }
}

/// Whether reports of the method of this name count shards.
pub fn has_shards(method: &str) -> bool {
    let train = Train::default();
    let mut all = Method::ALL.iter().map(|method| method.kind().traits(&train));
    all.any(|traits| traits.name == method && traits.has_shards)
}

impl Train {
    /// What follows from the method.
    pub fn traits(&self) -> Traits {
        self.method.kind().traits(self)
    }

    /// Steps in one epoch of so many examples.
    pub fn steps_per_epoch(&self, examples: usize) -> usize {
        self.method.kind().steps_per_epoch(self, examples)
    }

    /// What each worker stores of so many examples, where it stores any.
    pub fn stored_rows(&self, examples: usize) -> Option<StoredRows> {
        self.method.kind().stored_rows(self, examples)
    }

    /// Epochs between checkpoints where a recipe says nothing.
    pub fn checkpoint_epochs(&self) -> u64 {
        self.method.kind().checkpoint_epochs(self)
    }

    /// Whether a batch that the recipe leaves out is all examples.
    pub(crate) fn takes_all_examples(&self) -> bool {
        self.method.kind().takes_all_examples()
    }

    /// Keys that are set and belong to another method: its name, the key, and what to do.
    pub(crate) fn keys_of_others(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        let others = Method::ALL.iter().copied().filter(|method| *method != self.method);
        let keys = |method: Method| {
            let (kind, name) = (method.kind(), method.kind().traits(self).name);
            kind.own_keys(self).into_iter().map(move |(key, hint)| (name, key, hint))
        };
        others.flat_map(keys).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_written_as_they_are_named() {
        for method in Method::ALL {
            let name = method.kind().traits(&Train::default()).name;
            assert_eq!(serde_json::to_value(method).unwrap(), name);
        }
    }
}
