//! Each shard on several workers: no step waits for a silent one, and the weights are the same.

use crate::live::{Live, events, figures, place, signal};
use crate::resuming::undisturbed;
use crate::surviving::{goes_on, happened, unharmed};

const REDUNDANT: [&str; 4] = ["--set", "train.epochs=300", "--set", "train.redundancy=1"];

#[test]
fn a_stopped_worker_is_not_waited_for() {
    let place = place();
    let expected = undisturbed(&place, &REDUNDANT);
    let mut live = Live::train(&place, &REDUNDANT);
    let dealt = happened(&live, "dealt", |_| true);
    let reason = dealt["reason"].as_str().unwrap();
    assert!(reason.ends_with("each shard is on 2 workers"), "{reason}");
    live.reach(1, 20);
    let worker = live.process("worker", "2");
    signal(worker.pid, "STOP");
    goes_on(&live);
    // It is found out at last, at no other worker's expense.
    happened(&live, "suspected", |e| e["agent"] == "worker-2");
    goes_on(&live);
    signal(worker.pid, "CONT");
    happened(&live, "regained", |e| e["agent"] == "worker-2");
    let report = unharmed(&place, &mut live, &expected);
    assert_eq!(figures(&report), figures(&expected));
    // Steps that waited for shards to be computed again because of it.
    let waited = |e: &serde_json::Value| {
        e["event"] == "healed" && e["after"].as_str().is_some_and(|a| a.starts_with("worker-2 "))
    };
    let waited: Vec<_> = events(&live.run).into_iter().filter(waited).collect();
    assert!(waited.is_empty(), "{waited:?}");
}
