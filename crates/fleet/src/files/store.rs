//! A machine's contents by hash: `files/ab/abcd…` in our folder there, for every run of its user.
//!
//! Owns what is in it and how large it grows. A content is whole or not there: it is written under
//! another name, checked, and renamed. Other hosts of the user may use it at the same time.

use super::{Hash, about, make_folder, mtime_ns};
use crate::messages::questions::Piece;
use planaria_store::durable::Draft;
use planaria_store::hash::{hex, sha256};
use planaria_store::transfer::{self, Announced, Incoming};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What is kept at most, unless it was just used.
pub const BYTES_MAX: u64 = 8 << 30;
/// A content up to this length is checked again when it is used; a longer one is synced when it is
/// written instead.
const CHECKED_BYTES_MAX: u64 = 1 << 20;
/// Contents used within so long are never removed: another host may be about to use them.
const FRESH_NS: i64 = 3_600_000_000_000;
/// Unfinished contents of hosts that were killed are removed after so long.
const UNFINISHED_NS: i64 = 24 * FRESH_NS;
/// What their names begin with; the process follows.
const UNFINISHED: &str = "new-";

pub struct Store {
    folder: PathBuf,
    partial: BTreeMap<Hash, Incoming>,
    used: BTreeSet<Hash>,
}

impl Store {
    /// The store in our folder.
    pub fn new(home: &Path) -> Self {
        Self { folder: home.join("files"), partial: BTreeMap::new(), used: BTreeSet::new() }
    }

    /// Whether there is a content of this length.
    pub fn has(&self, hash: &Hash, bytes: u64) -> bool {
        fs::metadata(self.place(hash)).is_ok_and(|meta| meta.len() == bytes)
    }

    /// Takes a piece of a content; the last one completes it.
    pub fn take(&mut self, piece: &Piece) -> io::Result<()> {
        let taken = self.add(piece);
        if taken.is_err() {
            self.partial.remove(&piece.hash);
        }
        taken
    }

    fn add(&mut self, piece: &Piece) -> io::Result<()> {
        let (hash, name) = (piece.hash, hex(&piece.hash));
        let about_it = |e: transfer::Fault| match e {
            transfer::Fault::Io(e) => about(&self.folder, &e),
            fault => io::Error::other(format!("content {name}: {fault}")),
        };
        if piece.at == 0 {
            self.partial.remove(&hash);
            fs::create_dir_all(&self.folder).map_err(|e| about(&self.folder, &e))?;
            let temporary = self.folder.join(format!("{UNFINISHED}{}-{name}", std::process::id()));
            let place = self.place(&hash);
            let draft = Draft::at(temporary, &place).map_err(|e| about(&place, &e))?;
            let announced = Announced { bytes: Some(piece.length), sha256: Some(hash) };
            self.partial.insert(hash, Incoming::new(draft, announced));
        }
        let Some(incoming) = self.partial.get_mut(&hash) else {
            return Err(io::Error::other(format!("a piece of {name} came out of order")));
        };
        incoming.take(piece.at, &piece.bytes).map_err(about_it)?;
        if !incoming.is_whole() {
            return Ok(());
        }
        let checked = match piece.length > CHECKED_BYTES_MAX {
            true => incoming.check(),
            false => incoming.compare(),
        };
        checked.map_err(about_it)?;
        make_folder(&self.folder.join(&name[..2]))?;
        let Some(incoming) = self.partial.remove(&hash) else { return Ok(()) };
        incoming.keep().map_err(|e| about(&self.place(&hash), &e))
    }

    /// Writes a content to a file; says whether it was there and as it should be.
    pub fn copy(&mut self, hash: &Hash, bytes: u64, to: &mut File) -> io::Result<bool> {
        let place = self.place(hash);
        let Ok(mut from) = File::open(&place) else { return Ok(false) };
        touch(&from);
        self.used.insert(*hash);
        let is_whole = if bytes > CHECKED_BYTES_MAX {
            // The kernel copies, without copying where the file system can share.
            io::copy(&mut from, to)? == bytes
        } else {
            let content = fs::read(&place)?;
            let is_whole = sha256(&content) == *hash;
            if is_whole {
                to.write_all(&content)?;
            }
            is_whole
        };
        if !is_whole {
            let _ = fs::remove_file(&place);
        }
        Ok(is_whole)
    }

