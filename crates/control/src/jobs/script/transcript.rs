//! What is kept and shown of what the processes of a job write.
//!
//! Owns `logs/ROLE-INDEX.log` (as it came, without secrets), `metrics.jsonl` and the screen. A full
//! disk costs the log, never the job.

use crate::jobs::script::layout::{Layout, TORCHRUN};
use crate::jobs::script::show::{Name, Show};
use crate::talk::{Style, Talk};
use planaria_fleet::redact::{Redactor, Secrets};
use planaria_runs::clock;
use planaria_runs::failure::{Context, Result};
use planaria_runs::run_dir::LOGS;
use planaria_text::figures::{Figures, Latest, Metrics};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Last lines of a process that are kept to tell how it failed.
const LINES_MAX: usize = 80;

/// The transcript of one job.
pub struct Transcript<'s> {
    folder: PathBuf,
    talk: Talk,
    secrets: &'s Secrets,
    metrics: Option<File>,
    expressions: Metrics,
    writers: BTreeMap<String, Writer<'s>>,
    /// The name of each process, by its number in the round.
    names: Vec<String>,
    show: Show,
    /// The newest figures of the first process, and of all.
    latest: Latest,
    latest_of_all: Latest,
    points: u64,
}

struct Writer<'s> {
    log: Option<File>,
    redactor: Redactor<'s>,
    figures: Figures,
    last: VecDeque<String>,
}

impl<'s> Transcript<'s> {
    /// In a run's folder.
    pub fn open(
        folder: &Path,
        talk: Talk,
        secrets: &'s Secrets,
        expressions: Metrics,
    ) -> Result<Self> {
        let logs = folder.join(LOGS);
        std::fs::create_dir_all(&logs).context(|| format!("cannot create `{}`", logs.display()))?;
        let path = folder.join("metrics.jsonl");
        let metrics = OpenOptions::new().create(true).append(true).open(&path);
        let metrics = metrics.context(|| format!("cannot write `{}`", path.display()))?;
        Ok(Self {
            folder: folder.to_path_buf(),
            talk,
            secrets,
            metrics: Some(metrics),
            expressions,
            writers: BTreeMap::new(),
            names: Vec::new(),
            show: Show::new(talk.style, false, Vec::new()),
            latest: Latest::default(),
            latest_of_all: Latest::default(),
            points: 0,
        })
    }

    /// All processes begin, or begin again.
    pub fn begin(&mut self, layout: &Layout, are_here: bool) {
        self.flush();
        let name = |process: &crate::jobs::script::layout::Process| Name {
            process: process.title(),
            machine: match are_here && layout.seats.len() == 1 {
                true => String::new(),
                false => layout.seat(process).name.clone(),
            },
        };
        let names = layout.processes.iter().map(name).collect();
        self.show = Show::new(self.talk.style, self.talk.screen.colours(), names);
        self.names = layout.processes.iter().map(|process| process.slug()).collect();
        self.writers.values_mut().for_each(|writer| writer.last.clear());
    }

    /// A process goes on on another machine.
    pub fn moved(&mut self, id: u32, machine: &str) {
        if let Some(writer) =
            self.names.get(id as usize).and_then(|name| self.writers.get_mut(name))
        {
            writer.last.clear();
        }
        self.show.set_machine(id as usize, machine);
    }

    /// Columns and rows for a process that sees a terminal, if it is to see one.
    pub fn terminal(&self) -> Option<(u16, u16)> {
        let room = self.talk.screen.room();
        let columns = self.show.columns(room).clamp(20, 1000) as u16;
        (self.talk.style == Style::Live).then_some((columns, room.rows.clamp(2, 1000) as u16))
    }

    /// A process has written something.
    pub fn wrote(&mut self, id: u32, bytes: &[u8]) {
        let Some(name) = self.names.get(id as usize).cloned() else { return };
        let mut shown = Vec::new();
        let writer = self.writer(&name);
        writer.redactor.push(bytes, &mut |bytes| shown.extend_from_slice(bytes));
        self.take(id, &name, &shown);
    }

    /// A process has ended.
    pub fn ended(&mut self, id: u32) {
        let Some(name) = self.names.get(id as usize).cloned() else { return };
        let mut shown = Vec::new();
        self.writer(&name).redactor.finish(&mut |bytes| shown.extend_from_slice(bytes));
        self.take(id, &name, &shown);
        let lines = self.show.end(id as usize);
        self.read(id, &name, &lines);
    }

    /// Writes on the screen what is new.
    pub fn tick(&mut self, now_seconds: f64) {
        let room = self.talk.screen.room();
        let update = self.show.tick(now_seconds, room);
        self.talk.screen.update(&update.said, update.drawn, room);
    }

    /// Writes all that is left.
    pub fn flush(&mut self) {
        let update = self.show.close();
        self.talk.screen.update(&update.said, update.drawn, self.talk.screen.room());
    }

    /// The last lines of a process.
    pub fn last_lines(&self, slug: &str) -> Vec<String> {
        self.writers.get(slug).map_or_else(Vec::new, |writer| writer.last.iter().cloned().collect())
    }

    /// The newest figures of the first process, or, where it tells none, of any.
    pub fn latest(&self) -> &Latest {
        if self.latest == Latest::default() { &self.latest_of_all } else { &self.latest }
    }

    /// How far the first process has come by its own figures, where it tells epochs or steps.
    pub fn reached(&self) -> Option<String> {
        let figures = self.latest.figures();
        let told = |name: &str| figures.get(name).cloned().flatten();
        let told: Vec<_> = ["epoch", "step"].into_iter().filter_map(told).collect();
        (!told.is_empty()).then(|| format!("{told:?}"))
    }

    /// Lines of `metrics.jsonl` that were written.
    pub fn points(&self) -> u64 {
        self.points
    }

    fn take(&mut self, id: u32, name: &str, shown: &[u8]) {
        if shown.is_empty() {
            return;
        }
        if let Some(log) = &mut self.writer(name).log {
            // A full disk costs the log.
            let _ = log.write_all(shown);
        }
        let lines = self.show.push(id as usize, shown);
        self.read(id, name, &lines);
    }

    fn read(&mut self, id: u32, name: &str, lines: &[String]) {
        let now = clock::unix_seconds();
        for line in lines {
            let writer = self.writer(name);
            if writer.last.len() == LINES_MAX {
                writer.last.pop_front();
            }
            writer.last.push_back(line.clone());
            let Some(point) = writer.figures.read(line, now) else { continue };
            if let Some(metrics) = &mut self.metrics {
                let _ = metrics.write_all(point.text().as_bytes());
            }
            self.points += 1;
            self.latest_of_all.note(&point);
            // torchrun says itself which of its workers is the first.
            if id == 0 || name.starts_with(TORCHRUN) {
                self.latest.note(&point);
            }
        }
    }

    fn writer(&mut self, name: &str) -> &mut Writer<'s> {
        let (folder, secrets, expressions) = (&self.folder, self.secrets, &self.expressions);
        self.writers.entry(name.to_owned()).or_insert_with(|| {
            let path = folder.join(LOGS).join(format!("{name}.log"));
            Writer {
                log: OpenOptions::new().create(true).append(true).mode(0o600).open(path).ok(),
                redactor: Redactor::new(secrets),
                figures: Figures::with(name, expressions.clone()),
                last: VecDeque::new(),
            }
        })
    }
}
