//! What the processes of a run are told.

use crate::jobs::train::identity::{Identity, Lengths};
use crate::jobs::train::origin::Origin;
use crate::jobs::train::{Job, network};
use crate::program;
use planaria_numerics::optimizer;
use planaria_protocol::Secret;
use planaria_protocol::journal;
use planaria_protocol::launch::{CourseLaunch, Launch, Size, Station};
use planaria_protocol::state::State;
use planaria_runs::clock;
use planaria_runs::failure::{Context, Result};
use planaria_runs::run_dir::RunDir;
use planaria_worker::methods::facts;
use std::path::Path;

/// The generation that a session begins: one more than any before.
pub fn generation(run: &RunDir, origin: Option<&Origin>) -> Result<u64> {
    let saved = origin.map_or(0, |o| o.manifest.generation);
    let path = run.file(journal::FILE);
    journal::next_generation(&path, saved).context(|| format!("cannot read `{}`", path.display()))
}

/// What a session of a run begins with.
pub struct Beginning<'a> {
    pub size: Size,
    pub secret: &'a Secret,
    pub generation: u64,
    /// How far the run has come.
    pub state: &'a State,
    /// Where that is kept; nothing where the run begins anew.
    pub origin: Option<&'a Origin>,
    /// Where processes keep what others go on from.
    pub kept: Option<&'a Path>,
}

/// What the coordinator is told; the others are told the same without the course.
pub fn launch(job: &Job, beginning: Beginning<'_>) -> Result<Launch> {
    let Beginning { size, secret, generation, state, origin, kept } = beginning;
    let network = network(&job.plan)?;
    let facts = facts(&job.plan, &job.data, &network);
    let recipe = &job.plan.recipe;
    let recipe_file = job.run.file("recipe.yaml");
    let identity = Identity::new(recipe_file, &job.recipe_text, recipe, &job.data);
    let lengths = Lengths {
        parameters: facts.parameters,
        state: network.state_count() as u64,
        slots: optimizer::slots(&recipe.train.optimizer) as u32,
    };
    let run_dir = job.run.path();
    let full = run_dir.canonicalize().unwrap_or_else(|_| run_dir.to_path_buf());
    let course = CourseLaunch {
        run_dir: full.display().to_string(),
        run_id: job.run.id(),
        manifest: identity.manifest(generation, state.clone(), lengths, Vec::new()),
        checkpoint: origin.map(|o| o.folder.display().to_string()),
        commanded: clock::machine_seconds() - job.process.seconds(),
        listen: None,
        after: None,
        columns: match recipe.train.traits().is_linear {
            true => job.data.feature_names(),
            false => Vec::new(),
        },
    };
    Ok(Launch {
        secret: secret.to_hex(),
        generation,
        build: program::build().into(),
        coordinator: None,
        recipe: job.plan.recipe.clone(),
        facts,
        size,
        state: kept.map(|folder| folder.display().to_string()),
        station: Station::default(),
        course: Some(course),
    })
}
