//! `report.json`: everything about a run in one document.
//!
//! Owns the document's fields and how they follow from the run's state and scores. Never draws
//! and never writes files.

use crate::audit::{Audit, Verdict};
pub use crate::outcome::{Outcome, positive};
use crate::run_dir::metrics::{Line, Span};
use crate::summary::GivenUp;
use crate::traces::timeline::Timeline;
use planaria_learn::Scores;
use planaria_learn::scores::ClassScores;
use planaria_learn::scores::numbers::Pair;
use planaria_numerics::regression::{Errors, TargetScale};
use planaria_protocol::bytes::as_bytes;
use planaria_protocol::event::Products;
use planaria_protocol::hash::{self, Hasher, hex};
use planaria_protocol::state::{State, finite};
use planaria_recipe::train::Monitor;
use serde::{Deserialize, Serialize};

/// Largest resident memory of a process that this one started and has waited for.
pub fn peak_memory_of_children() -> Option<u64> {
    // SAFETY: zeroed is a valid `rusage`, and the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) == 0).then_some(usage)?
    };
    u64::try_from(usage.ru_maxrss).ok().map(|kilobytes| kilobytes * 1024)
}

/// Epochs listed in `curves`; longer runs are thinned evenly.
const CURVE_POINTS_MAX: usize = 1000;

/// `report.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the run's folder.
    pub run_id: String,
    /// The recipe's name.
    pub recipe: String,
    /// Version that wrote this.
    pub planaria_version: String,
    /// When the last session began, UTC.
    pub started: String,
    /// How the run ended.
    pub outcome: Outcome,
    /// Why, where the outcome does not say it all.
    pub reason: Option<String>,
    /// What to do about a failure, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// How shards work together.
    pub method: String,
    /// Whether the same recipe gives the same bits on any machine.
    pub bits_promised: bool,
    /// Seed everything random followed from.
    pub seed: u64,
    /// Engine and instruction set.
    pub engine: String,
    /// Threads of the last session.
    pub threads: usize,
    /// Shards of each batch.
    pub shards: usize,
    /// Examples per step.
    pub batch: usize,
    pub parameters: usize,
    /// Steps done.
    pub steps: u64,
    /// Whole epochs done.
    pub epochs: u64,
    /// Training examples seen, each counted every time.
    pub examples: u64,
    /// Whether every epoch that is done read every training example exactly once, by count.
    #[serde(default)]
    pub samples_exactly_once: bool,
    /// Whether an audit of the run's events finds every step committed once and every epoch's
    /// examples read once each.
    #[serde(default)]
    pub exactly_once: bool,
    /// What that audit comes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Processes that were lost: workers, servers and coordinators.
    #[serde(default)]
    pub processes_lost: u64,
    /// Processes that joined after their session's first step.
    #[serde(default)]
    pub processes_joined: u64,
    /// Machines of the pool that were lost after they had been ready.
    #[serde(default)]
    pub machines_lost: u64,
    /// Machines of the pool that became ready after their session's first step, or once more.
    #[serde(default)]
    pub machines_joined: u64,
    /// Machines of the last session that were given up, and why.
    #[serde(default)]
    pub machines_given_up: Vec<GivenUp>,
    /// Shards that were computed by others than first meant to.
    #[serde(default)]
    pub recomputed_shards: u64,
    /// What workers of a coded run have multiplied and sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub products: Option<Products>,
    /// Steps that were committed and taken again after a loss.
    #[serde(default)]
    pub superseded_steps: u64,
    /// Share of the training time that losses did not cost; `null` where nothing was lost, or the
    /// run is one process. See [`efficiency`].
    #[serde(default)]
    pub efficiency: Option<f64>,
    /// Times the run was resumed.
    pub resumes: u64,
    /// How many times the run was started or resumed, also where nothing came of it.
    #[serde(default)]
    pub generation: u64,
    /// Worker processes of the last session; 0 where the run is one process.
    #[serde(default)]
    pub workers: u32,
    /// Server processes of the last session.
    #[serde(default)]
    pub servers: u32,
    /// Seconds of everything, pauses left out.
    pub seconds_total: f64,
    /// Seconds of taking steps, without validation and writing.
    pub seconds_training: f64,
    /// Seconds from the start of the process to the end of the first step.
    pub seconds_to_first_step: Option<f64>,
    pub examples_per_second: Option<f64>,
    /// Training speed in steps.
    pub steps_per_second: Option<f64>,
    /// Largest resident memory of the process.
    pub peak_memory_bytes: Option<u64>,
    /// Part the figures below are of: `test`, else `validation`.
    pub evaluated_on: Option<String>,
    /// Examples of that part.
    pub evaluated_examples: u64,
    pub loss: Option<f64>,
    /// Share classified right; `null` for regression.
    pub accuracy: Option<f64>,
    /// Mean over classes.
    pub precision: Option<f64>,
    /// Mean over classes.
    pub recall: Option<f64>,
    /// Mean over classes.
    pub f1: Option<f64>,
    /// Mean squared error of regression, in the label's units, as are those that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mse: Option<f64>,
    /// Root of the mean squared error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rmse: Option<f64>,
    /// Mean absolute error of regression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
    /// Share of the labels' variance that predictions explain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Some of the true numbers, each with its prediction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predictions: Vec<Pair>,
    /// Mean and standard deviation of the training labels, where these were standardised: losses
    /// are of (label − mean) / std.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_scale: Option<TargetScale>,
    /// Figures of the positive class, the second of two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positive: Option<ClassScores>,
    /// Figures of each class.
    pub per_class: Vec<ClassScores>,
    /// Rows are true classes, columns predicted ones.
    pub confusion: Vec<Vec<u64>>,
    /// The best epoch, which `checkpoints/best` holds.
    pub best: Option<BestEpoch>,
    /// SHA-256 over the little-endian f32 parameters in plan order, then batch-norm state; nothing
    /// where the run has left no weights.
    pub weights_sha256: Option<String>,
    /// Figures of each epoch.
    pub curves: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestEpoch {
    /// Figure it was chosen by.
    pub monitor: Monitor,
    pub value: f64,
    /// Its epoch, from 1.
    pub epoch: u64,
    /// Steps done by then.
    pub step: u64,
}

