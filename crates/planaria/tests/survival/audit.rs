//! `audit` by the real binary, on runs in one process.

use crate::binary::{Place, talk};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn change(run: &Path, change: impl Fn(Vec<&str>) -> Vec<String>) -> String {
    let path = run.join("events.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines = change(text.lines().collect());
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    text
}

/// What is no file is named, and keeps no command waiting.
#[test]
fn a_pipe_in_the_place_of_a_runs_file() {
    let place = Place::new();
    place.json(&["train", "tiny.yaml", "--json", "--set", "train.epochs=1"], 0);
    let run = place.only_run();
    let name = run.to_str().unwrap();
    for (file, commands) in [
        ("report.json", &["status", "audit"][..]),
        ("events.jsonl", &["status", "audit"]),
        ("control.json", &["status", "stop"]),
        ("checkpoints/last/manifest.json", &["audit"]),
        // A run without a report has not come to its end.
        ("report.json", &["resume"]),
        ("events.jsonl", &["resume"]),
    ] {
        let (path, kept) = (run.join(file), run.join("kept"));
        let was_there = fs::rename(&path, &kept).is_ok();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        for command in commands {
            let said = ends(place.command(&[command, name]), &format!("{command} with {file}"));
            let is_named = said.contains("is no plain file") && said.contains(file);
            // A damaged report or checkpoint is not needed for everything.
            assert!(is_named || !file.ends_with("s.jsonl"), "{command} with {file}: {said}");
        }
        // Commands may clear it away.
        let _ = fs::remove_file(&path);
        if was_there && *commands != ["resume"] {
            fs::rename(&kept, &path).unwrap();
        }
    }
}

/// Waits a bounded time for the end of a command; what it said.
#[track_caller]
fn ends(mut command: Command, what: &str) -> String {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    match told.recv_timeout(Duration::from_secs(60)) {
        Ok(output) => talk(&output.unwrap()),
        Err(_) => {
            // SAFETY: sends a signal to a child that was not waited for yet.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
            panic!("{what} hangs");
        }
    }
}

#[test]
fn a_run_is_proved_and_tampering_is_found() {
    let place = Place::new();
    let report = place.json(&["train", "tiny.yaml", "--json"], 0);
    assert_eq!((&report["exactly_once"], &report["processes_lost"]), (&true.into(), &0.into()));
    let run = place.only_run();
    let name = run.to_str().unwrap();
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("<dt>exactly once, by audit</dt><dd>yes</dd>"));

    let output = place.run(&["audit", name]);
    assert!(output.status.success(), "{}", talk(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for expect in ["exactly once  yes\n", "epochs        3 whole, 3 exact\n", "its weights\n"] {
        assert!(text.contains(expect), "{text}");
    }

    let is_range = |line: &str| line.contains("\"committed\"");
    let whole = change(&run, |lines| {
        let first = lines.iter().position(|l| is_range(l)).unwrap();
        let others = lines.iter().enumerate().filter(|(n, _)| *n != first);
        others.map(|(_, line)| (*line).to_owned()).collect()
    });
    let audit = place.json(&["audit", name, "--json"], 1);
    assert_eq!(audit["exactly_once"], false);
    assert!(audit["reasons"][0].as_str().unwrap().contains("in no range"), "{audit}");

    // As a version before audits would have left it.
    change(&run, |lines| {
        let older = lines.iter().filter(|line| !is_range(line));
        older
            .map(|line| {
                let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
                event.as_object_mut().unwrap().remove("digest");
                event.to_string()
            })
            .collect()
    });
    let output = place.run(&["audit", name]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("this run was made before audits"), "{text}");
    fs::write(run.join("events.jsonl"), whole).unwrap();

    // Cut short, in the middle of a line: nothing contradicts, and what is left is told.
    let events = run.join("events.jsonl");
    let whole = fs::read(&events).unwrap();
    fs::write(&events, &whole[..whole.len() / 2]).unwrap();
    let audit = place.json(&["audit", name, "--json"], 3);
    assert_eq!((&audit["verdict"], &audit["exactly_once"]), (&"incomplete".into(), &false.into()));
    let said = |key: &str| audit[key].to_string();
    assert!(said("missing").contains("but the newest checkpoint has them"), "{audit}");
    assert!(said("missing").contains("cannot be read"), "{audit}");
    assert!(said("proven").contains("exactly once in epoch 1"), "{audit}");
    assert!(said("proven").contains("3 whole epochs before it, in each of them"), "{audit}");
    fs::write(&events, whole).unwrap();

    // Another's weights under this run's name.
    let report = fs::read_to_string(run.join("report.json")).unwrap();
    let sha = report.split("\"weights_sha256\": \"").nth(1).unwrap()[..64].to_owned();
    fs::write(run.join("report.json"), report.replace(&sha, &"0".repeat(64))).unwrap();
    let audit = place.json(&["audit", name, "--json"], 1);
    assert!(audit["reasons"][0].as_str().unwrap().contains("weights"), "{audit}");
}

#[test]
fn killed_and_taken_up_again_is_still_exactly_once() {
    let place = Place::new();
    let sets = ["--set", "train.epochs=12", "--set", "output.checkpoint_steps=7"];
    let base = ["train", "tiny.yaml", "--threads", "1", "--set", "data.examples=1500"];
    let mut child = place
        .command(&[&base[..], &sets].concat())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let runs = place.path().join("runs");
    let steps = || {
        let run = fs::read_dir(&runs).ok()?.next()?.ok()?.path();
        let text = fs::read_to_string(run.join("events.jsonl")).ok()?;
        Some(text.matches("\"steps\"").count())
    };
    while steps().is_none_or(|n| n < 20) {
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let run = place.only_run();
    let name = run.to_str().unwrap();

    // There is nothing in one process that could be lost without the whole.
    let chaos = place.run(&["chaos", name]);
    assert_eq!(chaos.status.code(), Some(2), "{}", talk(&chaos));
    assert!(talk(&chaos).contains("is one process"), "{}", talk(&chaos));

    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "KILL", &pid]).status().unwrap().success());
    child.wait().unwrap();
    let audit = place.json(&["audit", name, "--json"], 0);
    assert_eq!((&audit["exactly_once"], &audit["ended"]), (&true.into(), &false.into()));
    let chaos = place.run(&["chaos", name]);
    assert!(talk(&chaos).contains("is not running"), "{}", talk(&chaos));

    let report = place.json(&["resume", name, "--json"], 0);
    assert_eq!(report["exactly_once"], true);
    let audit = place.json(&["audit", name, "--json"], 0);
    assert_eq!((&audit["ended"], &audit["weights_match"]), (&true.into(), &true.into()));
    assert_eq!(audit["generations"].as_array().unwrap().len(), 2);
    assert_eq!(audit["superseded_steps"], report["superseded_steps"]);
}
