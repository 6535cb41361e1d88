//! What the coordinator itself writes of a checkpoint: its folder and its manifest.

use super::coordinator::{CheckpointBegun, Event};
use planaria_protocol::checkpoint::{Manifest, Shelf};
use std::fs::File;
use std::io;
use std::path::Path;

/// Makes a folder for a checkpoint of these steps.
pub fn begin(shelf: &Shelf, step: u64) -> CheckpointBegun {
    let vanished = shelf.vanished();
    let folder = shelf.begin(step).map_err(|e| format!("its folder cannot be made: {e}"));
    CheckpointBegun { step, folder, vanished }
}

/// Makes the parts in a folder a checkpoint. It counts on the events so far: they are made to last
/// first.
pub fn finish(
    shelf: &Shelf,
    events: io::Result<File>,
    folder: &Path,
    manifest: &Manifest,
    is_best: bool,
) -> Event {
    let finished = events
        .and_then(|events| events.sync_data())
        .and_then(|()| shelf.finish(folder, manifest, is_best));
    Event::ManifestWritten(match finished {
        Ok(()) => Ok(format!("checkpoints/{}", folder.file_name().unwrap_or_default().display())),
        Err(e) => Err(format!("cannot write `{}`: {e}", folder.display())),
    })
}