    /// Removes what was used longest ago, until no more than so much is left. `now_ns` is the time
    /// by the clock that the files have.
    pub fn prune(&self, bytes_max: u64, now_ns: i64) {
        let mut contents = Vec::new();
        for folder in entries(&self.folder) {
            let Ok(meta) = folder.metadata() else { continue };
            let is_old = now_ns.saturating_sub(mtime_ns(&meta)) > UNFINISHED_NS;
            // The clock may have been set: one that a process works on is not old.
            if meta.is_file() && is_old && !is_in_work(&folder.file_name()) {
                let _ = fs::remove_file(folder.path());
            }
            if !meta.is_dir() {
                continue;
            }
            for entry in entries(&folder.path()) {
                if let Ok(meta) = entry.metadata() {
                    contents.push((mtime_ns(&meta), meta.len(), entry.path()));
                }
            }
        }
        let used: BTreeSet<PathBuf> = self.used.iter().map(|hash| self.place(hash)).collect();
        let mut bytes: u64 = contents.iter().map(|(_, bytes, _)| bytes).sum();
        contents.sort();
        for (at, length, path) in contents {
            if bytes <= bytes_max || now_ns.saturating_sub(at) < FRESH_NS {
                return;
            }
            if !used.contains(&path) && fs::remove_file(&path).is_ok() {
                bytes -= length;
            }
        }
    }

    fn place(&self, hash: &Hash) -> PathBuf {
        let name = hex(hash);
        self.folder.join(&name[..2]).join(name)
    }
}

/// Whether a process that lives here is writing an unfinished content of this name.
fn is_in_work(name: &OsStr) -> bool {
    let pid = name.to_str().and_then(|name| name.strip_prefix(UNFINISHED)?.split('-').next());
    pid.and_then(|pid| pid.parse::<u32>().ok())
        .is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Notes that a content was used now. Where that fails it only seems older.
fn touch(file: &File) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let _ = rustix::fs::futimens(file, &Timestamps { last_access: now, last_modification: now });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(content: &[u8], at: usize, end: usize) -> Piece {
        let hash = sha256(content);
        let length = content.len() as u64;
        Piece { hash, at: at as u64, bytes: content[at..end].to_vec(), length }
    }

    fn keep(store: &mut Store, content: &[u8]) -> Hash {
        store.take(&piece(content, 0, content.len())).unwrap();
        sha256(content)
    }

    #[test]
    fn a_content_is_whole_or_not_there() {
        let home = tempfile::tempdir().unwrap();
        let mut store = Store::new(home.path());
        store.take(&piece(b"hello", 0, 2)).unwrap();
        let hash = sha256(b"hello");
        assert!(!store.has(&hash, 5));
        assert!(store.take(&piece(b"hello", 3, 5)).is_err(), "out of order");
        store.take(&piece(b"hello", 0, 2)).unwrap();
        store.take(&piece(b"hello", 2, 5)).unwrap();
        assert!(store.has(&hash, 5) && !store.has(&hash, 4));
        let lie = Piece { bytes: b"help!".to_vec(), ..piece(b"other", 0, 5) };
        assert!(store.take(&lie).is_err());
        assert!(!store.has(&lie.hash, 5));
        let left = fs::read_dir(home.path().join("files")).unwrap().count();
        assert_eq!(left, 1, "only the folder of the one content");
    }

    #[test]
    fn a_damaged_content_is_noticed_and_removed() {
        let home = tempfile::tempdir().unwrap();
        let mut store = Store::new(home.path());
        let hash = keep(&mut store, b"hello");
        fs::write(store.place(&hash), b"hullo").unwrap();
        let mut to = tempfile::tempfile().unwrap();
        assert!(!store.copy(&hash, 5, &mut to).unwrap());
        assert!(!store.has(&hash, 5));
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let home = tempfile::tempdir().unwrap();
        let mut store = Store::new(home.path());
        let hashes: Vec<Hash> = (0..4u8).map(|n| keep(&mut store, &[n; 100])).collect();
        let hour = FRESH_NS;
        for (age, hash) in hashes.iter().enumerate() {
            let file = File::options().write(true).open(store.place(hash)).unwrap();
            super::super::set_mtime(&file, 1000 * hour - age as i64 * hour).unwrap();
        }
        store.used.insert(hashes[3]);
        store.prune(1 << 20, 1000 * hour);
        assert!(hashes.iter().all(|hash| store.has(hash, 100)), "there is room");
        store.prune(250, 1000 * hour);
        let left: Vec<bool> = hashes.iter().map(|hash| store.has(hash, 100)).collect();
        assert_eq!(left, [true, false, false, true], "fresh, old, older, just used");
    }

    #[test]
    fn what_is_being_written_is_not_old_though_the_clock_was_set() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(home.path());
        fs::create_dir_all(&store.folder).unwrap();
        // No process has the second number.
        let [own, gone] = [std::process::id(), u32::MAX].map(|pid| {
            let path = store.folder.join(format!("{UNFINISHED}{pid}-ab"));
            super::super::set_mtime(&File::create(&path).unwrap(), 0).unwrap();
            path
        });
        store.prune(0, 10 * UNFINISHED_NS);
        assert_eq!((own.exists(), gone.exists()), (true, false));
    }
}
