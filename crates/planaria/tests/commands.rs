//! `runs`, `status`, `stop`, `logs` and `train --scaling` by the real binary.

mod binary;

use binary::{Place, talk};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A run that goes on until it is stopped, or for as long as anyone would wait.
const ENDLESS: [&str; 4] = ["--set", "train.epochs=2000", "--set", "data.examples=1500"];

#[test]
fn a_run_on_several_processes_is_seen_stopped_and_taken_up_again() {
    let place = Place::new();
    let many = ["--workers", "2", "--servers", "1", "--threads", "1"];
    let child = start(&place, &[&ENDLESS[..], &many].concat());
    let run = wait_for_steps(&place);

    let status = place.json(&["status", "--json"], 0);
    assert_eq!((&status["state"], &status["run_id"]), (&"running".into(), &run.as_str().into()));
    assert_eq!(status["pid"], child.id());
    assert_eq!(status["pulse"]["workers"].as_array().unwrap().len(), 2);
    assert_eq!((&status["workers"], &status["servers"]), (&2.into(), &1.into()));
    let shown = said(&place, &["status", &run]);
    for expect in ["running, process", "planaria stop ", "  worker-1  ", "  server-0  serving"] {
        assert!(shown.contains(expect), "{expect} is missing in {shown}");
    }
    assert_eq!(place.json(&["runs", "--json"], 0)[0]["state"], "running");

    let follow = place
        .command(&["logs", &run, "-f"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let stopped = place.run(&["stop", &run, "--wait"]);
    assert!(stopped.status.success(), "{}", talk(&stopped));
    assert!(talk(&stopped).contains("planaria resume "), "{}", talk(&stopped));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", talk(&output));
    assert!(talk(&output).contains("stopping: `planaria stop` asked for it"), "{}", talk(&output));
    let followed = follow.wait_with_output().expect("it ends with the run");
    let followed = String::from_utf8(followed.stdout).unwrap();
    let lines = said(&place, &["logs", &run]);
    assert_eq!(followed.lines().count(), lines.lines().count(), "{followed}\n---\n{lines}");
    for expect in [
        "coordinator  20",
        "worker-0     20",
        "started as process",
        "with cpu-",
        "computing shards 4..8",
        "shards are dealt from step 1, 4/4",
        "ended: the run is over",
    ] {
        assert!(lines.contains(expect), "{expect} is missing in {lines}");
    }
    assert_eq!(said(&place, &["logs", &run, "worker-1", "--tail", "2"]).lines().count(), 2);
    let unknown = place.run(&["logs", &run, "worker-7"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(talk(&unknown).contains("coordinator, server-0, worker-0, worker-1"));

    let status = place.json(&["status", &run, "--json"], 0);
    assert_eq!((&status["state"], &status["pulse"]), (&"interrupted".into(), &Value::Null));
    assert_eq!(status["step"], status["saved_step"]);
    let again = place.run(&["stop", &run]);
    assert_eq!(again.status.code(), Some(2), "{}", talk(&again));
    assert!(talk(&again).contains("is not running: it was interrupted"), "{}", talk(&again));
}

#[test]
fn stopped_and_resumed_ends_with_the_weights_of_an_undisturbed_run() {
    let place = Place::new();
    let sets = ["--set", "train.epochs=12", "--set", "data.examples=1500"];
    let undisturbed = place.json(&[&["train", "tiny.yaml", "--json"], &sets[..]].concat(), 0);
    fs::remove_dir_all(place.path().join("runs")).unwrap();
    let many = ["--workers", "2", "--threads", "1"];
    let child = start(&place, &[&sets[..], &many].concat());
    let run = wait_for_steps(&place);
    let stopped = place.run(&["stop", &run, "--wait"]);
    assert!(stopped.status.success(), "{}", talk(&stopped));
    child.wait_with_output().unwrap();
    let resumed = place.json(&["resume", &run, "--json"], 0);
    assert_eq!(resumed["weights_sha256"], undisturbed["weights_sha256"]);
    assert_eq!((&resumed["outcome"], &resumed["workers"]), (&"completed".into(), &2.into()));
}

#[test]
fn a_run_in_one_process_is_stopped_by_a_signal_and_has_no_logs() {
    let place = Place::new();
    let child = start(&place, &ENDLESS);
    let run = wait_for_steps(&place);
    assert_eq!(place.json(&["status", "--json"], 0)["pid"], child.id());
    let stopped = place.run(&["stop", &run]);
    assert!(stopped.status.success(), "{}", talk(&stopped));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", talk(&output));
    assert_eq!(place.json(&["runs", "--json"], 0)[0]["state"], "interrupted");
    let logs = place.run(&["logs", &run]);
    assert_eq!(logs.status.code(), Some(2));
    assert!(talk(&logs).contains("has no logs: it is one process"), "{}", talk(&logs));
}

#[test]
fn a_killed_run_is_called_so() {
    let place = Place::new();
    let mut child = start(&place, &[&ENDLESS[..], &["--workers", "2"]].concat());
    let run = wait_for_steps(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(place.only_run().file_name().unwrap().to_str(), Some(run.as_str()));
    let shown = said(&place, &["status"]);
    assert!(shown.contains("killed: its process is gone"), "{shown}");
    assert!(shown.contains(&format!("planaria resume runs/{run}")), "{shown}");
    let table = said(&place, &["runs"]);
    assert!(table.lines().nth(1).unwrap().contains("killed"), "{table}");
    assert_eq!(place.run(&["stop", &run]).status.code(), Some(2));
}

#[test]
fn a_lost_worker_is_named_with_how_it_ended() {
    let place = Place::new();
    let child = start(&place, &[&ENDLESS[..], &["--workers", "2"]].concat());
    let run = wait_for_steps(&place);
    let events = || {
        let text = fs::read_to_string(place.only_run().join("events.jsonl")).unwrap();
        let whole = |line: &str| serde_json::from_str::<Value>(line).ok();
        text.lines().filter_map(whole).collect::<Vec<_>>()
    };
    let joined = events().into_iter().find(|e| e["agent"] == "worker-1").expect("it has joined");
    let kill = Command::new("kill").args(["-9", &joined["pid"].to_string()]).status();
    assert!(kill.unwrap().success());
    let another =
        |e: &Value| e["event"] == "joined" && e["agent"] == "worker-1" && e["pid"] != joined["pid"];
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    for _ in 0..1000 {
        if events().iter().any(another) {
            break;
        }
        let _ = never.recv_timeout(std::time::Duration::from_millis(20));
    }
    let status = place.json(&["status", &run, "--json"], 0);
    assert_eq!(status["state"], "running", "{status}");
    assert_eq!((&status["processes_lost"], &status["machines_lost"]), (&1.into(), &0.into()));
    assert_eq!(place.run(&["stop", &run, "--wait"]).status.code(), Some(0));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", talk(&output));
    for expect in ["worker-1 was lost (killed by signal 9", "worker-1 is back"] {
        assert!(talk(&output).contains(expect), "{expect} is missing in {}", talk(&output));
    }
}

#[test]
fn where_there_are_no_runs_that_is_said() {
    let place = Place::new();
    let runs = place.run(&["runs"]);
    assert!(runs.status.success() && talk(&runs).contains("no runs in `runs`"));
    assert_eq!(place.json(&["runs", "--json"], 0), Value::Array(Vec::new()));
    assert_eq!(place.run(&["runs", "--dir", "elsewhere"]).status.code(), Some(2));
    let status = place.run(&["status"]);
    assert_eq!(status.status.code(), Some(2));
    assert!(talk(&status).contains("there is no run"), "{}", talk(&status));
}

#[test]
fn a_scaling_study_compares_runs_of_the_same_weights() {
    let place = Place::new();
    let study = place
        .json(&["train", "tiny.yaml", "--scaling", "1,2", "--json", "--set", "train.epochs=2"], 0);
    assert_eq!((&study["complete"], &study["same_weights"]), (&true.into(), &true.into()));
    let runs = study["runs"].as_array().unwrap();
    let shape =
        |run: &Value| (run["workers"].clone(), run["servers"].clone(), run["threads"].clone());
    assert_eq!(shape(&runs[0]), (1.into(), 0.into(), 1.into()));
    assert_eq!(shape(&runs[1]), (2.into(), 1.into(), 2.into()));
    assert_eq!(runs[0]["speed_up"], 1.0);
    let folder = place.path().join(runs[1]["folder"].as_str().unwrap());
    assert!(folder.join("report.html").is_file());
    let page = fs::read_to_string(folder.with_file_name("scaling.html")).unwrap();
    assert!(page.contains("Speed-up") && page.contains("ideal"), "{page}");
    let listed = place.json(&["runs", "--json"], 0);
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let table = said(&place, &["runs"]);
    let name = table.lines().nth(1).unwrap().split(' ').next().unwrap();
    assert!(said(&place, &["status", name]).contains("completed"), "{table}");
    assert_eq!(place.run(&["train", "tiny.yaml", "--scaling", "0"]).status.code(), Some(2));
}

#[test]
fn a_plan_shows_processes() {
    let place = Place::new();
    let plan = said(&place, &["plan", "tiny.yaml", "--set", "pool={workers: 3, threads: 1}"]);
    for expect in ["3 workers × 1 thread, 1 server", "3/3/2 shards"] {
        assert!(plan.contains(expect), "{expect} is missing in {plan}");
    }
    let plan = place.json(&["plan", "tiny.yaml", "--json", "--set", "pool.workers=2"], 0);
    assert_eq!(plan["processes"]["shards"], serde_json::json!([4, 4]));
    let ranged = "pool={workers: {min: 2, max: 4}, threads: 1}";
    let plan = said(&place, &["plan", "tiny.yaml", "--set", ranged]);
    assert!(plan.contains("4 workers (at least 2) × 1 thread, 1 server"), "{plan}");
    let plan = place.json(&["plan", "tiny.yaml", "--json", "--set", ranged], 0);
    let processes = &plan["processes"];
    assert_eq!((&processes["workers"], &processes["workers_min"]), (&4.into(), &2.into()));
}

#[test]
fn only_a_live_run_on_several_processes_can_be_scaled() {
    let place = Place::new();
    let refused = |arguments: &[&str], expect: &str| {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", talk(&output));
        assert!(talk(&output).contains(expect), "{expect} is missing in {}", talk(&output));
    };
    refused(&["scale", "nowhere", "workers=2"], "nowhere");
    refused(&["scale", "nowhere", "servers=2"], "only `workers` and `machines` can be scaled");
    refused(&["scale", "nowhere", "workers=1e3"], "a whole number from 1 to 1024, but is `1e3`");
    said(&place, &["train", "tiny.yaml"]);
    let runs = said(&place, &["runs"]);
    let name = runs.lines().nth(1).unwrap().split(' ').next().unwrap();
    refused(&["scale", name, "workers=2"], "is not running: it has completed");
}

/// What a command prints.
#[track_caller]
fn said(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(arguments);
    assert!(output.status.success(), "{}", talk(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn start(place: &Place, more: &[&str]) -> Child {
    let arguments = [&["train", "tiny.yaml"], more].concat();
    let mut command = place.command(&arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs")
}

/// Waits until the only run has taken a few steps, and says its name.
fn wait_for_steps(place: &Place) -> String {
    for _ in 0..600 {
        let runs = place.json(&["runs", "--json"], 0);
        if let Some(run) = runs.get(0).filter(|run| run["step"].as_u64() > Some(3)) {
            return run["run_id"].as_str().unwrap().to_owned();
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    panic!("the run takes no steps");
}

#[test]
fn plan_warns_where_a_machine_has_too_little_memory() {
    let place = Place::new();
    let recipe = "{name: net, pool: {provider: docker, machines: 2, workers: 2, image: lab, \
                  docker: {memory_mib: MIB}}, data: {train: digits, examples: 1000}, \
                  model: {layers: [Flatten, {Dense: {units: 4096}}, {Dense: {units: 10}}]}}";
    let plan = |mib: &str| {
        std::fs::write(place.path().join("net.yaml"), recipe.replace("MIB", mib)).unwrap();
        place.json(&["plan", "net.yaml", "--json"], 0)["memory_short"].clone()
    };
    let short = plan("64");
    let short = short.as_str().expect("a warning");
    assert!(short.contains("`pool.docker.memory_mib` leaves it 67.1 MB"), "{short}");
    assert_eq!(plan("65536"), serde_json::Value::Null);
}
