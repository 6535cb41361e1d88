//! Files on their way into an engine: an archive, written as it is sent.
//!
//! Owns what is in it, and its length, which is said before. Never reads an archive, and never holds
//! a large file in memory. The format is `tar`'s, the crate's.

use crate::archive::Exactly;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Everything in an archive comes in blocks of this size.
const BLOCK_BYTES: u64 = 512;

/// Files to be written, in order.
#[derive(Debug, Default)]
pub struct Archive {
    entries: Vec<Entry>,
    folders: BTreeSet<String>,
}

#[derive(Debug)]
struct Entry {
    header: Header,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Archive {
    /// Adds a folder, and those that it is in.
    pub fn folder(&mut self, path: &str, mode: u32) -> io::Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || self.folders.contains(path) {
            return Ok(());
        }
        self.parents(path)?;
        let header = header(&format!("{path}/"), mode, 0, EntryType::Directory)?;
        self.entries.push(Entry { header, content: Content::Bytes(Vec::new()) });
        self.folders.insert(path.to_owned());
        Ok(())
    }

    /// Adds a file of these bytes.
    pub fn bytes_at(&mut self, path: &str, mode: u32, bytes: Vec<u8>) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parents(path)?;
        let header = header(path, mode, bytes.len() as u64, EntryType::Regular)?;
        self.entries.push(Entry { header, content: Content::Bytes(bytes) });
        Ok(())
    }

    /// Adds a file that is here, at another place there.
    pub fn file_at(&mut self, path: &str, mode: u32, file: &Path) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parents(path)?;
        let bytes = std::fs::metadata(file)?.len();
        let header = header(path, mode, bytes, EntryType::Regular)?;
        self.entries.push(Entry { header, content: Content::File(file.to_path_buf()) });
        Ok(())
    }

    /// Length of the whole archive.
    pub fn bytes(&self) -> u64 {
        let padded = |entry: &Entry| entry.bytes().next_multiple_of(BLOCK_BYTES);
        let lengths = self.entries.iter().map(|entry| BLOCK_BYTES + padded(entry));
        lengths.sum::<u64>() + 2 * BLOCK_BYTES
    }

    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut builder = Builder::new(to);
        for entry in &self.entries {
            match &entry.content {
                Content::Bytes(bytes) => builder.append(&entry.header, &bytes[..])?,
                Content::File(path) => {
                    builder.append(&entry.header, Exactly::open(path, entry.bytes())?)?;
                }
            }
        }
        builder.finish()
    }

    fn parents(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.folder(parent, 0o755),
            None => Ok(()),
        }
    }
}

impl Entry {
    fn bytes(&self) -> u64 {
        self.header.entry_size().unwrap_or(0)
    }
}

fn header(path: &str, mode: u32, bytes: u64, kind: EntryType) -> io::Result<Header> {
    let mut header = Header::new_ustar();
    header.set_path(path).map_err(|why| {
        let what = format!("`{path}` cannot be put into an archive: {why}");
        io::Error::new(ErrorKind::InvalidInput, what)
    })?;
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_uid(0);
    header.set_gid(0);
    // The same files give the same archive, whenever they were made.
    header.set_mtime(0);
    header.set_cksum();
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn tar_reads_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, vec![7; 1000]).unwrap();
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(90));
        let mut archive = Archive::default();
        archive.folder("/tmp", 0o1777).unwrap();
        archive.bytes_at("/etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\n".to_vec()).unwrap();
        archive.file_at("/a/b/c", 0o755, &file).unwrap();
        archive.file_at("/a/b/d", 0o755, &file).unwrap();
        archive.bytes_at(&long, 0o600, Vec::new()).unwrap();
        let mut written = Vec::new();
        archive.write(&mut written).unwrap();
        assert_eq!(written.len() as u64, archive.bytes());

        let mut tar = Command::new("tar")
            .args(["-x", "-p", "-C"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&written).unwrap();
        assert!(tar.wait().unwrap().success());
        assert_eq!(std::fs::read(folder.path().join("a/b/c")).unwrap(), vec![7; 1000]);
        assert_eq!(std::fs::read(folder.path().join("a/b/d")).unwrap(), vec![7; 1000]);
        assert!(folder.path().join(&long).exists());
        let passwd = std::fs::read_to_string(folder.path().join("etc/passwd")).unwrap();
        assert!(passwd.starts_with("root:"));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let mut archive = Archive::default();
        assert!(archive.bytes_at(&"x".repeat(101), 0o644, Vec::new()).is_err());
        assert!(archive.bytes_at(&"x/".repeat(200), 0o644, Vec::new()).is_err());
        assert!(archive.file_at("x", 0o644, Path::new("/nowhere")).is_err());
    }
}
