//! The result does not depend on the number of processes.

use crate::binary::Place;
use crate::live::{events, figures, place};
use serde_json::Value;
use std::fs;

fn train(place: &Place, sets: &[&str], processes: &[&str]) -> Value {
    let mut arguments = vec!["train", "net.yaml", "--json", "-q"];
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    arguments.extend(processes);
    let report = place.json(&arguments, 0);
    let run = place.path().join("runs").join(report["run_id"].as_str().unwrap());
    steps_are_told_in_order(&run);
    let left: Vec<_> = fs::read_dir(&run).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(!left.iter().any(|name| name == "control.json"), "{left:?}");
    report
}

fn steps_are_told_in_order(run: &std::path::Path) {
    let steps: Vec<u64> = events(run)
        .iter()
        .filter(|e| e["event"] == "steps")
        .map(|e| e["step"].as_u64().unwrap())
        .collect();
    assert!(!steps.is_empty() && steps.windows(2).all(|w| w[0] < w[1]), "{steps:?}");
}

/// Compares one process with each of some numbers of workers, servers and threads.
fn same(sets: &[&str], sizes: &[[&str; 3]]) {
    let place = place();
    let one = train(&place, sets, &[]);
    assert_eq!((&one["workers"], &one["servers"]), (&0.into(), &0.into()));
    assert_eq!(one["samples_exactly_once"], true);
    for [workers, servers, threads] in sizes {
        let options = ["--workers", workers, "--servers", servers, "--threads", threads];
        let many = train(&place, sets, &options);
        assert_eq!(figures(&many), figures(&one), "{sets:?} on {options:?}");
        assert_eq!(many["workers"].to_string(), *workers);
        assert_eq!(many["servers"].to_string(), *servers);
    }
}

#[test]
fn any_number_of_workers_and_servers() {
    let sizes: Vec<[&str; 3]> = ["1", "2", "3", "5", "8"]
        .iter()
        .flat_map(|workers| ["1", "2", "3"].map(|servers| [*workers, servers, "1"]))
        .collect();
    same(&[], &sizes);
}

#[test]
fn more_workers_than_shards_more_servers_than_blocks_and_threads() {
    same(&[], &[["11", "7", "1"], ["3", "2", "2"], ["1", "1", "2"]]);
    same(&["train.shards=1"], &[["3", "2", "1"], ["1", "6", "2"]]);
    same(&["train.shards=3"], &[["2", "1", "1"], ["5", "9", "1"]]);
    // The last batch of an epoch has fewer examples than there are shards.
    same(&["train.shards=8", "train.batch=87"], &[["3", "2", "1"], ["8", "1", "1"]]);
}

#[test]
fn every_optimizer_and_loss() {
    let sizes = [["3", "2", "1"], ["2", "3", "2"]];
    let sgd = "train.optimizer={sgd: {learning_rate: 0.05, momentum: 0.9}}";
    same(&[sgd, "train.clip_norm=null"], &sizes);
    let plain = "train.optimizer={sgd: {learning_rate: 0.05, momentum: 0.0}}";
    same(&[plain, "train.schedule={cosine: {}}", "train.warmup_steps=5"], &sizes);
    same(&["train.optimizer={rmsprop: {learning_rate: 0.001}}", "train.clip_norm=null"], &sizes);
    same(&["train.optimizer={adamw: {learning_rate: 0.01}}", "train.label_smoothing=0.1"], &sizes);
    let regression = "model={layers: [Flatten, {Dense: {units: 300}}, {Activation: relu}, \
                      {Dense: {units: 1}}]}";
    same(&[regression, "train.loss=mse"], &sizes);
}

#[test]
fn early_stopping_and_checkpoints_between_epochs() {
    let sets = ["train.early_stopping.patience=1", "train.epochs=40", "output.checkpoint_steps=3"];
    same(&sets, &[["3", "2", "1"], ["5", "1", "1"]]);
}

#[test]
fn parts_of_several_batches_or_none() {
    // 540 and 180 examples: three batches of the validation part, for fewer and more workers.
    let parts = ["data.examples=900", "data.validation=0.6"];
    same(&parts, &[["2", "1", "1"], ["3", "2", "1"], ["5", "1", "1"]]);
    same(&["data.validation=null", "data.test=null"], &[["3", "2", "1"]]);
    same(&["data.test=null"], &[["3", "2", "1"]]);
    same(&["data.validation=null"], &[["3", "2", "1"]]);
}
