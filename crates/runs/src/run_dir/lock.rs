//! Which process works on a run: `.lock`, and the folder itself.
//!
//! Owns two locks. The one on the run's folder says that the run lives; it lasts whatever is
//! deleted in there, and moves with it. The one on `.lock` says the same where folders cannot be
//! locked, and its content which process holds it. The system lets go of both however that process
//! ends. Other users can lock a folder that they can read, but not `.lock`: locks of theirs do not
//! count. Never signals a process.

use crate::failure::{Context, Failure, Result};
use planaria_protocol::plain;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Name of the file in a run's folder.
const FILE: &str = ".lock";
/// Attempts to take a lock: another process that checks it holds it for a moment.
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
pub struct Lock {
    file: File,
    /// Nothing where its file system cannot lock folders, or another user holds it.
    _folder: Option<File>,
}

impl Lock {
    /// Takes the lock of the run in `folder`.
    pub fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let failed =
            |e: io::Error| Failure::failed(format!("cannot lock `{}`: {e}", path.display()));
        for attempt in 1.. {
            // What is taken of a try that comes to nothing is let go.
            match attempt_at(folder, &path).map_err(failed)? {
                Some(mut lock) => {
                    lock.sign().context(|| format!("cannot write `{}`", path.display()))?;
                    return Ok(lock);
                }
                None if attempt < TRIES => std::thread::park_timeout(BETWEEN),
                None => break,
            }
        }
        Err(Failure::user(format!(
            "run `{}` is in use by another planaria process",
            folder.display()
        ))
        .hint("wait for it to end, or stop it with `planaria stop`"))
    }

    /// Whether another folder is where this one was: it was moved or deleted, and made again. What is
    /// written by its name would be another's, who can have a lock of its own.
    pub fn is_replaced(&self, folder: &Path) -> bool {
        let (held, path) = match &self._folder {
            Some(held) => (held, folder.to_path_buf()),
            None => (&self.file, folder.join(FILE)),
        };
        // Where the path is gone, the next write fails and says so.
        fs::metadata(path).is_ok_and(|now| !is_same(&now, held))
    }

    fn sign(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        let deaf = if LISTENS.load(Ordering::SeqCst) { "" } else { DEAF };
        self.file.write_all(format!("{}{deaf}\n", std::process::id()).as_bytes())
    }
}

/// One try at both locks; nothing where another process of this user holds one.
fn attempt_at(folder: &Path, path: &Path) -> io::Result<Option<Lock>> {
    let opened = File::open(folder)?;
    let _folder = match opened.try_lock() {
        Ok(()) => Some(opened),
        Err(TryLockError::WouldBlock) if holders(&opened)?.is_ours() => return Ok(None),
        // Another user's, or a file system that knows no such locks.
        Err(_) => None,
    };
    // What is in it is another's until the lock is held.
    let mut options = OpenOptions::new();
    let file = options.create(true).write(true).truncate(false).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(e)) => return Err(e),
    }
    // One of an earlier version let others read it, and with that lock it. Where it is another
    // user's file the lock will do.
    let _ = file.set_permissions(Permissions::from_mode(0o600));
    // It may have been deleted, and made again by another, before it was locked.
    let is_there = fs::metadata(path).is_ok_and(|now| is_same(&now, &file));
    Ok(is_there.then_some(Lock { file, _folder }))
}

