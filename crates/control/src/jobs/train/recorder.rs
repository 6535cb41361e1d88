//! Events to what is kept and shown of them: metrics, TensorBoard, lines on stderr.
//!
//! A projection: it takes in events in their order, wherever they were decided, and everything shown
//! comes through here. A disk that takes nothing is warned about, once for each cause, and tried
//! again: it does not end a run that trains. Never decides anything, and never computes a figure.

use crate::stopping;
use crate::talk::Progress;
use planaria_protocol::event::{Event, Figures, Pulse, What};
use planaria_protocol::journal;
use planaria_runs::clock;
use planaria_runs::failure::{Context, Result, plain};
use planaria_runs::frame::Frame;
use planaria_runs::number::{counted, duration, grouped, loss};
use planaria_runs::paint::fit;
use planaria_runs::run_dir::RunDir;
use planaria_runs::run_dir::metrics::{Line, Metrics, Span};
use planaria_runs::tidings::{Tiding, Tidings};
use planaria_runs::traces::tensorboard::EventFile;
use std::collections::BTreeSet;

/// Processes up to which each has a line when it joins.
const JOINED_LINES_MAX: u32 = 16;
/// Shares that are listed one by one.
const SHARES_MAX: usize = 16;
/// Warnings that are remembered, so that each is said once.
const WARNINGS_MAX: usize = 64;

/// Where a run's figures go.
#[derive(Debug)]
pub struct Recorder {
    metrics: Metrics,
    events: EventFile,
    progress: Progress,
    /// Known once the run has started.
    frame: Frame,
    /// Processes that are still to join.
    awaited: u32,
    /// Whether each that joins is worth a line.
    few: bool,
    dealt: bool,
    tidings: Tidings,
    /// What was warned about.
    warned: BTreeSet<String>,
}

impl Recorder {
    /// Opens the traces of a run after `step` steps and `epochs` whole epochs.
    pub fn open(run: &RunDir, step: u64, epochs: u64, progress: Progress) -> Result<Self> {
        let path = run.file(journal::FILE);
        let history =
            journal::read(&path).context(|| format!("cannot read `{}`", path.display()))?;
        let metrics = Metrics::begin(&run.file("metrics.jsonl"), lines(&history), step, epochs)?;
        let events =
            EventFile::create(&run.file("tensorboard"), clock::unix_seconds(), metrics.lines())?;
        Ok(Self {
            metrics,
            events,
            progress,
            frame: Frame::default(),
            awaited: 0,
            few: true,
            dealt: false,
            tidings: Tidings::default(),
            warned: BTreeSet::new(),
        })
    }

    /// Something happened.
    pub fn take(&mut self, event: &Event) {
        match self.tidings.of(event) {
            Some(Tiding::Note(text)) => self.progress.note(&text),
            Some(Tiding::Plain(text)) => self.progress.note_if_plain(&text),
            None => {}
        }
        match &event.what {
            What::Started(started) => {
                self.frame = Frame::of(started);
                self.awaited = started.workers + started.servers;
                self.few = self.awaited <= JOINED_LINES_MAX;
            }
            What::Steps(figures) => self.push(line(Span::Steps, event, figures)),
            What::Epoch { figures, .. } => {
                let line = line(Span::Epoch, event, figures);
                let columns = self.progress.columns();
                let text = epoch_text(&line, self.frame.epochs, figures.training_seconds, columns);
                self.progress.note(&text);
                self.push(line);
            }
            What::Recovered { step, .. } => self.rewind(*step),
            What::Joined { agent, pid, engine, threads, machine, .. } => {
                let means = (engine.as_deref(), *threads);
                self.joined(agent, *pid, means, machine.as_deref());
            }
            What::Dealt { step, shares, reason } => {
                let counts: Vec<String> =
                    shares.iter().map(|s| s.shards.len().to_string()).collect();
                let anew = if std::mem::replace(&mut self.dealt, true) { " anew" } else { "" };
                let text = format!(
                    "shards are dealt{anew} from step {}, {}: {reason}",
                    step + 1,
                    shortened(&counts)
                );
                self.progress.note_if_plain(&text);
            }
            What::Stopping { reason } if reason != stopping::REASON => {
                self.note(&format!("stopping: {reason}"));
            }
            // Told above, or for audits alone. Signals are answered where they arrive, and the end
            // is told with its report.
            What::Lost { .. }
            | What::Suspected { .. }
            | What::Regained { .. }
            | What::Healed { .. }
            | What::Restarted { .. }
            | What::Scaled { .. }
            | What::Resized { .. }
            | What::Machine { .. }
            | What::Released { .. }
            | What::Paused { .. }
            | What::Unpaused { .. }
            | What::Committed { .. }
            | What::NotSaved { .. }
            | What::Worked(_)
            | What::Vanished { .. }
            | What::Saved { .. }
            | What::Scored { .. }
            | What::Stopping { .. }
            | What::Ended { .. } => {}
        }
    }

