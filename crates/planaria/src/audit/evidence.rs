//! What a run's folder holds for an audit: events, the newest checkpoint, the report.
//!
//! Reads, and never writes. What cannot be read is no evidence; events are needed.

use crate::audit::{Audit, Checkpoint, Reported, audit};
use crate::failure::{Context, Result};
use crate::run_dir::shelf;
use crate::traces::report::{Report, weights_sha256};
use planaria_coordinator::journal;
use std::path::Path;

/// Audits the run in `folder`.
pub fn audit_run(folder: &Path) -> Result<Audit> {
    let path = folder.join(journal::FILE);
    let events = journal::read(&path).context(|| format!("cannot read `{}`", path.display()))?;
    let checkpoint = newest(folder);
    let reported = reported(folder);
    Ok(audit(&events, checkpoint.as_ref(), reported.as_ref()))
}

/// The checkpoint that `last` leads to.
fn newest(folder: &Path) -> Option<Checkpoint> {
    let found = shelf(folder, 1).named("last").ok()?;
    let weights = found.weights;
    Some(Checkpoint {
        step: found.manifest.step,
        generation: found.manifest.generation,
        weights_sha256: weights_sha256(&weights.parameters, &weights.state),
    })
}

fn reported(folder: &Path) -> Option<Reported> {
    let text = std::fs::read(folder.join("report.json")).ok()?;
    let report: Report = serde_json::from_slice(&text).ok()?;
    Some(Reported { steps: report.steps, weights_sha256: report.weights_sha256? })
}