fn is_same(one: &fs::Metadata, file: &File) -> bool {
    file.metadata().is_ok_and(|other| (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Processes that hold locks on a file, as far as the system tells.
struct Holders(Vec<u32>);

impl Holders {
    /// Whether one may be of this user, or root's: where none can be seen, it may.
    fn is_ours(&self) -> bool {
        self.0.is_empty() || self.0.iter().any(|pid| is_ours(*pid))
    }
}

/// Whether a process lives and is this user's or root's.
fn is_ours(pid: u32) -> bool {
    let own = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|of| of.uid() == own || of.uid() == 0)
}

fn holders(file: &File) -> io::Result<Holders> {
    let inode = file.metadata()?.ino();
    Ok(Holders(lockers(&fs::read_to_string("/proc/locks").unwrap_or_default(), inode)))
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Without a name in it no process can be signalled by mistake.
        let _ = self.file.set_len(0);
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
        Self::look(folder, &path).context(|| format!("cannot look at `{}`", path.display()))
    }

    fn look(folder: &Path, path: &Path) -> io::Result<Self> {
        let signed = match plain::open(path) {
            Ok(file) => Self::of_file(&file, path)?,
            // Deleted, or another user's.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                Self::Free
            }
            Err(e) => return Err(e),
        };
        match signed {
            Self::Free => Self::of_folder(&File::open(folder)?),
            signed => Ok(signed),
        }
    }

    fn of_file(file: &File, path: &Path) -> io::Result<Self> {
        match file.try_lock_shared() {
            Ok(()) => Ok(Self::Free),
            Err(TryLockError::WouldBlock) => {
                let text = plain::read_text(path)?;
                let holder = Self::parse(text.trim_end());
                // What is written there may be anything; the system knows who holds the lock.
                let known = holders(file)?.0;
                let is_it = |pid| known.is_empty() || known.contains(&pid);
                Ok(if holder.pid().is_none_or(is_it) { holder } else { Self::Someone })
            }
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Who works on a run whose `.lock` says nothing: the system knows.
    fn of_folder(folder: &File) -> io::Result<Self> {
        if !matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            return Ok(Self::Free);
        }
        // Who looks at another user's run sees that user's process.
        let owner = folder.metadata()?.uid();
        let is_owners = |pid: &u32| {
            is_ours(*pid) || fs::metadata(format!("/proc/{pid}")).is_ok_and(|of| of.uid() == owner)
        };
        let Holders(known) = holders(folder)?;
        Ok(match known.iter().copied().find(|pid| is_owners(pid)) {
            Some(pid) => {
                let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                Self::Process { pid, listens: program.trim() == "planaria" }
            }
            None if known.is_empty() => Self::Someone,
            None => Self::Free,
        })
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
        // What a killed process left behind names no holder.
        std::fs::write(dir.path().join(FILE), "1234\n").unwrap();
        assert_eq!(Holder::of(dir.path()).unwrap(), Holder::Free);
    }

    #[test]
    fn a_run_is_held_whatever_is_deleted_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("a");
        fs::create_dir(&run).unwrap();
        let lock = Lock::take(&run).unwrap();
        let mode = fs::metadata(run.join(FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "no other user can hold it");
        fs::remove_file(run.join(FILE)).unwrap();
        assert!(Lock::take(&run).unwrap_err().message.contains("in use by another"));
        assert_eq!(Holder::of(&run).unwrap().pid(), Some(std::process::id()));
        // Nor does it help to make another file of that name, or to move the folder.
        fs::write(run.join(FILE), "").unwrap();
        let moved = dir.path().join("b");
        fs::rename(&run, &moved).unwrap();
        assert!(Lock::take(&moved).unwrap_err().message.contains("in use by another"));
        // Who holds it learns that another is in its place.
        assert!(!lock.is_replaced(&run), "nothing is there");
        fs::create_dir(&run).unwrap();
        assert!(lock.is_replaced(&run) && !lock.is_replaced(&moved));
        drop(lock);
        assert_eq!(Holder::of(&moved).unwrap(), Holder::Free);
        drop(Lock::take(&moved).unwrap());
    }

    #[test]
    fn locks_of_other_users_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let mut other = std::process::Command::new("flock");
        other.args(["-s"]).arg(dir.path()).args(["sh", "-c", "echo held; read x"]);
        std::os::unix::process::CommandExt::uid(&mut other, 65534);
        other.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        // Only root can be another user.
        let Ok(mut other) = other.spawn() else { return };
        let mut line = String::new();
        let stdout = other.stdout.take().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line).unwrap();
        assert_eq!(line, "held\n");
        let lock = Lock::take(dir.path()).unwrap();
        assert!(Lock::take(dir.path()).is_err(), "`.lock` still tells our own apart");
        drop(lock);
        assert_eq!(Holder::of(dir.path()).unwrap(), Holder::Free);
        drop(other.stdin.take());
        other.wait().unwrap();
    }

    #[test]
    fn text_that_is_no_process_id_names_none() {
        assert_eq!(Holder::parse("1234"), Holder::Process { pid: 1234, listens: true });
        for text in ["", "1", "0", "-7", "12x", "99999999999"] {
            assert_eq!(Holder::parse(text), Holder::Someone, "{text}");
        }
    }
}
