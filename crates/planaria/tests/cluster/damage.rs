//! Bytes that change on the disk, behind everybody's back: they are seen, and the run goes back to
//! what is whole.

use crate::binary::{Place, talk};
use crate::live::{Live, events, figures, logs, place, resume, signal, until};
use crate::resuming::undisturbed;
use crate::surviving::unharmed;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LONGER: [&str; 2] = ["--set", "train.epochs=150"];
/// Of a server's values, before its slots.
const HEADER_BYTES: u64 = 4096;

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

/// What a server has kept.
fn values(run: &Path, server: &str) -> PathBuf {
    let all = fs::read_dir(run.join("state")).unwrap().map(|entry| entry.unwrap().path());
    let own = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(&format!("server-{server}-")) && name.ends_with(".slots")
    };
    all.into_iter().find(own).expect("it keeps its values")
}

/// One bit of each of a server's slots.
fn damage(run: &Path, server: &str) {
    let path = values(run, server);
    let slot_bytes = (fs::metadata(&path).unwrap().len() - HEADER_BYTES) / 3;
    for slot in 0..3 {
        flip(&path, HEADER_BYTES + slot * slot_bytes + 777);
    }
}

fn recovered(run: &Path) -> Vec<String> {
    let all = events(run).into_iter().filter(|e| e["event"] == "recovered");
    all.map(|e| e["source"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_bit_of_what_is_kept_is_missed_and_the_checkpoint_gone_on_from() {
    let place = place();
    let expected = undisturbed(&place, &LONGER);
    let mut live = Live::train(&place, &LONGER);
    live.reach(1, 20);
    live.processes().iter().for_each(|process| signal(process.pid, "STOP"));
    live.signal("KILL");
    assert_eq!(live.end().status.code(), None);
    damage(&live.run, "1");
    let report = resume(&place, &live.run, "3", "2");
    assert_eq!(figures(&report), figures(&expected));
    let sources = recovered(&live.run);
    assert!(sources.len() == 1 && sources[0].contains("/checkpoints/step-"), "{sources:?}");
    let logs = logs(&live.run);
    let seen = |(name, log): &(String, String)| {
        name == "server-1.log" && log.contains("do not match their sums: bytes were changed")
    };
    assert!(logs.iter().any(seen), "{logs:?}");
}

#[test]
fn a_checkpoint_that_is_damaged_too_leads_to_the_one_before() {
    let place = place();
    let expected = undisturbed(&place, &LONGER);
    let mut live = Live::train(&place, &LONGER);
    live.reach(1, 20);
    let saved = || events(&live.run).iter().filter(|e| e["event"] == "saved").count();
    until("two checkpoints", || (saved() > 1).then_some(()));
    let processes = live.processes();
    processes.iter().for_each(|process| signal(process.pid, "STOP"));
    damage(&live.run, "0");
    let newest = live.run.join("checkpoints/last").canonicalize().unwrap();
    let part = newest.join("part-0");
    flip(&part, fs::metadata(&part).unwrap().len() / 2);
    for process in processes {
        let lost =
            process.role == "coordinator" || (&*process.role, &*process.index) == ("server", "0");
        signal(process.pid, if lost { "KILL" } else { "CONT" });
    }
    unharmed(&place, &mut live, &expected);
    let sources = recovered(&live.run);
    let newest = newest.display().to_string();
    assert!(sources.first() == Some(&newest), "it is tried: {sources:?}");
    let older = |source: &String| source.contains("/checkpoints/step-");
    // A process that is lost again meanwhile has it tried again.
    let next = sources.iter().find(|source| **source != newest);
    assert!(next.is_some_and(older), "and then the one before it: {sources:?}");
}

/// What `audit` says in the end of a run, and with which exit code.
fn audit(place: &Place, run: &Path) -> (Option<i32>, Value) {
    let output = place.run(&["audit", run.to_str().unwrap(), "--json"]);
    (output.status.code(), serde_json::from_slice(&output.stdout).expect("one document"))
}

#[test]
fn events_that_are_cut_while_it_runs_cost_proof_and_no_weights() {
    let place = place();
    let expected = undisturbed(&place, &LONGER);
    let mut live = Live::train(&place, &LONGER);
    live.reach(1, 20);
    let path = live.run.join("events.jsonl");
    File::options().write(true).open(&path).unwrap().set_len(1000).unwrap();
    unharmed_but_unproven(&mut live, &expected);
    let (code, audit) = audit(&place, &live.run);
    assert_eq!((code, &audit["verdict"]), (Some(3), &"incomplete".into()), "{audit}");
    for key in ["missing", "proven"] {
        assert!(audit[key].as_array().is_some_and(|said| !said.is_empty()), "{key}: {audit}");
    }
}

#[test]
fn a_record_that_is_damaged_while_it_runs_is_not_believed() {
    let place = place();
    let expected = undisturbed(&place, &LONGER);
    let mut live = Live::train(&place, &LONGER);
    live.reach(1, 20);
    let coordinator = live.process("coordinator", "");
    signal(coordinator.pid, "STOP");
    let record = live.run.join("state/coordinator.record");
    let bytes = fs::metadata(&record).unwrap().len();
    (0..bytes).step_by(64).for_each(|at| flip(&record, at));
    signal(coordinator.pid, "KILL");
    unharmed(&place, &mut live, &expected);
    assert!(!recovered(&live.run).is_empty(), "it went back to a checkpoint");
}

/// It ends well, with the weights that it would have had.
fn unharmed_but_unproven(live: &mut Live, expected: &Value) {
    let output = live.end();
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["weights_sha256"], expected["weights_sha256"]);
}
