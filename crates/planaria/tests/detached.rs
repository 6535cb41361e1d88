//! `--detach` by the real binary: the run outlives the command and its terminal.

mod binary;

use binary::{Place, talk};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

/// Long enough to be seen at work, short enough to be waited for.
const LONGER: [&str; 4] = ["--set", "train.epochs=30", "--set", "data.examples=1500"];
/// A run that goes on until it is stopped.
const ENDLESS: [&str; 4] = ["--set", "train.epochs=100000", "--set", "data.examples=1500"];
/// Looks, a twentieth of a second apart, that a run may take to end.
const LOOKS_MAX: u32 = 2400;

#[test]
fn a_detached_run_outlives_its_terminal_and_ends_with_the_same_weights() {
    let place = Place::new();
    let expected = place.json(&[&["train", "tiny.yaml", "--json"], &LONGER[..]].concat(), 0);
    std::fs::remove_dir_all(place.path().join("runs")).expect("the first run");

    let many = ["--workers", "2", "--servers", "1", "--threads", "1", "--detach"];
    let mut command = place.command(&[&["train", "tiny.yaml"], &LONGER[..], &many].concat());
    // A session of its own, as a terminal has, to be hung up on.
    let session = || match unsafe { libc::setsid() } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: between fork and exec only a system call is made.
    unsafe { command.pre_exec(session) };
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let session = child.id() as libc::pid_t;
    let output = child.wait_with_output().expect("it ends");
    // SAFETY: sends a signal to the group of a session that this test began; it may be empty.
    unsafe { libc::kill(-session, libc::SIGHUP) };
    assert!(output.status.success(), "{}", talk(&output));
    let run = String::from_utf8(output.stdout.clone()).expect("a name").trim().to_owned();
    assert_eq!(place.only_run().file_name().and_then(|name| name.to_str()), Some(run.as_str()));
    for expect in ["goes on by itself", &format!("planaria logs {run} -f"), "planaria stop"] {
        assert!(talk(&output).contains(expect), "{expect} is missing in {}", talk(&output));
    }

    let followed = place.run(&["logs", &run, "-f"]);
    let followed = String::from_utf8(followed.stdout).expect("text");
    for expect in ["controller ", "worker-1 ", "ended: the run is over"] {
        assert!(followed.contains(expect), "{expect} is missing in {followed}");
    }
    wait_for(&place, &run, "completed");
    let report = std::fs::read(place.only_run().join("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["weights_sha256"], expected["weights_sha256"]);
}

#[test]
fn a_detached_run_in_one_process_is_stopped_and_taken_up_again() {
    let place = Place::new();
    let output = place.run(&[&["train", "tiny.yaml", "--detach"], &ENDLESS[..]].concat());
    assert!(output.status.success(), "{}", talk(&output));
    let run = String::from_utf8(output.stdout.clone()).expect("a name").trim().to_owned();
    assert_eq!(place.json(&["status", &run, "--json"], 0)["state"], "running");
    let stopped = place.run(&["stop", &run, "--wait"]);
    assert!(stopped.status.success(), "{}", talk(&stopped));
    assert_eq!(place.json(&["status", &run, "--json"], 0)["state"], "interrupted");
    let log = place.run(&["logs", &run, "controller"]);
    let log = String::from_utf8(log.stdout).expect("text");
    assert!(log.lines().next().is_some_and(|line| line.starts_with("20")), "{log}");
    assert!(log.contains("interrupted at step"), "{log}");

    let resumed = place.run(&["resume", &run, "--detach"]);
    assert!(resumed.status.success(), "{}", talk(&resumed));
    assert_eq!(String::from_utf8(resumed.stdout).expect("a name").trim(), run);
    let status = place.json(&["status", &run, "--json"], 0);
    assert_eq!((&status["state"], &status["generation"]), (&"running".into(), &2.into()));
    assert!(place.run(&["stop", &run, "--wait"]).status.success());
    wait_for(&place, &run, "interrupted");
}

#[test]
fn what_is_wrong_is_said_before_anything_is_left_behind() {
    let place = Place::new();
    let wrong = place.run(&["train", "tiny.yaml", "--detach", "--set", "train.epochs=none"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", talk(&wrong));
    assert!(talk(&wrong).contains("train.epochs"), "{}", talk(&wrong));
    assert!(wrong.stdout.is_empty() && !place.path().join("runs").exists());
    let both = place.run(&["train", "tiny.yaml", "--detach", "--json"]);
    assert_eq!(both.status.code(), Some(2), "{}", talk(&both));
}

/// Waits until a run stands so.
#[track_caller]
fn wait_for(place: &Place, run: &str, state: &str) {
    for _ in 0..LOOKS_MAX {
        let status = place.json(&["status", run, "--json"], 0);
        if status["state"] == state && status["pid"].is_null() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    panic!("run {run} is not {state}");
}
