//! Files that are either wholly there or not at all, also after a power cut.
//!
//! Owns temporary names, syncing and renaming. Never knows what is in a file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

fn put_with(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let temporary = temporary_name(path);
    let written = File::create(&temporary).and_then(|mut file| {
        fill(&mut file)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        // The error in hand matters more than one from cleaning up.
        let _ = fs::remove_file(&temporary);
    })
}

/// Makes `path` another name of `existing`, replacing what was there, without a moment in between.
/// Leaves the sync of the folder to the caller.
pub fn alias(existing: &Path, path: &Path) -> io::Result<()> {
    let temporary = temporary_name(path);
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    if fs::hard_link(existing, &temporary).is_err() {
        // Some file systems have no hard links.
        return put(path, &fs::read(existing)?);
    }
    fs::rename(&temporary, path)?;
    // Renaming onto another name of the same file does nothing and leaves the old name (POSIX).
    let _ = fs::remove_file(&temporary);
    Ok(())
}

/// Makes the names in a file's folder survive a power cut.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
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
        let failed = put_with(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::Error::other("disk full"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_alias_replaces_and_can_be_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, last) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("last"));
        write(&a, b"1").unwrap();
        write(&b, b"2").unwrap();
        alias(&a, &last).unwrap();
        alias(&b, &last).unwrap();
        alias(&b, &last).unwrap();
        assert_eq!(fs::read(&last).unwrap(), b"2");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
