//! `metrics.jsonl`: one line of figures every few steps and at the end of each epoch.
//!
//! Owns the file, which follows from the lines: one that is torn, deleted or not whole because the
//! disk was full is written anew. Never computes a figure.

use crate::failure::{Context, Result};
use planaria_protocol::durable;
use planaria_protocol::event::{Event, Figures, What};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a line covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Span {
    /// The steps since the last such line.
    Steps,
    /// A whole epoch, with validation.
    Epoch,
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What the figures cover.
    pub span: Span,
    /// Steps done.
    pub step: u64,
    /// Epoch the step belongs to, from 1.
    pub epoch: u64,
    /// Mean training loss.
    pub loss: Option<f64>,
    /// Share of training examples classified right, as they were seen.
    pub accuracy: Option<f64>,
    /// Learning rate of the last step.
    pub learning_rate: f32,
    pub examples_per_second: Option<f64>,
    /// Seconds since the run began, pauses left out.
    pub seconds: f64,
    /// Seconds since 1970.
    pub unix_seconds: f64,
    /// Mean loss on the validation part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Accuracy on the validation part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_accuracy: Option<f64>,
    /// Root of the mean squared error on the validation part, in the label's units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_rmse: Option<f64>,
    /// Mean absolute error on the validation part, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_mae: Option<f64>,
    /// Share of the labels' variance that predictions explain, on the validation part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_r2: Option<f64>,
}

impl Line {
    /// The figures of an event; nothing where it has none.
    pub fn of(event: &Event) -> Option<Self> {
        match &event.what {
            What::Steps(figures) => Some(Self::with(event, Span::Steps, figures)),
            What::Epoch {
                figures,
                validation_loss,
                validation_accuracy,
                validation_errors,
                ..
            } => Some(Self {
                validation_loss: *validation_loss,
                validation_accuracy: *validation_accuracy,
                validation_rmse: validation_errors.map(|errors| errors.rmse),
                validation_mae: validation_errors.map(|errors| errors.mae),
                validation_r2: validation_errors.and_then(|errors| errors.r2),
                ..Self::with(event, Span::Epoch, figures)
            }),
            _ => None,
        }
    }

    /// Figures of training alone.
    fn with(event: &Event, span: Span, figures: &Figures) -> Self {
        Self {
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
            validation_rmse: None,
            validation_mae: None,
            validation_r2: None,
        }
    }
}

/// The file, open for appending, and all its lines.
#[derive(Debug)]
pub struct Metrics {
    path: PathBuf,
    /// Nothing where the file is not as the lines are: it is then written anew.
    file: Option<File>,
    lines: Vec<Line>,
}

impl Metrics {
    /// Writes the file anew with `lines` as far as they are within `step` steps and `epochs` whole
    /// epochs, and goes on from there.
    pub fn begin(path: &Path, lines: Vec<Line>, step: u64, epochs: u64) -> Result<Self> {
        let mut metrics = Self { path: path.to_path_buf(), file: None, lines };
        metrics.rewind(step, epochs)?;
        Ok(metrics)
    }

    /// Forgets what lies beyond `step` steps and `epochs` whole epochs: it will be done again.
    pub fn rewind(&mut self, step: u64, epochs: u64) -> Result<()> {
        self.lines.retain(|line| match line.span {
            Span::Steps => line.step <= step,
            Span::Epoch => line.epoch <= epochs && line.step <= step,
        });
        self.file = None;
        self.catch_up()
    }

    /// Adds a line. What the disk does not take is written with the next.
    pub fn push(&mut self, line: Line) -> Result<()> {
        let text = as_text(&line);
        self.lines.push(line);
        match &mut self.file {
            Some(file) if is_there(file) => {
                let written = file.write_all(text.as_bytes());
                if written.is_err() {
                    self.file = None;
                }
                written.context(|| format!("cannot write `{}`", self.path.display()))
            }
            _ => self.catch_up(),
        }
    }

    /// Makes the lines so far survive a power cut; a checkpoint counts on them.
    pub fn sync(&mut self) -> Result<()> {
        self.catch_up()?;
        let synced = self.file.as_ref().map_or(Ok(()), File::sync_data);
        synced.context(|| format!("cannot write `{}`", self.path.display()))
    }

    /// All lines of the run.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Writes the file anew where it is not as the lines are.
    fn catch_up(&mut self) -> Result<()> {
        if self.file.as_ref().is_some_and(is_there) {
            return Ok(());
        }
        let anew = || {
            write(&self.path, &self.lines)?;
            OpenOptions::new().append(true).open(&self.path)
        };
        self.file = Some(anew().context(|| format!("cannot write `{}`", self.path.display()))?);
        Ok(())
    }
}

/// Writes the file with exactly these lines.
pub fn write(path: &Path, lines: &[Line]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let text: String = lines.iter().map(as_text).collect();
    durable::write(path, text.as_bytes())
}

/// Whether a file that is open has not been deleted.
pub fn is_there(file: &File) -> bool {
    file.metadata().is_ok_and(|m| m.nlink() > 0)
}

fn as_text(line: &Line) -> String {
    let mut text = serde_json::to_string(line).expect("a line has string keys only");
    text.push('\n');
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn line(span: Span, step: u64, epoch: u64) -> Line {
        Line {
            span,
            step,
            epoch,
            loss: Some(1.0 / (step as f64 + 3.0)),
            accuracy: Some(0.5),
            learning_rate: 0.07,
            examples_per_second: Some(1234.5),
            seconds: step as f64 * 0.1,
            unix_seconds: 1e9 + step as f64,
            validation_loss: (span == Span::Epoch).then_some(0.3),
            validation_accuracy: (span == Span::Epoch).then_some(0.9),
            validation_rmse: None,
            validation_mae: None,
            validation_r2: None,
        }
    }

    #[test]
    fn what_lies_beyond_the_checkpoint_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let all = [
            line(Span::Steps, 5, 1),
            line(Span::Steps, 10, 1),
            line(Span::Epoch, 10, 1),
            line(Span::Steps, 15, 2),
        ];
        let check = |step, epochs, expect: &[Line]| {
            let mut metrics = Metrics::begin(&path, all.to_vec(), step, epochs).unwrap();
            assert_eq!(metrics.lines(), expect);
            let next = line(Span::Steps, 30, 3);
            metrics.push(next.clone()).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let read = text.lines().map(|l| serde_json::from_str::<Line>(l).unwrap());
            assert!(read.eq(expect.iter().cloned().chain([next])), "{text}");
        };
        check(20, 1, &all);
        check(12, 1, &all[..3]);
        check(10, 0, &all[..2]);
        check(0, 0, &[]);
    }

    #[test]
    fn a_file_that_was_spoilt_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/metrics.jsonl");
        let all: Vec<Line> = (1..6).map(|n| line(Span::Steps, n, 1)).collect();
        let mut metrics = Metrics::begin(&path, Vec::new(), 0, 0).unwrap();
        let whole = |n: usize| all[..n].iter().map(as_text).collect::<String>();
        metrics.push(all[0].clone()).unwrap();
        fs::remove_file(&path).unwrap();
        metrics.push(all[1].clone()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), whole(2));
        fs::remove_dir_all(dir.path().join("run")).unwrap();
        metrics.push(all[2].clone()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), whole(3));
        // A disk that takes nothing: the line waits for the next.
        metrics.file = Some(OpenOptions::new().append(true).open("/dev/full").unwrap());
        assert!(metrics.push(all[3].clone()).is_err());
        metrics.push(all[4].clone()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), whole(5));
    }
}
