//! What a run holds, on disk before it is held: one line of JSON each, synced.
//!
//! Owns `resources.jsonl` in a run's folder. A machine is written down before it is created and
//! crossed out after it is destroyed; so a later command knows all that may exist. Never
//! destroys anything.

use crate::provider::{Machine, is_name};
use planaria_store::plain;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::Path;

/// Name of the file in a run's folder.
pub const FILE: &str = "resources.jsonl";

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    /// This is about to be created.
    Will(Machine),
    /// This is destroyed.
    Gone(String),
}

/// The file, open for adding to it.
#[derive(Debug)]
pub struct Resources {
    file: File,
    held: BTreeMap<String, Machine>,
}

impl Resources {
    /// Opens the file of a run's folder, or begins one; only its owner can read it.
    pub fn open(folder: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = folder.join(FILE);
        let held = held(folder)?;
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        // A line that was cut off must not swallow the next.
        file.write_all(b"\n")?;
        File::open(folder)?.sync_all()?;
        Ok(Self { file, held })
    }

    /// Writes down that a machine is about to be created.
    pub fn will(&mut self, machine: &Machine) -> io::Result<()> {
        self.add(&Line::Will(machine.clone()))?;
        self.held.insert(machine.name.clone(), machine.clone());
        Ok(())
    }

    /// Writes down that a machine is destroyed.
    pub fn gone(&mut self, name: &str) -> io::Result<()> {
        self.add(&Line::Gone(name.to_owned()))?;
        self.held.remove(name);
        Ok(())
    }

    /// Machines that may exist.
    pub fn held(&self) -> Vec<Machine> {
        self.held.values().cloned().collect()
    }

    /// Whether this machine may exist.
    pub fn holds(&self, name: &str) -> bool {
        self.held.contains_key(name)
    }

    fn add(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.file.sync_data()
    }
}

/// What a run may still hold. A line that cannot be read was cut off before what it announces was
/// begun.
pub fn held(folder: &Path) -> io::Result<BTreeMap<String, Machine>> {
    let file = match plain::open(&folder.join(FILE)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        file => file?,
    };
    let mut held = BTreeMap::new();
    for line in BufReader::new(file).split(b'\n') {
        match serde_json::from_slice(&line?) {
            Ok(Line::Will(machine)) if is_name(&machine.name) => {
                held.insert(machine.name.clone(), machine);
            }
            Ok(Line::Gone(name)) => {
                held.remove(&name);
            }
            _ => {}
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str) -> Machine {
        Machine::new(name, format!("lab@{name}"), vec!["big".into()])
    }

    #[test]
    fn what_is_written_down_is_held_until_it_is_crossed_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut resources = Resources::open(folder.path()).unwrap();
        resources.will(&machine("a")).unwrap();
        resources.will(&machine("b")).unwrap();
        resources.gone("a").unwrap();
        assert_eq!(resources.held(), [machine("b")]);
        drop(resources);
        assert_eq!(Resources::open(folder.path()).unwrap().held(), [machine("b")]);
    }

    #[test]
    fn a_line_that_was_cut_off_hides_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let mut resources = Resources::open(folder.path()).unwrap();
        resources.will(&machine("a")).unwrap();
        drop(resources);
        let path = folder.path().join(FILE);
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"will\":{\"name\":\"x");
        std::fs::write(&path, text).unwrap();
        let mut resources = Resources::open(folder.path()).unwrap();
        resources.will(&machine("b")).unwrap();
        let names: Vec<String> = held(folder.path()).unwrap().into_keys().collect();
        assert_eq!(names, ["a", "b"]);
    }
}
