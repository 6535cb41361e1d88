//! A controller that is killed, at every line it writes down, or interrupted: nothing is left.

use crate::hosts::Hosts;
use crate::support::engine::Engine;
use crate::support::eventually;
use crate::support::pooled::{
    EPOCHS, docker, engine_is_clean, expected, holds, hosts_are_clean, id, is_over, processes, ssh,
    weights, workspace,
};
use crate::support::workspace::Workspace;
use planaria::clock::Stopwatch;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A host that hears nothing ends within this; most end at once, when their channel does.
const LEASE_SECONDS: f64 = 32.0;

/// Trains, and kills the controller as soon as so many lines are written down; the run's folder.
fn killed_at(workspace: &Workspace, lines: usize) -> PathBuf {
    let known = workspace.runs();
    let training = workspace.start(&["train", "pool.yaml"], &[]);
    let watch = Stopwatch::start();
    let run = loop {
        let new = workspace.runs().into_iter().find(|run| !known.contains(run));
        if let Some(run) = new.filter(|run| written(run) >= lines) {
            break run;
        }
        assert!(watch.seconds() < 60.0, "{lines} lines were not written: {}", workspace.said());
        // A moment later it could be too late.
        std::thread::park_timeout(Duration::from_micros(200));
    };
    training.kill();
    run
}

fn written(run: &Path) -> usize {
    let text = fs::read_to_string(run.join("resources.jsonl")).unwrap_or_default();
    text.lines().filter(|line| !line.is_empty()).count()
}

/// All processes of the run end by themselves.
#[track_caller]
fn ends_by_itself(run: &Path) {
    let watch = Stopwatch::start();
    eventually("the end of all processes", || processes(run).is_empty());
    assert!(watch.seconds() < LEASE_SECONDS, "{:.1} s", watch.seconds());
}

/// What is held is given back, once.
#[track_caller]
fn goes_down(workspace: &Workspace, run: &Path) {
    let (id, held) = (id(run), holds(run));
    let (_, said) = workspace.give(&["down", &id], 0);
    for machine in &held {
        assert!(said.contains(&format!("gave back {machine}\n")), "{held:?}: {said}");
    }
    assert_eq!(said.matches("gave back ").count(), held.len(), "{held:?}: {said}");
    let (_, said) = workspace.give(&["down", &id], 0);
    assert_eq!(said, format!("run runs/{id} holds nothing\n"));
}

#[test]
fn on_hosts_at_every_line() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let workspace = workspace(&ssh(&hosts, "h1, h2", 2), 3, "");
    // Two machines are written down, and two crossed out.
    for lines in 1..=4 {
        let run = killed_at(&workspace, lines);
        ends_by_itself(&run);
        assert!(lines > 1 || !holds(&run).is_empty(), "it was killed in time");
        goes_down(&workspace, &run);
        hosts_are_clean(&hosts, &[1, 2], &run);
        // Names of runs have seconds.
        fs::remove_dir_all(run).expect("it can be removed");
    }
}

#[test]
fn on_hosts_and_resumed() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let workspace = workspace(&ssh(&hosts, "h1, h2", 2), EPOCHS, "");
    let mut training = workspace.start(&["train", "pool.yaml"], &[]);
    workspace.reaches(&mut training, 5);
    training.kill();
    let run = workspace.run();
    let (out, _) = workspace.give(&["resume", &id(&run), "--json"], 0);
    assert_eq!(weights(&out), expected());
    hosts_are_clean(&hosts, &[1, 2], &run);
    // Before the first step, too, and at once.
    fs::remove_dir_all(&run).expect("it can be removed");
    let run = killed_at(&workspace, 2);
    let (out, _) = workspace.give(&["resume", &id(&run), "--json"], 0);
    assert_eq!(weights(&out), expected());
    hosts_are_clean(&hosts, &[1, 2], &run);
}

#[test]
fn on_containers() {
    let Some(engine) = Engine::up() else { return };
    let workspace = workspace(&docker(&engine, 2, ""), 3, "");
    for lines in [1, 2, 3] {
        let run = killed_at(&workspace, lines);
        ends_by_itself(&run);
        goes_down(&workspace, &run);
        engine_is_clean(&engine, &run);
        fs::remove_dir_all(run).expect("it can be removed");
    }
}

#[test]
fn interrupted_while_machines_are_set_up() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let workspace = workspace(&ssh(&hosts, "h1, h2", 2), 3, "setup: [{run: sleep 31.5}]");
    let mut training = workspace.start(&["train", "pool.yaml"], &[]);
    let sleeps = |number| hosts.on(number, "pgrep -fc 'sleep 31.[5]' || true") != "0";
    eventually("the step", || sleeps(1) && sleeps(2));
    let watch = Stopwatch::start();
    training.interrupt();
    let output = training.end();
    assert!(watch.seconds() < 10.0, "{:.1} s: {}", watch.seconds(), workspace.said());
    assert_eq!(output.status.code(), Some(131), "{}", workspace.said());
    assert!(workspace.said().contains("interrupted before the first step"), "{}", workspace.said());
    let run = workspace.run();
    is_over(&run);
    hosts_are_clean(&hosts, &[1, 2], &run);
    assert!(!sleeps(1) && !sleeps(2), "the step is over");
}
