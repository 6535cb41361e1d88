//! Events to what is kept and shown of them: metrics, TensorBoard, lines on stderr.
//!
//! A projection: it takes in events in their order, wherever they were decided, and everything shown
//! comes through here. Never decides anything, and never computes a figure.

use crate::clock;
use crate::failure::Result;
use crate::progress::{Progress, View};
use crate::run_dir::RunDir;
use crate::run_dir::metrics::{Line, Metrics, Span};
use crate::traces::number::{duration, grouped, loss};
use crate::traces::tensorboard::EventFile;
use planaria_protocol::event::{Event, Figures, Pulse, What};

/// Where a run's figures go.
#[derive(Debug)]
pub struct Recorder {
    metrics: Metrics,
    events: EventFile,
    progress: Progress,
    /// Epochs and steps in all, once the run has started.
    epochs: u64,
    steps: u64,
}

impl Recorder {
    /// Opens the traces of a run after `step` steps and `epochs` whole epochs.
    pub fn open(run: &RunDir, step: u64, epochs: u64, progress: Progress) -> Result<Self> {
        let metrics = Metrics::resume(&run.file("metrics.jsonl"), step, epochs)?;
        let events =
            EventFile::create(&run.file("tensorboard"), clock::unix_seconds(), metrics.lines())?;
        Ok(Self { metrics, events, progress, epochs: 0, steps: 0 })
    }

    /// Something happened.
    pub fn take(&mut self, event: &Event) -> Result<()> {
        match &event.what {
            What::Started(started) => {
                self.epochs = started.epochs;
                self.steps = started.epochs * started.steps_per_epoch;
                Ok(())
            }
            What::Steps(figures) => self.push(line(Span::Steps, event, figures)),
            What::Epoch { figures, validation_loss, validation_accuracy, .. } => {
                let mut line = line(Span::Epoch, event, figures);
                line.validation_loss = *validation_loss;
                line.validation_accuracy = *validation_accuracy;
                self.progress.note(&epoch_text(&line, self.epochs, figures.training_seconds));
                self.push(line)
            }
            What::Lost { agent, reason } => {
                self.note(&format!("{agent} was lost: {reason}"));
                Ok(())
            }
            // Signals are answered where they arrive, and the end is told with its report.
            What::Joined { .. }
            | What::Dealt { .. }
            | What::Saved { .. }
            | What::Scored { .. }
            | What::Stopping { .. }
            | What::Ended { .. } => Ok(()),
        }
    }

    /// Shows where the run is.
    pub fn pulse(&mut self, pulse: &Pulse) {
        self.progress.show(
            pulse.seconds,
            &View {
                epoch: pulse.epoch,
                epochs: self.epochs,
                step: pulse.step,
                steps: self.steps,
                loss: pulse.loss,
                accuracy: pulse.accuracy,
                examples_per_second: pulse.examples_per_second,
                seconds_left: pulse.seconds_left,
            },
        );
    }

    /// Something worth a line that stays.
    pub fn note(&mut self, text: &str) {
        self.progress.note(text);
    }

    /// Makes what was recorded survive a power cut.
    pub fn sync(&self) -> Result<()> {
        self.metrics.sync()
    }

    /// All lines of the run.
    pub fn lines(&self) -> &[Line] {
        self.metrics.lines()
    }

    fn push(&mut self, line: Line) -> Result<()> {
        self.events.push(&line)?;
        self.metrics.push(line)
    }
}

fn line(span: Span, event: &Event, figures: &Figures) -> Line {
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
        validation_loss: None,
        validation_accuracy: None,
    }
}

/// The line that stays when an epoch is done.
fn epoch_text(line: &Line, epochs: u64, seconds: f64) -> String {
    let mut parts = vec![format!("epoch {}/{epochs}", line.epoch)];
    let mut add = |text: Option<String>| parts.extend(text);
    add(line.loss.map(|v| format!("loss {}", loss(v))));
    add(line.accuracy.map(|v| format!("acc {:.1}%", 100.0 * v)));
    add(line.validation_loss.map(|v| format!("val loss {}", loss(v))));
    add(line.validation_accuracy.map(|v| format!("val acc {:.2}%", 100.0 * v)));
    add(line.examples_per_second.map(|v| format!("{} ex/s", grouped(v.round() as u64))));
    add(Some(duration(seconds)));
    parts.join(" · ")
}
