//! `state/` in a run's folder: what processes keep, for others of their kind to go on from when they
//! are lost.
//!
//! Owns the folder; what is in it is the coordinator's and the servers'. A session that follows one
//! whose command was killed goes on from it; when one has ended as it should it is gone.

use planaria_coordinator::record;
use planaria_coordinator::run::record::Record;
use std::fs::{self, DirBuilder};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the folder.
pub const FOLDER: &str = "state";

/// Makes the folder, or the one that an earlier session left fit for a new one: no other user can read
/// it. Says where it is from anywhere.
pub fn prepare(run: &Path) -> Result<PathBuf> {
    let folder = run.join(FOLDER);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            // Not through a link: it might lead anywhere.
            if !fs::symlink_metadata(&folder)?.is_dir() {
                return Err(Error::new(ErrorKind::NotADirectory, "it is not a folder"));
            }
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
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

/// What a coordinator that was lost, its command and all, has left of the run, if the machine has
/// not been started anew since. Later than any checkpoint before it.
pub fn record(run: &Path) -> Option<Record> {
    let folder = run.join(FOLDER);
    let is_folder = fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
    is_folder.then(|| record::read(&folder, &boot_id())).flatten()
}

/// Which boot of the machine this is: what is only in memory does not outlive it.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_user_can_read_what_is_kept() {
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
        assert!(fs::read_dir(&folder).unwrap().count() >= 3, "a session may go on from it");
        assert_eq!(record(run.path()), None, "what is not whole is not believed");
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
