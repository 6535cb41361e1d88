//! Files and folders that go to machines: what they hold, by hash, and one stream of it.
//!
//! Owns reading them, in a fixed order, and the archive that a folder travels as (`tar`'s). Never follows a link out of a folder: links go as links.

use crate::archive::Exactly;
use planaria_store::hash::Hasher;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Cursor, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Files and folders in one folder, at most.
const ENTRIES_MAX: usize = 100_000;
/// Levels of folders.
const DEPTH_MAX: usize = 64;
const BLOCK_BYTES: usize = 512;
/// Bytes read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A file or folder of this machine, as it was when it was looked at.
#[derive(Debug, Clone)]
pub struct Content {
    /// SHA-256 over names, permissions and bytes.
    pub hash: [u8; 32],
    /// Permissions of a single file; of a folder nothing.
    pub mode: Option<u32>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    path: PathBuf,
    /// Inside of the folder; empty for a single file and for the folder itself.
    name: Vec<u8>,
    mode: u32,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Folder,
    File { bytes: u64 },
    Link { to: Vec<u8> },
}

impl Content {
    /// Looks at a file or folder. `mode` is for every file in it, instead of its own.
    pub fn read(path: &Path, mode: Option<u32>) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        let mut entries = Vec::new();
        let is_folder = meta.is_dir();
        match is_folder {
            true => walk(path, &[], mode, 0, &mut entries)?,
            false => entries.push(entry(path.to_path_buf(), Vec::new(), &meta, mode)?),
        }
        let hash = hash(&entries)?;
        let mode = if is_folder { None } else { entries.first().map(|entry| entry.mode) };
        Ok(Self { hash, mode, entries })
    }

    /// Whether it is a folder, which goes as an archive.
    pub fn is_folder(&self) -> bool {
        self.mode.is_none()
    }

    /// Names inside of it; an empty one for itself.
    pub fn names(&self) -> Vec<Vec<u8>> {
        self.entries.iter().map(|entry| entry.name.clone()).collect()
    }

    /// Its bytes: of a file as they are, of a folder as an archive.
    pub fn stream(&self) -> io::Result<Box<dyn Read>> {
        if let ([file], false) = (&self.entries[..], self.is_folder()) {
            return Ok(Box::new(File::open(&file.path)?));
        }
        // One file is open at a time, however many there are.
        let entries = self.entries.clone().into_iter();
        Ok(Box::new(Archive { entries, now: Box::new(io::empty()), is_over: false }))
    }
}

struct Archive {
    entries: std::vec::IntoIter<Entry>,
    now: Box<dyn Read>,
    is_over: bool,
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.now.read(buffer)?;
            if read > 0 || buffer.is_empty() || self.is_over {
                return Ok(read);
            }
            match self.entries.next() {
                Some(entry) => self.now = archived(&entry)?,
                None => {
                    self.is_over = true;
                    self.now = Box::new(Cursor::new(vec![0; 2 * BLOCK_BYTES]));
                }
            }
        }
    }
}

/// One entry of an archive.
fn archived(entry: &Entry) -> io::Result<Box<dyn Read>> {
    let name = Path::new(".").join(OsStr::from_bytes(&entry.name));
    let mut header = Header::new_gnu();
    // Times and owners are not kept: the same content is the same archive.
    header.set_mode(entry.mode);
    let mut head = Builder::new(Vec::new());
    let bytes = match &entry.kind {
        Kind::Link { to } => {
            header.set_entry_type(EntryType::Symlink);
            head.append_link(&mut header, name, OsStr::from_bytes(to))?;
            return Ok(Box::new(Cursor::new(head.get_ref().clone())));
        }
        Kind::Folder => {
            header.set_entry_type(EntryType::Directory);
            0
        }
        Kind::File { bytes } => *bytes,
    };
    header.set_size(bytes);
    head.append_data(&mut header, name, io::empty())?;
    let head = Cursor::new(head.get_ref().clone());
    if !matches!(entry.kind, Kind::File { .. }) {
        return Ok(Box::new(head));
    }
    let padding = bytes.next_multiple_of(BLOCK_BYTES as u64) - bytes;
    let file = Exactly::open(&entry.path, bytes)?;
    Ok(Box::new(head.chain(file).chain(io::repeat(0).take(padding))))
}

