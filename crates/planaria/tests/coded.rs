//! Linear models trained by the real binary in one process: the reference of coded runs.

mod binary;

use binary::{Place, talk};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

const RECIPE: &str = "
name: table
seed: 3
data:
  train: rows.csv
  format: csv
  test: 0.25
  validation: 0.1
  table: {label: answer, positive: yes, one_hot: [colour], bins: [{columns: [size], count: 4}]}
model: {layers: [{Dense: {units: 1}}]}
train:
  method: coded
  coded: {threshold: 3, machines: 5}
  loss: squared_hinge
  l2: 0.001
  class_weights: {\"yes\": 1.5}
  epochs: 12
  batch: 90
  optimizer: {sgd: {learning_rate: 0.05, momentum: 0.9}}
";

/// Rows whose answer follows from colour and size, but for some.
fn rows(count: usize) -> String {
    let mut text = String::from("colour,size,answer\n");
    for i in 0..count {
        let (colour, size) = (["red", "green", "blue"][i * 7 % 3], i * 37 % 100);
        let yes = (colour == "red" && size > 20) || size > 80 || i % 17 == 0;
        let _ = writeln!(text, "{colour},{size},{}", if yes { "yes" } else { "no" });
    }
    text
}

fn place() -> Place {
    let place = Place::new();
    fs::write(place.path().join("rows.csv"), rows(400)).unwrap();
    fs::write(place.path().join("other.csv"), rows(90)).unwrap();
    fs::write(place.path().join("table.yaml"), RECIPE).unwrap();
    place
}

#[test]
fn a_linear_model_is_trained_saved_and_evaluated() {
    let place = place();
    let report = place.json(&["train", "table.yaml", "--json"], 0);
    assert_eq!((&report["outcome"], &report["method"]), (&"completed".into(), &"coded".into()));
    assert_eq!((&report["epochs"], &report["exactly_once"]), (&12.into(), &true.into()));
    assert_eq!(
        (&report["engine"], &report["bits_promised"]),
        (&"linear f64".into(), &false.into())
    );
    assert_eq!(report["positive"]["class"], "yes");
    assert!(report["positive"]["f1"].as_f64() > Some(0.7), "{report:#}");
    assert!(report["accuracy"].as_f64() > Some(0.8), "{report:#}");
    let run = place.only_run();
    let weights = fs::read_to_string(run.join("weights.csv")).unwrap();
    let names: Vec<&str> =
        weights.lines().filter_map(|l| l.rsplit_once(',')).map(|l| l.0).collect();
    assert_eq!(names.len(), 1 + 3 + 4 + 1, "{weights}");
    assert_eq!((names[0], names[1], names[8]), ("feature", "colour=blue", "(bias)"), "{weights}");

    let name = run.to_str().unwrap();
    for which in ["model", "last", "best"] {
        let scores = place
            .json(&["evaluate", name, "--data", "other.csv", "--checkpoint", which, "--json"], 0);
        assert_eq!(scores["examples"], 90);
        assert!(scores["accuracy"].as_f64() > Some(0.8), "{scores:#}");
        assert_eq!(scores["positive"]["class"], "yes");
        if which != "best" {
            assert_eq!(scores["weights_sha256"], report["weights_sha256"], "{which}");
        }
    }
    let audit = place.json(&["audit", name, "--json"], 0);
    assert_eq!(audit["exactly_once"], true, "{audit:#}");
    let said = place.run(&["runs"]);
    assert!(said.status.success(), "{}", talk(&said));
}

#[test]
fn every_precision_and_every_step_to_go_on_from_give_the_same_bits() {
    for precision in ["f32", "f64", "exact"] {
        let place = place();
        let code = format!("train.coded={{threshold: 3, machines: 5, precision: {precision}}}");
        let sets = ["--set", &code, "--set", "output={checkpoint_steps: 1, keep: 100}"];
        let more = ["--set", "train.epochs=3"];
        let arguments = [&["train", "table.yaml", "--json"], &sets[..], &more].concat();
        let unbroken = place.json(&arguments, 0);
        assert_eq!(unbroken["bits_promised"], precision == "exact");
        let run = place.only_run();
        let checkpoint_folder = run.join("checkpoints");
        for step in [1, 4, 8] {
            fs::remove_file(run.join("report.json")).unwrap();
            fs::remove_file(checkpoint_folder.join("last")).unwrap();
            symlink(format!("step-{step:010}"), checkpoint_folder.join("last")).unwrap();
            let resumed = place.json(&["resume", run.to_str().unwrap(), "--json"], 0);
            for field in ["weights_sha256", "steps", "loss", "confusion", "best"] {
                assert_eq!(resumed[field], unbroken[field], "{precision}: {field} after {step}");
            }
        }
    }
}

#[test]
fn rows_that_do_not_fit_are_refused_before_they_are_encoded() {
    let place = place();
    let wide: String = (1..=400).map(|i| format!("{} {}:1\n", i % 2, i * 250_000)).collect();
    fs::write(place.path().join("wide.svm"), wide).unwrap();
    let data = "data={train: wide.svm, format: libsvm}";
    let train = "train={method: coded, coded: {threshold: 3, machines: 5}, loss: squared_hinge}";
    let sets = ["--set", data, "--set", train, "--set", "pool.workers=5"];
    // Encoded, they would take more room than any disk that is used for temporary files.
    let output = place.run(&[&["train", "table.yaml"], &sets[..]].concat());
    let said = talk(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("of memory, but") && said.contains("hint: coded rows"), "{said}");
}

#[test]
fn exact_arithmetic_refuses_what_it_cannot_hold() {
    let place = place();
    let exact = "train.coded={threshold: 3, machines: 5, precision: exact}";
    let refused = |sets: &[&str]| {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let told = |command: &str| {
            let output = place.run(&[&[command, "table.yaml"], &sets[..]].concat());
            assert!(!output.status.success());
            (output.status.code(), talk(&output))
        };
        let said = told("train");
        if said.1.contains("but feature") {
            assert_eq!(told("plan"), said, "a plan says what training would");
        }
        said.1
    };
    let table = "data.table={label: answer, positive: yes, one_hot: [colour]}";
    let said = refused(&[table, exact]);
    assert!(
        said.contains("feature `size` has others") && said.contains("train.coded.scale"),
        "{said}"
    );
    let plain = "data.table={label: answer, positive: yes, one_hot: [colour], standardize: false}";
    let with = |size: &str| {
        let large = rows(400).replace(",99,", &format!(",{size},"));
        fs::write(place.path().join("rows.csv"), large).unwrap();
        refused(&[plain, exact, "train.optimizer={sgd: {learning_rate: 0.9}}"])
    };
    let said = with("9000000");
    assert!(said.contains("could reach 2^") && said.contains("is `size`"), "{said}");
    // Reading it in single precision would round it.
    let said = with("90000001");
    assert!(said.contains("below 16,777,216, but feature `size` has others"), "{said}");
    let said = refused(&["train.class_weights={maybe: 2}"]);
    assert!(
        said.contains("names the label `maybe`, but the training rows have `no`, `yes`"),
        "{said}"
    );
}

#[test]
fn a_plan_shows_what_each_number_of_machines_costs() {
    let place = place();
    let plan = place.json(&["plan", "table.yaml", "--json"], 0);
    let coded = &plan["coded"];
    assert_eq!((&coded["rows"], &coded["width"]), (&260.into(), &8.into()));
    let table = coded["by_machines"].as_array().unwrap();
    let machines: Vec<u64> = table.iter().filter_map(|row| row["machines"].as_u64()).collect();
    assert_eq!(machines, [3, 4, 5]);
    assert_eq!((&table[0]["decode_macs"], &table[2]["losses_tolerated"]), (&0.into(), &2.into()));
    assert!(table[0]["macs_per_machine"].as_u64() > table[2]["macs_per_machine"].as_u64());
    assert!(coded["condition"]["worst"].as_f64() < Some(1e4));
    let output = place.run(&["plan", "table.yaml"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("any 3 of 5 machines are enough (f64); condition of groups"), "{text}");
    assert!(text.contains("machines  may be lost"), "{text}");
}

/// The real table where it is at hand.
fn credit() -> Option<PathBuf> {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let base = std::env::var_os("PLANARIA_DATA")
        .map_or_else(|| workspace.join("../shared/data"), PathBuf::from);
    let path = base.join("credit-default/UCI_Credit_Card.csv");
    let is_there = path.is_file();
    let required = std::env::var_os("PLANARIA_REQUIRE_DATA").is_some();
    assert!(is_there || !required, "`{}` is required here but missing", path.display());
    is_there.then_some(path)
}

/// The figures of the example: accuracy and F1 of the positive class on the test part.
fn figures(report: &Value) -> (f64, f64) {
    (report["accuracy"].as_f64().unwrap(), report["positive"]["f1"].as_f64().unwrap())
}

#[test]
fn the_credit_example_reaches_its_figures() {
    let Some(data) = credit() else { return };
    let place = Place::new();
    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/credit-svm.yaml");
    let data = format!("data.train={}", data.display());
    let train = |precision: &str, epochs: u64, folder: &str| {
        let code = format!("train.coded.precision={precision}");
        let out = format!("output.dir={folder}");
        let epochs = format!("train.epochs={epochs}");
        let sets = [data.as_str(), &code, &out, &epochs, "pool.workers=1"];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        place.json(&[&["train", recipe, "--json"], &sets[..]].concat(), 0)
    };
    let report = train("f64", 300, "a");
    let (accuracy, f1) = figures(&report);
    assert!(accuracy >= 0.82 && f1 >= 0.46, "{accuracy}, {f1}");
    assert_eq!(report["evaluated_examples"], 10_000);
    let (float, exact) = (train("f64", 20, "b"), train("exact", 20, "c"));
    assert_eq!(exact["confusion"], float["confusion"], "the same predictions");
}
