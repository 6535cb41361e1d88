//! What the tests of the binary share: a folder, a small recipe, and ways to run it.

use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Batch norm, dropout and augmentation, small enough for a second or two.
pub const RECIPE: &str = "
name: tiny
seed: 5
data:
  train: digits
  examples: 600
  test: 0.2
  validation: 0.1
  augment: {crop_padding: 2, cutout: 4}
model:
  layers:
    - Conv2D: {filters: 8, kernel_size: 3, strides: 2}
    - BatchNormalization
    - Activation: relu
    - Flatten
    - Dropout: {rate: 0.25}
    - Dense: {units: 10}
train:
  epochs: 3
  batch: 50
  shards: 8
  optimizer: {sgd: {learning_rate: 0.05, momentum: 0.9}}
";

/// A folder with the recipe in it.
pub struct Place {
    pub dir: TempDir,
}

/// Lets a command hear signals: tests may be run under `nohup` or as a script's background job,
/// where some are ignored, and what is ignored stays so.
pub fn listening(command: &mut Command) {
    let hear = || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the default disposition runs no code of ours, and may be set after a fork.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: `hear` only makes calls that may be made between fork and exec.
    unsafe { command.pre_exec(hear) };
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("tiny.yaml"), RECIPE).expect("a recipe");
        Self { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The binary, to be run in the folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_planaria"));
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        listening(&mut command);
        command
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// Runs it, expects an exit code, and reads stdout as one JSON document.
    #[track_caller]
    pub fn json(&self, arguments: &[&str], code: i32) -> Value {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{}", talk(&output));
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("stdout is not one document: {e}\n{}", talk(&output)))
    }

    /// The only run's folder.
    pub fn only_run(&self) -> PathBuf {
        let mut runs: Vec<PathBuf> = std::fs::read_dir(self.path().join("runs"))
            .expect("a folder of runs")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }
}

/// What a process said on stderr.
pub fn talk(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
