//! Servers that have no share in the run's folder: what they keep goes over links.

use crate::live::{events, logs, processes, signal, until};
use planaria::layers::{dense, flatten};
use planaria::{Outcome, Planaria};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn training(runs: &Path) -> Planaria {
    Planaria::new("apart")
        .data("digits")
        .examples(400)
        .model([flatten(), dense(64), dense(10)])
        .epochs(60)
        .batch(50)
        .seed(7)
        .set("train.shards", "4")
        .set("output", "{checkpoint_steps: 5, keep: 2}")
        .output_dir(runs)
        .quiet(true)
}

/// A program whose servers believe that they are on machines of their own: each keeps its values
/// where the next one does not look, and sends its parts.
fn program(folder: &Path) -> PathBuf {
    let (planaria, machines) = (env!("CARGO_BIN_EXE_planaria"), folder.join("machines"));
    let machines = machines.display();
    let script = format!(
        r#"#!/bin/bash
if [ "$2" != server ]; then exec {planaria} "$@"; fi
exec 3<&0
exec {planaria} "$@" < <(
    IFS= read -r orders <&3
    sed -e 's/"parts":"Folder"/"parts":"Link"/' -e 's|"state":"[^"]*"|"state":"{machines}/'$$'"|' \
        <<< "$orders"
    exec cat <&3
)
"#
    );
    let path = folder.join("program");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_server_and_its_machine_are_lost_and_its_part_comes_from_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let expected = training(&dir.path().join("one")).train().unwrap();
    let runs = dir.path().join("runs");
    let many = training(&runs).workers(2).servers(2).threads(1).program(program(dir.path()));
    let report = std::thread::scope(|scope| {
        let trained = scope.spawn(|| many.train());
        let run = until("the run's folder", || {
            fs::read_dir(&runs).ok()?.next()?.ok().map(|entry| entry.path())
        });
        let happened = |name: &str| events(&run).iter().filter(|e| e["event"] == name).count();
        until("checkpoints", || (happened("saved") > 1).then_some(()));
        let id = run.file_name().unwrap().to_str().unwrap();
        let server = processes(id).into_iter().find(|p| p.role == "server" && p.index == "1");
        signal(server.expect("server 1 lives").pid, "KILL");
        until("another try", || (happened("recovered") > 0).then_some(()));
        trained.join().unwrap().unwrap_or_else(|failure| panic!("{failure}"))
    });
    assert_eq!(report.outcome, Outcome::Completed);
    assert_eq!(report.weights_sha256, expected.weights_sha256);
    let run = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let all = events(&run);
    let recovered: Vec<_> = all.iter().filter(|e| e["event"] == "recovered").collect();
    let folder = |source: &str| source.contains("/checkpoints/step-");
    assert!(recovered.iter().all(|e| e["source"].as_str().is_some_and(folder)), "{recovered:?}");
    assert!(all.iter().all(|e| e["event"] != "not_saved"), "every part arrived");
    for (name, log) in logs(&run) {
        assert!(!log.contains("refused a part"), "{name}: {log}");
    }
    // Nothing that was on its way is left on any machine.
    for machine in fs::read_dir(dir.path().join("machines")).unwrap() {
        for left in fs::read_dir(machine.unwrap().path()).unwrap() {
            let left = left.unwrap().file_name().into_string().unwrap();
            assert!(left.ends_with(".slots") || left.starts_with("temporary-1-"), "{left}");
        }
    }
}
