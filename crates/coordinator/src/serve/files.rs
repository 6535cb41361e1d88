//! What a coordinator writes: events, its record, checkpoints.
//!
//! Carries out the effects that go to the disk, for the process and the simulation alike. What takes
//! the disk long is handed back, to be done where the caller does not wait for it.

use super::Log;
use super::coordinator::{CheckpointBegun, Effect, Event};
use super::keeping::Keeping;
use crate::run::Snapshot;
use planaria_protocol::checkpoint::{CheckpointFolder, FOLDER, Manifest, PartView, write_part};
use planaria_protocol::event;
use planaria_protocol::journal::Journal;
use planaria_protocol::message::Trouble;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What is written to.
pub struct Files {
    pub journal: Journal,
    /// The run's checkpoints.
    pub checkpoint_folder: CheckpointFolder,
    /// Where the record is kept, if it is.
    pub keeping: Option<Keeping>,
    pub log: Log,
}

/// What is left to do of an effect.
pub enum Rest {
    Nothing,
    /// Tell the coordinator this.
    Tell(Event),
    /// Do this, and tell the coordinator what came of it.
    Slow(Slow),
    /// It does not go to the disk.
    Other(Effect),
}

/// Something that may take the disk longer than a step.
pub struct Slow {
    pub name: &'static str,
    pub work: Box<dyn FnOnce() -> Event + Send>,
    /// What came of it where it could not be begun.
    pub failed: Box<dyn FnOnce(String) -> Event + Send>,
}

impl Files {
    /// Carries out what an effect asks of the disk. `now` is since the coordinator began.
    pub fn carry_out(&mut self, now: Duration, effect: Effect) -> Result<Rest, Trouble> {
        match effect {
            Effect::Write(event) => self.write(&event)?,
            Effect::KeepRecord(record) => {
                if let Some(keeping) = &mut self.keeping {
                    keeping.keep(now, *record, &self.journal, &self.log);
                }
            }
            Effect::KeepState { step, state } => {
                if let Some(keeping) = &mut self.keeping {
                    keeping.keep_state(step, &state, &self.log);
                }
            }
            Effect::ForgetRecord => {
                if let Some(keeping) = &mut self.keeping {
                    keeping.forget(&self.log);
                }
            }
            Effect::BeginCheckpoint { step } => {
                let vanished = self.checkpoint_folder.vanished();
                let folder = self.checkpoint_folder.begin(step).map_err(|e| e.to_string());
                let begun = CheckpointBegun { step, folder, vanished };
                return Ok(Rest::Tell(Event::CheckpointBegun(begun)));
            }
            Effect::WritePart { folder, step, snapshot } => {
                return Ok(Rest::Slow(self.part(folder, step, snapshot)));
            }
            Effect::WriteManifest { folder, manifest, is_best } => {
                return Ok(Rest::Slow(self.manifest(folder, manifest, is_best)));
            }
            Effect::Abandon(folder) => self.checkpoint_folder.abandon(&folder),
            other => return Ok(Rest::Other(other)),
        }
        Ok(Rest::Nothing)
    }

    fn write(&mut self, event: &event::Event) -> Result<(), Trouble> {
        let had = self.journal.trouble().is_some();
        let written = self.journal.write(event);
        match self.journal.trouble() {
            Some(why) if !had => (self.log)(&format!("events wait for the disk: {why}")),
            None if had => (self.log)("the events that waited are written"),
            _ => {}
        }
        written.map_err(|e| Trouble::new(format!("cannot write events.jsonl: {e}")))
    }

    fn part(&self, folder: PathBuf, step: u64, snapshot: Arc<Snapshot>) -> Slow {
        let space = self.checkpoint_folder.space().clone();
        let work = move || {
            let Snapshot { parameters, state } = &*snapshot;
            let view = PartView { step, start: 0, parameters, slots: &[], state };
            let written = space
                .check()
                .and_then(|()| write_part(&folder, 0, &view))
                .map_err(|e| format!("cannot write `{}`: {e}", folder.display()));
            Event::PartWritten { step, written }
        };
        let failed = move |why| Event::PartWritten { step, written: Err(why) };
        Slow { name: "part", work: Box::new(work), failed: Box::new(failed) }
    }

    /// A checkpoint counts on the events before it, so they are made to last first.
    fn manifest(&self, folder: PathBuf, manifest: Box<Manifest>, is_best: bool) -> Slow {
        let (checkpoint_folder, events) = (self.checkpoint_folder.clone(), self.journal.handle());
        let work = move || {
            let written = events
                .and_then(|events| events.sync_data())
                .and_then(|()| checkpoint_folder.finish(&folder, &manifest, is_best))
                .map(|()| name(&folder))
                .map_err(|e| format!("cannot write checkpoint `{}`: {e}", folder.display()));
            Event::ManifestWritten(written)
        };
        let failed = |why| Event::ManifestWritten(Err(why));
        Slow { name: "manifest", work: Box::new(work), failed: Box::new(failed) }
    }
}

/// A checkpoint's name in the run's folder.
fn name(folder: &Path) -> String {
    format!("{FOLDER}/{}", folder.file_name().unwrap_or_default().display())
}
