//! `state/` in a run's folder: what processes keep, for others of their kind to go on from when they
//! are lost.
//!
//! Owns the folder; what is in it is the coordinator's and the servers'. It is of use to one session
//! only, so it is empty when a session begins, and gone when one has ended as it should.

use std::fs::{self, DirBuilder};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the folder.
pub const FOLDER: &str = "state";
/// How the names of what is kept begin.
const PREFIXES: [&str; 3] = ["coordinator", "record", "server-"];

/// Makes the folder, or what an earlier session left of it fit for a new one: nobody else can read
/// it, and nothing is kept in it. Says where it is from anywhere.
pub fn prepare(run: &Path) -> Result<PathBuf> {
    let folder = run.join(FOLDER);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            // Not through a link: it might lead anywhere.
            if !fs::symlink_metadata(&folder)?.is_dir() {
                return Err(Error::new(ErrorKind::NotADirectory, "it is not a folder"));
            }
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
            empty(&folder)?;
        }
        made => made?,
    }
    folder.canonicalize()
}

/// Removes the folder and all that is in it: the session it was for is over, and nothing is lost.
pub fn remove(run: &Path) {
    let folder = run.join(FOLDER);
    if fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
        // What cannot be removed is emptied by the next session.
        let _ = fs::remove_dir_all(folder);
    }
}

/// Removes what processes have kept, and nothing else.
fn empty(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_begins_with_an_empty_folder_of_its_own() {
        let run = tempfile::tempdir().unwrap();
        let folder = prepare(run.path()).unwrap();
        assert!(folder.is_absolute());
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for name in ["server-0-1-77.slots", "coordinator.record", "notes.txt"] {
            fs::write(folder.join(name), "x").unwrap();
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(prepare(run.path()).unwrap(), folder);
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
        remove(run.path());
        assert!(!folder.exists());
    }

    #[test]
    fn what_is_not_a_folder_is_left_alone() {
        let (run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("server-0"), "x").unwrap();
        std::os::unix::fs::symlink(other.path(), run.path().join(FOLDER)).unwrap();
        assert!(prepare(run.path()).is_err());
        remove(run.path());
        assert!(other.path().join("server-0").exists() && run.path().join(FOLDER).exists());
    }
}