fn walk(
    folder: &Path,
    name: &[u8],
    mode: Option<u32>,
    depth: usize,
    entries: &mut Vec<Entry>,
) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!("folders are nested deeper than {DEPTH_MAX} levels")));
    }
    entries.push(entry(folder.to_path_buf(), name.to_vec(), &fs::metadata(folder)?, None)?);
    let mut inside = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    inside.sort_by_key(fs::DirEntry::file_name);
    for item in inside {
        if entries.len() >= ENTRIES_MAX {
            return Err(io::Error::other(format!("there are more than {ENTRIES_MAX} files")));
        }
        let mut inner = name.to_vec();
        if !inner.is_empty() {
            inner.push(b'/');
        }
        inner.extend_from_slice(item.file_name().as_bytes());
        let meta = fs::symlink_metadata(item.path())?;
        match meta.is_dir() {
            true => walk(&item.path(), &inner, mode, depth + 1, entries)?,
            false => entries.push(entry(item.path(), inner, &meta, mode)?),
        }
    }
    Ok(())
}

fn entry(path: PathBuf, name: Vec<u8>, meta: &Metadata, mode: Option<u32>) -> io::Result<Entry> {
    let kind = if meta.is_dir() {
        Kind::Folder
    } else if meta.is_file() {
        Kind::File { bytes: meta.len() }
    } else if meta.is_symlink() {
        Kind::Link { to: fs::read_link(&path)?.as_os_str().as_bytes().to_vec() }
    } else {
        let why = format!("`{}` is neither a file nor a folder", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    };
    let mode = mode.unwrap_or(meta.permissions().mode() & 0o7777);
    Ok(Entry { path, name, mode, kind })
}

fn hash(entries: &[Entry]) -> io::Result<[u8; 32]> {
    let mut hash = Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    for entry in entries {
        let (kind, bytes): (u8, &[u8]) = match &entry.kind {
            Kind::Folder => (b'd', &[]),
            Kind::File { .. } => (b'f', &[]),
            Kind::Link { to } => (b'l', to),
        };
        // Lengths in front, so that no two lists of entries read the same.
        for part in [&entry.name[..], &[kind], &entry.mode.to_le_bytes(), bytes] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let Kind::File { bytes } = entry.kind else { continue };
        hash.update(bytes.to_le_bytes());
        let mut file = Exactly::open(&entry.path, bytes)?;
        loop {
            let read = file.read(&mut piece)?;
            if read == 0 {
                break;
            }
            hash.update(&piece[..read]);
        }
    }
    Ok(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(120)).join("y");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("long"), "long").unwrap();
        fs::write(folder.path().join("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(folder.path().join("run.sh"), fs::Permissions::from_mode(0o755))
            .unwrap();
        fs::write(folder.path().join("big"), vec![7; 1025]).unwrap();
        fs::write(folder.path().join("empty"), "").unwrap();
        fs::create_dir(folder.path().join("nothing in it")).unwrap();
        std::os::unix::fs::symlink("run.sh", folder.path().join("link")).unwrap();
        folder
    }

    #[test]
    fn tar_reads_the_archive() {
        let (from, to) = (folder(), tempfile::tempdir().unwrap());
        let content = Content::read(from.path(), None).unwrap();
        let archive = to.path().join("a.tar");
        io::copy(&mut content.stream().unwrap(), &mut File::create(&archive).unwrap()).unwrap();
        let out = to.path().join("out");
        fs::create_dir(&out).unwrap();
        let tar = Command::new("tar").arg("-xpf").arg(&archive).arg("-C").arg(&out).output();
        let tar = tar.expect("tar is there");
        assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
        let same = Content::read(&out, None).unwrap();
        assert_eq!(same.hash, content.hash);
    }

    #[test]
    fn the_hash_follows_the_content() {
        let from = folder();
        let hash = || Content::read(from.path(), None).unwrap().hash;
        let first = hash();
        assert_eq!(hash(), first);
        fs::write(from.path().join("empty"), "x").unwrap();
        let second = hash();
        assert_ne!(second, first);
        fs::set_permissions(from.path().join("empty"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_ne!(hash(), second);
        assert!(Content::read(&from.path().join("missing"), None).is_err());
    }
}
