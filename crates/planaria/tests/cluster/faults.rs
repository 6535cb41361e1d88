//! Disks that are full, networks that lose packets, and runs that fail: one error, what can be kept
//! is, nothing else is left.

use crate::binary::talk;
use crate::live::{events, one_error, place, resume};
use std::fs;
use std::path::Path;
use std::process::Command;

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
    // It trains to its end, and then has nowhere to save that.
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

#[test]
fn a_network_that_loses_a_fifth_of_all_packets_costs_time_alone() {
    let place = place();
    let base = ["train", "net.yaml", "--json", "--set", "train.epochs=6"];
    let expected = place.json(&base, 0);
    fs::remove_dir_all(place.path().join("runs")).unwrap();
    // A network of its own, which ends with the command.
    let lossy = "ip link set lo up && \
                 iptables -A INPUT -p tcp -m statistic --mode random --probability 0.2 -j DROP";
    let mut made = Command::new("unshare");
    made.args(["-n", "sh", "-c", lossy]).stderr(std::process::Stdio::null());
    if !made.status().is_ok_and(|status| status.success()) {
        // Only root can make a network; elsewhere there is nothing to test.
        return;
    }
    let mut command = Command::new("unshare");
    // Slow in proportion, never stuck: it usually takes a minute or two.
    command.args(["-n", "sh", "-c", &format!("{lossy} && exec timeout 600 \"$@\""), "sh"]);
    command.arg(env!("CARGO_BIN_EXE_planaria")).args(base);
    command.args(["--workers", "3", "--servers", "1"]).current_dir(place.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["weights_sha256"], expected["weights_sha256"]);
    // No silence was so long that somebody who lives was taken for dead.
    assert_eq!(report["processes_lost"], 0, "{}", talk(&output));
}

#[test]
fn a_run_that_fails_before_its_first_checkpoint_names_no_weights() {
    let place = place();
    // Each step multiplies the weights by about -1,000,000, and an epoch has 31.
    let rate = "train.optimizer={sgd: {learning_rate: 1000, weight_decay: 1000}}";
    let sets = ["--set", "data.examples=2000", "--set", rate];
    let base = ["train", "net.yaml", "--json", "--workers", "2", "--servers", "1"];
    let output = place.run(&[&base[..], &sets].concat());
    assert_eq!(output.status.code(), Some(1), "{}", talk(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["outcome"], "failed");
    let run = place.only_run();
    assert!(!run.join("checkpoints/last").exists());
    assert_eq!(report["weights_sha256"], serde_json::Value::Null);
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    assert!(!page.contains("SHA-256"), "it has none");
    assert!(talk(&place.run(&["runs"])).is_empty(), "and the run is listed as ever");
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
