//! Numbers to predict, by the real binary: labels of any size are learned, and told as they are.

mod binary;

use binary::{Place, talk};
use serde_json::Value;
use std::fmt::Write;
use std::fs;

const RECIPE: &str = "
name: houses
seed: 3
data:
  train: houses.csv
  format: csv
  validation: 0.2
  test: 0.2
  table: {label: price, target: number, one_hot: [district]}
model: {layers: [{Dense: {units: 8, activation: relu}}, {Dense: {units: 1}}]}
train:
  epochs: 15
  batch: 32
  loss: mse
  optimizer: {sgd: {learning_rate: 0.05, momentum: 0.9}}
";

/// Houses whose price follows from area, rooms and district, but for a little.
fn houses(count: usize) -> String {
    let mut text = String::from("area,rooms,district,price\n");
    for i in 0..count {
        let (area, rooms) = (40 + i * 37 % 200, 1 + i * 7 % 6);
        let district = ["north", "south", "old town"][i * 5 % 3];
        let place = [0, 40_000, 120_000][i * 5 % 3];
        let price = 50_000 + 2_500 * area + 9_000 * rooms + place + i * 101 % 7_000;
        let _ = writeln!(text, "{area},{rooms},{district},{price}");
    }
    text
}

fn place() -> Place {
    let place = Place::new();
    fs::write(place.path().join("houses.csv"), houses(900)).unwrap();
    fs::write(place.path().join("houses.yaml"), RECIPE).unwrap();
    place
}

/// The figures that must not depend on processes.
fn figures(report: &Value) -> Vec<&Value> {
    ["weights_sha256", "rmse", "mae", "r2", "loss", "predictions", "target_scale"]
        .map(|key| &report[key])
        .to_vec()
}

#[test]
fn prices_are_learned_and_told_in_their_own_units() {
    let place = place();
    let report = place.json(&["train", "houses.yaml", "--json"], 0);
    let figure = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key}: {report:#}"));
    assert!((0.9..=1.0).contains(&figure("r2")), "{report:#}");
    assert!((1_000.0..40_000.0).contains(&figure("rmse")), "{report:#}");
    assert!(figure("mae") < figure("rmse") && figure("loss") < 0.1, "{report:#}");
    assert_eq!(report["predictions"].as_array().unwrap().len(), 180);
    let run = place.only_run();
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("Predicted against true") && page.contains("test RMSE"));

    // What was learned of the labels is stored with the model.
    let name = run.to_str().unwrap();
    fs::write(place.path().join("more.csv"), houses(300)).unwrap();
    let scores = place.json(&["evaluate", name, "--data", "more.csv", "--json"], 0);
    assert!(scores["r2"].as_f64() > Some(0.9), "{scores:#}");
    assert!((1_000.0..40_000.0).contains(&scores["rmse"].as_f64().unwrap()), "{scores:#}");
    let runs = place.json(&["runs", "--json"], 0);
    assert_eq!((&runs[0]["rmse"], &runs[0]["r2"]), (&report["rmse"], &report["r2"]));

    // The same on several processes.
    let options = ["train", "houses.yaml", "--json", "--workers", "2", "--servers", "1"];
    let many = place.json(&options, 0);
    assert_eq!(figures(&many), figures(&report));
}

#[test]
fn a_coded_run_tells_the_same_units() {
    let place = place();
    let linear = [
        "train.method=coded",
        "train.coded={threshold: 2, machines: 3, precision: exact, scale: 256}",
        "model={layers: [{Dense: {units: 1}}]}",
    ];
    let mut options = vec!["train", "houses.yaml", "--json"];
    linear.iter().for_each(|set| options.extend(["--set", set]));
    let one = place.json(&options, 0);
    assert!(one["r2"].as_f64() > Some(0.9), "{one:#}");
    let weights = fs::read_to_string(place.only_run().join("weights.csv")).unwrap();
    let bias = weights.lines().last().unwrap().strip_prefix("(bias),").unwrap();
    assert!(bias.parse::<f64>().unwrap() > 100_000.0, "in the label's units: {weights}");
    options.extend(["--workers", "3"]);
    assert_eq!(figures(&place.json(&options, 0)), figures(&one));
}

#[test]
fn a_result_that_says_no_more_than_the_mean_says_so() {
    let place = place();
    // Prices that have nothing to do with the houses.
    let rows = (0..900u64).map(|i| format!("{},1,north,{}\n", i * 37 % 200, i * i * 7919 % 60_007));
    let text = format!("area,rooms,district,price\n{}", rows.collect::<String>());
    fs::write(place.path().join("houses.csv"), text).unwrap();
    let still = "train.optimizer={sgd: {learning_rate: 1.0e-9}}";
    let output = place.run(&["train", "houses.yaml", "--set", still]);
    let said = talk(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("completed: RMSE "), "{said}");
    assert!(said.contains("no better than always predicting the mean (R² "), "{said}");
}

#[test]
fn prices_that_are_not_scaled_overflow_with_a_hint() {
    let place = place();
    let plain = "data.table.standardize_target=false";
    let output = place.run(&["train", "houses.yaml", "--set", plain]);
    assert_eq!(output.status.code(), Some(1), "{}", talk(&output));
    let said = talk(&output);
    assert!(said.contains("hint: lower `learning_rate`"), "{said}");
    assert!(said.contains("`data.table.standardize_target` is false"), "{said}");
}

#[test]
fn a_price_that_is_taken_for_a_class_is_warned_about() {
    let place = place();
    let said = "label `price` has ";
    let class = ["--set", "data.table.target=class", "--set", "data.test=null"];
    let whole = ["--set", "data.validation=null", "--set", "train.epochs=1"];
    let plan = place.run(&[&["plan", "houses.yaml"], &class[..], &whole[..]].concat());
    let text = String::from_utf8_lossy(&plan.stdout);
    let warning = text.lines().find(|line| line.starts_with("warning"));
    assert!(warning.is_some_and(|line| line.contains(said)), "{text}");
    let train = place.run(&[&["train", "houses.yaml"], &class[..], &whole[..]].concat());
    let talked = talk(&train);
    assert!(talked.contains(&format!("warning: {said}")), "{talked}");
    assert!(talked.contains("to predict a number write `table: {target: number}`"), "{talked}");
    // It may be why the network does not fit.
    let loss = ["--set", "train.loss=cross_entropy"];
    let failed = place.run(&[&["plan", "houses.yaml"], &class[..], &whole[..], &loss].concat());
    let talked = talk(&failed);
    assert_eq!(failed.status.code(), Some(2), "{talked}");
    assert!(talked.contains("hint: label `price` has "), "{talked}");
}
