//! Pools that change while a run lives: they grow, shrink, have machines of several providers, and
//! hear that a machine is about to go.

use crate::hosts::Hosts;
use crate::support::engine::Engine;
use crate::support::eventually;
use crate::support::pooled::{
    docker, engine_is_clean, expected, hosts_are_clean, id, is_over, ssh, trained, weights,
    workspace,
};
use crate::support::workspace::{Training, Workspace};
use serde_json::Value;
use std::fs;

/// So many that a test ends the run before they are done.
const ENDLESS: u32 = 1_000_000;

fn status(workspace: &Workspace) -> Value {
    let (out, _) = workspace.give(&["status", &id(&workspace.run()), "--json"], 0);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

/// Names of the machines in a state, as `status` has them.
fn machines(workspace: &Workspace, state: &str) -> Vec<String> {
    let status = status(workspace);
    let pool = status["pool"].as_object().cloned().unwrap_or_default();
    let is_so = |(name, one): (String, Value)| (one["state"] == state).then_some(name);
    pool.into_iter().filter_map(is_so).collect()
}

/// Machines that workers are on at this moment.
fn working(workspace: &Workspace) -> Vec<String> {
    let status = status(workspace);
    let mut on: Vec<String> = status["pulse"]["workers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|worker| worker["state"] == "computing" || worker["state"] == "standby")
        .filter_map(|worker| Some(worker["machine"].as_str()?.to_owned()))
        .collect();
    on.sort();
    on.dedup();
    on
}

fn training(pool: &str) -> (Workspace, Training) {
    let workspace = workspace(pool, ENDLESS, "");
    let mut training = workspace.start(&["train", "pool.yaml"], &[]);
    workspace.reaches(&mut training, 2);
    (workspace, training)
}

/// Stops the run, which ends with nothing lost.
#[track_caller]
fn stops(workspace: &Workspace, mut training: Training) {
    training.interrupt();
    let output = training.end();
    assert_eq!(output.status.code(), Some(130), "{}", workspace.said());
    workspace.give(&["audit", &id(&workspace.run())], 0);
}

#[test]
fn machines_of_this_one_come_and_go() {
    let (workspace, training) = training("{machines: 1, workers: 1}");
    let id = id(&workspace.run());
    let (_, said) = workspace.give(&["scale", &id, "machines=+2"], 0);
    assert!(said.contains("goes on with 3 machines instead of 1, and 3 workers"), "{said}");
    eventually("workers on all", || working(&workspace) == ["m1", "m2", "m3"]);
    assert_eq!(machines(&workspace, "ready"), ["m1", "m2", "m3"]);
    let (out, _) = workspace.give(&["status", &id], 0);
    assert!(out.contains("machines   3 ready: m1, m2, m3\n"), "{out}");

    let (out, _) = workspace.give(&["scale", &id, "machines=2", "--json"], 0);
    let scaled: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&scaled["machines"], &scaled["workers"]), (&2.into(), &2.into()), "{out}");
    eventually("one given back", || machines(&workspace, "released").len() == 1);
    eventually("workers on the others", || working(&workspace).len() == 2);
    let gone = machines(&workspace, "released").remove(0);
    let folder = workspace.machines().join(&id).join(&gone);
    eventually("its folder is gone", || !folder.exists());
    // It can be had again.
    workspace.give(&["scale", &id, "machines=+1"], 0);
    eventually("it is there again", || machines(&workspace, "ready").contains(&gone));
    let events = fs::read_to_string(workspace.run().join("events.jsonl")).expect("events");
    assert!(events.contains(r#""event":"resized","machines":3"#), "what was asked is told");
    stops(&workspace, training);
    is_over(&workspace.run());
}

#[test]
fn a_machine_that_is_about_to_go_is_replaced_before() {
    let (workspace, training) = training("{machines: 2, workers: 2}");
    let id = id(&workspace.run());
    fs::write(workspace.machines().join(&id).join("m1/leaving"), "60").expect("a notice");
    eventually("the notice", || machines(&workspace, "leaving") == ["m1"]);
    eventually("another", || machines(&workspace, "ready") == ["m2", "m3"]);
    let (out, _) = workspace.give(&["status", &id], 0);
    assert!(out.contains("m1 about to go: about to go in 60 s: `leaving`"), "{out}");
    stops(&workspace, training);
    is_over(&workspace.run());
}

#[test]
fn spare_hosts_join_a_run_that_lives() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let pool = ssh(&hosts, "h1, h2, h3", 1).replace("workers: 1", "workers: 1, machines: 1");
    let (workspace, training) = training(&pool);
    let run = id(&workspace.run());
    workspace.give(&["scale", &run, "machines=+2"], 0);
    eventually("workers on all", || working(&workspace) == ["h1", "h2", "h3"]);
    let (_, said) = workspace.give(&["scale", &run, "machines=+1"], 2);
    assert!(said.contains("can have 1 to 3 machines, but not 4"), "{said}");
    workspace.give(&["scale", &run, "machines=-1"], 0);
    eventually("one given back", || machines(&workspace, "ready").len() == 2);
    stops(&workspace, training);
    hosts_are_clean(&hosts, &[1, 2, 3], &workspace.run());
}

#[test]
fn containers_join_a_run_that_lives() {
    let Some(engine) = Engine::up() else { return };
    let (workspace, training) = training(&docker(&engine, 1, ""));
    let run = id(&workspace.run());
    workspace.give(&["scale", &run, "machines=+2"], 0);
    eventually("workers on all", || working(&workspace) == ["m0", "m1", "m2"]);
    workspace.give(&["scale", &run, "machines=1"], 0);
    eventually("two given back", || {
        engine.docker_ok(&["ps", "--quiet"]).lines().count() == 1 && working(&workspace).len() == 1
    });
    stops(&workspace, training);
    engine_is_clean(&engine, &workspace.run());
}

#[test]
fn one_pool_has_hosts_and_containers() {
    let (Some(hosts), Some(engine)) = (Hosts::up(1, &[]), Engine::up()) else { return };
    let socket = engine.socket();
    let more = format!(
        "more: [{{provider: docker, machines: 1, docker: {{socket: {}}}}}, \
         {{provider: local, machines: 1}}]}}",
        socket.display()
    );
    let pool = ssh(&hosts, "h1", 3);
    let pool = format!("{}, {more}", pool.strip_suffix('}').expect("a mapping"));
    let (workspace, out) = trained(&pool);
    assert_eq!(weights(&out), expected());
    let events = fs::read_to_string(workspace.run().join("events.jsonl")).expect("events");
    for machine in ["h1", "m0", "m10001"] {
        let joined = format!("\"machine\":\"{machine}\"");
        assert!(events.contains(&joined), "{machine}: {events}");
    }
    engine_is_clean(&engine, &workspace.run());
    hosts_are_clean(&hosts, &[1], &workspace.run());
}
