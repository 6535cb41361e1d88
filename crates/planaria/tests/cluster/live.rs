//! A run under way: its foreground, its processes, its files.

use crate::binary::{Place, talk};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Batch norm, dropout, augmentation, clipping and Adam; 350 examples in batches of 45 (the last of
/// 35) and 8 shards, so that neither divides; four blocks of parameters.
pub const RECIPE: &str = "
seed: 5
data:
  train: digits
  examples: 500
  test: 0.2
  validation: 0.1
  augment: {crop_padding: 2, horizontal_flip: true}
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
  batch: 45
  shards: 8
  clip_norm: 0.5
  optimizer: {adam: {learning_rate: 0.01}}
";

/// Long enough to be struck in the middle; less than a second in all.
pub const LONG: [&str; 4] =
    ["--set", "train.epochs=25", "--set", "output={checkpoint_steps: 5, keep: 3}"];

/// A folder with the recipe, under a name that no other test's run has.
pub fn place() -> Place {
    let place = Place::new();
    let unique: String = place.path().display().to_string();
    let unique: String = unique.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = &unique[unique.len() - 6..];
    fs::write(place.path().join("net.yaml"), format!("name: net{name}\n{RECIPE}")).unwrap();
    place
}

/// Looks again and again until there is something; some 30 s at most.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let (_keep, never) = channel::<()>();
    for _ in 0..6000 {
        if let Some(found) = look() {
            return found;
        }
        // Another process is waited for; there is nothing to wait on but time.
        let _ = never.recv_timeout(Duration::from_millis(5));
    }
    panic!("{what} did not come");
}

/// A process of a run.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: u32,
    /// `worker`, `server` or `coordinator`.
    pub role: String,
    pub index: String,
}

/// A foreground that has been started; it is killed if it is still there at the end.
pub struct Live {
    child: Option<Child>,
    pid: u32,
    pub run: PathBuf,
}

impl Live {
    /// Trains the long run on 3 workers and 2 servers.
    pub fn train(place: &Place, more: &[&str]) -> Self {
        let base = ["train", "net.yaml", "--json", "--workers", "3", "--servers", "2"];
        Self::start(place, place.command(&[&base, &LONG[..], more].concat()))
    }

    pub fn start(place: &Place, mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let run = until("the run's folder", || {
            fs::read_dir(place.path().join("runs")).ok()?.next()?.ok().map(|e| e.path())
        });
        Self { pid: child.id(), child: Some(child), run }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn id(&self) -> String {
        self.run.file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// Waits until so many steps are committed in this generation.
    #[track_caller]
    pub fn reach(&self, generation: u64, step: u64) {
        until("a step", || {
            let done = events(&self.run).iter().any(|e| {
                e["generation"] == generation
                    && e["event"] == "steps"
                    && e["step"].as_u64() >= Some(step)
            });
            done.then_some(())
        });
    }

    /// The processes of the run, without the foreground.
    pub fn processes(&self) -> Vec<Process> {
        processes(&self.id())
    }

    pub fn process(&self, role: &str, index: &str) -> Process {
        let mut all = self.processes().into_iter();
        all.find(|p| p.role == role && p.index == index).expect("such a process")
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid, name);
    }

    /// Waits for the foreground to end by itself, and for every process of the run.
    #[track_caller]
    pub fn end(&mut self) -> Output {
        let child = self.child.take().expect("it ends once");
        let (pass, passed) = channel();
        std::thread::spawn(move || pass.send(child.wait_with_output()));
        let output = match passed.recv_timeout(Duration::from_secs(60)) {
            Ok(output) => output.unwrap(),
            Err(_) => {
                signal(self.pid, "KILL");
                panic!("the run hangs; its last events: {:?}", events(&self.run).last());
            }
        };
        until("the end of all processes", || self.processes().is_empty().then_some(()));
        let said = talk(&output);
        assert!(!said.contains("panicked") && !said.contains("backtrace"), "{said}");
        for (name, log) in logs(&self.run) {
            assert!(!log.contains("panicked"), "{name}: {log}");
        }
        output
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A test has failed; nothing of it may stay.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The only error in what was said, with its hint.
#[track_caller]
pub fn one_error(said: &str) -> String {
    assert_eq!(said.matches("error").count(), said.matches("os error").count() + 1, "{said}");
    said[said.find("error: ").expect("an error")..].to_owned()
}

pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Processes whose arguments say that they are agents of a run.
pub fn processes(id: &str) -> Vec<Process> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<&str> = line.split('\0').filter(|w| !w.is_empty()).collect();
        if let [_, "agent", role, rest @ ..] = &words[..]
            && rest.last() == Some(&id)
        {
            let index = if rest.len() > 1 { rest[0] } else { "" };
            found.push(Process { pid, role: (*role).into(), index: index.into() });
        }
    }
    found
}

/// Events so far; a line that is being written is left out.
pub fn events(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The last word of a generation.
#[track_caller]
pub fn ended(run: &Path, generation: u64) -> Value {
    let all = events(run);
    let of = |e: &&Value| e["generation"] == generation && e["event"] == "ended";
    let found: Vec<&Value> = all.iter().filter(of).collect();
    assert_eq!(found.len(), 1, "one end of generation {generation}: {found:?}");
    found[0].clone()
}

/// Names and contents of all logs.
pub fn logs(run: &Path) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(run.join("logs")) else { return Vec::new() };
    let files = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_file()));
    files
        .map(|e| {
            let text =
                String::from_utf8_lossy(&fs::read(e.path()).unwrap_or_default()).into_owned();
            (e.file_name().to_string_lossy().into_owned(), text)
        })
        .collect()
}

/// Takes a run up again on so many processes, to its end.
#[track_caller]
pub fn resume(place: &Place, run: &Path, workers: &str, servers: &str) -> Value {
    let run = run.to_str().unwrap();
    place.json(&["resume", run, "--json", "--workers", workers, "--servers", servers], 0)
}

/// All that must not depend on the processes: figures of the end and of every line.
pub fn figures(report: &Value) -> Value {
    let mut figures = serde_json::Map::new();
    for key in [
        "outcome",
        "reason",
        "steps",
        "epochs",
        "examples",
        "samples_exactly_once",
        "parameters",
        "evaluated_on",
        "evaluated_examples",
        "loss",
        "accuracy",
        "mse",
        "rmse",
        "mae",
        "r2",
        "predictions",
        "per_class",
        "confusion",
        "best",
        "weights_sha256",
    ] {
        figures.insert(key.into(), report[key].clone());
    }
    let curve = report["curves"].as_array().expect("curves").iter().map(|line| {
        let mut line = line.as_object().expect("a line").clone();
        line.retain(|key, _| !key.ends_with("seconds") && key != "examples_per_second");
        Value::from(line)
    });
    figures.insert("curves".into(), curve.collect());
    figures.into()
}
