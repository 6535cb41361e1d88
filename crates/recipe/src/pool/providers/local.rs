//! `provider: local`: this machine, as one or as several.

use super::Place;
use serde::{Deserialize, Serialize};

/// It has no keys of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Settings {}

impl super::Settings for Settings {
    const NAME: &'static str = "local";
    const MEANING: &'static str = "This machine.";

    fn machine_count(&self, asked: Option<usize>, _workers: usize) -> usize {
        asked.unwrap_or(0)
    }

    fn has_machines(&self, asked: Option<usize>) -> bool {
        asked.is_some()
    }

    fn is_here(&self) -> bool {
        true
    }

    fn describe(&self, count: usize) -> String {
        format!("{count} made of this one")
    }

    fn check(&self, _at: &mut Place<'_>) {}
}
