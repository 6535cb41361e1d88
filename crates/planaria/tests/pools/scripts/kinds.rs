//! One script of each framework, as `examples` has it.

use crate::support::frameworks::Python;
use crate::support::workspace::{Training, Workspace};
use serde_json::Value;
use std::fs;
use std::path::Path;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scripts");

/// A script, and how it is run.
pub struct Kind {
    pub file: &'static str,
    /// More of `script`.
    pub options: &'static str,
    /// Epochs: enough for something to happen meanwhile.
    pub epochs: u32,
    /// What a process that can be killed is found by, on its machine.
    pub process: &'static str,
    /// Whether that costs a restart of ours, and not one that the framework sees to by itself.
    pub restarts: bool,
    pub accuracy: f64,
}

pub const TORCH: Kind = Kind {
    file: "torch_ddp.py",
    options: "framework: pytorch",
    epochs: 8,
    process: "[t]orch_ddp.py",
    restarts: true,
    accuracy: 0.9,
};

pub const TORCHRUN: Kind = Kind {
    options: "framework: pytorch, launcher: torchrun",
    process: "[-]u torch_ddp.py",
    restarts: false,
    ..TORCH
};

pub const PARAMETER_SERVERS: Kind = Kind {
    file: "keras_ps.py",
    options: "framework: tensorflow, roles: {chief: 1, worker: 2, ps: 1}",
    epochs: 8,
    process: "[k]eras_ps.py",
    restarts: true,
    accuracy: 0.9,
};

pub const MIRRORED: Kind = Kind {
    file: "keras_mwms.py",
    options: "framework: tensorflow",
    epochs: 8,
    process: "[k]eras_mwms.py",
    restarts: true,
    accuracy: 0.9,
};

pub const OLD_FLAGS: Kind = Kind {
    file: "old_flags.py",
    options: "framework: plain, roles: {worker: 2, ps: 1}",
    epochs: 8,
    process: "[o]ld_flags.py",
    restarts: true,
    accuracy: 0.9,
};

pub const PLAIN: Kind = Kind {
    file: "plain.py",
    options: "framework: plain",
    epochs: 60,
    process: "[p]lain.py",
    restarts: true,
    accuracy: 0.9,
};

impl Kind {
    /// A place with the script and a recipe for it.
    pub fn workspace(&self, python: &Python, pool: &str) -> Workspace {
        let workspace = Workspace::new("{}");
        fs::copy(Path::new(EXAMPLES).join(self.file), workspace.path(self.file))
            .expect("an example");
        let args = match self.options.contains("plain, roles") {
            true => {
                "\"--ps_hosts={{ps_hosts}}\", \"--worker_hosts={{worker_hosts}}\", \
                 \"--job_name={{role}}\", \"--task_index={{index}}\", "
            }
            false => "",
        };
        let recipe = format!(
            "name: job\nscript: {{file: {}, {}, args: [{args}--epochs, {}], python: {}, \
             outputs: ['*.pt', '*.npz', '*.h5', '*.json', 'checkpoints/**'], \
             connect_seconds: 60, stop_seconds: 2}}\npool: {pool}\n",
            self.file, self.options, self.epochs, python.program
        );
        workspace.put("job.yaml", &recipe);
        workspace
    }

    /// The report of a job that reached its accuracy.
    #[track_caller]
    pub fn ends_well(&self, workspace: &Workspace, training: Training) -> Value {
        let output = training.end();
        let said = workspace.said();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!(report["outcome"], "completed", "{said}");
        let accuracy = report["figures"]["accuracy"].as_f64().unwrap_or(0.0);
        assert!(accuracy >= self.accuracy, "accuracy {accuracy}: {said}");
        assert!(report["outputs"].as_u64() > Some(0), "{report:#} {said}");
        let metrics = fs::read_to_string(workspace.run().join("metrics.jsonl")).expect("metrics");
        assert!(metrics.lines().count() as u64 >= 2, "{metrics}");
        report
    }
}
