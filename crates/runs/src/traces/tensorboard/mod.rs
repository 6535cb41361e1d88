//! TensorBoard event files: the curves of training and validation, and the run's settings.
//!
//! Owns which figures stand in which file. `train` and `validation` are folders of their own with the
//! same tags, so that TensorBoard draws their curves over each other; the folder above tells the tab
//! HPARAMS of the run. Files are made from lines of metrics and from how the run ended, so a resumed
//! run, or one whose files were spoilt, writes them anew. Never computes a figure.
//!
//! # Layout
//! - [`hparams`]: settings and final figures; [`bytes`]: records and messages

mod bytes;
mod hparams;

pub use hparams::Hparams;

use crate::failure::{Context, Result};
use crate::run_dir::metrics::{Line, Span, is_there};
use bytes::{record, scalar, summary_event, version_event};
use planaria_protocol::event::{Event, What};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// All event files of a run.
#[derive(Debug)]
pub struct EventFiles {
    /// Settings, final figures and the end.
    session: EventFile,
    train: EventFile,
    validation: EventFile,
    hparams: Hparams,
    /// Events about the end, once it has come.
    ending: Vec<Vec<u8>>,
}

impl EventFiles {
    /// Starts the event files in `folder` with the lines so far; files of earlier sessions, which may
    /// go beyond the step resumed from, are removed.
    pub fn create(
        folder: &Path,
        unix_seconds: f64,
        hparams: Hparams,
        lines: &[Line],
    ) -> Result<Self> {
        let file = |folder: PathBuf| EventFile { folder, unix_seconds, file: None };
        let mut files = Self {
            session: file(folder.to_path_buf()),
            train: file(folder.join("train")),
            validation: file(folder.join("validation")),
            hparams,
            ending: Vec::new(),
        };
        files.anew(lines)?;
        Ok(files)
    }

    /// Adds the last of all lines. What the disk does not take is written with the next.
    pub fn push(&mut self, lines: &[Line]) -> Result<()> {
        let Some(last) = lines.last() else { return Ok(()) };
        if let Some(event) = train_event(last) {
            self.train.push(event, || train_events(lines))?;
        }
        if let Some(event) = validation_event(last) {
            self.validation.push(event, || validation_events(lines))?;
        }
        Ok(())
    }

    /// Writes the files anew with these lines.
    pub fn anew(&mut self, lines: &[Line]) -> Result<()> {
        self.session.anew(session_events(&self.hparams, self.session.unix_seconds, &[]))?;
        self.ending.clear();
        self.train.anew(train_events(lines))?;
        let validation = validation_events(lines);
        // TensorBoard lists every folder with a file, also where there is no validation part.
        match validation.is_empty() {
            true => self.validation.remove(),
            false => self.validation.anew(validation),
        }
    }

    /// How good the final weights are, and how the run ended; other events are no concern of it.
    pub fn end(&mut self, event: &Event, step: u64) -> Result<()> {
        let values = match &event.what {
            What::Scored { loss, accuracy, errors, .. } => {
                let (rmse, r2) = (errors.map(|e| e.rmse), errors.and_then(|e| e.r2));
                hparams::figures([*loss, *accuracy, rmse, r2])
            }
            What::Ended { outcome, .. } => hparams::end(*outcome, event.unix_seconds),
            _ => return Ok(()),
        };
        let next = summary_event(event.unix_seconds, step, &values);
        self.ending.push(next.clone());
        let (hparams, began, ending) = (&self.hparams, self.session.unix_seconds, &self.ending);
        self.session.push(next, || session_events(hparams, began, ending))
    }
}

/// The only event file of a folder.
#[derive(Debug)]
struct EventFile {
    folder: PathBuf,
    /// When it began, in seconds since 1970.
    unix_seconds: f64,
    /// Nothing where the file is not as its events are: it is then written anew.
    file: Option<File>,
}

impl EventFile {
    /// Adds an event, or writes `all` of them where the file is not as it was left.
    fn push(&mut self, event: Vec<u8>, all: impl FnOnce() -> Vec<Vec<u8>>) -> Result<()> {
        let Some(file) = self.file.as_mut().filter(|f| is_there(f)) else {
            return self.anew(all());
        };
        let written = file.write_all(&record(&event));
        if written.is_err() {
            self.file = None;
        }
        written.context(|| format!("cannot write an event file in `{}`", self.folder.display()))
    }

    /// Writes the file anew with these events.
    fn anew(&mut self, events: Vec<Vec<u8>>) -> Result<()> {
        self.remove()?;
        let start = || -> std::io::Result<File> {
            fs::create_dir_all(&self.folder)?;
            let name = format!("events.out.tfevents.{:010}.planaria", self.unix_seconds as u64);
            let mut file = File::create(self.folder.join(name))?;
            let mut bytes = record(&version_event(self.unix_seconds));
            bytes.extend(events.iter().flat_map(|event| record(event)));
            file.write_all(&bytes)?;
            Ok(file)
        };
        let folder = self.folder.display();
        self.file = Some(start().context(|| format!("cannot start an event file in `{folder}`"))?);
        Ok(())
    }

    /// Takes away what earlier sessions have left in the folder, which need not be there.
    fn remove(&mut self) -> Result<()> {
        self.file = None;
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut old = entries.filter(|e| e.file_name().to_string_lossy().contains("tfevents"));
        let removed = old.try_for_each(|entry| fs::remove_file(entry.path()));
        removed.context(|| format!("cannot empty `{}`", self.folder.display()))
    }
}

fn session_events(hparams: &Hparams, unix_seconds: f64, ending: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let start = summary_event(unix_seconds, 0, &hparams.start(unix_seconds));
    std::iter::once(start).chain(ending.iter().cloned()).collect()
}

fn train_events(lines: &[Line]) -> Vec<Vec<u8>> {
    lines.iter().filter_map(train_event).collect()
}

fn validation_events(lines: &[Line]) -> Vec<Vec<u8>> {
    lines.iter().filter_map(validation_event).collect()
}

fn train_event(line: &Line) -> Option<Vec<u8>> {
    match line.span {
        Span::Steps => event(
            line,
            &[
                ("loss", line.loss),
                ("accuracy", line.accuracy),
                ("learning_rate", Some(f64::from(line.learning_rate))),
                ("examples_per_second", line.examples_per_second),
            ],
        ),
        Span::Epoch => event(line, &[("epoch_loss", line.loss), ("epoch_accuracy", line.accuracy)]),
    }
}

/// By steps, beside the training figures; and once more by the tags of whole epochs.
fn validation_event(line: &Line) -> Option<Vec<u8>> {
    let (loss, accuracy) = (line.validation_loss, line.validation_accuracy);
    event(
        line,
        &[
            ("loss", loss),
            ("accuracy", accuracy),
            ("epoch_loss", loss),
            ("epoch_accuracy", accuracy),
            ("rmse", line.validation_rmse),
            ("mae", line.validation_mae),
            ("r2", line.validation_r2),
        ],
    )
}

fn event(line: &Line, scalars: &[(&str, Option<f64>)]) -> Option<Vec<u8>> {
    let values: Vec<Vec<u8>> =
        scalars.iter().filter_map(|(tag, value)| Some(scalar(tag, (*value)?))).collect();
    (!values.is_empty()).then(|| summary_event(line.unix_seconds, line.step, &values))
}

#[cfg(test)]
mod tests;
