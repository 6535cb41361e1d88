//! Coded runs by the real binary: in exact arithmetic the same bytes with any members, after any
//! losses, and in one process.

use crate::binary::{Place, talk};
use crate::live::{Live, events, figures, signal, until};
use serde_json::Value;
use std::fmt::Write;
use std::fs;

const RECIPE: &str = "
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
  coded: {threshold: 3, machines: 5, precision: exact}
  loss: squared_hinge
  l2: 0.001
  epochs: 12
  batch: 90
  optimizer: {sgd: {learning_rate: 0.05, momentum: 0.9}}
";

/// Long enough to be struck in the middle.
const LONG: [&str; 2] = ["--set", "train.epochs=250"];

/// Rows whose answer follows from colour and size, but for some.
fn rows(count: usize, answers: &[&str]) -> String {
    let mut text = String::from("colour,size,answer\n");
    for i in 0..count {
        let (colour, size) = (["red", "green", "blue"][i * 7 % 3], i * 37 % 100);
        let yes = (colour == "red" && size > 20) || size > 80 || i % 17 == 0;
        let answer = match answers.len() {
            2 => answers[usize::from(yes)],
            n => answers[(usize::from(yes) + size / 40) % n],
        };
        let _ = writeln!(text, "{colour},{size},{answer}");
    }
    text
}

/// A folder with the recipe, under a name that no other test's run has, and a home of its own.
fn place() -> Place {
    let place = Place::new();
    let unique: String = place.path().display().to_string();
    let unique: String = unique.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = &unique[unique.len() - 6..];
    fs::write(place.path().join("table.yaml"), format!("name: table{name}\n{RECIPE}")).unwrap();
    fs::write(place.path().join("rows.csv"), rows(400, &["no", "yes"])).unwrap();
    place
}

fn command(place: &Place, arguments: &[&str]) -> std::process::Command {
    let mut command = place.command(arguments);
    command.env("HOME", place.path().join("home"));
    command
}

/// Trains in one process; the report.
#[track_caller]
fn alone(place: &Place, more: &[&str]) -> Value {
    ended(place, &[&["train", "table.yaml", "--json"], more].concat())
}

/// Trains to the end; the report.
#[track_caller]
fn train(place: &Place, workers: &str, more: &[&str]) -> Value {
    ended(place, &[&["train", "table.yaml", "--json", "--workers", workers], more].concat())
}

