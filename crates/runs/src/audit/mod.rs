//! Whether a run read every example exactly once per epoch, from its events alone.
//!
//! Owns the verdict and its reasons: pure functions of what events add up to ([`Summary`]), of what
//! of their file is damaged, and of what the newest checkpoint and the report say of themselves.
//! Events that are missing are no contradiction: what is missing is named, and so is what is proven
//! without it. Never reads a file ([`evidence`](crate::evidence) does) and never decides what a run
//! does. `epochs` adds up what was read, `proven` says what is left where events are missing, and
//! [`page`] is the verdict as text.

mod epochs;
pub mod page;
mod proven;

use crate::lineage::{Cut, Fault, Lineage, Missing, steps_were};
use crate::machines::Machines;
use crate::outcome::Outcome;
use crate::summary::{Ended, Summary};
use epochs::epochs;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Reasons that are listed; more say nothing more.
const REASONS_MAX: usize = 20;

/// What came of an audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Audit {
    /// Whether all that was committed adds up: each step once, each epoch's examples once each.
    pub exactly_once: bool,
    pub verdict: Verdict,
    /// Whether the run is of a version that left no ground for an audit; then nothing is claimed.
    pub before_audits: bool,
    /// What does not add up.
    pub reasons: Vec<String>,
    /// What events are missing, and where their file is damaged.
    pub missing: Vec<String>,
    /// What is proven all the same, and by what.
    pub proven: Vec<String>,
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

/// What an audit comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything adds up.
    Yes,
    /// Something contradicts it.
    No,
    /// Events are missing; nothing that is left contradicts it.
    Incomplete,
    /// The run is of a version that left no ground for an audit.
    BeforeAudits,
}

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
    /// Whole epochs before it, and those of them in which every example was read exactly once, as
    /// the coordinator counted them.
    pub epochs: u64,
    pub exact_epochs: u64,
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

/// Audits a run by what its events add up to; `damage` says what of their file is damaged.
pub fn audit(
    summary: &Summary,
    damage: &[String],
    checkpoint: Option<&Checkpoint>,
    reported: Option<&Reported>,
) -> Audit {
    let (lineage, setup) = (&summary.lineage, summary.started.as_ref());
    // Faults of a whole file are contradictions; in a damaged one, what is missing may explain them.
    let is_damaged = !damage.is_empty() || lineage.is_headless;
    let is_missing = |fault: &&Fault| match fault.missing {
        Missing::No => false,
        Missing::Perhaps => is_damaged,
        Missing::Yes => true,
    };
    let text = |fault: &Fault| fault.text.clone();
    let mut missing: Vec<String> = lineage.faults.iter().filter(is_missing).map(text).collect();
    let mut reasons: Vec<String> =
        lineage.faults.iter().filter(|fault| !is_missing(fault)).map(text).collect();
    if lineage.is_headless && setup.is_none() {
        missing.push("no event says how the run began, and which examples an epoch has".into());
    }
    let untold = lineage.faults.iter().filter(is_missing).filter_map(|f| f.untold.clone());
    let untold: Vec<Range<u64>> = untold.collect();
    let epochs = epochs(summary, &untold, &mut reasons);
    let ended = check_end(summary, is_damaged, &mut reasons);
    missing.extend(untold_end(summary, is_damaged, checkpoint));
    let weights_match = check_weights(lineage, checkpoint, reported, &mut reasons);
    let verdict = match (lineage.before_audits, reasons.is_empty(), missing.is_empty()) {
        (true, ..) => Verdict::BeforeAudits,
        (false, false, _) => Verdict::No,
        (false, true, false) => Verdict::Incomplete,
        (false, true, true) => Verdict::Yes,
    };
    if verdict == Verdict::BeforeAudits {
        reasons.clear();
    }
    missing.extend(damage.iter().cloned());
    Audit {
        exactly_once: verdict == Verdict::Yes,
        verdict,
        before_audits: verdict == Verdict::BeforeAudits,
        reasons: shortened(reasons),
        missing: shortened(missing),
        proven: proven::proven(lineage, &epochs, checkpoint, weights_match),
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

/// The first few.
fn shortened(mut reasons: Vec<String>) -> Vec<String> {
    let more = reasons.len().saturating_sub(REASONS_MAX);
    reasons.truncate(REASONS_MAX);
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    reasons
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

/// Whether the run has come to its end, and whether the lineage has too. Of a damaged file,
/// [`untold_end`] says what its end lacks.
fn check_end(summary: &Summary, is_damaged: bool, reasons: &mut Vec<String>) -> bool {
    let Some(&Ended { outcome, step, .. }) = summary.ended.as_ref() else { return false };
    let end = summary.lineage.end();
    // A failure may have come before the last steps were told.
    if outcome != Outcome::Failed && step != end && !(is_damaged && step > end) {
        reasons
            .push(format!("the run ended after step {step}, but its ranges end after step {end}"));
    }
    let planned = summary.started.as_ref().map(|s| s.epochs * s.steps_per_epoch);
    if let Some(planned) = planned.filter(|p| outcome == Outcome::Completed && step != *p) {
        reasons.push(format!("the run ended after step {step} of {planned}, but says it is whole"));
    }
    matches!(outcome, Outcome::Completed | Outcome::StoppedEarly)
}

/// Steps after the last range that something else tells of: the end of the events is missing.
fn untold_end(
    summary: &Summary,
    is_damaged: bool,
    checkpoint: Option<&Checkpoint>,
) -> Option<String> {
    let end = summary.lineage.end();
    let told = summary.ended.as_ref().filter(|e| is_damaged && e.outcome != Outcome::Failed);
    let told = told.map(|ended| (ended.step, "the event of the run's end"));
    let saved = checkpoint.map(|checkpoint| (checkpoint.step, "the newest checkpoint"));
    let all = [saved, told].into_iter().flatten();
    let (step, by) = all.filter(|(step, _)| *step > end).max_by_key(|(step, _)| *step)?;
    Some(format!("{} committed in no range, but {by} has them", steps_were(end, step)))
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
