//! Stop, go on with other numbers of processes: the same bits as if nothing had happened.

use crate::binary::{Place, talk};
use crate::live::{LONG, Live, ended, figures, place, resume, signal};
use serde_json::Value;
use std::fs;

pub fn undisturbed(place: &Place, more: &[&str]) -> Value {
    let report = place.json(&[&["train", "net.yaml", "--json"], &LONG[..], more].concat(), 0);
    fs::remove_dir_all(place.path().join("runs")).unwrap();
    report
}

fn resuming(place: &Place, run: &Live, workers: &str, servers: &str) -> Live {
    let path = run.run.to_str().unwrap();
    let options = ["resume", path, "--workers", workers, "--servers", servers];
    Live::start(place, place.command(&options))
}

#[track_caller]
fn interrupt(live: &mut Live, name: &str, generation: u64) {
    live.signal(name);
    let output = live.end();
    assert_eq!(output.status.code(), Some(130), "{}", talk(&output));
    assert!(talk(&output).contains("planaria resume"), "{}", talk(&output));
    assert_eq!(ended(&live.run, generation)["outcome"], "interrupted");
    assert!(!live.run.join("control.json").exists());
}

#[test]
fn from_many_to_others_to_one() {
    let place = place();
    let expected = undisturbed(&place, &[]);
    let mut first = Live::train(&place, &[]);
    first.reach(1, 30);
    assert_eq!(first.processes().len(), 6);
    interrupt(&mut first, "TERM", 1);
    let mut second = resuming(&place, &first, "5", "1");
    second.reach(2, 90);
    assert_eq!(second.processes().len(), 7);
    interrupt(&mut second, "TERM", 2);
    let report = resume(&place, &first.run, "1", "0");
    assert_eq!(figures(&report), figures(&expected));
    assert_eq!((&report["resumes"], &report["generation"]), (&2.into(), &3.into()));
}

#[test]
fn from_one_to_many_to_others() {
    let place = place();
    let expected = undisturbed(&place, &[]);
    let one = [&["train", "net.yaml"], &LONG[..]].concat();
    let mut first = Live::start(&place, place.command(&one));
    first.reach(1, 30);
    interrupt(&mut first, "INT", 1);
    let mut second = resuming(&place, &first, "3", "3");
    second.reach(2, 90);
    interrupt(&mut second, "HUP", 2);
    let report = resume(&place, &first.run, "4", "5");
    assert_eq!(figures(&report), figures(&expected));
}

#[test]
fn a_foreground_that_is_killed_takes_everything_with_it() {
    let place = place();
    let expected = undisturbed(&place, &[]);
    let mut live = Live::train(&place, &[]);
    live.reach(1, 30);
    live.signal("KILL");
    assert_eq!(live.end().status.code(), None);
    let mut second = resuming(&place, &live, "2", "2");
    second.reach(2, 90);
    second.signal("QUIT");
    assert_eq!(second.end().status.code(), None);
    let report = resume(&place, &live.run, "2", "1");
    assert_eq!(figures(&report), figures(&expected));
    assert!(!live.run.join("control.json").exists(), "what a killed run left is taken away");
}

#[test]
fn what_was_kept_serves_any_number_of_workers_but_only_as_many_servers() {
    let place = place();
    // Few checkpoints: of the best epochs.
    let rare = ["--set", "output={checkpoint_epochs: 100}", "--set", "train.epochs=60"];
    let expected = undisturbed(&place, &rare);
    let kill = |live: &mut Live, step: u64| {
        live.signal("KILL");
        let said = talk(&live.end());
        let status = place.json(&["status", "--json"], 0);
        let kept = status["kept_step"].as_u64().expect("a kept step");
        assert!(kept >= step, "{status:#}");
        (kept, status["saved_step"].as_u64().unwrap_or(0), said)
    };
    let mut first = Live::train(&place, &rare);
    first.reach(1, 30);
    let (kept, ..) = kill(&mut first, 30);
    // Two workers in place of three go on after the very step that `status` has named.
    let mut second = resuming(&place, &first, "2", "2");
    second.reach(2, kept + 20);
    let (again, saved, said) = kill(&mut second, kept + 20);
    assert!(said.contains(&format!("goes on after step {kept}: 2 workers")), "{said}");
    assert!(!said.contains("taken again"), "{said}");
    // What was cut for two servers is of no use to one, and that is said beforehand.
    let output = place.run(&["resume", "--workers", "2", "--servers", "1", "--json"]);
    let said = talk(&output);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let lost = again - saved;
    let count = format!("goes on after step {saved}: {lost} steps after it were kept by 2 servers");
    assert!(said.contains(&count), "{said}");
    assert_eq!(figures(&report), figures(&expected));
    assert_eq!(report["superseded_steps"], lost, "{said}");
}

#[test]
fn a_second_interrupt_ends_at_once() {
    let place = place();
    let expected = undisturbed(&place, &[]);
    let mut live = Live::train(&place, &[]);
    live.reach(1, 30);
    // Its processes stand still, so that the first one cannot be done before the second comes.
    let coordinator = live.process("coordinator", "");
    signal(coordinator.pid, "STOP");
    live.signal("INT");
    crate::live::until("the answer", || {
        let status = fs::read_to_string(format!("/proc/{}/status", live.pid())).ok()?;
        let pending = status.lines().filter(|l| l.starts_with("SigPnd") || l.starts_with("ShdPnd"));
        pending.into_iter().all(|l| l.ends_with("0000000000000000")).then_some(())
    });
    crate::live::until("the end", || {
        // One that comes at the same moment counts as the first.
        live.signal("INT");
        let stat = fs::read_to_string(format!("/proc/{}/stat", live.pid())).ok();
        stat.is_none_or(|s| s.contains(") Z ")).then_some(())
    });
    signal(coordinator.pid, "CONT");
    let output = live.end();
    assert_eq!(output.status.code(), Some(131), "{}", talk(&output));
    assert!(talk(&output).contains("quit without saving"), "{}", talk(&output));
    assert!(!live.run.join("control.json").exists());
    let status = || place.json(&["status", &live.run.display().to_string(), "--json"], 0);
    assert_eq!(status()["was_quit"], true, "it was not killed");
    let report = resume(&place, &live.run, "2", "1");
    assert_eq!(figures(&report), figures(&expected));
    assert_eq!(status()["was_quit"], Value::Null);
}
