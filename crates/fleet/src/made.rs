//! What a step made on a machine, known again by what the file system says of it.
//!
//! Owns the stamp of files and folders: what they are, and for files how long they are and when they
//! were written. It is taken when the set-up is over, so that what later steps made of a file counts
//! as made. Never reads what is in a file.

use planaria_store::hash::{Hasher, hex};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a step makes on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Absolute, or `~/…`.
    pub to: String,
    /// Inside of it, in a fixed order; an empty one is the file or folder itself.
    pub names: Vec<Vec<u8>>,
}

impl Made {
    /// Differs where anything of it is missing or was changed. `target` is where it is on this
    /// machine.
    pub fn stamp(&self, target: &Path) -> String {
        let mut hash = Hasher::new();
        for name in &self.names {
            let path = match name.is_empty() {
                true => target.to_path_buf(),
                false => target.join(OsStr::from_bytes(name)),
            };
            let seen = match fs::symlink_metadata(&path) {
                // A folder may have got other files, which are no matter of the step.
                Ok(meta) if meta.is_dir() => format!("folder {:o}", meta.mode()),
                Ok(meta) => {
                    let (mode, bytes) = (meta.mode(), meta.len());
                    format!("{mode:o} {bytes} {}.{:09}", meta.mtime(), meta.mtime_nsec())
                }
                // What may not be looked at cannot be told from what it was.
                Err(e) => format!("{:?}", e.kind()),
            };
            for part in [&name[..], seen.as_bytes()] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        hex(&hash.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_gone_or_changed_shows_and_another_beside_it_does_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(folder.path().join("in/x"), "x").unwrap();
        let names = ["", "in", "in/x"].map(|name| name.as_bytes().to_vec()).into();
        let made = Made { to: "/unused".into(), names };
        let stamp = || made.stamp(folder.path());
        let first = stamp();
        fs::write(folder.path().join("in/other"), "y").unwrap();
        assert_eq!(stamp(), first);
        fs::write(folder.path().join("in/x"), "longer").unwrap();
        let second = stamp();
        assert_ne!(second, first);
        fs::remove_file(folder.path().join("in/x")).unwrap();
        assert!(![first, second].contains(&stamp()));
    }
}
