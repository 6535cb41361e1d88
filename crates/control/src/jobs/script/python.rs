//! Whether a script is Python, and what it imports, before anything is created.
//!
//! Python itself is asked, for at most a few seconds, and runs nothing of the script. It may be
//! another version than that of the machines: a refusal names the version. Without a Python here
//! the script is not checked, which is for the caller to say. Owns the talk with Python; never
//! decides how a script is run.

use planaria_fleet::process::{Signal, end_with_parent, signal_group};
use planaria_runs::failure::{Failure, Result};
use serde::Deserialize;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Python where none is named.
const PYTHON: &str = "python3";
/// How long Python may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a script at most.
const SCRIPT_MAX: u64 = 8 << 20;
/// Bytes of an answer at most.
const ANSWER_MAX: u64 = 1 << 20;
/// Characters of a source line that are shown.
const SOURCE_MAX: usize = 160;
/// Reads a script from its standard input and tells what it is.
const PROGRAM: &str = include_str!("python/check.py");

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// It is Python.
    Script(Script),
    /// It is not.
    Mistake(Mistake),
    /// There is no Python of this name here.
    NoPython(String),
    /// Python did not answer, and why.
    Unknown(String),
}

/// What a script tells of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Script {
    /// Packages that it imports anywhere, sorted: `torch` for `import torch.nn as nn`.
    pub imports: Vec<String>,
    /// Whether it uses TensorFlow's `ParameterServerStrategy`.
    pub parameter_servers: bool,
    /// Texts in it, of which some may name files.
    #[serde(default)]
    pub texts: Vec<String>,
    /// What it tells Keras to compute with.
    #[serde(default)]
    pub keras_backend: Option<String>,
}

impl Script {
    /// The framework it is written for, by its name in recipes; `keras` is what the recipe tells Keras
    /// to compute with.
    pub fn framework(&self, keras: Option<&str>) -> &'static str {
        // Launchers first: who imports them wants to be started by them. JAX before the others,
        // whose readers of data it is often used with.
        const BY_IMPORT: [(&str, &[&str]); 5] = [
            ("horovod", &["horovod"]),
            ("mpi", &["mpi4py"]),
            ("jax", &["jax", "flax", "optax"]),
            ("pytorch", &["torch", "torchvision", "lightning", "pytorch_lightning", "accelerate"]),
            ("tensorflow", &["tensorflow", "keras", "tf_keras"]),
        ];
        let imports = |names: &[&str]| self.imports.iter().any(|i| names.contains(&i.as_str()));
        let of_keras = match keras.or(self.keras_backend.as_deref()) {
            Some("jax") => Some("jax"),
            Some("torch") => Some("pytorch"),
            _ => None,
        };
        if let Some(framework) = of_keras.filter(|_| imports(&["keras"])) {
            return framework;
        }
        let found = BY_IMPORT.iter().find(|(_, names)| imports(names));
        found.map_or("plain", |(framework, _)| framework)
    }
}

/// Why a script is not Python.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Mistake {
    /// Line, from 1; 0 where Python does not tell.
    pub line: usize,
    /// Column in characters, from 1; 0 where Python does not tell.
    pub column: usize,
    /// What Python says.
    pub message: String,
    /// The line, as it is in the script.
    pub source: String,
    /// Which Python says so: `3.11.2`.
    pub python: String,
}

impl Mistake {
    /// As an error about `file`.
    pub fn failure(&self, file: &Path) -> Failure {
        let (file, line) = (file.display(), self.line);
        let mut text = format!("`{file}` is not Python: {}", self.message);
        if line > 0 {
            let _ = write!(text, "\n  --> {file}:{line}:{}", self.column.max(1));
        }
        let source: String =
            self.source.trim_end().chars().take(SOURCE_MAX).collect::<String>().replace('\t', " ");
        if line > 0 && !source.is_empty() {
            let number = line.to_string();
            let space = " ".repeat(number.len());
            let _ = write!(text, "\n {space} |\n {number} | {source}");
            if (1..=SOURCE_MAX).contains(&self.column) {
                let _ = write!(text, "\n {space} | {}^", " ".repeat(self.column - 1));
            }
        }
        Failure::user(text).hint(format!(
            "Python {} here says so; where the machines have a newer one, put such a one on PATH",
            self.python
        ))
    }
}

