//! `events.jsonl`: all that happened in a run, one JSON object per line, over all its sessions.
//!
//! Owns the file. It is only ever added to: a session that goes on from an earlier step leaves the
//! lines beyond it, which their generation tells apart. Never decides what is an event.

use crate::failure::{Context, Result};
use planaria_protocol::event::{Event, What};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Name of the file in a run's folder.
pub const FILE: &str = "events.jsonl";

/// The file, open for adding to.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    generation: u64,
}

impl Journal {
    /// Goes on with the file, or begins it. The generation is one more than any before, be it in
    /// the file or, where that was lost, `before`.
    pub fn open(path: &Path, before: u64) -> Result<Self> {
        let text = text(path)?;
        let generation = events(&text).map(|e| e.generation).max().unwrap_or(0).max(before) + 1;
        let open = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            if text.last().is_some_and(|b| *b != b'\n') {
                // A crash tore the last line; the next must not become part of it.
                file.write_all(b"\n")?;
            }
            Ok(file)
        };
        let file = open().context(|| format!("cannot open `{}`", path.display()))?;
        Ok(Self { path: path.to_path_buf(), file, generation })
    }

    /// How many times the run was started or taken up again, this time included.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Adds what happened, and gives it back as the event it has become.
    pub fn append(&mut self, seconds: f64, unix_seconds: f64, what: What) -> Result<Event> {
        let event = Event { seconds, unix_seconds, generation: self.generation, what };
        self.push(&event)?;
        Ok(event)
    }

    /// Adds an event that another process made.
    pub fn push(&mut self, event: &Event) -> Result<()> {
        let mut line = serde_json::to_vec(event).expect("an event has string keys only");
        line.push(b'\n');
        self.file.write_all(&line).context(|| format!("cannot write `{}`", self.path.display()))
    }

    /// Makes the events so far survive a power cut.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().context(|| format!("cannot write `{}`", self.path.display()))
    }
}

/// The events of a run; a line that a crash tore is left out.
pub fn read(path: &Path) -> Result<Vec<Event>> {
    Ok(events(&text(path)?).collect())
}

fn text(path: &Path) -> Result<Vec<u8>> {
    match fs::read(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read.context(|| format!("cannot read `{}`", path.display())),
    }
}

fn events(text: &[u8]) -> impl Iterator<Item = Event> {
    text.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopping(reason: &str) -> What {
        What::Stopping { reason: reason.into() }
    }

    #[test]
    fn history_is_added_to_and_a_torn_line_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        assert_eq!(read(&path).unwrap(), []);
        let mut journal = Journal::open(&path, 0).unwrap();
        let first = journal.append(0.1 + 0.2, 1e9, stopping("a \"quoted\"\nreason")).unwrap();
        drop(journal);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"sec").unwrap();
        assert_eq!(read(&path).unwrap(), std::slice::from_ref(&first));

        let mut journal = Journal::open(&path, 0).unwrap();
        let second = journal.append(0.5, 1e9, stopping("again")).unwrap();
        assert_eq!((first.generation, second.generation), (1, 2));
        assert_eq!(read(&path).unwrap(), [first, second]);
        assert!(fs::read_to_string(&path).unwrap().contains("\n{\"sec\n"), "history stays");
    }

    #[test]
    fn generations_go_on_where_the_file_was_lost() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Journal::open(&dir.path().join(FILE), 4).unwrap().generation(), 5);
    }
}
