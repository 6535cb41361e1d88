//! Each in two containers of a real Docker engine: a process is killed on the way, and later a
//! whole container.

use super::kinds::{Kind, MIRRORED, OLD_FLAGS, PARAMETER_SERVERS, PLAIN, TORCH, TORCHRUN};
use crate::support::engine::{Engine, SYSTEM};
use crate::support::frameworks::Python;
use crate::support::pooled::engine_is_clean;

const IMAGE: &str = "python";

fn survives(kind: &Kind) {
    let Some(python) = Python::find() else { return };
    let Some(engine) = Engine::up() else { return };
    engine.import_system(IMAGE);
    let mounts: Vec<String> = python.mounts().into_iter().chain([SYSTEM.to_owned()]).collect();
    let mounts: Vec<String> = mounts.iter().map(|mount| format!("'{mount}'")).collect();
    let workers = if kind.options.contains("roles") { "" } else { ", workers: 2" };
    let pool = format!(
        "{{provider: docker, machines: 2, image: {IMAGE}, docker: {{socket: {}, mounts: [{}]}}{workers}}}",
        engine.socket().display(),
        mounts.join(", ")
    );
    let workspace = kind.workspace(&python, &pool);
    let mut training = workspace.start(&["run", "job.yaml", "--json"], &[]);
    workspace.hears(&mut training, "epoch=1 ");
    let second = || {
        let names = engine.docker_ok(&["ps", "--format", "{{.Names}}"]);
        assert_eq!(names.lines().count(), 2, "{names}");
        names.lines().max().expect("two of them").to_owned()
    };
    engine.docker_ok(&["exec", &second(), "pkill", "-9", "-o", "-f", kind.process]);
    workspace.hears(&mut training, &format!("epoch={} ", kind.epochs / 2 + 1));
    engine.docker_ok(&["kill", &second()]);
    let report = kind.ends_well(&workspace, training);
    assert!(report["machines_lost"].as_u64() > Some(0), "{report:#}");
    let least = if kind.restarts { 2 } else { 1 };
    assert!(report["restarts"].as_u64() >= Some(least), "{report:#}");
    engine_is_clean(&engine, &workspace.run());
}

#[test]
fn torch_survives() {
    survives(&TORCH);
}

#[test]
fn torchrun_survives() {
    survives(&TORCHRUN);
}

#[test]
fn parameter_servers_survive() {
    survives(&PARAMETER_SERVERS);
}

#[test]
fn mirrored_workers_survive() {
    survives(&MIRRORED);
}

#[test]
fn old_flags_survive() {
    survives(&OLD_FLAGS);
}

#[test]
fn plain_scripts_survive() {
    survives(&PLAIN);
}
