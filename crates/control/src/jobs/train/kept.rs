//! `state/` in a run's folder: what processes keep, for others of their kind to go on from when they
//! are lost.
//!
//! Owns the folder; what is in it is the coordinator's and the servers'. A session that follows one
//! whose command was killed goes on from it; when one has ended as it should it is gone.

use planaria_coordinator::record;
use planaria_coordinator::run::record::Record;
use planaria_protocol::checkpoint::{Mark, data_sha256};
use planaria_runs::failure::Failure;
use std::fs::{self, DirBuilder};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the folder.
pub const FOLDER: &str = "state";

/// Makes the folder, or the one that an earlier session left fit for a new one: no other user can read
/// it. Says where it is from anywhere.
pub fn prepare(run: &Path) -> std::io::Result<PathBuf> {
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
    left(run).map(|(record, _)| record)
}

fn left(run: &Path) -> Option<(Record, String)> {
    let folder = run.join(FOLDER);
    let is_folder = fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
    is_folder.then(|| record::read(&folder, &boot_id())).flatten()
}

/// Refuses to go on with what was kept over other data than `data`, where no checkpoint says which
/// it was.
pub fn check_data(run: &Path, data_name: &str, data: &[Mark]) -> Result<(), Failure> {
    match left(run) {
        Some((record, kept)) if kept != data_sha256(data) => Err(Failure::user(format!(
            "the content of `{data_name}` was changed after the run began: `{}` was kept after \
             step {} over other data",
            run.join(FOLDER).display(),
            record.state.step
        ))
        .hint("put it back as it was, or start a new run with `planaria train`")),
        _ => Ok(()),
    }
}

/// Which boot of the machine this is: what is only in memory does not outlive it.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_coordinator::record::{RecordFile, Stamp};
    use planaria_protocol::state::State;

    #[test]
    fn what_was_kept_over_other_data_is_refused() {
        let run = tempfile::tempdir().unwrap();
        let mark = |content: &str| vec![Mark { name: "a".into(), content: content.into() }];
        check_data(run.path(), "rows.csv", &mark("1")).unwrap();
        let folder = prepare(run.path()).unwrap();
        let stamp = Stamp { boot: boot_id(), data: data_sha256(&mark("1")) };
        let mut file = RecordFile::create(&folder, &stamp).unwrap();
        let state = State { step: 40, ..State::default() };
        file.write(&folder, &Record::new(state)).unwrap();
        check_data(run.path(), "rows.csv", &mark("1")).unwrap();
        let refused = check_data(run.path(), "rows.csv", &mark("2")).unwrap_err().to_string();
        assert!(refused.contains("the content of `rows.csv` was changed"), "{refused}");
        assert!(refused.contains("was kept after step 40 over other data"), "{refused}");
    }

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
