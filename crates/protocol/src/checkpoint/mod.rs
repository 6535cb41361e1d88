//! Checkpoints, format version 3: all that a run needs to go on with the same bits.
//!
//! A checkpoint is a folder: one or more [parts](part), each a range of the parameters with its
//! slots of the optimizer, and a [manifest] that names them all and is written last. A
//! folder without a manifest is not a checkpoint. Any number of readers can start from any number
//! of parts. [`CheckpointFolder`] is the folder of these folders.
//!
//! Owns the format. Never knows what the numbers mean.
//!
//! # Layout
//! - [`part`]: one file of weights; [`manifest`]: what belongs together
//! - `folder`: `last`, `best` and the newest few

mod folder;
pub mod manifest;
pub mod part;

pub use folder::{CheckpointFolder, Found};
pub use manifest::{Manifest, Mark, data_sha256};
pub use part::{Part, PartInfo, PartView, stream_part, write_part};

use std::ops::Range;
use std::path::{Path, PathBuf};

/// Name of the folder of checkpoints in a run's folder.
pub const FOLDER: &str = "checkpoints";
/// Version of this format.
pub const FORMAT: u32 = 3;

const MAGIC: &[u8; 8] = b"PLANARIA";

/// All that training changes, of all parameters or of a range of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Weights {
    pub parameters: Vec<f32>,
    pub state: Vec<f32>,
    /// The optimizer's slots, each as long as the parameters.
    pub optimizer: Vec<Vec<f32>>,
}

/// A checkpoint as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// What it belongs to.
    pub manifest: Manifest,
    /// What training had changed.
    pub weights: Weights,
}

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// None is there.
    #[error("there is no checkpoint `{}`", .0.display())]
    Missing(PathBuf),
    /// It is not what was written.
    #[error("checkpoint `{}` is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    /// Another version wrote it.
    #[error(
        "checkpoint `{}` has format version {found}, written by planaria {}; this planaria reads \
         version {FORMAT}",
        path.display(),
        planaria.as_deref().unwrap_or("of an earlier version")
    )]
    OtherFormat {
        path: PathBuf,
        found: u32,
        /// The version of planaria that wrote it, where it says so.
        planaria: Option<String>,
    },
    /// There are some, and all are damaged.
    #[error("no checkpoint is whole: {}", .0.join("; "))]
    NoneWhole(
        /// One sentence for each.
        Vec<String>,
    ),
    /// The folder cannot be looked into.
    #[error("cannot read `{}`: {error}", path.display())]
    Folder { path: PathBuf, error: std::io::Error },
}

/// Reads a checkpoint; everything is compared with its hashes.
pub fn read(folder: &Path) -> Result<Checkpoint, Unreadable> {
    let manifest = Manifest::read(folder)?;
    let all = 0..manifest.parameters;
    let weights = manifest
        .check()
        .and_then(|()| gather(folder, &manifest, all, true))
        .map_err(damaged(folder))?;
    Ok(Checkpoint { manifest, weights })
}

/// Reads a range of the parameters, with the state where the range begins at 0. Only the parts that
/// the range touches are read and compared.
pub fn read_range(folder: &Path, range: Range<u64>) -> Result<Checkpoint, Unreadable> {
    let manifest = Manifest::read(folder)?;
    let weights = manifest
        .check()
        .and_then(|()| {
            if range.start > range.end || range.end > manifest.parameters {
                return Err(format!("it has {} parameters, not {range:?}", manifest.parameters));
            }
            gather(folder, &manifest, range, false)
        })
        .map_err(damaged(folder))?;
    Ok(Checkpoint { manifest, weights })
}

/// Compares everything with its hashes, and keeps no weights.
pub fn verify(folder: &Path) -> Result<Manifest, Unreadable> {
    let manifest = Manifest::read(folder)?;
    let end = manifest.parameters;
    manifest
        .check()
        .and_then(|()| gather(folder, &manifest, end..end, true))
        .map_err(damaged(folder))?;
    Ok(manifest)
}

/// The weights of `range` from the parts that hold them; `all` compares the others as well.
fn gather(
    folder: &Path,
    manifest: &Manifest,
    range: Range<u64>,
    all: bool,
) -> Result<Weights, String> {
    let mut weights =
        Weights { optimizer: vec![Vec::new(); manifest.slots as usize], ..Weights::default() };
    for (number, part) in manifest.parts.iter().enumerate() {
        let with_state = number == 0 && range.start == 0;
        if all || part.is_in(number, &range) {
            let what = part::Wanted {
                step: manifest.step,
                slots: manifest.slots,
                state: if number == 0 { manifest.state_values } else { 0 },
                range: range.clone(),
                with_state,
            };
            part::read(folder, part, &what, &mut weights)
                .map_err(|why| format!("`{}` {why}", part.info.file))?;
        }
    }
    Ok(weights)
}

fn damaged(path: &Path) -> impl FnOnce(String) -> Unreadable {
    let path = path.to_path_buf();
    move |why| Unreadable::Damaged { path, why }
}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;
