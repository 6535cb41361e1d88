//! What a run's folder holds for an audit: events, the newest checkpoint, the report.
//!
//! Reads, and never writes. What cannot be read is no evidence, and the audit says so.

use crate::audit::{Audit, Checkpoint, Reported, audit};
use crate::failure::{Context, Result};
use crate::run_dir::checkpoint_folder;
use crate::summary::Summary;
use crate::traces::report::{Report, weight_values, weights_sha256};
use planaria_protocol::journal;
use planaria_protocol::plain;
use planaria_recipe::Source;
use std::path::Path;

/// Audits the run in `folder`.
pub fn audit_run(folder: &Path) -> Result<Audit> {
    // Before the events: a live run writes those of a checkpoint first.
    let checkpoint = newest(folder);
    let path = folder.join(journal::FILE);
    let read = journal::read_marking_damage(&path);
    let (events, damage) = read.context(|| format!("cannot read `{}`", path.display()))?;
    let reported = reported(folder);
    Ok(audit(&Summary::of(&events), &damage, checkpoint.as_ref(), reported.as_ref()))
}

/// The checkpoint that `last` leads to.
fn newest(folder: &Path) -> Option<Checkpoint> {
    let found = checkpoint_folder(folder, 1).named("last").ok()?;
    let weights = found.weights;
    Some(Checkpoint {
        step: found.manifest.step,
        generation: found.manifest.generation,
        epochs: found.manifest.state.epoch,
        exact_epochs: found.manifest.state.exact_epochs,
        weights_sha256: weights_sha256(
            &weights.parameters,
            weight_values(is_linear(&found.manifest.recipe), &weights.parameters, &weights.state),
        ),
    })
}

/// Whether the recipe that a checkpoint carries trains a linear model.
fn is_linear(recipe: &str) -> bool {
    let source = Source::parse("the checkpoint's recipe", recipe.as_bytes(), &[]);
    source.is_ok_and(|source| source.recipe().train.traits().is_linear)
}

fn reported(folder: &Path) -> Option<Reported> {
    let text = plain::read(&folder.join("report.json")).ok()?;
    let report: Report = serde_json::from_slice(&text).ok()?;
    Some(Reported { steps: report.steps, weights_sha256: report.weights_sha256? })
}
