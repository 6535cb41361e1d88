//! `metrics.jsonl`: one line of figures every few steps and at the end of each epoch.
//!
//! Owns the file and the lines read back from it. Never computes a figure.

use crate::failure::{Context, Result};
use planaria_protocol::durable;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
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

/// One line.
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
    /// Training speed.
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
}

/// The file, open for appending, and all its lines.
#[derive(Debug)]
pub struct Metrics {
    path: PathBuf,
    file: File,
    lines: Vec<Line>,
}

impl Metrics {
    /// Writes the file anew with `lines` as far as they are within `step` steps and `epochs` whole
    /// epochs, and goes on from there.
    pub fn begin(path: &Path, mut lines: Vec<Line>, step: u64, epochs: u64) -> Result<Self> {
        lines.retain(|line| match line.span {
            Span::Steps => line.step <= step,
            Span::Epoch => line.epoch <= epochs && line.step <= step,
        });
        let text: String = lines.iter().map(as_text).collect();
        durable::write(path, text.as_bytes())
            .context(|| format!("cannot write `{}`", path.display()))?;
        Self::append_to(path, lines)
    }

    /// Adds a line.
    pub fn push(&mut self, line: Line) -> Result<()> {
        self.file
            .write_all(as_text(&line).as_bytes())
            .context(|| format!("cannot write `{}`", self.path.display()))?;
        self.lines.push(line);
        Ok(())
    }

    /// Makes the lines so far survive a power cut; a checkpoint counts on them.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().context(|| format!("cannot write `{}`", self.path.display()))
    }

    /// All lines of the run.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    fn append_to(path: &Path, lines: Vec<Line>) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .context(|| format!("cannot open `{}`", path.display()))?;
        Ok(Self { path: path.to_path_buf(), file, lines })
    }
}

fn as_text(line: &Line) -> String {
    let mut text = serde_json::to_string(line).expect("a line has string keys only");
    text.push('\n');
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn line(span: Span, step: u64, epoch: u64) -> Line {
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
}
