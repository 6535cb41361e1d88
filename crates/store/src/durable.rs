//! Files that are either wholly there or not at all, also after a power cut.
//!
//! Owns temporary names, syncing and renaming. Never knows what is in a file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest file that may stand in for a link.
const LINK_BYTES_MAX: u64 = 255;

/// Whether a disk takes more. A real disk says so when it is written to; a simulated one is told,
/// and writers ask it first. Clones are of the same disk.
#[derive(Debug, Clone, Default)]
pub struct Space(Option<Arc<AtomicBool>>);

impl Space {
    /// Of a simulated disk, which takes everything so far.
    pub fn simulated() -> Self {
        Self(Some(Arc::default()))
    }

    /// From now on a simulated disk takes nothing, or everything again.
    pub fn fill(&self, is_full: bool) {
        if let Some(full) = &self.0 {
            full.store(is_full, Ordering::Relaxed);
        }
    }

    /// An error while a simulated disk takes nothing.
    pub fn check(&self) -> io::Result<()> {
        match self.0.as_ref().is_some_and(|full| full.load(Ordering::Relaxed)) {
            true => Err(io::Error::new(io::ErrorKind::StorageFull, "No space left on device")),
            false => Ok(()),
        }
    }
}

/// Writes `bytes` to `path`: temporary name, sync, rename, sync of the folder.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes)?;
    sync_folder_of(path)
}

/// Like [`write()`], without the sync of the folder: after a power cut the name may be missing or
/// old, but never half a file.
pub fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put_with(path, |file| file.write_all(bytes))
}

/// Like [`put`], for what is written bit by bit.
pub fn put_with<T>(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let temporary = temporary_name(path);
    let written = File::create(&temporary).and_then(|mut file| {
        let filled = fill(&mut file)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        Ok(filled)
    });
    written.inspect_err(|_| {
        // The error in hand matters more than one from cleaning up.
        let _ = fs::remove_file(&temporary);
    })
}

/// A file that is written under a temporary name of its own; gone with this unless it is kept.
#[derive(Debug)]
pub struct Draft {
    /// To be written to.
    pub file: File,
    temporary: Option<PathBuf>,
    path: PathBuf,
    /// Whether it stays when it is dropped, to be continued later.
    stays: bool,
}

impl Draft {
    /// What may become `path`. Drafts of the same file are told apart by their numbers.
    pub fn new(path: &Path, number: u64) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{number}.tmp"));
        let file = File::create_new(&temporary)?;
        Ok(Self { file, temporary: Some(temporary), path: path.to_path_buf(), stays: false })
    }

    /// The same under a temporary name of the caller's, on the same file system; only the user may
    /// read it until it is kept. What has that name goes, and is never written into: it may be
    /// another user's, or lead elsewhere.
    pub fn at(temporary: PathBuf, path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = match options.open(&temporary) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&temporary)?;
                options.open(&temporary)?
            }
            opened => opened?,
        };
        Ok(Self { file, temporary: Some(temporary), path: path.to_path_buf(), stays: false })
    }

    /// Goes on with what is in `part`; stays there when it is dropped.
    pub fn part(part: PathBuf, path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).write(true).truncate(false).open(&part)?;
        Ok(Self { file, temporary: Some(part), path: path.to_path_buf(), stays: true })
    }

    /// Gives it its name; it must have been synced. The sync of the folder is the caller's.
    pub fn keep(mut self) -> io::Result<()> {
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        fs::rename(&temporary, &self.path).inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.as_ref().filter(|_| !self.stays) {
            // What cannot be removed goes with its folder.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Makes `path` a link to `target`, a name in the same folder, replacing what was there without a
/// moment in between. Leaves the sync of the folder to the caller.
pub fn link(target: &str, path: &Path) -> io::Result<()> {
    let temporary = temporary_name(path);
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    if symlink(target, &temporary).is_err() {
        // Some file systems have no links: a file that holds the name stands in.
        return put(path, target.as_bytes());
    }
    fs::rename(&temporary, path)
}

#[cfg(unix)]
fn symlink(target: &str, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(not(unix))]
fn symlink(_: &str, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What a [`link()`] leads to; nothing where `path` is not one.
pub fn linked(path: &Path) -> Option<String> {
    if let Ok(target) = fs::read_link(path) {
        return target.to_str().map(str::to_owned);
    }
    let short = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= LINK_BYTES_MAX);
    if short { fs::read_to_string(path).ok() } else { None }
}

/// Makes the names in a file's folder survive a power cut.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => sync_folder(folder),
        _ => sync_folder(Path::new(".")),
    }
}

/// Makes the names in a folder survive a power cut.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".tmp");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_rubbish() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, b"old").unwrap();
        let failed: io::Result<()> = put_with(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::Error::other("disk full"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_draft_is_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (temporary, path) = (dir.path().join("t"), dir.path().join("a"));
        let others = dir.path().join("others");
        write(&others, b"kept").unwrap();
        symlink("others", &temporary).unwrap();
        let mut draft = Draft::at(temporary, &path).unwrap();
        draft.file.write_all(b"secret").unwrap();
        draft.keep().unwrap();
        assert_eq!(fs::read(&others).unwrap(), b"kept", "what had the name is not written into");
        assert_eq!(fs::read(&path).unwrap(), b"secret");
    }

    #[test]
    fn a_link_replaces_and_can_be_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let last = dir.path().join("last");
        write(&dir.path().join("a"), b"1").unwrap();
        write(&dir.path().join("b"), b"2").unwrap();
        assert_eq!(linked(&last), None);
        for name in ["a", "b", "b"] {
            link(name, &last).unwrap();
            assert_eq!(linked(&last).as_deref(), Some(name));
        }
        assert_eq!(fs::read(&last).unwrap(), b"2");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        fs::remove_file(&last).unwrap();
        put(&last, b"a").unwrap();
        assert_eq!(linked(&last).as_deref(), Some("a"), "a file stands in");
    }
}
