//! `events.jsonl`: all that happened in a run, one JSON object per line, over all its sessions.
//!
//! Owns the file. It is only ever added to: a session that goes on from an earlier step leaves the
//! lines beyond it, which their generation tells apart. Never decides what is an event.

use planaria_protocol::event::{Event, What};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Name of the file in a run's folder.
pub const FILE: &str = "events.jsonl";

/// The file, open for adding to.
#[derive(Debug)]
pub struct Journal {
    file: File,
    generation: u64,
}

impl Journal {
    /// Goes on with the file, or begins it, as this generation.
    pub fn open(path: &Path, generation: u64) -> io::Result<Self> {
        let text = text(path)?;
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if text.last().is_some_and(|b| *b != b'\n') {
            // A crash tore the last line; the next must not become part of it.
            file.write_all(b"\n")?;
        }
        Ok(Self { file, generation })
    }

    /// How many times the run was started or taken up again, this time included.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Adds what happened, `seconds` into the run, and gives it back as the event it has become.
    pub fn record(&mut self, seconds: f64, unix_seconds: f64, what: What) -> io::Result<Event> {
        let event = Event { seconds, unix_seconds, generation: self.generation, what };
        self.write(&event)?;
        Ok(event)
    }

    /// The file, to be synced from another thread.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Adds an event.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    /// Makes the events so far survive a power cut.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The events of a run; a line that a crash tore is left out.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    Ok(events(&text(path)?).collect())
}

/// The events of the run's last session, from its `Started` on.
pub fn session(path: &Path) -> io::Result<Vec<Event>> {
    let mut events = read(path)?;
    let began = events.iter().rposition(|event| matches!(event.what, What::Started(_)));
    Ok(events.split_off(began.unwrap_or(0)))
}

/// The generation that a session of the run begins: one more than any before, be it in the file or,
/// where that was lost, `before`.
pub fn next_generation(path: &Path, before: u64) -> io::Result<u64> {
    let text = text(path)?;
    Ok(events(&text).map(|e| e.generation).max().unwrap_or(0).max(before) + 1)
}

fn text(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
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
        let mut journal = Journal::open(&path, next_generation(&path, 0).unwrap()).unwrap();
        let first = journal.record(0.1 + 0.2, 1e9, stopping("a \"quoted\"\nreason")).unwrap();
        drop(journal);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"sec").unwrap();
        assert_eq!(read(&path).unwrap(), std::slice::from_ref(&first));

        let mut journal = Journal::open(&path, next_generation(&path, 0).unwrap()).unwrap();
        let second = journal.record(0.5, 1e9, stopping("again")).unwrap();
        assert_eq!((first.generation, second.generation), (1, 2));
        assert_eq!(read(&path).unwrap(), [first, second]);
        assert!(fs::read_to_string(&path).unwrap().contains("\n{\"sec\n"), "history stays");
    }

    #[test]
    fn generations_go_on_where_the_file_was_lost() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(next_generation(&dir.path().join(FILE), 4).unwrap(), 5);
    }
}
