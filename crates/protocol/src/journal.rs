//! `events.jsonl`: all that happened in a run, one JSON object per line, over all its sessions.
//!
//! Owns the file. It is only ever added to: a session that goes on from an earlier step leaves the
//! lines beyond it, which their generation tells apart. A disk that takes nothing does not stop a
//! run: what could not be written waits, and is written before the next event once it can be. A
//! file that was deleted is made again with what it held; in one that was cut short, a line says so.
//! Never decides what is an event.

use crate::durable::Space;
use crate::event::{Event, What};
use crate::plain;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Name of the file in a run's folder.
pub const FILE: &str = "events.jsonl";
/// Bytes that may wait for the disk; then the oldest go, figures first.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Damaged lines that are reported, at most.
const DAMAGE_MAX: usize = 10;

/// The file, open for adding to.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// Nothing while it cannot be opened.
    file: Option<File>,
    generation: u64,
    waiting: Waiting,
    /// Whether the file ends in the middle of a line: the next must not become part of it.
    torn: bool,
    /// How long the file was when it was last written to, and how much of that was cut off since.
    bytes: u64,
    cut_bytes: u64,
    /// Why the last attempt to write failed.
    trouble: Option<String>,
    space: Space,
}

impl Journal {
    /// Goes on with the file, or begins it, as this generation. A file that can be read but not
    /// written to is tried again with every event.
    pub fn open(path: &Path, generation: u64) -> io::Result<Self> {
        let torn = text(path)?.last().is_some_and(|b| *b != b'\n');
        let mut journal = Self {
            path: path.to_path_buf(),
            file: None,
            generation,
            waiting: Waiting::default(),
            torn,
            bytes: 0,
            cut_bytes: 0,
            trouble: None,
            space: Space::default(),
        };
        journal.flush();
        Ok(journal)
    }

    /// On a simulated disk.
    pub fn with_space(self, space: Space) -> Self {
        Self { space, ..self }
    }

    /// How many times the run was started or resumed, this time included.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Adds what happened, `seconds` into the run, and gives it back as the event it has become.
    /// What the disk does not take waits; see [`Journal::trouble`].
    pub fn record(&mut self, seconds: f64, unix_seconds: f64, what: What) -> io::Result<Event> {
        let event = Event { seconds, unix_seconds, generation: self.generation, what };
        self.write(&event)?;
        Ok(event)
    }

    /// Adds an event, as [`Journal::record`]. Fails only where it cannot be put in words.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.waiting.push(Line { text: line, what: event.what.clone() });
        self.flush();
        Ok(())
    }

    /// Events that wait for the disk.
    pub fn pending(&self) -> usize {
        self.waiting.lines.len()
    }

    /// Events that wait for the disk.
    pub fn waiting(&self) -> impl Iterator<Item = &What> {
        self.waiting.lines.iter().map(|line| &line.what)
    }

    /// Another number whenever other events wait.
    pub fn changes(&self) -> u64 {
        self.waiting.changes
    }

    /// Why events wait for the disk, if they do.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The file, to be synced from another thread; refused while events wait, because a checkpoint
    /// counts on the events before it.
    pub fn handle(&self) -> io::Result<File> {
        match (&self.trouble, &self.file) {
            (None, Some(file)) => file.try_clone(),
            _ => Err(self.refusal()),
        }
    }

    /// Makes the events so far survive a power cut.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush();
        self.handle()?.sync_data()
    }

    fn refusal(&self) -> io::Error {
        let why = self.trouble.as_deref().unwrap_or("it is not open");
        io::Error::other(format!("`{FILE}` cannot be written: {why}"))
    }

    /// Writes what waits, as far as the disk takes it.
    fn flush(&mut self) {
        self.trouble = self.try_flush().err().map(|e| e.to_string());
    }

    fn try_flush(&mut self) -> io::Result<()> {
        self.find_file()?;
        let Some(file) = &mut self.file else { return Ok(()) };
        if self.cut_bytes > 0 && !self.waiting.lines.is_empty() {
            let why = format!("{} bytes were cut off the end of the file", self.cut_bytes);
            put(file, &gap(&why), &mut self.torn)?;
            self.cut_bytes = 0;
        }
        while let Some(next) = self.waiting.front() {
            self.space.check()?;
            put(file, &next, &mut self.torn)?;
            self.waiting.pop_front();
        }
        self.bytes = file.metadata()?.len();
        Ok(())
    }

    /// Opens the file where that is to be done: at first, and when it is no longer where it was.
    fn find_file(&mut self) -> io::Result<()> {
        let place = |m: &fs::Metadata| (m.dev(), m.ino());
        let there = fs::metadata(&self.path);
        let ours = self.file.as_ref().map(|file| file.metadata()).transpose()?;
        if let (Some(ours), Ok(there)) = (&ours, &there)
            && place(ours) == place(there)
        {
            return self.find_cut(ours.len());
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().read(true).create(true).append(true).open(&self.path)?;
        let before = self.file.take();
        if there.is_err()
            && let Some(mut before) = before
            && before.metadata()?.is_file()
        {
            // What was deleted is still ours to read.
            let mut text = Vec::new();
            before.rewind()?;
            before.read_to_end(&mut text)?;
            self.torn = text.last().is_some_and(|b| *b != b'\n');
            if let Err(e) = file.write_all(&text) {
                // The next attempt begins with the whole text again.
                let _ = fs::remove_file(&self.path);
                self.file = Some(before);
                return Err(e);
            }
        }
        self.file = Some(file);
        self.bytes = 0;
        Ok(())
    }

    /// Whether something has cut the file short since it was last written to: events are missing
    /// then, and it may end in the middle of a line.
    fn find_cut(&mut self, bytes: u64) -> io::Result<()> {
        if bytes < self.bytes {
            self.cut_bytes += self.bytes - bytes;
            self.torn = text(&self.path)?.last().is_some_and(|b| *b != b'\n');
            self.bytes = bytes;
        }
        Ok(())
    }
}

