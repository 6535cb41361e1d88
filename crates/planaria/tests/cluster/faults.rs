//! Processes that are killed, and disks that are full: one error, nothing left, and it goes on.

use crate::binary::talk;
use crate::live::{Live, ended, events, figures, one_error, place, resume, signal};
use crate::resuming::undisturbed;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

fn report(run: &Path) -> Value {
    serde_json::from_slice(&fs::read(run.join("report.json")).unwrap()).unwrap()
}

#[test]
fn whoever_is_killed_is_named() {
    let place = place();
    let expected = undisturbed(&place, &[]);
    for (role, index) in [("worker", "1"), ("server", "1"), ("server", "0"), ("coordinator", "")] {
        let _ = fs::remove_dir_all(place.path().join("runs"));
        let mut live = Live::train(&place, &[]);
        live.reach(1, 40);
        let victim = live.process(role, index);
        signal(victim.pid, "KILL");
        let name = if index.is_empty() { role.into() } else { format!("{role}-{index}") };
        let error = live.fail();
        let how = format!("{name} (process {}) was lost: killed by signal 9", victim.pid);
        assert!(error.starts_with(&format!("error: {how}")), "{error}");
        assert!(error.contains(&format!("logs/{name}.log")), "{error}");

        let ended = ended(&live.run, 1);
        assert_eq!(ended["outcome"], "failed");
        let reason = ended["reason"].as_str().unwrap();
        assert!(reason.contains(&name), "events.jsonl says: {reason}");
        let report = report(&live.run);
        assert_eq!(report["outcome"], "failed");
        assert!(report["reason"].as_str().unwrap().starts_with(&how), "{}", report["reason"]);
        assert!(report["steps"].as_u64().unwrap() >= 15, "{}", report["steps"]);
        assert!(!live.run.join("control.json").exists());

        let report = resume(&place, &live.run, "2", "2");
        assert_eq!(figures(&report), figures(&expected), "after {name}");
    }
}

#[test]
fn workers_with_long_numbers_are_told_apart() {
    let place = place();
    let more = ["--workers", "12", "--servers", "1", "--set", "train.shards=12"];
    let base = [&["train", "net.yaml", "--set", "train.epochs=60"], &more[..]].concat();
    let mut live = Live::start(&place, place.command(&base));
    live.reach(1, 20);
    signal(live.process("worker", "11").pid, "KILL");
    let error = live.fail();
    assert!(error.contains("worker-11 (process ") && error.contains("by signal 9"), "{error}");
    assert!(error.contains("logs/worker-11.log"), "{error}");
}

#[test]
fn a_full_disk_is_said_and_gone_on_from() {
    let place = place();
    let disk = place.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=600k", "tmpfs"])
        .arg(&disk)
        .stderr(std::process::Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        // Only root can make a small disk; elsewhere there is nothing to test.
        return;
    }
    let _mount = Mounted(&disk);
    let expected = place.json(&["train", "net.yaml", "--json", "--set", "train.epochs=8"], 0);
    let more = ["--set", "train.epochs=8", "--set"];
    let sets = [&more[..], &["output={checkpoint_steps: 1, keep: 100, dir: disk/runs}"]].concat();
    let base = ["train", "net.yaml", "--json", "--workers", "2", "--servers", "2"];
    let output = place.run(&[&base[..], &sets].concat());
    let said = talk(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(one_error(&said).contains("No space left on device"), "{said}");
    let run = fs::read_dir(disk.join("runs")).unwrap().next().unwrap().unwrap().path();
    let id = run.file_name().unwrap().to_str().unwrap();
    assert!(crate::live::processes(id).is_empty());
    assert!(!events(&run).iter().any(|e| e["outcome"] == "completed"));

    // With some space it goes on.
    let larger = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&disk).status();
    assert!(larger.unwrap().success());
    let report = resume(&place, &run, "3", "1");
    assert_eq!(report["weights_sha256"], expected["weights_sha256"]);
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
