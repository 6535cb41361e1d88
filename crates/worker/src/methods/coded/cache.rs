//! Coded blocks and labels on the machine's disk, so that a worker that returns downloads nothing.
//!
//! A folder for each coding (data, encoding and code, by their digest), in it a file for each slot
//! (the bounds of the data's columns, and the rows) and one for the labels, each with a hash of its
//! name and all that is in it. A file is written under another name first; one that is not whole is
//! not believed. Folders that were not used for the longest time go when there is too much. Never
//! needed: what cannot be kept is fetched again.

use super::Value;
use super::block::{Block, Label, label_bytes, labels};
use planaria_protocol::durable;
use planaria_protocol::hash::Hasher;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Version of the files.
const MAGIC: &[u8; 8] = b"PLANCOD2";
/// Most bytes that all codings may take.
const BYTES_MAX: u64 = 8 << 30;
const HASH_BYTES: usize = 32;
/// The file of the labels.
const LABELS: &str = "labels";
/// Values that are written at a time.
const AT_ONCE: usize = 1 << 16;

/// The blocks and labels of one coding.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Of the coding with this digest, in the user's cache; nothing where there is no home.
    pub fn of(digest: &str) -> Option<Self> {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
        let folder = Path::new(&home).join(".cache/planaria/coded").join(digest);
        Some(Self { folder })
    }

    /// In this folder.
    pub fn within(root: &Path, digest: &str) -> Self {
        Self { folder: root.join(digest) }
    }

    /// Slots whose blocks are there, by their names alone.
    pub fn slots(&self) -> Vec<u16> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
        let mut slots: Vec<u16> = names.filter_map(|name| name.parse().ok()).collect();
        slots.sort_unstable();
        slots
    }

    /// The block of a slot, `values` numbers long, if it is there and whole.
    pub fn read<E: Value>(&self, slot: u16, values: usize) -> Option<Block<E>> {
        self.open(&slot.to_string(), |head, body| {
            let rows = E::take(body).filter(|rows| rows.len() == values)?;
            Some(Block { rows, bounds: serde_json::from_slice(head).ok()? })
        })
    }

    /// Keeps a block.
    pub fn write<E: Value>(&self, slot: u16, block: &Block<E>) -> io::Result<()> {
        let bytes = block.rows.len() * E::BYTES;
        let body = block.rows.chunks(AT_ONCE).map(E::bytes);
        self.put(&slot.to_string(), &serde_json::to_vec(&block.bounds)?, bytes, body)
    }

    /// The labels of so many rows, if they are there and whole.
    pub fn read_labels(&self, rows: usize) -> Option<Vec<Label>> {
        self.open(LABELS, |_, body| labels(body).filter(|labels| labels.len() == rows))
    }

    /// Keeps the labels of all rows.
    pub fn write_labels(&self, labels: &[Label]) -> io::Result<()> {
        let bytes = std::mem::size_of_val(labels);
        self.put(LABELS, &[], bytes, labels.chunks(AT_ONCE).map(label_bytes))
    }

    /// What a file is, if it is whole; one that is not goes.
    fn open<T>(&self, name: &str, read: impl Fn(&[u8], &[u8]) -> Option<T>) -> Option<T> {
        let path = self.folder.join(name);
        let content = fs::read(&path).ok()?;
        let found = parse(name, &content).and_then(|(head, body)| read(head, body));
        if found.is_some() {
            // By this it is known which were used last.
            let mark = self.folder.join(format!(".{}", std::process::id()));
            let _ = fs::write(&mark, "").and_then(|()| fs::remove_file(&mark));
        } else {
            let _ = fs::remove_file(&path);
        }
        found
    }

    fn put(
        &self,
        name: &str,
        head: &[u8],
        bytes: usize,
        body: impl Iterator<Item = Vec<u8>>,
    ) -> io::Result<()> {
        self.make_room((bytes + head.len() + 64) as u64)?;
        fs::create_dir_all(&self.folder)?;
        // Another process of this machine may write the same.
        let path = self.folder.join(name);
        let fresh = self.folder.join(format!("{name}.{}", std::process::id()));
        let written = durable::put_with(&fresh, |file| {
            let mut hash = Hasher::new();
            hash.update(name);
            let mut put = |bytes: &[u8]| {
                hash.update(bytes);
                file.write_all(bytes)
            };
            put(MAGIC)?;
            put(&(head.len() as u64).to_le_bytes())?;
            put(head)?;
            for bytes in body {
                put(&bytes)?;
            }
            file.write_all(&hash.finish())
        });
        written.and_then(|()| fs::rename(&fresh, &path)).inspect_err(|_| {
            let _ = fs::remove_file(&fresh);
        })
    }

    /// Lets go of the codings that were not used for the longest time.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let Some(root) = self.folder.parent() else { return Ok(()) };
        fs::create_dir_all(root)?;
        let mut codings: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(root)?.flatten() {
            let path = entry.path();
            let Ok(entries) = fs::read_dir(&path) else { continue };
            let sizes = entries.flatten().filter_map(|e| e.metadata().ok()).map(|m| m.len());
            let modified = entry.metadata().and_then(|m| m.modified());
            codings.push((modified.unwrap_or(SystemTime::UNIX_EPOCH), sizes.sum(), path));
        }
        codings.sort();
        let mut total: u64 = codings.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in codings.iter().filter(|(_, _, path)| *path != self.folder) {
            if total + bytes <= BYTES_MAX {
                break;
            }
            fs::remove_dir_all(path)?;
            total -= size;
        }
        match total + bytes <= BYTES_MAX {
            true => Ok(()),
            false => Err(io::Error::other(format!("the cache would have {} bytes", total + bytes))),
        }
    }
}

/// Head and body of a file that is whole.
fn parse<'a>(name: &str, content: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (whole, hash) = content.split_at_checked(content.len().checked_sub(HASH_BYTES)?)?;
    if Hasher::new().chain_update(name).chain_update(whole).finish().as_slice() != hash {
        return None;
    }
    let rest = whole.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_learn::linear::number::Bounds;
    use planaria_numerics::coding::exact::Residue;

    #[test]
    fn a_block_is_found_again_and_a_changed_one_is_not_believed() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::within(root.path(), "a");
        assert!(cache.slots().is_empty() && cache.read::<f64>(2, 3).is_none());
        let rows = [1, -2, 3].map(Residue::from_i64).to_vec();
        let block = Block { rows, bounds: Bounds::new(3) };
        cache.write(2, &block).unwrap();
        assert_eq!(cache.slots(), [2]);
        assert_eq!(cache.read::<Residue>(2, 3), Some(block.clone()));
        assert!(Cache::within(root.path(), "b").slots().is_empty());
        let path = root.path().join("a/2");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(cache.read::<Residue>(2, 3), None);
        assert!(!path.exists(), "a damaged block is removed");
        cache.write(2, &block).unwrap();
        assert_eq!(cache.read::<Residue>(2, 4), None, "another length");
        cache.write(2, &block).unwrap();
        fs::rename(&path, root.path().join("a/3")).unwrap();
        assert_eq!(cache.read::<Residue>(3, 3), None, "another's");
    }

    #[test]
    fn labels_are_found_again() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::within(root.path(), "a");
        let labels = vec![(3, 1.0), (9, -1.0)];
        assert_eq!(cache.read_labels(2), None);
        cache.write_labels(&labels).unwrap();
        assert!(cache.slots().is_empty(), "they are no block");
        assert_eq!(cache.read_labels(2), Some(labels));
        assert_eq!(cache.read_labels(3), None);
    }
}
