//! A script's files: to the machines of a pool, and back.
//!
//! Owns what is listed here, what each machine keeps of it by content, the work folder in which it is
//! laid out, and what comes back from there. Never starts anything.
//!
//! # Layout
//! - [`code`]: what a folder here holds; [`send`]: its way to a machine
//! - `service`: the host's side, with `store` (contents by hash) and `work` (the work folder)
//! - [`copy`]: a second copy of a run's checkpoints
//! - [`find`]: which files match, and reading them; [`outputs`]: what came back

pub mod code;
pub mod copy;
pub mod find;
pub mod outputs;
pub mod send;
pub(crate) mod service;
mod store;
mod work;

pub use code::{Code, Listing};
pub use find::Patterns;
pub use outputs::Outputs;
pub use send::Sent;

use crate::messages::questions::{Entry, Hash, What};
use planaria_store::hash::Hasher;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Longest path, in bytes.
const PATH_BYTES_MAX: usize = 4000;
/// Bytes read at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// Entries, and where their contents are here.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    pub entries: Vec<Entry>,
    /// By content: a file here that has it, and its length.
    pub sources: BTreeMap<Hash, (PathBuf, u64)>,
}

impl Bundle {
    /// Length of all files together.
    pub fn bytes(&self) -> u64 {
        let bytes = |entry: &Entry| match entry.what {
            What::File { bytes, .. } => bytes,
            _ => 0,
        };
        self.entries.iter().map(bytes).sum()
    }

    pub fn files(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.what, What::File { .. })).count()
    }
}

/// Whether a path can only lead to somewhere below the folder that it is joined to, links aside.
pub fn is_inside(path: &str) -> bool {
    let normal = |part| matches!(part, Component::Normal(_));
    !path.is_empty()
        && path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && !path.ends_with('/')
        && Path::new(path).components().all(normal)
}

/// Whether a link at `path` that leads to `to` stays in the folder that `path` is relative to.
fn leads_inside(path: &str, to: &str) -> bool {
    let mut depth = path.split('/').count() - 1;
    let to_path = Path::new(to);
    if to.is_empty() || to.len() > PATH_BYTES_MAX || to.contains('\0') || to_path.is_absolute() {
        return false;
    }
    for part in to_path.components() {
        match (part, depth) {
            (Component::ParentDir, 0) => return false,
            (Component::ParentDir, _) => depth -= 1,
            (Component::Normal(_), _) => depth += 1,
            _ => {}
        }
    }
    true
}

/// Makes the folders above a path, one after another, never through a link; says where the path
/// itself is.
fn make_way(root: &Path, path: &str) -> io::Result<PathBuf> {
    if !is_inside(path) {
        return Err(io::Error::other(format!("`{path}` leads out of the folder")));
    }
    let mut place = root.to_path_buf();
    let mut parts = Path::new(path).components().peekable();
    while let Some(part) = parts.next() {
        place.push(part);
        if parts.peek().is_some() {
            make_folder(&place)?;
        }
    }
    Ok(place)
}

/// Makes a folder unless it is there; a link to one is none.
fn make_folder(place: &Path) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::other(format!("`{}` is no folder", place.display()))),
        Err(_) => match fs::create_dir(place) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(about(place, &e)),
            _ => Ok(()),
        },
    }
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write `{}`: {error}", path.display()))
}

/// The hash and length of a file.
fn hash_file(path: &Path) -> io::Result<(Hash, u64)> {
    let mut file = File::open(path)?;
    let (mut hash, mut bytes) = (Hasher::new(), 0);
    let mut block =
        vec![0; BLOCK_BYTES.min(usize::try_from(file.metadata()?.len()).unwrap_or(0) + 1)];
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok((hash.finish(), bytes));
        }
        hash.update(&block[..read]);
        bytes += read as u64;
    }
}

/// When a file was written, in nanoseconds since 1970.
fn mtime_ns(meta: &fs::Metadata) -> i64 {
    use std::os::unix::fs::MetadataExt;
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

/// Sets when a file was written.
fn set_mtime(file: &File, mtime_ns: i64) -> io::Result<()> {
    let since = std::time::Duration::from_nanos(u64::try_from(mtime_ns).unwrap_or(0));
    file.set_modified(std::time::SystemTime::UNIX_EPOCH + since)
}

/// `12.3 MiB`.
pub fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

#[cfg(test)]
mod tests;
