//! Any process is lost, stopped or cut off at any moment: the run goes on, ends with the same
//! figures, and says what happened.

use crate::binary::{Place, talk};
use crate::live::{Live, events, figures, place, signal, until};
use crate::resuming::undisturbed;
use serde_json::Value;
use std::fs;
use std::process::{Child, Stdio};

const LONGER: [&str; 2] = ["--set", "train.epochs=150"];

/// Ends well, with the figures of a run that nothing happened to, and an audit that says so.
#[track_caller]
pub fn unharmed(place: &Place, live: &mut Live, expected: &Value) -> Value {
    let output = live.end();
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures(&report), figures(expected));
    assert_eq!(report["exactly_once"], true, "{report}");
    let audit = place.json(&["audit", live.run.to_str().unwrap(), "--json"], 0);
    assert_eq!(audit["exactly_once"], true, "{audit}");
    for left in ["control.json", "state"] {
        assert!(!live.run.join(left).exists(), "{left} is left");
    }
    report
}

/// Waits for an event.
#[track_caller]
pub fn happened(live: &Live, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    until(name, || events(&live.run).into_iter().find(|e| e["event"] == name && is(e)))
}

/// Waits until `step` more steps are committed than were so far.
#[track_caller]
pub fn goes_on(live: &Live) {
    let done = |live: &Live| {
        let events = events(&live.run);
        events.iter().filter(|e| e["event"] == "steps").filter_map(|e| e["step"].as_u64()).max()
    };
    let before = done(live).unwrap_or(0);
    until("further steps", || (done(live) > Some(before + 10)).then_some(()));
}

#[test]
fn a_killed_process_is_replaced() {
    let place = place();
    let expected = undisturbed(&place, &LONGER);
    let mut live = Live::train(&place, &LONGER);
    live.reach(1, 20);
    for (role, index) in [("worker", "1"), ("server", "1"), ("coordinator", ""), ("server", "0")] {
        let victim = live.process(role, index);
        signal(victim.pid, "KILL");
        until("another process in its place", || {
            let all = live.processes().into_iter();
            all.into_iter().find(|p| p.role == role && p.index == index && p.pid != victim.pid)
        });
        goes_on(&live);
        if role != "coordinator" {
            let name = format!("{role}-{index}");
            let lost = happened(&live, "lost", |e| e["agent"] == name && e["pid"] == victim.pid);
            assert!(!lost["reason"].as_str().unwrap().is_empty());
        }
    }
    let report = unharmed(&place, &mut live, &expected);
    assert_eq!(report["superseded_steps"], 0, "{}", report["superseded_steps"]);
    assert!(report["processes_lost"].as_u64() >= Some(4), "{}", report["processes_lost"]);
    assert!(report["generation"].as_u64() >= Some(4), "{}", report["generation"]);
    let recovered: Vec<_> =
        events(&live.run).into_iter().filter(|e| e["event"] == "recovered").collect();
    assert!(recovered.len() >= 3, "{recovered:?}");
    assert!(recovered.iter().all(|e| e["source"] == "kept"), "{recovered:?}");
}

#[test]
fn a_stopped_process_is_done_without() {
    let place = place();
    let more = ["--set", "train.epochs=600"];
    let expected = undisturbed(&place, &more);
    let mut live = Live::train(&place, &more);
    live.reach(1, 20);
    // For a moment: its shards go to others, and it comes back.
    let worker = live.process("worker", "2");
    signal(worker.pid, "STOP");
    happened(&live, "suspected", |e| e["agent"] == "worker-2");
    signal(worker.pid, "CONT");
    happened(&live, "regained", |e| e["agent"] == "worker-2");
    goes_on(&live);
    // For good: another takes its place.
    signal(worker.pid, "STOP");
    let lost = happened(&live, "lost", |e| e["pid"] == worker.pid);
    assert!(lost["reason"].as_str().unwrap().contains("not heard"), "{lost}");
    until("the end of the one that hung", || {
        (!std::path::Path::new(&format!("/proc/{}", worker.pid)).exists()).then_some(())
    });
    unharmed(&place, &mut live, &expected);
}

