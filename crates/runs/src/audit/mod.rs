//! Whether a run read every example exactly once per epoch, from its events alone.
//!
//! Owns the verdict and its reasons: pure functions of what events add up to ([`Summary`]), and of
//! what the newest checkpoint and the report say of themselves. Never reads a file
//! ([`evidence`](crate::evidence) does) and never decides what a run does. [`page`] is the verdict as
//! text.

pub mod page;

use crate::lineage::{Cut, Lineage, Tile};
use crate::machines::Machines;
use crate::outcome::Outcome;
use crate::summary::{Ended, Summary};
use planaria_numerics::digest::Digest;
use planaria_protocol::event::Started;
use serde::Serialize;
use std::collections::BTreeMap;

/// Reasons that are listed; more say nothing more.
const REASONS_MAX: usize = 20;

/// What came of an audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Audit {
    /// Whether all that was committed adds up: each step once, each epoch's examples once each.
    pub exactly_once: bool,
    /// Whether the run is of a version that left no ground for an audit; then nothing is claimed.
    pub before_audits: bool,
    /// What does not add up.
    pub reasons: Vec<String>,
    /// Steps of the lineage, from the first.
    pub steps: u64,
    /// Steps of the whole run.
    pub steps_planned: u64,
    /// Whether the run has come to its end.
    pub ended: bool,
    /// Epochs, in order, as far as they have come.
    pub epochs: Vec<EpochAudit>,
    /// Generations, in order, with the steps of each that count.
    pub generations: Vec<GenerationAudit>,
    /// Steps that were committed and taken again after a loss.
    pub superseded_steps: u64,
    /// Who was lost and who came, and what that cost.
    #[serde(flatten)]
    pub machines: Machines,
    /// Steps done at the newest checkpoint, as it says itself.
    pub checkpoint_step: Option<u64>,
    /// Whether the report's weights are those of the newest checkpoint, where both can be read and
    /// are of the same step.
    pub weights_match: Option<bool>,
}

/// An epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpochAudit {
    pub epoch: u64,
    /// Steps that count.
    pub steps: u64,
    /// Examples read in them.
    pub examples: u64,
    /// Whether all of its steps are there.
    pub whole: bool,
    /// Whether its examples are those expected.
    pub exact: bool,
}

/// A generation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GenerationAudit {
    pub generation: u64,
    /// Steps done when it began.
    pub from_step: u64,
    /// Steps of it that count.
    pub steps: u64,
    /// Steps before it that it took again.
    pub superseded: u64,
    /// Why it began.
    pub why: String,
}

/// What a checkpoint says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Steps done.
    pub step: u64,
    /// Generation that wrote it.
    pub generation: u64,
    /// Hash of its weights.
    pub weights_sha256: String,
}

/// What a report says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// Steps done.
    pub steps: u64,
    /// Hash of the weights.
    pub weights_sha256: String,
}

/// Audits a run by what its events add up to.
pub fn audit(
    summary: &Summary,
    checkpoint: Option<&Checkpoint>,
    reported: Option<&Reported>,
) -> Audit {
    let (lineage, setup) = (&summary.lineage, summary.started.as_ref());
    let mut reasons = lineage.errors.clone();
    let epochs = setup
        .map_or_else(Vec::new, |setup| epochs(setup, &lineage.tiles, &summary.read, &mut reasons));
    let ended = check_end(summary, &mut reasons);
    let weights_match = check_weights(lineage, checkpoint, reported, &mut reasons);
    let before_audits = lineage.before_audits;
    if before_audits {
        reasons.clear();
    }
    let more = reasons.len().saturating_sub(REASONS_MAX);
    reasons.truncate(REASONS_MAX);
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    Audit {
        exactly_once: reasons.is_empty() && !before_audits,
        before_audits,
        reasons,
        steps: lineage.end(),
        steps_planned: setup.map_or(0, |s| s.epochs * s.steps_per_epoch),
        ended,
        epochs,
        superseded_steps: lineage.cuts.iter().map(|cut| cut.superseded).sum(),
        generations: lineage.cuts.iter().map(|cut| generation(cut, lineage)).collect(),
        machines: summary.machines(),
        checkpoint_step: checkpoint.map(|c| c.step),
        weights_match,
    }
}

