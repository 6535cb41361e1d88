//! Coded blocks on the machine's disk, so that whoever returns encodes nothing.
//!
//! A folder for each coding (data, encoding and code, by their digest), in it a file for each slot:
//! the bounds of the data's columns, the rows, and a hash of both. A file is written under another
//! name first; one that is not whole is not believed. Folders that were not used for the longest
//! time go when there is too much. Never needed: what cannot be kept is encoded again.

use super::Value;
use super::block::Block;
use planaria_protocol::durable;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Version of the files.
const MAGIC: &[u8; 8] = b"PLANCOD1";
/// Most bytes that all codings may take.
const BYTES_MAX: u64 = 8 << 30;
const HASH_BYTES: usize = 32;

/// The blocks of one coding.
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

    /// In a folder of one's own.
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
        let path = self.folder.join(slot.to_string());
        let content = fs::read(&path).ok()?;
        let block = parse(&content, values);
        match &block {
            // By this it is known which were used last.
            Some(_) => {
                let mark = self.folder.join(format!(".{}", std::process::id()));
                let _ = fs::write(&mark, "").and_then(|()| fs::remove_file(&mark));
            }
            None => {
                let _ = fs::remove_file(&path);
            }
        }
        block
    }

    /// Keeps a block.
    pub fn write<E: Value>(&self, slot: u16, block: &Block<E>) -> io::Result<()> {
        let bounds = serde_json::to_vec(&block.bounds)?;
        let bytes = (block.rows.len() * E::BYTES + bounds.len() + 64) as u64;
        self.make_room(bytes)?;
        fs::create_dir_all(&self.folder)?;
        // Another process of this machine may write the same.
        let path = self.folder.join(slot.to_string());
        let fresh = self.folder.join(format!("{slot}.{}", std::process::id()));
        let written = durable::put_with(&fresh, |file| {
            let mut hash = Sha256::new();
            let mut put = |bytes: &[u8]| {
                hash.update(bytes);
                file.write_all(bytes)
            };
            put(MAGIC)?;
            put(&(bounds.len() as u64).to_le_bytes())?;
            put(&bounds)?;
            for rows in block.rows.chunks(1 << 16) {
                put(&E::bytes(rows))?;
            }
            file.write_all(&hash.finalize())
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

fn parse<E: Value>(content: &[u8], values: usize) -> Option<Block<E>> {
    let (body, hash) = content.split_at_checked(content.len().checked_sub(HASH_BYTES)?)?;
    if Sha256::digest(body).as_slice() != hash {
        return None;
    }
    let rest = body.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (bounds, rows) = rest.split_at_checked(length)?;
    let rows = E::take(rows).filter(|rows| rows.len() == values)?;
    Some(Block { rows, bounds: serde_json::from_slice(bounds).ok()? })
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
        assert!(!path.exists(), "what is not whole is in nobody's way");
        cache.write(2, &block).unwrap();
        assert_eq!(cache.read::<Residue>(2, 4), None, "another length");
    }
}