/// What does not change while a run trains.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Name of the run's folder.
    pub run_id: String,
    /// The recipe's name.
    pub recipe: String,
    /// When this session began, UTC.
    pub started: String,
    /// The recipe's seed.
    pub seed: u64,
    /// Engine and instruction set.
    pub engine: String,
    /// Threads of this session.
    pub threads: usize,
    /// Shards of each batch.
    pub shards: usize,
    /// Examples per step.
    pub batch: usize,
    pub parameters: usize,
    /// How many times the run was started or resumed.
    pub generation: u64,
    /// Worker processes; 0 where the run is one process.
    pub workers: u32,
    pub servers: u32,
    /// How the work is shared out.
    pub method: String,
    /// Whether the same recipe gives the same bits on any machine.
    pub bits_promised: bool,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// How numbers to predict were scaled to be learned.
    pub target_scale: Option<TargetScale>,
    /// What the best epoch is chosen by.
    pub monitor: Monitor,
    /// Machines that were given up.
    pub given_up: Vec<GivenUp>,
    /// What the run's events add up to.
    pub audit: Audit,
    /// What they tell of each step.
    pub timeline: Timeline,
}

impl Facts {
    /// Calls classes as the data does.
    pub fn name_classes(&mut self, names: Vec<String>) {
        if names.len() == self.classes.len() {
            self.classes = names;
        }
    }
}

/// How a session ended, with what was measured at the end.
#[derive(Debug)]
pub struct Ending<'a> {
    pub outcome: Outcome,
    pub reason: Option<String>,
    /// What to do about a failure.
    pub hint: Option<String>,
    /// Part and scores of the final weights.
    pub scores: Option<(&'a str, &'a Scores)>,
    /// Hash of the final weights, if there are any.
    pub weights_sha256: Option<String>,
    /// Largest resident memory.
    pub peak_memory_bytes: Option<u64>,
}

