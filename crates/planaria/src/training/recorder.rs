//! Takes in what happens in a run and passes it on: metrics, TensorBoard, the progress line.
//!
//! The run loop is the only source of events; everything shown comes through here, in order.
//! Never decides anything.

use crate::clock::{self, Stopwatch};
use crate::failure::Result;
use crate::progress::{Progress, View};
use crate::run_dir::RunDir;
use crate::run_dir::metrics::{Line, Metrics, Span};
use crate::traces::number::{duration, grouped, loss};
use crate::traces::tensorboard::EventFile;
use crate::training::state::{State, Tally};
use planaria_learn::Scores;

/// Lines of metrics by steps in a whole run, about.
const STEP_LINES: u64 = 400;

/// Where a run's figures go.
#[derive(Debug)]
pub struct Recorder {
    metrics: Metrics,
    events: EventFile,
    progress: Progress,
    session: Stopwatch,
    steps_before: u64,
    size: Size,
}

/// How long the run will be.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Epochs in all.
    pub epochs: u64,
    /// Steps in one of them.
    pub steps_per_epoch: u64,
    /// Whether examples have classes.
    pub classification: bool,
}

impl Size {
    /// Steps in all.
    pub fn steps(&self) -> u64 {
        self.epochs * self.steps_per_epoch
    }

    /// Steps between lines of metrics: a function of the recipe, so a resumed run writes the same.
    fn line_every(&self) -> u64 {
        self.steps().div_ceil(STEP_LINES).max(1)
    }
}

impl Recorder {
    /// Opens the traces of a run as `state` left them.
    pub fn open(run: &RunDir, state: &State, size: Size, progress: Progress) -> Result<Self> {
        let metrics = Metrics::resume(&run.file("metrics.jsonl"), state.step, state.epoch)?;
        let events =
            EventFile::create(&run.file("tensorboard"), clock::unix_seconds(), metrics.lines())?;
        let session = Stopwatch::start();
        Ok(Self { metrics, events, progress, session, steps_before: state.step, size })
    }

    /// A step was done.
    pub fn step(&mut self, state: &mut State, learning_rate: f32) -> Result<()> {
        let now = self.session.seconds();
        let done = state.step - self.steps_before;
        let left = self.size.steps().saturating_sub(state.step);
        self.progress.show(
            now,
            &View {
                epoch: state.epoch + 1,
                epochs: self.size.epochs,
                step: state.step,
                steps: self.size.steps(),
                loss: state.this_epoch.loss(),
                accuracy: self.accuracy(&state.this_epoch),
                examples_per_second: state.this_epoch.speed(),
                seconds_left: Some(now / done as f64 * left as f64),
            },
        );
        if !state.step.is_multiple_of(self.size.line_every()) {
            return Ok(());
        }
        let tally = std::mem::take(&mut state.since_line);
        let line = self.line(Span::Steps, state, &tally, learning_rate);
        self.push(line)
    }

    /// An epoch was done; `state` still counts it as under way.
    pub fn epoch(
        &mut self,
        state: &State,
        learning_rate: f32,
        validation: Option<&Scores>,
    ) -> Result<()> {
        let mut line = self.line(Span::Epoch, state, &state.this_epoch, learning_rate);
        line.validation_loss = validation.and_then(Scores::loss);
        line.validation_accuracy = validation.and_then(Scores::accuracy);
        self.progress.note(&epoch_text(&line, self.size.epochs, state.this_epoch.seconds));
        self.push(line)
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

    fn line(&self, span: Span, state: &State, tally: &Tally, learning_rate: f32) -> Line {
        Line {
            span,
            step: state.step,
            epoch: state.epoch + 1,
            loss: tally.loss(),
            accuracy: self.accuracy(tally),
            learning_rate,
            examples_per_second: tally.speed(),
            seconds: state.seconds_total,
            unix_seconds: clock::unix_seconds(),
            validation_loss: None,
            validation_accuracy: None,
        }
    }

    fn accuracy(&self, tally: &Tally) -> Option<f64> {
        tally.accuracy().filter(|_| self.size.classification)
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
