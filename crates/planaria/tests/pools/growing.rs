//! Pools that change while a run lives: they grow, shrink, have machines of several providers, and
//! hear that a machine is about to go.

use crate::hosts::Hosts;
use crate::support::desk::{Desk, Training};
use crate::support::engine::Engine;
use crate::support::eventually;
use crate::support::pooled::{
    desk, docker, engine_is_clean, expected, hosts_are_clean, id, is_over, ssh, trained, weights,
};
use serde_json::Value;
use std::fs;

/// So many that a test ends the run before they are done.
const ENDLESS: u32 = 1_000_000;

fn status(desk: &Desk) -> Value {
    let (out, _) = desk.give(&["status", &id(&desk.run()), "--json"], 0);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

/// Names of the machines in a state, as `status` has them.
fn machines(desk: &Desk, state: &str) -> Vec<String> {
    let status = status(desk);
    let pool = status["pool"].as_object().cloned().unwrap_or_default();
    let is_so = |(name, one): (String, Value)| (one["state"] == state).then_some(name);
    pool.into_iter().filter_map(is_so).collect()
}

/// Machines that workers are on at this moment.
fn working(desk: &Desk) -> Vec<String> {
    let status = status(desk);
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

fn training(pool: &str) -> (Desk, Training) {
    let desk = desk(pool, ENDLESS, "");
    let mut training = desk.start(&["train", "pool.yaml"], &[]);
    desk.hears(&mut training, "epoch 2/");
    (desk, training)
}

/// Stops the run, which ends with nothing lost.
#[track_caller]
fn stops(desk: &Desk, mut training: Training) {
    training.interrupt();
    let output = training.end();
    assert_eq!(output.status.code(), Some(130), "{}", desk.said());
    desk.give(&["audit", &id(&desk.run())], 0);
}

#[test]
fn machines_of_this_one_come_and_go() {
    let (desk, training) = training("{machines: 1, workers: 1}");
    let id = id(&desk.run());
    let (_, said) = desk.give(&["scale", &id, "machines=+2"], 0);
    assert!(said.contains("goes on with 3 machines instead of 1, and 3 workers"), "{said}");
    eventually("workers on all", || working(&desk) == ["m1", "m2", "m3"]);
    assert_eq!(machines(&desk, "ready"), ["m1", "m2", "m3"]);
    let (out, _) = desk.give(&["status", &id], 0);
    assert!(out.contains("machines   3 ready: m1, m2, m3\n"), "{out}");

    let (out, _) = desk.give(&["scale", &id, "machines=2", "--json"], 0);
    let scaled: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&scaled["machines"], &scaled["workers"]), (&2.into(), &2.into()), "{out}");
    eventually("one given back", || machines(&desk, "released").len() == 1);
    eventually("workers on the others", || working(&desk).len() == 2);
    let gone = machines(&desk, "released").remove(0);
    let folder = desk.machines().join(&id).join(&gone);
    eventually("its folder is gone", || !folder.exists());
    // It can be had again.
    desk.give(&["scale", &id, "machines=+1"], 0);
    eventually("it is there again", || machines(&desk, "ready").contains(&gone));
    let events = fs::read_to_string(desk.run().join("events.jsonl")).expect("events");
    assert!(events.contains(r#""event":"resized","machines":3"#), "what was asked is told");
    stops(&desk, training);
    is_over(&desk.run());
}

#[test]
fn a_machine_that_is_about_to_go_is_replaced_before() {
    let (desk, training) = training("{machines: 2, workers: 2}");
    let id = id(&desk.run());
    fs::write(desk.machines().join(&id).join("m1/leaving"), "60").expect("a notice");
    eventually("the notice", || machines(&desk, "leaving") == ["m1"]);
    eventually("another", || machines(&desk, "ready") == ["m2", "m3"]);
    let (out, _) = desk.give(&["status", &id], 0);
    assert!(out.contains("m1 about to go: about to go in 60 s: `leaving`"), "{out}");
    stops(&desk, training);
    is_over(&desk.run());
}

#[test]
fn spare_hosts_join_a_run_that_lives() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let pool = ssh(&hosts, "h1, h2, h3", 1).replace("workers: 1", "workers: 1, machines: 1");
    let (desk, training) = training(&pool);
    let run = id(&desk.run());
    desk.give(&["scale", &run, "machines=+2"], 0);
    eventually("workers on all", || working(&desk) == ["h1", "h2", "h3"]);
    let (_, said) = desk.give(&["scale", &run, "machines=+1"], 2);
    assert!(said.contains("can have 1 to 3 machines, but not 4"), "{said}");
    desk.give(&["scale", &run, "machines=-1"], 0);
    eventually("one given back", || machines(&desk, "ready").len() == 2);
    stops(&desk, training);
    hosts_are_clean(&hosts, &[1, 2, 3], &desk.run());
}

#[test]
fn containers_join_a_run_that_lives() {
    let Some(engine) = Engine::up() else { return };
    let (desk, training) = training(&docker(&engine, 1, ""));
    let run = id(&desk.run());
    desk.give(&["scale", &run, "machines=+2"], 0);
    eventually("workers on all", || working(&desk) == ["m0", "m1", "m2"]);
    desk.give(&["scale", &run, "machines=1"], 0);
    eventually("two given back", || {
        engine.docker_ok(&["ps", "--quiet"]).lines().count() == 1 && working(&desk).len() == 1
    });
    stops(&desk, training);
    engine_is_clean(&engine, &desk.run());
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
    let (desk, out) = trained(&pool);
    assert_eq!(weights(&out), expected());
    let events = fs::read_to_string(desk.run().join("events.jsonl")).expect("events");
    for machine in ["h1", "m0", "m10001"] {
        let joined = format!("\"machine\":\"{machine}\"");
        assert!(events.contains(&joined), "{machine}: {events}");
    }
    engine_is_clean(&engine, &desk.run());
    hosts_are_clean(&hosts, &[1], &desk.run());
}
