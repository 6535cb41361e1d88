//! The record of the run is written before a step counts, for as long as the disk takes it.
//!
//! Owns what happens when the disk fails: the old record is removed, because another coordinator
//! would believe it, and writing is tried again.

use super::Log;
use crate::kept;
use crate::record::{RecordFile, Stamp, discard};
use crate::run::record::{Record, summary};
use planaria_protocol::durable::Space;
use planaria_protocol::journal::Journal;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Time between two attempts to make a file again.
const AGAIN_EVERY: Duration = Duration::from_secs(1);

/// Where the record is kept.
#[derive(Debug)]
pub struct Keeping {
    folder: PathBuf,
    stamp: Stamp,
    space: Space,
    file: Option<RecordFile>,
    /// Why the last attempt failed, and when that was.
    failed: Option<(String, Duration)>,
    /// Whether weights could not be kept.
    unkept_weights: bool,
    /// The events that wait for the disk, in short, and when that was true.
    waiting: (u64, Vec<u8>),
}

impl Keeping {
    /// In `folder`, to be believed under this stamp. What is there stays until it is written over.
    pub fn new(folder: PathBuf, stamp: Stamp, space: Space) -> Self {
        // Room for a new one may be missing where there is an old one.
        let file = space.check().and_then(|()| RecordFile::create(&folder, &stamp));
        let file = file.or_else(|_| RecordFile::reuse(&folder, &stamp)).ok();
        Self {
            folder,
            stamp,
            space,
            file,
            failed: None,
            unkept_weights: false,
            waiting: (0, Vec::new()),
        }
    }

    /// Writes the record; while that fails, a loss of this process goes back to the last
    /// checkpoint.
    pub fn keep(&mut self, now: Duration, record: Record, journal: &Journal, log: &Log) {
        let failed = self.failed.as_ref();
        let is_soon = failed.is_some_and(|(_, at)| now.saturating_sub(*at) < AGAIN_EVERY);
        if self.file.is_none() && is_soon {
            return;
        }
        // What the disk has not taken is lost with this process, unless the record holds it.
        if self.waiting.0 != journal.changes() {
            self.waiting = (journal.changes(), summary(journal.waiting()));
        }
        match self.write(&record.with_summary(&self.waiting.1)) {
            Ok(()) if self.failed.is_some() => {
                self.failed = None;
                log("the record is kept again");
            }
            Ok(()) => {}
            Err(e) => {
                self.file = None;
                let left = discard(&self.folder).err();
                let left = left.map_or(String::new(), |e| format!("; the last one stays: {e}"));
                let why = format!(
                    "the record cannot be kept in `{}` ({e}{left}): if the coordinator is lost, \
                     the run goes back to its last checkpoint",
                    self.folder.display()
                );
                if self.failed.as_ref().is_none_or(|(before, _)| *before != why) {
                    log(&why);
                }
                self.failed = Some((why, now));
            }
        }
    }

    /// Keeps the state of a method that has some of its own. Where that fails, a loss of this process
    /// goes back to the last checkpoint.
    pub fn keep_state(&mut self, step: u64, weights: &[u8], log: &Log) {
        let kept = self.space.check().and_then(|()| kept::keep(&self.folder, step, weights));
        let had_failed = std::mem::replace(&mut self.unkept_weights, kept.is_err());
        match kept {
            Err(e) if !had_failed => log(&format!(
                "the weights cannot be kept in `{}` ({e}): if the coordinator is lost, the run \
                 goes back to its last checkpoint",
                self.folder.display()
            )),
            Ok(()) if had_failed => log("the weights are kept again"),
            _ => {}
        }
    }

    /// Takes the record away.
    pub fn forget(&mut self, log: &Log) {
        self.file = None;
        if let Err(e) = discard(&self.folder) {
            log(&format!("the record in `{}` stays: {e}", self.folder.display()));
        }
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        if self.file.is_none() {
            self.space.check()?;
            self.file = Some(RecordFile::create(&self.folder, &self.stamp)?);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write(&self.folder, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::read;
    use planaria_protocol::event::What;
    use planaria_protocol::journal;
    use planaria_protocol::state::State;
    use std::fs;
    use std::sync::{Arc, Mutex};

    fn stamp() -> Stamp {
        Stamp { boot: "boot".into(), data: String::new() }
    }

    fn record(step: u64) -> Record {
        Record::new(State { step, ..State::default() })
    }

    #[test]
    fn a_record_that_cannot_be_kept_is_not_believed_and_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        fs::create_dir(&folder).unwrap();
        let journal = Journal::open(&dir.path().join(journal::FILE), 1).unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let saying = said.clone();
        let log: Log = Arc::new(move |line: &str| saying.lock().unwrap().push(line.to_owned()));
        let step = || read(&folder, "boot").map(|(record, _)| record.state.step);

        let mut first = Keeping::new(folder.clone(), stamp(), Space::default());
        first.keep(Duration::ZERO, record(1), &journal, &log);
        first.keep(Duration::ZERO, record(2), &journal, &log);
        assert_eq!(step(), Some(2));

        // Another takes its place, and its first record cannot take its name.
        let mut next = Keeping::new(folder.clone(), stamp(), Space::default());
        fs::remove_file(folder.join("coordinator.record.new")).unwrap();
        assert_eq!(step(), Some(2), "it may be lost itself");
        next.keep(Duration::ZERO, record(3), &journal, &log);
        assert_eq!(step(), None, "another would believe what has been gone beyond");
        fs::remove_dir(&folder).unwrap();
        for second in [1, 2, 3] {
            next.keep(Duration::from_secs(second), record(3 + second), &journal, &log);
        }
        fs::create_dir(&folder).unwrap();
        next.keep(Duration::from_millis(3900), record(7), &journal, &log);
        assert_eq!(step(), None, "it is not tried with every step");
        next.keep(Duration::from_millis(4100), record(8), &journal, &log);
        next.keep(Duration::from_millis(4100), record(9), &journal, &log);
        assert_eq!(step(), Some(9));
        let said = said.lock().unwrap();
        assert!(said[0].contains("cannot be kept") && said.len() <= 3, "{said:?}");
        assert_eq!(said.last().unwrap(), "the record is kept again");
    }

    #[test]
    fn what_waits_for_the_disk_is_in_the_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(journal::FILE);
        let mut journal = Journal::open(&path, 1).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let mut keeping = Keeping::new(dir.path().to_path_buf(), stamp(), Space::default());
        let log: Log = Arc::new(|line: &str| panic!("{line}"));
        for step in 0..3000 {
            let read = std::iter::once(step).collect();
            let what = What::Committed { epoch: 0, first_step: step, end_step: step + 1, read };
            journal.record(0.0, 0.0, what).unwrap();
            keeping.keep(Duration::ZERO, record(step + 1), &journal, &log);
        }
        let untold = read(dir.path(), "boot").unwrap().0.take_untold(&[]);
        let read = (0..3000).collect();
        assert_eq!(untold, [What::Committed { epoch: 0, first_step: 0, end_step: 3000, read }]);
    }
}
