//! The same recipe gives the same weights on every pool, whatever is lost on the way.

use crate::hosts::Hosts;
use crate::support::engine::Engine;
use crate::support::pooled::{
    EPOCHS, docker, ends_well, engine_is_clean, expected, holds, hosts_are_clean, id, is_over, ssh,
    trained, weights, workspace,
};

#[test]
fn processes_and_machines_of_this_one() {
    // Set up for longer than the lease of a host that hears nothing; this waits beside the rest.
    let patient = workspace("{machines: 1, workers: 1}", EPOCHS, "setup: [{run: sleep 32}]");
    let waiting = patient.start(&["train", "pool.yaml", "--json"], &[]);
    for pool in ["{workers: 3, servers: 1}", "{machines: 2, workers: 3}"] {
        let (workspace, out) = trained(pool);
        assert_eq!(weights(&out), expected(), "{pool}");
        is_over(&workspace.run());
    }
    assert_eq!(weights(&ends_well(&patient, waiting)), expected());
    assert!(!patient.said().contains("lost"), "{}", patient.said());
    is_over(&patient.run());
}

#[test]
fn hosts_one_of_which_dies_with_the_server() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let pool = ssh(&hosts, "h1, h2, h3", 3);
    let (whole, out) = trained(&pool);
    assert_eq!(weights(&out), expected());
    hosts_are_clean(&hosts, &[1, 2, 3], &whole.run());

    let workspace = workspace(&pool, EPOCHS, "");
    let mut training = workspace.start(&["train", "pool.yaml", "--json"], &[]);
    workspace.reaches(&mut training, 8);
    let said = workspace.said();
    let (_, after) = said.split_once("server-0 joined on h").expect("a server");
    let host = after[..1].parse().expect("a number");
    hosts.tell("kill", host);
    hosts.tell("start", host);
    let report = ends_well(&workspace, training);
    let said = workspace.said();
    assert!(said.contains(&format!("h{host}: lost")), "{said}");
    assert!(said.contains("going on after step"), "the run goes back: {said}");
    assert_eq!(weights(&report), expected());
    let run = workspace.run();
    if !holds(&run).is_empty() {
        // It was not back yet when the run was over, which was said.
        assert!(said.contains("planaria down"), "{said}");
        workspace.give(&["down", &id(&run)], 0);
    }
    hosts_are_clean(&hosts, &[1, 2, 3], &run);
}

#[test]
fn hosts_without_a_route() {
    let Some(hosts) = Hosts::up(2, &["--isolated"]) else { return };
    let (workspace, out) = trained(&ssh(&hosts, "h1, h2", 2));
    assert_eq!(weights(&out), expected());
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}

#[test]
fn containers_one_of_which_dies() {
    let Some(engine) = Engine::up() else { return };
    let pool = docker(&engine, 2, "");
    let (whole, out) = trained(&pool);
    assert_eq!(weights(&out), expected());
    engine_is_clean(&engine, &whole.run());

    let workspace = workspace(&pool, EPOCHS, "");
    let mut training = workspace.start(&["train", "pool.yaml", "--json"], &[]);
    workspace.reaches(&mut training, 8);
    let said = workspace.said();
    // Where containers cannot reach each other, servers are not among them.
    let (_, after) = said.split_once("worker-0 joined on ").expect("a worker");
    let machine = after.split_whitespace().next().expect("a machine").to_owned();
    engine.docker_ok(&["kill", &format!("{}-{machine}", id(&workspace.run()))]);
    let report = ends_well(&workspace, training);
    assert!(workspace.said().contains(&format!("{machine}: lost")), "{}", workspace.said());
    assert_eq!(weights(&report), expected());
    engine_is_clean(&engine, &workspace.run());
}