/// A generation, with its steps that count.
fn generation(cut: &Cut, lineage: &Lineage) -> GenerationAudit {
    GenerationAudit {
        generation: cut.generation,
        from_step: cut.step,
        steps: lineage.steps_of(cut.generation),
        superseded: cut.superseded,
        why: cut.why.clone(),
    }
}

/// Adds every epoch's ranges up and compares them with the data.
fn epochs(
    setup: &Started,
    tiles: &[Tile],
    told: &BTreeMap<u64, (Digest, bool)>,
    reasons: &mut Vec<String>,
) -> Vec<EpochAudit> {
    let per_epoch = setup.steps_per_epoch.max(1);
    let mut sums: BTreeMap<u64, (u64, Digest)> = BTreeMap::new();
    for tile in tiles {
        let (first, last) = (tile.first / per_epoch, (tile.end.max(1) - 1) / per_epoch);
        if (first, last) != (tile.epoch, tile.epoch) {
            reasons.push(format!(
                "{tile} say that they are of epoch {}, which they are not",
                tile.epoch + 1
            ));
        }
        let (steps, read) = sums.entry(tile.epoch).or_default();
        *steps += tile.end - tile.first;
        *read = read.combine(tile.read);
    }
    let check = |(epoch, (steps, read)): (u64, (u64, Digest))| {
        let whole = steps == per_epoch;
        let expected = match whole {
            true => setup.digest.count,
            false => (steps.saturating_mul(setup.batch)).min(setup.digest.count),
        };
        let mut wrong = Vec::new();
        if read.count != expected {
            wrong.push(format!(
                "epoch {} read {} examples in {steps} steps instead of {expected}",
                epoch + 1,
                read.count
            ));
        } else if whole && read != setup.digest {
            wrong.push(format!(
                "epoch {} read {} examples, but not each exactly once",
                epoch + 1,
                read.count
            ));
        }
        if let Some((said, exact)) = told.get(&epoch).filter(|_| whole) {
            if *said != read {
                wrong.push(format!(
                    "the event of epoch {} says other examples than those of its steps",
                    epoch + 1
                ));
            } else if !exact {
                wrong.push(format!("the event of epoch {} says that it is not exact", epoch + 1));
            }
        }
        let exact = wrong.is_empty();
        reasons.extend(wrong);
        EpochAudit { epoch: epoch + 1, steps, examples: read.count, whole, exact }
    };
    sums.into_iter().map(check).collect()
}

/// Whether the run has come to its end, and whether the lineage has too.
fn check_end(summary: &Summary, reasons: &mut Vec<String>) -> bool {
    let Some(&Ended { outcome, step, .. }) = summary.ended.as_ref() else { return false };
    let end = summary.lineage.end();
    // A failure may have come before the last steps were told.
    if outcome != Outcome::Failed && step != end {
        reasons
            .push(format!("the run ended after step {step}, but its ranges end after step {end}"));
    }
    let planned = summary.started.as_ref().map_or(0, |s| s.epochs * s.steps_per_epoch);
    if outcome == Outcome::Completed && step != planned {
        reasons.push(format!("the run ended after step {step} of {planned}, but says it is whole"));
    }
    matches!(outcome, Outcome::Completed | Outcome::StoppedEarly)
}

/// Whether the newest checkpoint is of this lineage, and the report's weights are its weights.
fn check_weights(
    lineage: &Lineage,
    checkpoint: Option<&Checkpoint>,
    reported: Option<&Reported>,
    reasons: &mut Vec<String>,
) -> Option<bool> {
    let checkpoint = checkpoint?;
    let Checkpoint { step, generation, .. } = *checkpoint;
    if let Some(cut) = lineage.cuts.iter().find(|c| c.generation > generation && c.step < step) {
        reasons.push(format!(
            "the newest checkpoint is of step {step} of generation {generation}, but generation {} \
             went on after step {}",
            cut.generation, cut.step
        ));
    } else if step > lineage.end() {
        reasons.push(format!(
            "the newest checkpoint is of step {step}, but ranges end after step {}",
            lineage.end()
        ));
    }
    let reported = reported.filter(|r| r.steps == step)?;
    let same = reported.weights_sha256 == checkpoint.weights_sha256;
    if !same {
        reasons.push("the report's weights are not those of the newest checkpoint".into());
    }
    Some(same)
}

#[cfg(test)]
mod tests;
