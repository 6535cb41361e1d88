//! `events.jsonl`: what happened, one JSON object per line, in the order in which it was decided.
//!
//! Owns the file. History is only ever added to. Never decides what is worth writing.

use planaria_protocol::event::{Event, What};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The file, open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    generation: u64,
}

impl Journal {
    /// Opens or makes the file.
    pub fn open(path: &Path, generation: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, generation })
    }

    /// Writes down what happened, `seconds` into the run.
    pub fn record(&mut self, seconds: f64, unix_seconds: f64, what: What) -> io::Result<Event> {
        let event = Event { seconds, unix_seconds, generation: self.generation, what };
        let mut line = serde_json::to_vec(&event)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        Ok(event)
    }

    /// Makes what was written survive a power cut.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