/// Checks the script in `file` with the Python of this name or path, or with `python3`.
pub fn check(file: &Path, python: Option<&str>) -> Result<Checked> {
    let source = read(file)?;
    Ok(ask(source, python.unwrap_or(PYTHON), PATIENCE))
}

/// The script's text, if it can be one.
fn read(file: &Path) -> Result<Vec<u8>> {
    let name = file.display();
    let cannot = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound => Failure::user(format!("there is no script `{name}`"))
            .hint("paths are relative to the current directory"),
        _ => Failure::user(format!("cannot read script `{name}`: {e}")),
    };
    let metadata = fs::metadata(file).map_err(cannot)?;
    if metadata.is_dir() {
        return Err(Failure::user(format!("script `{name}` is a folder"))
            .hint("name the file that Python starts with, as in `train.py`"));
    }
    if !metadata.is_file() {
        return Err(Failure::user(format!("script `{name}` is not a file")));
    }
    let mut source = Vec::new();
    let opened = File::open(file).map_err(cannot)?;
    opened.take(SCRIPT_MAX + 1).read_to_end(&mut source).map_err(cannot)?;
    if source.len() as u64 > SCRIPT_MAX {
        return Err(Failure::user(format!(
            "script `{name}` has {} bytes; a script has at most {SCRIPT_MAX}",
            metadata.len().max(source.len() as u64)
        )));
    }
    if source.iter().all(u8::is_ascii_whitespace) {
        return Err(Failure::user(format!("script `{name}` is empty")));
    }
    match text_fault(&source) {
        Some(fault) => Err(Failure::user(format!("script `{name}` is not text: {fault}"))),
        None => Ok(source),
    }
}

/// Why bytes are no Python source.
fn text_fault(source: &[u8]) -> Option<String> {
    let line = |at: usize| 1 + source[..at].iter().filter(|b| **b == b'\n').count();
    if let Some(at) = source.iter().position(|b| *b == 0) {
        return Some(format!("there is a zero byte in line {}", line(at)));
    }
    // A comment in the first two lines may name another encoding, which Python knows (PEP 263).
    let mut head = source.split(|b| *b == b'\n').take(2);
    let other = head.any(|l| {
        let l = String::from_utf8_lossy(l);
        l.trim_start().starts_with('#') && (l.contains("coding:") || l.contains("coding="))
    });
    match str::from_utf8(source) {
        Err(e) if !other => Some(format!("line {} is not UTF-8", line(e.valid_up_to()))),
        _ => None,
    }
}

/// What Python answers.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Script(Script),
    Mistake(Mistake),
}

fn ask(source: Vec<u8>, python: &str, patience: Duration) -> Checked {
    let mut child = match start(python) {
        Ok(child) => child,
        Err(e) if e.kind() == ErrorKind::NotFound => return Checked::NoPython(python.to_owned()),
        Err(e) => return Checked::Unknown(format!("cannot start `{python}`: {e}")),
    };
    let answer = exchange(&mut child, source).recv_timeout(patience);
    end(&mut child);
    let Ok(answer) = answer else {
        return Checked::Unknown(format!(
            "`{python}` did not answer within {} s",
            patience.as_secs_f64()
        ));
    };
    match serde_json::from_slice(&answer) {
        Ok(Answer::Script(script)) => Checked::Script(script),
        Ok(Answer::Mistake(mistake)) => Checked::Mistake(mistake),
        Err(_) => Checked::Unknown(format!("`{python}` cannot check it")),
    }
}

fn start(python: &str) -> std::io::Result<Child> {
    // Isolated and without packages: nothing of the user's runs, and it starts at once.
    let mut command = Command::new(python);
    command.args(["-I", "-S", "-W", "ignore", "-c", PROGRAM]).process_group(0);
    end_with_parent(&mut command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

/// Gives the script to Python and waits for its answer, on threads that end with it.
fn exchange(child: &mut Child, source: Vec<u8>) -> Receiver<Vec<u8>> {
    let (answered, answer) = channel();
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    std::thread::spawn(move || {
        // One that ends early has said why.
        let _ = stdin.map(|mut stdin| stdin.write_all(&source));
    });
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.map(|stdout| stdout.take(ANSWER_MAX).read_to_end(&mut bytes));
        let _ = answered.send(bytes);
    });
    answer
}

/// Ends Python and what it was started through.
fn end(child: &mut Child) {
    // The child has not been waited for, so the group is its own.
    signal_group(child.id(), Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests;
