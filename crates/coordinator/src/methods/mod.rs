//! Training methods: what differs from one to the next. One folder each.
//!
//! Each implements [`Method`](crate::run::Method). The only place that asks which method a recipe has
//! is this file.

pub mod coded;
pub mod solo;
pub mod sync;

use crate::run::course::Setup;
use crate::run::{Config, Decider, Origin, Session};
use planaria_protocol::checkpoint::Manifest;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Trouble;
use planaria_recipe::train;
use std::ops::Range;

/// A run, and how its checkpoints are laid out.
pub struct Built {
    pub run: Box<dyn Decider>,
    /// By part: first parameter and the one after the last.
    pub ranges: Vec<Range<u64>>,
    /// What every manifest says alike.
    pub manifest: Manifest,
}

/// The run that a recipe asks for. `manifest` is what every manifest of the run says alike.
pub fn build(
    launch: &Launch,
    origin: Origin,
    manifest: Manifest,
    seconds_before: f64,
) -> Result<Built, Trouble> {
    let config = Config::of(&launch.facts, launch.size, &launch.build);
    let setup = Setup::of(&launch.recipe, &launch.facts);
    let session = Session { config, setup, origin, seconds_before };
    match launch.recipe.train.method {
        train::Method::Sync => Ok(sync::build(launch, session, manifest)),
        train::Method::Coded => coded::build::build(launch, session, manifest),
    }
}