impl Report {
    /// Puts the document together.
    pub fn new(facts: &Facts, state: &State, lines: &[Line], ending: Ending<'_>) -> Self {
        let scores = ending.scores.map(|(_, scores)| scores);
        let means = scores.and_then(Scores::macro_average);
        let classification = !facts.classes.is_empty();
        let errors = scores.filter(|_| !classification).and_then(Scores::errors);
        Self {
            run_id: facts.run_id.clone(),
            recipe: facts.recipe.clone(),
            planaria_version: env!("CARGO_PKG_VERSION").into(),
            started: facts.started.clone(),
            outcome: ending.outcome,
            reason: ending.reason,
            hint: ending.hint,
            method: facts.method.clone(),
            bits_promised: facts.bits_promised,
            seed: facts.seed,
            engine: facts.engine.clone(),
            threads: facts.threads,
            shards: facts.shards,
            batch: facts.batch,
            parameters: facts.parameters,
            steps: state.step,
            epochs: state.epoch,
            examples: state.examples,
            samples_exactly_once: state.exact_epochs == state.epoch,
            // Events that the disk did not take prove nothing.
            exactly_once: facts.audit.exactly_once && facts.audit.steps >= state.step,
            verdict: Some(facts.audit.verdict),
            processes_lost: facts.audit.machines.processes_lost,
            processes_joined: facts.audit.machines.processes_joined,
            machines_lost: facts.audit.machines.machines_lost,
            machines_joined: facts.audit.machines.machines_joined,
            machines_given_up: facts.given_up.clone(),
            products: facts.audit.machines.products,
            recomputed_shards: facts.audit.machines.recomputed_shards,
            superseded_steps: facts.audit.superseded_steps,
            efficiency: efficiency(&facts.audit, state, facts.workers),
            resumes: state.resumes,
            generation: facts.generation,
            workers: facts.workers,
            servers: facts.servers,
            seconds_total: state.seconds_total,
            seconds_training: state.seconds_training,
            seconds_to_first_step: state.seconds_to_first_step,
            examples_per_second: finite(state.examples as f64 / state.seconds_training),
            steps_per_second: finite(state.step as f64 / state.seconds_training),
            peak_memory_bytes: ending.peak_memory_bytes,
            evaluated_on: ending.scores.map(|(part, _)| part.to_owned()),
            evaluated_examples: scores.map_or(0, Scores::examples),
            loss: scores.and_then(Scores::loss),
            accuracy: scores.and_then(Scores::accuracy),
            precision: means.map(|m| m.precision),
            recall: means.map(|m| m.recall),
            f1: means.map(|m| m.f1),
            mse: scores.filter(|_| !classification).and_then(Scores::mse),
            rmse: errors.map(|errors| errors.rmse),
            mae: errors.map(|errors| errors.mae),
            r2: errors.and_then(|errors| errors.r2),
            predictions: scores.map_or_else(Vec::new, |s| s.pairs().to_vec()),
            target_scale: facts.target_scale.filter(|scale| *scale != TargetScale::default()),
            positive: scores.and_then(|s| positive(s, &facts.classes)),
            per_class: scores.map_or_else(Vec::new, |s| s.per_class(&facts.classes)),
            confusion: scores.map_or_else(Vec::new, |s| s.confusion().to_vec()),
            best: state.watch.best.map(|best| BestEpoch {
                monitor: facts.monitor,
                value: best.value,
                epoch: best.epoch,
                step: best.step,
            }),
            weights_sha256: ending.weights_sha256,
            curves: curves(lines),
        }
    }

    /// How far predictions are off, of numbers to predict.
    pub fn errors(&self) -> Option<Errors> {
        Some(Errors { rmse: self.rmse?, mae: self.mae?, r2: self.r2 })
    }

    /// The document as text.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a report has string keys only");
        text.push('\n');
        text
    }
}

/// Share of the training time that losses did not cost.
///
/// Let T be the seconds of training that count, S the steps in them, and W the workers, which
/// compute side by side. Capacity is counted in worker-seconds, and divided by W at once:
/// - steps that were superseded had cost time that T no longer holds: X = superseded · T/S;
/// - while a step was late after a loss, all waited: stalled seconds;
/// - shards that were computed once more took shards · shard-seconds of one worker: that by W.
///
/// Efficiency is 1 − (X + stalled + recomputed/W) / (T + X), and at least 0. A shard that is
/// computed once more while a step is late counts in both, so this is never too good.
pub fn efficiency(audit: &Audit, state: &State, workers: u32) -> Option<f64> {
    let machines = &audit.machines;
    let undisturbed = machines.processes_lost + machines.suspicions + audit.superseded_steps == 0;
    if workers == 0 || undisturbed || state.step == 0 {
        return None;
    }
    let training = state.seconds_training;
    let superseded = audit.superseded_steps as f64 * training / state.step as f64;
    let recomputed = machines.recomputed_seconds / f64::from(workers);
    let lost = superseded + machines.stalled_seconds + recomputed;
    finite(1.0 - lost / (training + superseded)).map(|share| share.max(0.0))
}

/// What of a state belongs to the weights: all of a network's; of a linear model's, which goes on
/// with the optimizer's, the bits of its weights.
pub fn weight_values<'a>(is_linear: bool, parameters: &[f32], state: &'a [f32]) -> &'a [f32] {
    match is_linear {
        true => &state[..state.len().min(2 * parameters.len())],
        false => state,
    }
}

/// Hex SHA-256 over the little-endian f32 parameters in plan order, then the state.
pub fn weights_sha256(parameters: &[f32], state: &[f32]) -> String {
    let mut hash = Hasher::new();
    [parameters, state].iter().for_each(|values| hash.update(as_bytes(values)));
    hex(&hash.finish())
}