#[test]
fn a_hung_server_and_a_hung_coordinator_are_replaced() {
    let place = place();
    let expected = undisturbed(&place, &LONGER);
    for (role, index) in [("server", "1"), ("coordinator", "")] {
        let _ = fs::remove_dir_all(place.path().join("runs"));
        let mut live = Live::train(&place, &LONGER);
        live.reach(1, 20);
        let victim = live.process(role, index);
        signal(victim.pid, "STOP");
        happened(&live, "recovered", |_| true);
        unharmed(&place, &mut live, &expected);
    }
}

#[test]
fn a_run_grows_and_shrinks() {
    let place = place();
    let expected = undisturbed(&place, &LONGER);
    let mut live = Live::train(&place, &LONGER);
    live.reach(1, 20);
    let run = live.run.to_str().unwrap().to_owned();
    let scaled = place.json(&["scale", &run, "workers=6", "--json"], 0);
    assert_eq!(scaled["workers"], 6, "{scaled}");
    happened(&live, "joined", |e| e["agent"] == "worker-5");
    goes_on(&live);
    place.json(&["scale", &run, "workers=2", "--json"], 0);
    for worker in ["worker-2", "worker-5"] {
        happened(&live, "released", |e| e["agent"] == worker);
    }
    until("the end of those released", || {
        (live.processes().iter().filter(|p| p.role == "worker").count() == 2).then_some(())
    });
    let report = unharmed(&place, &mut live, &expected);
    assert_eq!(report["processes_lost"], 0, "{}", report["processes_lost"]);
    assert_eq!(report["processes_joined"], 3, "{}", report["processes_joined"]);
}

#[test]
fn below_its_least_size_a_run_waits() {
    let place = place();
    let expected = undisturbed(&place, &LONGER);
    let least = [&LONGER[..], &["--set", "pool.workers={min: 3, max: 3}"]].concat();
    let base = ["train", "net.yaml", "--json", "--servers", "2"];
    let options = [&base, &crate::live::LONG[..], &least].concat();
    let mut live = Live::start(&place, place.command(&options));
    live.reach(1, 20);
    signal(live.process("worker", "0").pid, "KILL");
    let paused = happened(&live, "paused", |_| true);
    assert_eq!((&paused["workers"], &paused["min"]), (&2.into(), &3.into()));
    happened(&live, "unpaused", |e| e["workers"] == 3);
    unharmed(&place, &mut live, &expected);
}

#[test]
fn chaos_changes_nothing() {
    let place = place();
    let more = ["--set", "train.epochs=300"];
    let expected = undisturbed(&place, &more);
    for seed in ["1", "2"] {
        let _ = fs::remove_dir_all(place.path().join("runs"));
        let mut live = Live::train(&place, &more);
        live.reach(1, 20);
        let run = live.run.to_str().unwrap();
        let options = ["chaos", run, "--seed", seed, "--every", "200ms..800ms", "--for", "10s"];
        let faults = ["--kill", "any", "--pause", "--slow", "--drop", "20%", "--json"];
        let options = [&options[..], &faults].concat();
        let mut chaos = place.command(&options);
        let chaos = chaos.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        unharmed(&place, &mut live, &expected);
        over(chaos);
    }
}

/// Chaos ends with the run.
#[track_caller]
fn over(chaos: Child) {
    let output = chaos.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.lines().count() > 2, "{said}");
}

#[test]
fn a_run_whose_command_is_killed_leaves_nothing_running_even_stopped() {
    let place = place();
    let expected = undisturbed(&place, &LONGER);
    let mut live = Live::train(&place, &LONGER);
    live.reach(1, 20);
    for process in live.processes() {
        signal(process.pid, "STOP");
    }
    live.signal("KILL");
    assert_eq!(live.end().status.code(), None);
    let report = crate::live::resume(&place, &live.run, "2", "1");
    assert_eq!(figures(&report), figures(&expected));
}

#[test]
fn a_folder_of_checkpoints_that_is_deleted_is_made_again() {
    let place = place();
    let expected = undisturbed(&place, &LONGER);
    let mut live = Live::train(&place, &LONGER);
    live.reach(1, 20);
    let delete = || {
        // A checkpoint that is just being written may come in between.
        until("the end of the folder", || fs::remove_dir_all(live.run.join("checkpoints")).ok());
    };
    delete();
    goes_on(&live);
    // And a server is lost right after.
    delete();
    signal(live.process("server", "0").pid, "KILL");
    unharmed(&place, &mut live, &expected);
    assert!(live.run.join("checkpoints/last/manifest.json").exists());
}