/// Runs a command to its end, next to what there is; what it printed.
#[track_caller]
fn ended_in(place: &Place, arguments: &[&str]) -> Value {
    let output = command(place, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn ended(place: &Place, arguments: &[&str]) -> Value {
    let _ = fs::remove_dir_all(place.path().join("runs"));
    let output = command(place, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn live(place: &Place, workers: &str, more: &[&str]) -> Live {
    let _ = fs::remove_dir_all(place.path().join("runs"));
    let base = ["train", "table.yaml", "--json", "--workers", workers];
    Live::start(place, command(place, &[&base, more].concat()))
}

#[track_caller]
fn finish(mut live: Live) -> Value {
    let output = live.end();
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["exactly_once"], true, "{report}");
    report
}

/// The weights of the only run.
fn weights(place: &Place) -> Vec<f64> {
    let text = fs::read_to_string(place.only_run().join("weights.csv")).unwrap();
    let fields = text.lines().skip(1).filter_map(|line| line.rsplit_once(','));
    fields.map(|(_, weight)| weight.parse().unwrap()).collect()
}

/// Waits for an event after so many others of its kind.
#[track_caller]
fn happened(live: &Live, name: &str, times: usize) -> Value {
    until(name, || events(&live.run).into_iter().filter(|e| e["event"] == name).nth(times))
}

/// The same weights, and every figure of every line to its last bit.
#[track_caller]
fn same(report: &Value, expected: &Value) {
    assert_eq!(figures(report), figures(expected));
}

#[test]
fn a_product_that_could_leave_the_range_stops_the_run_and_names_the_column() {
    let place = place();
    let table = "data.table={label: answer, positive: yes, one_hot: [colour], standardize: false}";
    // Small enough to be held, too large for what weights make of it.
    let large = rows(400, &["no", "yes"]).replace(",99,", ",90000,");
    fs::write(place.path().join("rows.csv"), large).unwrap();
    let sets = ["--set", table, "--set", "train.optimizer={sgd: {learning_rate: 0.9}}"];
    for workers in ["1", "4"] {
        let base = ["train", "table.yaml", "--workers", workers];
        let output = command(&place, &[&base, &sets[..]].concat()).output().unwrap();
        let said = talk(&output);
        assert_ne!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("could reach 2^") && said.contains("is `size`"), "{workers}: {said}");
        fs::remove_dir_all(place.path().join("runs")).unwrap();
    }
}

#[test]
fn a_head_on_a_frozen_network_is_the_same_bytes_on_machines_that_are_lost() {
    let place = place();
    let network = "name: net\nseed: 2\ndata: {train: digits, examples: 1000, validation: null}\n\
        model: {layers: [{Conv2D: {filters: 4, kernel_size: 3, strides: 2, activation: relu}}, \
        BatchNormalization, Flatten, {Dense: {units: 12, activation: relu}}, {Dense: {units: 10}}]}\n\
        train: {epochs: 4, batch: 25, optimizer: {adam: {}}}\noutput: {dir: nets}\n";
    fs::write(place.path().join("net.yaml"), network).unwrap();
    ended(&place, &["train", "net.yaml", "--json"]);
    let net = fs::read_dir(place.path().join("nets")).unwrap().next().unwrap().unwrap().path();
    let name = fs::read_to_string(place.path().join("table.yaml")).unwrap();
    let head = format!(
        "{}\nseed: 3\ndata: {{train: digits, examples: 900, test: 0.2, validation: null}}\n\
         model: {{features: {{from: {}}}, layers: [{{Dense: {{units: 10}}}}]}}\n\
         train:\n  method: coded\n  epochs: 200\n  \
         coded: {{threshold: 2, machines: 4, precision: exact, scale: 256}}\n  \
         optimizer: {{sgd: {{learning_rate: 0.1, momentum: 0.9}}}}\n",
        name.lines().next().unwrap(),
        net.display()
    );
    fs::write(place.path().join("table.yaml"), head).unwrap();
    let expected = alone(&place, &[]);
    let live = live(&place, "4", &[]);
    live.reach(1, 20);
    signal(live.process("worker", "2").pid, "KILL");
    let report = finish(live);
    same(&report, &expected);
    assert!(report["accuracy"].as_f64() > Some(0.4), "{report:#}");

    // Raw examples go in; what was trained is known by the hash in the report.
    let run = place.only_run();
    for which in ["model", "last"] {
        let run = run.to_str().unwrap();
        let asked = ["evaluate", run, "--data", "digits", "--checkpoint", which, "--json"];
        let scores = ended_in(&place, &asked);
        assert_eq!(scores["weights_sha256"], report["weights_sha256"], "{which}");
        assert!(scores["accuracy"].as_f64() > Some(0.4), "{scores:#}");
    }
    let refused = |set: &str, expect: &str| {
        let output = command(&place, &["plan", "table.yaml", "--set", set]).output().unwrap();
        let said = talk(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expect), "{said}");
    };
    refused("model.features.from=nowhere", "there is no run `nowhere`");
    refused("model.features.layers=9", "it has 5 layers");
    refused(
        "data={train: rows.csv, format: csv, table: {label: answer, one_hot: [colour]}}",
        "takes examples of 28×28",
    );
    refused("data.normalize={mean: [0.5]}", "scales as the saved network was trained");
}

#[test]
fn exact_weights_are_the_same_bytes_however_many_workers_there_are() {
    let place = place();
    let (expected, mut all) = (alone(&place, &[]), None);
    for workers in ["3", "4", "5"] {
        let report = train(&place, workers, &[]);
        same(&report, &expected);
        assert_eq!(report["workers"], workers.parse::<u32>().unwrap());
        // Each row is multiplied once in each product, and each product and entry sent once, however
        // many there are; with three, all are members of each group, and one of them decodes it.
        let products = &report["products"];
        let figure = |name: &str| products[name].as_u64().unwrap();
        let (rows, sent) = (figure("rows"), figure("sent_bytes") / 8);
        assert_eq!(sent, if workers == "3" { rows * 2 / 3 } else { rows }, "{products}");
        assert_eq!((rows, figure("extra_rows")), (*all.get_or_insert(rows), 0), "{products}");
    }
    // The blocks were kept: those who come again encode nothing.
    let cached = fs::read_dir(place.path().join("home/.cache/planaria/coded")).unwrap().count();
    assert_eq!(cached, 1, "one coding");
    train(&place, "5", &[]);
    let run = place.only_run();
    let log = fs::read_to_string(run.join("logs/worker-4.log")).unwrap();
    assert!(log.contains("as they were kept"), "{log}");
}

#[test]
fn workers_and_coordinators_are_killed_and_the_bytes_are_the_same() {
    let place = place();
    let expected = train(&place, "4", &LONG);
    let live = live(&place, "4", &LONG);
    live.reach(1, 20);
    for (role, index) in [("worker", "1"), ("worker", "3"), ("coordinator", ""), ("worker", "0")] {
        let victim = live.process(role, index);
        signal(victim.pid, "KILL");
        until("another process in its place", || {
            let all = live.processes().into_iter();
            all.into_iter().find(|p| p.role == role && p.index == index && p.pid != victim.pid)
        });
    }
    let report = finish(live);
    same(&report, &expected);
    let recovered = report["generation"].as_u64();
    assert!(recovered >= Some(2), "{recovered:?}");
}

#[test]
fn below_the_threshold_it_waits_and_goes_on_by_itself() {
    let place = place();
    let expected = train(&place, "3", &LONG);
    let live = live(&place, "3", &LONG);
    live.reach(1, 20);
    let victim = live.process("worker", "2");
    signal(victim.pid, "KILL");
    let paused = happened(&live, "paused", 0);
    assert_eq!((&paused["workers"], &paused["min"]), (&2.into(), &3.into()));
    happened(&live, "unpaused", 0);
    same(&finish(live), &expected);
}

#[test]
fn floats_and_classes_come_out_as_in_one_process() {
    let place = place();
    let f64 = ["--set", "train.coded.precision=f64"];
    let expected = (alone(&place, &f64), weights(&place));
    let report = train(&place, "4", &f64);
    for key in ["steps", "accuracy", "confusion"] {
        assert_eq!(report[key], expected.0[key], "{key}");
    }
    let largest = expected.1.iter().fold(0.0, |most: f64, w| most.max(w.abs()));
    for (found, expected) in weights(&place).iter().zip(&expected.1) {
        assert!((found - expected).abs() <= 1e-12 * largest, "{found} and {expected}");
    }
    fs::write(place.path().join("rows.csv"), rows(300, &["a", "b", "c"])).unwrap();
    let classes = [
        "--set",
        "data.table={label: answer, one_hot: [colour], bins: [{columns: [size], count: 4}]}",
        "--set",
        "model={layers: [{Dense: {units: 3}}]}",
        "--set",
        "train.loss=cross_entropy",
    ];
    let expected = alone(&place, &classes);
    same(&train(&place, "4", &classes), &expected);
}

/// What each worker that became ready was sent of the data.
fn downloads(live: &Live) -> Vec<(String, u64)> {
    let joined = events(&live.run).into_iter().filter(|e| e["event"] == "joined");
    let sent = |e: Value| {
        (e["agent"].as_str().unwrap().to_owned(), e["downloaded"].as_u64().expect("bytes"))
    };
    joined.map(sent).collect()
}

#[test]
fn a_worker_is_sent_its_rows_once_and_the_data_is_nowhere_else() {
    let place = place();
    let expected = alone(&place, &LONG);
    let width = weights(&place).len() as u64;
    let live = live(&place, "4", &LONG);
    live.reach(1, 20);
    let first = downloads(&live);
    assert_eq!(first.len(), 4, "{first:?}");
    let examples = happened(&live, "started", 0)["examples"].as_u64().unwrap();
    let (block, labels) = (examples.div_ceil(3) * width * 8, examples * 16);
    // In exact arithmetic two numbers for each column come with the rows.
    let bounds = 64 * width;
    for (agent, bytes) in &first {
        assert!((block..=block + labels + bounds).contains(bytes), "{agent}: {bytes} of {block}");
    }
    let victim = live.process("worker", "1");
    signal(victim.pid, "KILL");
    let again = until("its return", || downloads(&live).into_iter().nth(4));
    assert_eq!(again, ("worker-1".to_owned(), 0), "its machine has its rows");
    let log = fs::read_to_string(live.run.join("logs/worker-1.log")).unwrap();
    assert!(log.contains("as they were kept; bytes downloaded: 0"), "{log}");
    let coordinator = fs::read_to_string(live.run.join("logs/coordinator.log")).unwrap();
    assert_eq!(coordinator.matches("was sent rows 0 to").count(), 4, "{coordinator}");
    same(&finish(live), &expected);
}

#[test]
fn what_was_kept_is_not_gone_on_with_over_other_data() {
    let place = place();
    let mut live = live(&place, "3", &["--set", "train.epochs=1000000"]);
    live.reach(1, 20);
    live.signal("KILL");
    live.end();
    let run = live.run.to_str().unwrap();
    // What was kept is all that is left.
    fs::remove_dir_all(live.run.join("checkpoints")).unwrap();
    fs::remove_file(live.run.join("events.jsonl")).unwrap();
    fs::write(place.path().join("rows.csv"), rows(400, &["yes", "no"])).unwrap();
    let output = command(&place, &["resume", run]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", talk(&output));
    let said = talk(&output);
    assert!(said.contains("rows.csv` was changed after the run began"), "{said}");
}

#[test]
fn workers_open_no_data_and_the_sources_trouble_is_told() {
    let place = place();
    let mut live = live(&place, "3", &["--set", "train.epochs=1000000"]);
    happened(&live, "epoch", 3);
    for worker in ["0", "1", "2"] {
        let pid = live.process("worker", worker).pid;
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let mut files = open.filter_map(|file| fs::read_link(file.path()).ok());
        assert!(!files.any(|file| file.ends_with("rows.csv")));
    }
    // The source that comes next finds other data: it says so, and no worker trains on it.
    fs::write(place.path().join("rows.csv"), rows(399, &["no", "yes"])).unwrap();
    fs::remove_dir_all(place.path().join("home/.cache/planaria/coded")).unwrap();
    signal(live.process("coordinator", "").pid, "KILL");
    signal(live.process("worker", "1").pid, "KILL");
    let output = live.end();
    assert_eq!(output.status.code(), Some(2), "{}", talk(&output));
    assert!(talk(&output).contains("is not what the run began with"), "{}", talk(&output));
}
