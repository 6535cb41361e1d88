//! What the processes of a run are told.

use crate::clock;
use crate::cluster::Origin;
use crate::failure::{Context, Result};
use crate::run_dir::RunDir;
use crate::traces::report::sha256;
use crate::training::run_loop::{Job, classes, network};
use planaria_coordinator::journal;
use planaria_protocol::Secret;
use planaria_protocol::launch::{CourseLaunch, Facts, Launch, Size};
use planaria_protocol::state::State;

/// The generation that a session begins: one more than any before.
pub fn generation(run: &RunDir, origin: Option<&Origin>) -> Result<u64> {
    let saved = origin.map_or(0, |o| o.manifest.generation);
    let path = run.file(journal::FILE);
    journal::next_generation(&path, saved).context(|| format!("cannot read `{}`", path.display()))
}

/// What the coordinator is told; the others are told the same without the course.
pub fn launch(
    job: &Job,
    size: Size,
    (secret, generation): (&Secret, u64),
    (state, origin): (&State, Option<&Origin>),
) -> Result<Launch> {
    let network = network(&job.plan)?;
    let data = &job.data;
    let examples = |part: &Option<planaria_data::Part>| part.as_ref().map_or(0, |p| p.len());
    let facts = Facts {
        input: job.plan.input,
        classes: classes(&job.plan, &network) as u32,
        examples: data.train.len(),
        digest: data.train.digest(),
        validation: examples(&data.validation),
        test: examples(&data.test),
        parameters: network.parameter_count() as u64,
        marks: data.marks.iter().map(|m| (m.name.clone(), m.content.clone())).collect(),
    };
    let run_dir = job.run.path();
    let full = run_dir.canonicalize().unwrap_or_else(|_| run_dir.to_path_buf());
    let course = CourseLaunch {
        run_dir: full.display().to_string(),
        run_id: job.run.id(),
        recipe_text: job.recipe_text.clone(),
        recipe_sha256: sha256(job.recipe_text.as_bytes()),
        state: state.clone(),
        checkpoint: origin.map(|o| o.folder.display().to_string()),
        commanded: clock::unix_seconds() - job.process.seconds(),
    };
    Ok(Launch {
        secret: secret.to_hex(),
        generation,
        build: crate::BUILD.into(),
        coordinator: None,
        recipe: job.plan.recipe.clone(),
        facts,
        size,
        course: Some(course),
    })
}
