//! The checkpoint that a run on many processes goes on from.
//!
//! Owns whether it is this run's. Never looks at its weights.

use crate::jobs::train::Job;
use crate::jobs::train::identity::Identity;
use planaria_protocol::checkpoint::{Checkpoint, Found, Manifest};
use planaria_runs::failure::{Context, Result};
use std::path::PathBuf;

/// Where a run goes on from.
#[derive(Debug)]
pub struct Origin {
    /// The checkpoint's folder.
    pub folder: PathBuf,
    /// Its manifest, which fits this run.
    pub manifest: Manifest,
}

impl Origin {
    /// A checkpoint that was found, if it is of this run.
    pub fn new(job: &Job, found: Found<Checkpoint>) -> Result<Self> {
        let recipe_file = job.run.file("recipe.yaml");
        let recipe = &job.plan.recipe;
        let identity = Identity::new(recipe_file, &job.recipe_text, recipe, &job.data);
        let manifest = found.checkpoint.manifest;
        identity.check(&manifest)?;
        // A name such as `last` may come to mean another checkpoint while the run goes on.
        let folder = found.path.canonicalize();
        let folder = folder.context(|| format!("cannot find `{}`", found.path.display()))?;
        Ok(Self { folder, manifest })
    }
}
