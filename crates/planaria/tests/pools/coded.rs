//! Coded runs on machines that do not have the data: only this one has.

use crate::hosts::Hosts;
use crate::support::eventually;
use crate::support::pooled::{ends_well, hosts_are_clean, ssh, weights};
use crate::support::workspace::Workspace;
use serde_json::Value;
use std::fmt::Write;
use std::fs;

/// Any 3 of at most 4 workers are enough.
fn recipe(pool: &str, more: &str) -> String {
    format!(
        "
name: table
seed: 3
pool: {pool}
data:
  train: rows.csv
  format: csv
  test: 0.25
  validation: 0.1
  table: {{label: answer, positive: yes, one_hot: [colour]{more}}}
model: {{layers: [{{Dense: {{units: 1}}}}]}}
train:
  method: coded
  coded: {{threshold: 3, machines: 4, precision: exact}}
  loss: squared_hinge
  epochs: 300
  batch: 90
  optimizer: {{sgd: {{learning_rate: 0.05, momentum: 0.9}}}}
"
    )
}

const BINS: &str = ", bins: [{columns: [size], count: 4}]";

fn rows() -> String {
    let mut text = String::from("colour,size,answer\n");
    for i in 0..400 {
        let (colour, size) = (["red", "green", "blue"][i * 7 % 3], i * 37 % 100);
        let yes = (colour == "red" && size > 20) || size > 80 || i % 17 == 0;
        let _ = writeln!(text, "{colour},{size}.5,{}", if yes { "yes" } else { "no" });
    }
    text
}

fn workspace(pool: &str) -> Workspace {
    let workspace = Workspace::new("{}");
    workspace.put("rows.csv", &rows());
    workspace.put("table.yaml", &recipe(pool, BINS));
    workspace
}

/// Who became ready so far, and how many bytes of the data it was sent.
fn downloads(workspace: &Workspace) -> Vec<(String, u64)> {
    let Some(run) = workspace.runs().pop() else { return Vec::new() };
    let text = fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let joined = events.filter(|e| e["event"] == "joined");
    let sent = |e: Value| Some((e["machine"].as_str()?.to_owned(), e["downloaded"].as_u64()?));
    joined.filter_map(sent).collect()
}

#[test]
fn hosts_that_do_not_have_the_data_come_to_the_same_bytes() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let one = workspace("{workers: 1}");
    let expected = one.give(&["train", "table.yaml", "--json"], 0).0;
    let weights_csv = fs::read_to_string(one.run().join("weights.csv")).expect("weights");
    let width = weights_csv.lines().count() as u64 - 1;

    let workspace = workspace(&ssh(&hosts, "h1, h2, h3", 3));
    for host in 1..=3 {
        let look = format!("test -e {} || echo absent", workspace.path("rows.csv").display());
        assert_eq!(hosts.on(host, &look), "absent");
    }
    let mut training = workspace.start(&["train", "table.yaml", "--json"], &[]);
    workspace.reaches(&mut training, 8);
    let first = downloads(&workspace);
    let machines: Vec<&str> = first.iter().map(|(machine, _)| machine.as_str()).collect();
    assert!(["h1", "h2", "h3"].iter().all(|host| machines.contains(host)), "{first:?}");
    // 400 rows, of which 260 are learned from, in 3 blocks of 87.
    let (block, labels, bounds) = (87 * width * 8, 260 * 16, 64 * width);
    for (machine, bytes) in &first {
        assert!((block..=block + labels + bounds).contains(bytes), "{machine}: {bytes}");
    }
    // Without it there are too few: the run waits until it is back, with what was on its disk.
    hosts.tell("kill", 2);
    hosts.tell("start", 2);
    eventually("its return", || downloads(&workspace).len() > 3);
    let again = downloads(&workspace).remove(3);
    assert_eq!(again, ("h2".to_owned(), 0), "{}", workspace.said());
    let report = ends_well(&workspace, training);
    assert_eq!(weights(&report), weights(&expected));
    hosts_are_clean(&hosts, &[1, 2, 3], &workspace.run());
}

#[test]
fn what_is_wrong_with_the_data_is_told_before_machines_are_taken() {
    let pool = "{provider: ssh, hosts: [nowhere.invalid], workers: 3}";
    let check = |change: &dyn Fn(&Workspace), expect: &str| {
        let workspace = workspace(pool);
        change(&workspace);
        let (_, said) = workspace.give(&["train", "table.yaml"], 2);
        assert_eq!(said.matches(expect).count(), 1, "`{expect}` in {said}");
        let held = |run: &std::path::Path| run.join("resources.jsonl").exists();
        assert!(!workspace.runs().iter().any(|run| held(run)), "{said}");
    };
    check(
        &|workspace| fs::remove_file(workspace.path("rows.csv")).expect("a file"),
        "`rows.csv` does not exist",
    );
    check(&|workspace| workspace.put("rows.csv", &(rows() + "red,5\n")), "402");
    check(
        &|workspace| workspace.put("table.yaml", &recipe(pool, ", standardize: false")),
        "feature `size` has others",
    );
}
