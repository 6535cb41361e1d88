//! A small training for every pool, its weights, and what must not be left of it.

use super::engine::Engine;
use super::eventually;
use super::workspace::{Training, Workspace};
use crate::hosts::Hosts;
use planaria_fleet::pool::resources;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Long enough for something to happen to it, and still seconds.
pub const EPOCHS: u32 = 60;

/// A recipe for this pool, with more lines below.
pub fn recipe(pool: &str, epochs: u32, more: &str) -> String {
    format!(
        "
name: small
seed: 5
pool: {pool}
data: {{train: digits, examples: 600, test: 0.2, validation: 0.1}}
model:
  layers:
    - Flatten
    - Dense: {{units: 32}}
    - Activation: relu
    - Dense: {{units: 10}}
train:
  epochs: {epochs}
  batch: 50
  shards: 6
  optimizer: {{sgd: {{learning_rate: 0.05, momentum: 0.9}}}}
{more}
"
    )
}

/// Hosts by these names.
pub fn ssh(hosts: &Hosts, names: &str, workers: u32) -> String {
    let config = hosts.path("ssh_config");
    format!(
        "{{provider: ssh, hosts: [{names}], workers: {workers}, \
         ssh: {{config: {}, connect_seconds: 2}}}}",
        config.display()
    )
}

pub fn docker(engine: &Engine, machines: u32, more: &str) -> String {
    format!(
        "{{provider: docker, machines: {machines}, workers: {machines}, address: {}, \
         docker: {{socket: {}}}{more}}}",
        engine.address(),
        engine.socket().display()
    )
}

/// The weights that one process comes to; every pool must come to them.
pub fn expected() -> &'static str {
    static EXPECTED: OnceLock<String> = OnceLock::new();
    EXPECTED.get_or_init(|| weights(&trained("{workers: 1}").1))
}

/// Trains on a pool to the end.
#[track_caller]
pub fn trained(pool: &str) -> (Workspace, String) {
    let workspace = workspace(pool, EPOCHS, "");
    let out = workspace.give(&["train", "pool.yaml", "--json"], 0).0;
    (workspace, out)
}

/// A place with such a recipe as `pool.yaml`.
pub fn workspace(pool: &str, epochs: u32, more: &str) -> Workspace {
    let workspace = Workspace::new("{}");
    workspace.put("pool.yaml", &recipe(pool, epochs, more));
    workspace
}

/// Waits for the end of a training that ends well; what it printed.
#[track_caller]
pub fn ends_well(workspace: &Workspace, training: Training) -> String {
    let output = training.end();
    let said = workspace.said();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The weights of a report.
#[track_caller]
pub fn weights(report: &str) -> String {
    let report: Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}"));
    report["weights_sha256"].as_str().expect("a hash").to_owned()
}

/// The run's name.
pub fn id(run: &Path) -> String {
    run.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Processes of a run, wherever they are: hosts and containers are of this machine.
pub fn processes(run: &Path) -> Vec<(u32, String)> {
    let id = id(run);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&id) && line.contains(" agent ") {
            found.push((pid, line));
        }
    }
    found
}

/// Whether the run still may hold something.
pub fn holds(run: &Path) -> Vec<String> {
    resources::held(run).expect("it can be read").into_keys().collect()
}

/// Nothing runs, nothing is written down as held.
#[track_caller]
pub fn is_over(run: &Path) {
    eventually("the end of all processes", || processes(run).is_empty());
    assert_eq!(holds(run), [""; 0], "{}", run.display());
}

/// The same, and nothing lies on hosts.
#[track_caller]
pub fn hosts_are_clean(hosts: &Hosts, numbers: &[u32], run: &Path) {
    is_over(run);
    for &number in numbers {
        let left = hosts.on(number, "find ~/.cache/planaria/runs -mindepth 1 2>/dev/null || true");
        assert_eq!(left, "", "on host {number}, with processes {}", hosts.on(number, "ps ax"));
    }
}

/// The same, and no container is left.
#[track_caller]
pub fn engine_is_clean(engine: &Engine, run: &Path) {
    is_over(run);
    assert_eq!(engine.docker_ok(&["ps", "--all", "--quiet"]), "");
}