/// Hex SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&hash::sha256(bytes))
}

/// Largest resident memory of this process, where the system tells.
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn curves(lines: &[Line]) -> Vec<Line> {
    let epochs: Vec<&Line> = lines.iter().filter(|l| l.span == Span::Epoch).collect();
    let stride = epochs.len().div_ceil(CURVE_POINTS_MAX).max(1);
    let last = epochs.len().saturating_sub(1);
    let kept = epochs.iter().enumerate().filter(|(i, _)| (last - i).is_multiple_of(stride));
    kept.map(|(_, line)| (*line).clone()).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::run_dir::metrics::tests::line;
    use planaria_learn::Targets;

    pub fn sample() -> Report {
        let mut scores = Scores::new(2, 2);
        scores.count(&[1.0, 0.0, 0.0, 1.0, 1.0, 0.0], Targets::Classes(&[0, 1, 1]), 1.5);
        let facts = Facts {
            run_id: "net-1".into(),
            recipe: "net <b>".into(),
            started: "2025-01-01T00:00:00Z".into(),
            seed: 7,
            engine: "cpu-portable".into(),
            threads: 2,
            shards: 8,
            batch: 32,
            parameters: 1234,
            generation: 1,
            workers: 0,
            servers: 0,
            method: "sync".into(),
            bits_promised: true,
            classes: vec!["cat & dog".into(), "1".into()],
            target_scale: None,
            monitor: Monitor::Accuracy,
            given_up: Vec::new(),
            audit: crate::audit::audit(&Default::default(), &[], None, None),
            timeline: Timeline::default(),
        };
        let mut state =
            State { step: 20, epoch: 2, examples: 640, exact_epochs: 2, ..State::default() };
        state.seconds_training = 2.0;
        state.seconds_total = 3.0;
        let lines = [line(Span::Steps, 5, 1), line(Span::Epoch, 10, 1), line(Span::Epoch, 20, 2)];
        let ending = Ending {
            outcome: Outcome::Completed,
            reason: None,
            hint: None,
            scores: Some(("test", &scores)),
            weights_sha256: Some(weights_sha256(&[1.0], &[])),
            peak_memory_bytes: peak_memory_bytes(),
        };
        Report::new(&facts, &state, &lines, ending)
    }

    #[test]
    fn the_document_reads_back_and_has_every_promised_field() {
        let report = sample();
        let text = report.to_json();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        for field in "run_id outcome method bits_promised steps epochs examples seconds_total \
                      seconds_training examples_per_second steps_per_second loss accuracy \
                      precision recall f1 per_class confusion weights_sha256 seed engine threads \
                      samples_exactly_once generation workers servers exactly_once processes_lost \
                      processes_joined machines_lost machines_joined machines_given_up recomputed_shards superseded_steps"
            .split_whitespace()
        {
            assert!(!value[field].is_null(), "{field} is missing");
        }
        assert_eq!(value["examples_per_second"], 320.0);
        assert_eq!(value["outcome"], "completed");
        assert_eq!(value["samples_exactly_once"], true);
        assert_eq!(value["curves"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn efficiency_is_what_losses_left() {
        let mut audit = crate::audit::audit(&Default::default(), &[], None, None);
        let mut state = State { step: 100, ..State::default() };
        state.seconds_training = 50.0;
        assert_eq!(efficiency(&audit, &state, 2), None, "nothing was lost");
        audit.machines.processes_lost = 1;
        assert_eq!(efficiency(&audit, &state, 0), None, "one process");
        assert_eq!(efficiency(&audit, &state, 2), Some(1.0));
        (audit.machines.stalled_seconds, audit.machines.recomputed_seconds) = (4.0, 2.0);
        assert_eq!(efficiency(&audit, &state, 2), Some(0.9));
        // A hundred steps more would have been another fifty seconds.
        audit.superseded_steps = 100;
        assert_eq!(efficiency(&audit, &state, 2), Some(1.0 - 55.0 / 100.0));
        audit.machines.stalled_seconds = 1e9;
        assert_eq!(efficiency(&audit, &state, 2), Some(0.0));
    }

    #[test]
    fn weights_are_hashed_as_little_endian_bytes() {
        // printf '\0\0\x80\x3f\0\0\0\x40' | sha256sum
        assert_eq!(weights_sha256(&[1.0], &[2.0]), sha256(&[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40]));
        assert_eq!(sha256(b"abc")[..16], *"ba7816bf8f01cfea");
    }
}
