//! Disks that are full: the run goes on as long as it can, one error, nothing left.

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

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
