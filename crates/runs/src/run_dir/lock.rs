//! `.lock`: which process works on a run.
//!
//! Owns the file: the lock on it says that the run lives, its content which process holds it. The
//! system lets go of the lock however that process ends. Never signals anyone.

use crate::failure::{Context, Failure, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Name of the file in a run's folder.
const FILE: &str = ".lock";
/// How often a lock is tried: a look at whether it is held holds it for a moment.
const TRIES: u32 = 5;
/// Time between tries.
const BETWEEN: Duration = Duration::from_millis(20);

/// What is after the number of a process that a signal would end at once.
const DEAF: &str = " does not listen for signals";

/// Whether a signal leads to a clean stop of this process.
static LISTENS: AtomicBool = AtomicBool::new(false);

/// From here on a signal makes this process save and stop; locks that it takes say so.
pub fn listens() {
    LISTENS.store(true, Ordering::SeqCst);
}

/// A run's lock, held by this process.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes the lock of the run in `folder`.
    pub fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        // What is in it is another's until the lock is held.
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(&path);
        let file = file.context(|| format!("cannot open `{}`", path.display()))?;
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < TRIES => {
                    std::thread::park_timeout(BETWEEN)
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Failure::user(format!(
                        "run `{}` is in use by another planaria process",
                        folder.display()
                    ))
                    .hint("wait for it to end, or stop it with `planaria stop`"));
                }
                Err(TryLockError::Error(e)) => {
                    return Err(Failure::failed(format!("cannot lock `{}`: {e}", path.display())));
                }
            }
        }
        let mut lock = Self(file);
        lock.sign().context(|| format!("cannot write `{}`", path.display()))?;
        Ok(lock)
    }

    fn sign(&mut self) -> std::io::Result<()> {
        self.0.set_len(0)?;
        let deaf = if LISTENS.load(Ordering::SeqCst) { "" } else { DEAF };
        self.0.write_all(format!("{}{deaf}\n", std::process::id()).as_bytes())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Without a name in it no process can be signalled by mistake.
        let _ = self.0.set_len(0);
    }
}

/// Who works on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Free,
    /// A process that has only just begun and has not said which.
    Someone,
    Process {
        pid: u32,
        /// Whether SIGTERM makes it save and stop; a program that uses the library may not.
        listens: bool,
    },
}

impl Holder {
    /// Who works on the run in `folder`.
    pub fn of(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let look = || -> std::io::Result<Self> {
            let file = match File::open(&path) {
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Self::Free),
                file => file?,
            };
            match file.try_lock_shared() {
                Ok(()) => Ok(Self::Free),
                Err(TryLockError::WouldBlock) => {
                    let text = std::fs::read_to_string(&path)?;
                    let holder = Self::parse(text.trim_end());
                    // What is written there may be anything; the system knows who holds the lock.
                    let known = lockers(&read_to_string("/proc/locks"), file.metadata()?.ino());
                    let is_it = |pid| known.is_empty() || known.contains(&pid);
                    Ok(if holder.pid().is_none_or(is_it) { holder } else { Self::Someone })
                }
                Err(TryLockError::Error(e)) => Err(e),
            }
        };
        look().context(|| format!("cannot look at `{}`", path.display()))
    }

    fn parse(text: &str) -> Self {
        let (number, listens) = match text.strip_suffix(DEAF) {
            Some(number) => (number, false),
            None => (text, true),
        };
        match number.parse() {
            Ok(pid) if pid > 1 => Self::Process { pid, listens },
            _ => Self::Someone,
        }
    }

    /// Whether the run lives.
    pub fn is_live(self) -> bool {
        self != Self::Free
    }

    /// Its process.
    pub fn pid(self) -> Option<u32> {
        match self {
            Self::Free | Self::Someone => None,
            Self::Process { pid, .. } => Some(pid),
        }
    }
}

/// Processes that hold locks on a file, as far as the system tells (`/proc/locks`: the fifth word is
/// the process, the sixth device and file).
fn lockers(locks: &str, file: u64) -> Vec<u32> {
    let locker = |line: &str| {
        let mut words = line.split_whitespace().skip(4);
        let pid: u32 = words.next()?.parse().ok()?;
        let number = words.next()?.rsplit(':').next()?.parse::<u64>().ok()?;
        (number == file).then_some(pid)
    };
    locks.lines().filter_map(locker).collect()
}

/// A file of the system, where there is one.
fn read_to_string(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_its_holder_while_it_is_held() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Holder::of(dir.path()).unwrap(), Holder::Free);
        let lock = Lock::take(dir.path()).unwrap();
        let own = Holder::Process { pid: std::process::id(), listens: false };
        assert_eq!(Holder::of(dir.path()).unwrap(), own);
        assert!(Lock::take(dir.path()).unwrap_err().message.contains("in use by another"));
        // A lock that is held cannot be made to name another.
        std::fs::write(dir.path().join(FILE), "1234567\n").unwrap();
        assert_ne!(Holder::of(dir.path()).unwrap().pid(), Some(1_234_567));
        drop(lock);
        assert_eq!(Holder::of(dir.path()).unwrap(), Holder::Free);
        // What a killed process left behind names nobody.
        std::fs::write(dir.path().join(FILE), "1234\n").unwrap();
        assert_eq!(Holder::of(dir.path()).unwrap(), Holder::Free);
    }

    #[test]
    fn text_that_is_no_process_id_names_none() {
        assert_eq!(Holder::parse("1234"), Holder::Process { pid: 1234, listens: true });
        for text in ["", "1", "0", "-7", "12x", "99999999999"] {
            assert_eq!(Holder::parse(text), Holder::Someone, "{text}");
        }
    }
}
