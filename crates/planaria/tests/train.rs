//! `planaria train` by the real binary: what it leaves behind, what it prints, same bits.

mod binary;

use binary::{Place, talk};
use serde_json::Value;
use std::fs;

#[test]
fn a_run_leaves_everything_and_prints_one_document() {
    let place = Place::new();
    let report = place.json(&["train", "tiny.yaml", "--json"], 0);
    assert_eq!(report["outcome"], "completed");
    assert_eq!(report["method"], "sync");
    assert_eq!(report["bits_promised"], true);
    assert_eq!(report["evaluated_on"], "test");
    assert_eq!((&report["steps"], &report["epochs"]), (&Value::from(27), &Value::from(3)));
    assert_eq!(report["examples"], 3 * 420);
    assert_eq!(report["per_class"].as_array().unwrap().len(), 10);
    assert_eq!(report["weights_sha256"].as_str().unwrap().len(), 64);
    for field in ["loss", "accuracy", "precision", "recall", "f1", "examples_per_second"] {
        assert!(report[field].is_f64(), "{field}: {}", report[field]);
    }
    let run = place.only_run();
    assert_eq!(run.file_name().unwrap().to_str(), report["run_id"].as_str());
    for name in ["recipe.yaml", "model.safetensors", "model.yaml", "report.html", "report.json"] {
        assert!(fs::metadata(run.join(name)).unwrap().len() > 0, "{name}");
    }
    let written: Value =
        serde_json::from_slice(&fs::read(run.join("report.json")).unwrap()).unwrap();
    assert_eq!(written, report);
    for name in ["checkpoints/last", "checkpoints/best"] {
        assert!(run.join(name).join("manifest.json").is_file(), "{name}");
    }
    assert_eq!(report["samples_exactly_once"], true);
    assert_eq!((&report["generation"], &report["resumes"]), (&1.into(), &0.into()));
    assert_eq!((&report["workers"], &report["servers"]), (&0.into(), &0.into()));
    let lines = metrics(&run);
    let epochs: Vec<&Value> = lines.iter().filter(|l| l["span"] == "epoch").collect();
    assert_eq!(epochs.len(), 3);
    assert!(epochs.iter().all(|l| l["validation_accuracy"].is_f64()));
    assert_eq!(lines.iter().filter(|l| l["span"] == "steps").count(), 27);
    for folder in ["tensorboard/train", "tensorboard/validation"] {
        assert_eq!(fs::read_dir(run.join(folder)).unwrap().count(), 1, "{folder}");
    }
}

#[test]
fn without_json_stdout_is_empty_and_quiet_is_quiet() {
    let place = Place::new();
    let output = place.run(&["train", "tiny.yaml", "--set", "train.epochs=1"]);
    assert!(output.status.success(), "{}", talk(&output));
    assert!(output.stdout.is_empty());
    let said = talk(&output);
    assert!(said.contains("epoch 1/1") && said.contains("test: accuracy"), "{said}");
    assert!(!said.contains('\x1b'), "no terminal, no escapes: {said:?}");
    let output = place.run(&["--quiet", "train", "tiny.yaml", "--set", "train.epochs=1"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", talk(&output));
}

#[test]
fn a_batch_beyond_the_data_takes_the_memory_of_the_data() {
    let place = Place::new();
    let batch = |batch: &str| {
        let set = format!("train.batch={batch}");
        let sets = ["--set", &set, "--set", "train.epochs=2", "--set", "output.dir=runs"];
        let report = place.json(&[&["train", "tiny.yaml", "--json"], &sets[..]].concat(), 0);
        report["weights_sha256"].clone()
    };
    let whole = batch("420");
    // Terabytes, if memory went by it: also that of workers.
    assert_eq!(batch("1000000000"), whole);
    let more = ["--set", "train.batch=1000000000", "--set", "train.epochs=2", "--workers", "2"];
    let output = place.run(&[&["train", "tiny.yaml", "--json"], &more[..]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["weights_sha256"], whole);
    let said = talk(&output);
    assert!(said.contains("note: `train.batch` is 1,000,000,000, but there are 420"), "{said}");
}

#[test]
fn threads_do_not_change_the_weights() {
    let place = Place::new();
    let hash = |threads: &str| {
        let report = place.json(&["train", "tiny.yaml", "--json", "--threads", threads], 0);
        (report["weights_sha256"].clone(), report["loss"].clone(), report["confusion"].clone())
    };
    let one = hash("1");
    assert_eq!(one, hash("2"));
    assert_eq!(one, hash("8"));
}

#[test]
fn another_seed_gives_other_weights() {
    let place = Place::new();
    let hash = |seed: &str| {
        place.json(&["train", "tiny.yaml", "--json", "--set", seed], 0)["weights_sha256"].clone()
    };
    assert_ne!(hash("seed=1"), hash("seed=2"));
}

#[test]
fn early_stopping_ends_a_run() {
    let place = Place::new();
    // A rate of nearly nothing never improves enough.
    let report = place.json(
        &[
            "train",
            "tiny.yaml",
            "--json",
            "--set",
            "train.epochs=50",
            "--set",
            "train.early_stopping={monitor: accuracy, patience: 2, min_delta: 0.9}",
        ],
        0,
    );
    assert_eq!(report["outcome"], "stopped_early");
    assert_eq!(report["epochs"], 3);
    assert!(report["reason"].as_str().unwrap().contains(" for 2 epochs; best "));
}

#[test]
fn a_loss_that_is_not_finite_fails_with_a_hint_wherever_it_is_told() {
    let place = Place::new();
    // Each step multiplies the weights by about -1,000,000.
    let rate = "train.optimizer={sgd: {learning_rate: 1000, weight_decay: 1000}}";
    let mut command = place.command(&["train", "tiny.yaml", "--json", "--set", rate]);
    let output = command.env("TERM", "xterm-256color").env_remove("NO_COLOR").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", talk(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["outcome"], "failed");
    let said = talk(&output);
    assert!(!said.contains("panicked"), "{said}");
    assert!(!said.contains('\x1b'), "no terminal, no colours: {said:?}");
    let hint = said.split("\nhint: ").nth(1).expect("a hint").trim_end();
    assert!(hint.starts_with("lower `learning_rate` (it was 1000)"), "{said}");
    assert_eq!(report["hint"], hint);
    let page = fs::read_to_string(place.only_run().join("report.html")).unwrap();
    assert!(page.contains("<b>Hint: </b>lower `learning_rate`"), "{page}");
    let status = String::from_utf8(place.run(&["status"]).stdout).unwrap();
    assert!(status.contains(&format!("next       {hint}; then ")), "{status}");
}

#[test]
fn a_saved_network_scores_as_its_report_says() {
    let place = Place::new();
    let report = place.json(&["train", "tiny.yaml", "--json"], 0);
    let run = place.only_run();
    let run = run.to_str().unwrap();
    for which in ["model", "last", "best"] {
        let scores =
            place.json(&["evaluate", run, "--data", "digits", "--checkpoint", which, "--json"], 0);
        assert!(scores["accuracy"].as_f64().unwrap() > 0.2, "{which}: {}", scores["accuracy"]);
        if which != "best" {
            assert_eq!(scores["weights_sha256"], report["weights_sha256"]);
        }
    }
    let id = report["run_id"].as_str().unwrap();
    let output = place.run(&["evaluate", id, "--data", "digits"]);
    assert!(output.status.success(), "{}", talk(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("accuracy") && table.contains("precision"), "{table}");
}

fn metrics(run: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
