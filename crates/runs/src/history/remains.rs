//! What a run's folder says without its events: its report and its newest checkpoint.
//!
//! Owns what of a [`History`] these two can tell where `events.jsonl` was deleted. Never writes, and
//! never overrides what an event has told.

use super::{History, Standing};
use crate::outcome::Outcome;
use crate::run_dir::checkpoint_folder;
use crate::summary::Scored;
use planaria_protocol::checkpoint::Manifest;
use planaria_protocol::message::HeldOut;
use planaria_protocol::plain;
use serde::Deserialize;
use std::path::Path;

/// Name of the report in a run's folder.
const REPORT: &str = "report.json";

/// What is read of `report.json`, of training and of scripts; those have no steps of ours.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    recipe: String,
    outcome: Option<Outcome>,
    reason: Option<String>,
    steps: u64,
    epochs: u64,
    parameters: u64,
    workers: u32,
    servers: u32,
    generation: u64,
    seconds_total: f64,
    seconds: f64,
    evaluated_on: Option<HeldOut>,
    loss: Option<f64>,
    accuracy: Option<f64>,
    machines_lost: u64,
    machines_joined: u64,
    recomputed_shards: u64,
}

/// Fills in what report and checkpoints tell of a run that no event says the beginning of. A run that
/// has left neither has only just begun, or never came that far: nothing is missing.
pub(super) fn fill(history: &mut History) {
    let told = report(&history.folder);
    let saved = checkpoint_folder(&history.folder, 1).newest_manifest_alone().ok().flatten();
    let saved = saved.map(|found| found.checkpoint);
    if told.is_none() && saved.is_none() {
        return;
    }
    history.events_missing = true;
    let step = saved.as_ref().map_or(0, |saved| saved.step);
    if let Some(saved) = saved {
        take_checkpoint(history, &saved);
    }
    // A report of fewer steps is of an earlier session.
    if let Some(told) = told.filter(|told| told.steps >= step) {
        take_report(history, told);
    }
}

fn report(folder: &Path) -> Option<Told> {
    serde_json::from_slice(&plain::read(&folder.join(REPORT)).ok()?).ok()
}

fn take_checkpoint(history: &mut History, saved: &Manifest) {
    history.saved_step = history.saved_step.max(Some(saved.step));
    history.step = history.step.max(saved.step);
    history.epochs_done = history.epochs_done.max(saved.state.epoch);
    history.parameters = saved.parameters;
    history.generation = history.generation.max(saved.generation);
    history.seconds = history.seconds.max(saved.state.seconds_total);
}

fn take_report(history: &mut History, told: Told) {
    if let (Standing::Killed, Some(outcome)) = (history.state, told.outcome) {
        history.state = outcome.into();
        history.reason = told.reason;
    }
    if !told.recipe.is_empty() {
        history.recipe = told.recipe;
    }
    history.step = history.step.max(told.steps);
    history.epochs_done = history.epochs_done.max(told.epochs);
    history.parameters = history.parameters.max(told.parameters);
    history.generation = history.generation.max(told.generation);
    history.seconds = history.seconds.max(told.seconds_total).max(told.seconds);
    (history.workers, history.servers) = (told.workers, told.servers);
    let machines = &mut history.machines;
    (machines.machines_lost, machines.machines_joined) = (told.machines_lost, told.machines_joined);
    machines.recomputed_shards = told.recomputed_shards;
    if let (None, Some(part)) = (history.scored_on, told.evaluated_on) {
        history.scored_on = Some(Scored::On(part));
        (history.loss, history.accuracy) = (told.loss, told.accuracy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::lock::Holder;
    use planaria_protocol::checkpoint::{FORMAT, Part, PartView, write_part};
    use planaria_protocol::event::What;
    use planaria_protocol::journal::{self, Journal};
    use planaria_protocol::state::State;
    use serde_json::json;
    use std::fs;

    const BUSY: Holder = Holder::Process { pid: 7, listens: true };

    /// A run that has saved so many steps, and whose events are gone.
    fn run(step: u64) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = checkpoint_folder(dir.path(), 1);
        let folder = checkpoints.begin(step).unwrap();
        let view = PartView { step, start: 0, parameters: &[1.0; 4], slots: &[], state: &[] };
        let info = write_part(&folder, 0, &view).unwrap();
        let parts = vec![Part { info, start: 0, end: 4 }];
        let manifest = Manifest {
            format: FORMAT,
            planaria: String::new(),
            build: String::new(),
            generation: 2,
            step,
            recipe_sha256: String::new(),
            recipe: String::new(),
            data: Vec::new(),
            state: State { step, epoch: 3, seconds_total: 4.5, ..State::default() },
            parameters: 4,
            state_values: 0,
            slots: 0,
            parts,
        };
        checkpoints.finish(&folder, &manifest, false).unwrap();
        dir
    }

    fn read(dir: &tempfile::TempDir, holder: Holder) -> History {
        History::read(dir.path(), holder, None).unwrap()
    }

    #[test]
    fn without_events_checkpoints_and_report_tell() {
        let dir = run(30);
        let found = read(&dir, Holder::Free);
        assert_eq!((found.state, found.events_missing), (Standing::Killed, true));
        assert_eq!((found.saved_step, found.step, found.epochs_done), (Some(30), 30, 3));
        let report = json!({
            "recipe": "net", "outcome": "completed", "steps": 30, "epochs": 3, "workers": 2,
            "evaluated_on": "test", "loss": 0.5, "accuracy": 0.9, "machines_lost": 1,
        });
        fs::write(dir.path().join(REPORT), report.to_string()).unwrap();
        let found = read(&dir, Holder::Free);
        assert_eq!((found.state, found.recipe.as_str()), (Standing::Completed, "net"));
        assert_eq!((found.scored_on, found.accuracy), (Some(Scored::On(HeldOut::Test)), Some(0.9)));
        assert_eq!((found.workers, found.machines.machines_lost), (2, 1));
        assert_eq!(read(&dir, BUSY).state, Standing::Running, "it lives, whatever a report says");
    }

    #[test]
    fn a_report_of_an_earlier_session_does_not_count() {
        let dir = run(30);
        fs::write(dir.path().join(REPORT), r#"{"outcome": "interrupted", "steps": 20}"#).unwrap();
        assert_eq!(read(&dir, Holder::Free).state, Standing::Killed);
    }

    #[test]
    fn a_run_that_has_left_nothing_lacks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!read(&dir, BUSY).events_missing);
        let dir = run(30);
        let mut journal = Journal::open(&dir.path().join(journal::FILE), 1).unwrap();
        let what = What::Paused { workers: 1, min: 2 };
        journal.record(1.0, 1e9, what).unwrap();
        assert!(read(&dir, BUSY).events_missing, "no event says how it began");
    }
}
