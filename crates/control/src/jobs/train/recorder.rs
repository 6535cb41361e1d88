//! Events to what is kept and shown of them: metrics, TensorBoard, lines on stderr.
//!
//! A projection: it takes in events in their order, wherever they were decided, and everything shown
//! comes through here. A disk that takes nothing is warned about, once for each cause, and tried
//! again: it does not end a run that trains. Never decides anything, and never computes a figure.

use crate::jobs::train::pace::{Epochs, Pace};
use crate::stopping;
use crate::talk::Progress;
use planaria_protocol::event::{Event, Pulse, What};
use planaria_protocol::journal;
use planaria_recipe::Recipe;
use planaria_runs::clock;
use planaria_runs::failure::{Context, Result};
use planaria_runs::frame::Frame;
use planaria_runs::notices::{Notice, Notices};
use planaria_runs::run_dir::RunDir;
use planaria_runs::run_dir::metrics::{Line, Metrics};
use planaria_runs::sentence::epoch;
use planaria_runs::summary::Summary;
use planaria_runs::traces::tensorboard::{EventFiles, Hparams};
use std::collections::BTreeSet;

/// Warnings that are remembered, so that each is said once.
const WARNINGS_MAX: usize = 64;

/// Where a run's figures go.
#[derive(Debug)]
pub struct Recorder {
    metrics: Metrics,
    events: EventFiles,
    progress: Progress,
    /// What the events of this session add up to.
    summary: Summary,
    /// Known once the run has started.
    frame: Frame,
    notices: Notices,
    pace: Pace,
    /// What was warned about.
    warned: BTreeSet<String>,
}

impl Recorder {
    /// Opens the traces of a run of `recipe` after `step` steps and `epochs` whole epochs.
    pub fn open(
        run: &RunDir,
        recipe: &Recipe,
        (step, epochs): (u64, u64),
        progress: Progress,
    ) -> Result<Self> {
        let path = run.file(journal::FILE);
        let history =
            journal::read(&path).context(|| format!("cannot read `{}`", path.display()))?;
        let metrics =
            Metrics::begin(&run.file("metrics.jsonl"), Summary::of(&history).lines, step, epochs)?;
        let events = EventFiles::create(
            &run.file("tensorboard"),
            clock::unix_seconds(),
            Hparams::of(&run.id(), recipe),
            metrics.lines(),
        )?;
        Ok(Self {
            metrics,
            events,
            progress,
            summary: Summary::default(),
            frame: Frame::default(),
            notices: Notices::default(),
            pace: Pace::default(),
            warned: BTreeSet::new(),
        })
    }

    pub fn take(&mut self, event: &Event) {
        self.summary.take(event);
        self.frame = self.summary.frame();
        let notice = self.notices.of(event);
        // A signal is answered where it arrives.
        let is_answered = matches!(event.what, What::Stopping { .. }) && stopping::asked();
        let done = self.pace.take(event, self.frame.epochs);
        self.tell_epochs(done);
        match notice.filter(|_| !is_answered) {
            Some(Notice::Note(text)) => self.note(&text),
            Some(Notice::Plain(text)) => {
                self.tell_waiting();
                self.progress.note_if_plain(&text);
            }
            None => {}
        }
        if matches!(event.what, What::Scored { .. } | What::Ended { .. }) {
            self.tell_waiting();
        }
        if let Some(line) = Line::of(event) {
            self.push(line);
        }
        if let What::Recovered { step, .. } = &event.what {
            self.rewind(*step);
        }
        let ended = self.events.end(event, self.summary.step);
        self.warn_of(ended);
    }

    /// What the events of this session add up to.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Shows where the run is.
    pub fn pulse(&mut self, pulse: &Pulse) {
        self.progress.show(&self.frame, pulse);
    }

    /// Something worth a line that stays.
    pub fn note(&mut self, text: &str) {
        self.tell_waiting();
        self.progress.note(text);
    }

    /// Something to mend that does not stop the run; said once.
    pub fn warn(&mut self, text: &str) {
        if self.warned.len() < WARNINGS_MAX && self.warned.insert(text.to_owned()) {
            self.note(&format!("warning: {text}; it is tried again"));
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

    /// Epochs that had no line yet come before what is said next.
    fn tell_waiting(&mut self) {
        let waiting = self.pace.rest();
        self.tell_epochs(waiting);
    }

    fn tell_epochs(&mut self, done: Option<Epochs>) {
        let (epochs, columns) = (self.frame.epochs, self.progress.columns());
        if let Some(Epochs { first, last }) = done
            && let Some(text) = epoch(&last, Some((first, epochs)), columns)
        {
            self.progress.note(&text);
        }
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
