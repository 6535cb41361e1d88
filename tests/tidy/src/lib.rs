//! Keeps the house in order: which crate and which module may use which, what each dependency is
//! for, how source files are written, and that a wing is known by name in its own folder alone.
//! Every finding names the file or crate and what to do about it.
//!
//! A crate of its own that needs none of the others, so that it runs within seconds.
//!
//! # Layout
//! - `arrows`: crates; `modules`: inside a crate; `wings`: providers, methods, stores, engines, jobs
//! - `dependencies`: each has a reason; `licences`: each may be used; `style`: source files
#![cfg(test)]

mod arrows;
mod dependencies;
mod licences;
mod modules;
mod style;
mod wings;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages of this machine's build, ours and others'. Packages that only other platforms build
/// may not be on this machine, so they are left out.
pub(crate) fn metadata() -> Value {
    let version = run(Command::new("rustc").arg("-vV"));
    let host =
        version.lines().find_map(|l| l.strip_prefix("host: ")).expect("rustc names its host");
    let arguments = ["metadata", "--format-version=1", "--locked", "--filter-platform", host];
    let text = run(Command::new(env!("CARGO")).args(arguments).current_dir(root()));
    serde_json::from_str(&text).expect("cargo metadata writes JSON")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?} does not start: {e}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo and rustc write UTF-8")
}

pub(crate) fn ours(metadata: &Value) -> impl Iterator<Item = &Value> {
    list(metadata, "packages").filter(|package| package["source"].is_null())
}

pub(crate) fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().unwrap_or_else(|| panic!("metadata has no list `{key}`")).iter()
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("metadata has no text `{key}`"))
}

pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.map(|entry| entry.expect("readable folder entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub(crate) fn report(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
