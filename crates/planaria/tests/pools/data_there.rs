//! Data that is missing or different on a machine is that machine's fault.

use crate::hosts::Hosts;
use crate::support::pooled::{hosts_are_clean, weights};
use crate::support::workspace::Workspace;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

/// Rows of a table; one of them is another where it is asked for.
fn rows(is_other: bool) -> String {
    let mut text = String::from("x,y,label\n");
    for n in 0..120 {
        let _ = writeln!(text, "{},{},{}", n % 7, (n * n) % 11, ["a", "b"][usize::from(n % 7 > 2)]);
    }
    if is_other { text.replacen("0,0,a", "0,9,a", 1) } else { text }
}

fn recipe(pool: &str, data: &Path) -> String {
    format!(
        "
name: there
seed: 5
pool: {pool}
data: {{train: {}, test: 0.2, table: {{label: label}}}}
model: {{layers: [Dense: {{units: 8}}, Activation: relu, Dense: {{units: 2}}]}}
train: {{epochs: 2000, batch: 20, shards: 4, optimizer: {{sgd: {{learning_rate: 0.05}}}}}}
",
        data.display()
    )
}

/// Puts a table onto a host, where the recipe looks for it.
fn bring(hosts: &Hosts, number: u32, path: &Path, text: &str) {
    let folder = path.parent().expect("a folder").display();
    let text = text.replace('\n', "\\n");
    hosts.on(number, &format!("mkdir -p {folder}; printf '{text}' >{}", path.display()));
}

#[test]
fn a_host_without_the_data_is_given_up_and_the_spare_used() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let workspace = Workspace::new("{}");
    let path = workspace.path("table.csv");
    workspace.put("table.csv", &rows(false));
    // The first has none, the second the same, and the spare one another.
    bring(&hosts, 2, &path, &rows(false));
    bring(&hosts, 3, &path, &rows(true));
    let pool = |more: &str| {
        let config = hosts.path("ssh_config").display().to_string();
        format!(
            "{{provider: ssh, hosts: [h1, h2, h3], machines: 2, ssh: {{config: {config}}}, {more}}}"
        )
    };
    workspace.put("pool.yaml", &recipe("{workers: 1}", &path));
    let expected = weights(&workspace.give(&["train", "pool.yaml", "--json"], 0).0);

    workspace.put("pool.yaml", &recipe(&pool("workers: 2"), &path));
    let (planned, _) = workspace.give(&["plan", "pool.yaml"], 0);
    assert!(planned.contains("the same on h2, h3, by count and size"), "{planned}");
    assert!(planned.contains("NOT ON h1: "), "{planned}");
    let (found, _) = workspace.give(&["doctor", "pool.yaml"], 1);
    assert!(found.contains("the data is there"), "{found}");
    assert!(found.contains("the content of") && found.contains("is not the same"), "{found}");

    let (report, said) = workspace.give(&["train", "pool.yaml", "--json"], 0);
    assert_eq!(weights(&report), expected);
    assert!(said.contains("given up: h1: ") && said.contains("given up: h3: "), "{said}");
    assert!(said.contains("is not what the run began with"), "{said}");
    let report: Value = serde_json::from_str(&report).expect("a report");
    let names: Vec<&str> = report["machines_given_up"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["machine"].as_str())
        .collect();
    assert_eq!(names, ["h1", "h3"]);
    let events = std::fs::read_to_string(workspace.run().join("events.jsonl")).expect("events");
    assert!(events.contains("\"given_up\""), "{events}");
    hosts_are_clean(&hosts, &[1, 2, 3], &workspace.run());

    let least = pool("workers: {min: 2, max: 2}, slots: 1");
    workspace.put("pool.yaml", &recipe(&least, &path));
    let (_, said) = workspace.give(&["train", "pool.yaml"], 1);
    assert!(said.contains("error: h1: ") && said.contains("`workers.min` is 2"), "{said}");
    hosts_are_clean(&hosts, &[1, 2, 3], &workspace.run());
}