/// Writes a line, on a new one if the last was `torn`, which says afterwards whether only a piece of
/// this one was taken.
fn put(file: &mut File, line: &[u8], torn: &mut bool) -> io::Result<()> {
    let whole;
    let line = match torn {
        true => {
            whole = [b"\n", line].concat();
            &whole[..]
        }
        false => line,
    };
    let mut rest = line;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => rest = &rest[n..],
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        // A lone newline before the line mends what was torn before.
        *torn = line[..line.len() - rest.len()].last() != Some(&b'\n');
    }
    Ok(())
}

/// A line, and what it tells.
#[derive(Debug)]
struct Line {
    text: Vec<u8>,
    what: What,
}

/// Lines that the disk has not taken.
#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Times the waiting events have changed.
    changes: u64,
    /// Lines that were let go.
    dropped: u64,
}

impl Waiting {
    fn push(&mut self, line: Line) {
        self.bytes += line.text.len();
        self.changes += 1;
        self.lines.push_back(line);
        while self.bytes > WAITING_BYTES_MAX && self.lines.len() > 1 {
            let oldest = self.lines.iter().position(|line| is_figure(&line.what)).unwrap_or(0);
            let gone = self.lines.remove(oldest).map_or(0, |line| line.text.len());
            self.bytes -= gone;
            self.dropped += 1;
        }
    }

    /// The next line to write: first of all that some are missing, which is no event.
    fn front(&self) -> Option<Vec<u8>> {
        let line = self.lines.front()?;
        Some(match self.dropped {
            0 => line.text.clone(),
            n => gap(&format!("{n} events could not be written")),
        })
    }

    fn pop_front(&mut self) {
        if std::mem::take(&mut self.dropped) > 0 {
            return;
        }
        let gone = self.lines.pop_front().map_or(0, |line| line.text.len());
        self.bytes -= gone;
        self.changes += 1;
    }
}

/// A line that is no event: some are missing here.
fn gap(why: &str) -> Vec<u8> {
    format!("{{\"gap\":\"{why}\"}}\n").into_bytes()
}

/// Whether an event is figures alone, which go first where room is scarce.
pub fn is_figure(what: &What) -> bool {
    matches!(what, What::Steps(_) | What::Dealt { .. })
}

/// The events of a run; a line that a crash tore is left out.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    Ok(events(&text(path)?).collect())
}

/// The events of a run, and what of its file is damaged, in words: where events may be missing.
pub fn read_marking_damage(path: &Path) -> io::Result<(Vec<Event>, Vec<String>)> {
    let text = match plain::read(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Ok((Vec::new(), vec![format!("`{FILE}` is not there")]));
        }
        read => read?,
    };
    let (mut events, mut damage) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.split(|b| *b == b'\n')) {
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(event) => events.push(event),
            Err(_) if damage.len() >= DAMAGE_MAX => {}
            Err(_) => damage.push(match serde_json::from_slice(line) {
                Ok(Gap { gap }) => format!("line {number} of `{FILE}`: {gap}"),
                Err(_) => format!("line {number} of `{FILE}` cannot be read"),
            }),
        }
    }
    Ok((events, damage))
}

#[derive(serde::Deserialize)]
struct Gap {
    gap: String,
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
    match plain::read(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

fn events(text: &[u8]) -> impl Iterator<Item = Event> {
    text.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests;