    fn joined(
        &mut self,
        agent: &str,
        pid: u32,
        (engine, threads): (Option<&str>, Option<u32>),
        machine: Option<&str>,
    ) {
        let (is_new, back) = self.tidings.joined(agent, pid);
        if let Some(back) = back {
            return self.progress.note(&back);
        }
        if !is_new {
            // A process that has joined again, under a new generation.
            return;
        }
        self.awaited = self.awaited.saturating_sub(1);
        if self.few {
            let means = engine.map(|engine| {
                format!("{engine}, {}", counted(u64::from(threads.unwrap_or(1)), "thread"))
            });
            // Elsewhere its number is the controller's own, and tells nobody anything.
            let process = machine.is_none().then(|| format!("process {pid}"));
            let words: Vec<String> = process.into_iter().chain(means).collect();
            let what = match words.is_empty() {
                true => String::new(),
                false => format!(" ({})", words.join(", ")),
            };
            let machine = machine.map_or_else(String::new, |name| format!(" on {}", plain(name)));
            self.progress.note_if_plain(&format!("{agent} joined{machine}{what}"));
        } else if self.awaited == 0 {
            self.progress.note_if_plain("every process has joined");
        }
    }

    /// Shows where the run is.
    pub fn pulse(&mut self, pulse: &Pulse) {
        self.progress.show(&self.frame, pulse);
    }

    /// Something worth a line that stays.
    pub fn note(&mut self, text: &str) {
        self.progress.note(text);
    }

    /// Something to mend that does not stop the run; said once.
    pub fn warn(&mut self, text: &str) {
        if self.warned.len() < WARNINGS_MAX && self.warned.insert(text.to_owned()) {
            self.progress.note(&format!("warning: {text}; it is tried again"));
        }
    }

    /// Makes what was recorded survive a power cut, as far as the disk lets it.
    pub fn sync(&mut self) {
        let synced = self.metrics.sync();
        self.warn_of(synced);
    }

    /// All lines of the run.
    pub fn lines(&self) -> &[Line] {
        self.metrics.lines()
    }

    fn push(&mut self, line: Line) {
        let again = |l: &Line| l.span == line.span && l.step >= line.step;
        if self.lines().iter().any(again) {
            // Told again after a loss.
            self.rewind(line.step.saturating_sub(1));
        }
        let pushed = self.metrics.push(line);
        self.warn_of(pushed);
        let pushed = self.events.push(self.metrics.lines());
        self.warn_of(pushed);
    }

    /// Forgets what lies beyond `step` steps: it is done again.
    fn rewind(&mut self, step: u64) {
        if self.lines().iter().all(|line| line.step <= step) {
            return;
        }
        let rewound = self.metrics.rewind(step, u64::MAX);
        self.warn_of(rewound);
        let rewound = self.events.anew(self.metrics.lines());
        self.warn_of(rewound);
    }

    fn warn_of(&mut self, done: Result<()>) {
        if let Err(failure) = done {
            self.warn(&failure.message);
        }
    }
}

/// The lines of a run's history. What a session did beyond the step that a later one began from
/// was done again, and the later counts.
fn lines(history: &[Event]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for event in history {
        let next = match &event.what {
            What::Steps(figures) => line(Span::Steps, event, figures),
            What::Epoch { figures, .. } => line(Span::Epoch, event, figures),
            What::Recovered { step, .. } => {
                lines.retain(|line| line.step <= *step);
                continue;
            }
            _ => continue,
        };
        let same = |l: &Line| l.span == next.span;
        if lines.iter().rfind(|l| same(l)).is_some_and(|last| last.step >= next.step) {
            lines.retain(|l| !same(l) || l.step < next.step);
        }
        lines.push(next);
    }
    lines
}

fn line(span: Span, event: &Event, figures: &Figures) -> Line {
    let (validation_loss, validation_accuracy) = match &event.what {
        What::Epoch { validation_loss, validation_accuracy, .. } => {
            (*validation_loss, *validation_accuracy)
        }
        _ => (None, None),
    };
    Line {
        span,
        step: figures.step,
        epoch: figures.epoch,
        loss: figures.loss,
        accuracy: figures.accuracy,
        learning_rate: figures.learning_rate,
        examples_per_second: figures.examples_per_second,
        seconds: event.seconds,
        unix_seconds: event.unix_seconds,
        validation_loss,
        validation_accuracy,
    }
}

/// The line that stays when an epoch is done.
fn epoch_text(line: &Line, epochs: u64, seconds: f64, columns: usize) -> String {
    let mut parts = vec![(6, format!("epoch {}/{epochs}", line.epoch))];
    let mut add = |rank, text: Option<String>| parts.extend(text.map(|text| (rank, text)));
    add(3, line.loss.map(|v| format!("loss {}", loss(v))));
    add(2, line.accuracy.map(|v| format!("acc {:.1}%", 100.0 * v)));
    add(4, line.validation_loss.map(|v| format!("val loss {}", loss(v))));
    add(5, line.validation_accuracy.map(|v| format!("val acc {:.2}%", 100.0 * v)));
    add(1, line.examples_per_second.map(|v| format!("{} ex/s", grouped(v.round() as u64))));
    add(0, Some(duration(seconds)));
    fit(parts, columns)
}

/// `3/3/2`, of many only the first.
fn shortened(counts: &[String]) -> String {
    let shown = counts[..counts.len().min(SHARES_MAX)].join("/");
    if counts.len() > SHARES_MAX { format!("{shown}/…") } else { shown }
}
