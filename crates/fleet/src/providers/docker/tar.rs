//! Files on their way into an engine: a POSIX `ustar` archive, written as it is sent.
//!
//! Owns the format. Never reads an archive, and never holds a large file in memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Everything in an archive comes in blocks of this size.
const BLOCK_BYTES: usize = 512;
/// Longest name in a header, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// Longest folder before a name, in bytes.
const PREFIX_BYTES_MAX: usize = 155;
/// Longest file, in bytes: what eleven octal digits can say.
const FILE_BYTES_MAX: u64 = (1 << 33) - 1;

/// Files to be written, in order.
#[derive(Debug, Default)]
pub struct Archive {
    entries: Vec<Entry>,
    folders: BTreeSet<String>,
}

#[derive(Debug)]
struct Entry {
    header: [u8; BLOCK_BYTES],
    content: Content,
}

#[derive(Debug)]
enum Content {
    Nothing,
    Bytes(Vec<u8>),
    File(PathBuf, u64),
}

impl Archive {
    /// Adds a folder, and those that it is in.
    pub fn folder(&mut self, path: &str, mode: u32) -> io::Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || self.folders.contains(path) {
            return Ok(());
        }
        self.parents(path)?;
        let header = header(&format!("{path}/"), mode, 0, b'5')?;
        self.entries.push(Entry { header, content: Content::Nothing });
        self.folders.insert(path.to_owned());
        Ok(())
    }

    /// Adds a file of these bytes.
    pub fn bytes_at(&mut self, path: &str, mode: u32, bytes: Vec<u8>) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parents(path)?;
        let header = header(path, mode, bytes.len() as u64, b'0')?;
        self.entries.push(Entry { header, content: Content::Bytes(bytes) });
        Ok(())
    }

    /// Adds a file that is here, at another place there.
    pub fn file_at(&mut self, path: &str, mode: u32, file: &Path) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parents(path)?;
        let bytes = std::fs::metadata(file)?.len();
        let header = header(path, mode, bytes, b'0')?;
        self.entries.push(Entry { header, content: Content::File(file.to_path_buf(), bytes) });
        Ok(())
    }

    /// Length of the whole archive.
    pub fn bytes(&self) -> u64 {
        let entries = self.entries.iter();
        let lengths = entries.map(|entry| BLOCK_BYTES as u64 + padded(entry.content.bytes()));
        lengths.sum::<u64>() + 2 * BLOCK_BYTES as u64
    }

    /// Writes it.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        for entry in &self.entries {
            to.write_all(&entry.header)?;
            match &entry.content {
                Content::Nothing => {}
                Content::Bytes(bytes) => to.write_all(bytes)?,
                Content::File(path, bytes) => copy(path, *bytes, to)?,
            }
            let length = entry.content.bytes();
            to.write_all(&[0; BLOCK_BYTES][..(padded(length) - length) as usize])?;
        }
        to.write_all(&[0; 2 * BLOCK_BYTES])
    }

    fn parents(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.folder(parent, 0o755),
            None => Ok(()),
        }
    }
}

impl Content {
    fn bytes(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, bytes) => *bytes,
        }
    }
}

/// Copies exactly as many bytes as the header says.
fn copy(path: &Path, bytes: u64, to: &mut impl Write) -> io::Result<()> {
    let copied = io::copy(&mut File::open(path)?.take(bytes), to)?;
    match copied == bytes {
        true => Ok(()),
        false => {
            let what = format!("`{}` has become shorter while it was read", path.display());
            Err(io::Error::other(what))
        }
    }
}

fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES as u64)
}

fn header(path: &str, mode: u32, bytes: u64, kind: u8) -> io::Result<[u8; BLOCK_BYTES]> {
    let (prefix, name) = split(path).filter(|_| bytes <= FILE_BYTES_MAX).ok_or_else(|| {
        let what = format!("`{path}` ({bytes} bytes) cannot be put into an archive");
        io::Error::new(ErrorKind::InvalidInput, what)
    })?;
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, field: &[u8]| block[at..at + field.len()].copy_from_slice(field);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{bytes:011o}").as_bytes());
    // The same files give the same archive, whenever they were made.
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    Ok(block)
}

/// A path as a folder and a name in it that both fit.
fn split(path: &str) -> Option<(&str, &str)> {
    if path.len() <= NAME_BYTES_MAX {
        return Some(("", path));
    }
    let fits = |&(at, _): &(usize, &str)| {
        at <= PREFIX_BYTES_MAX && (1..=NAME_BYTES_MAX).contains(&(path.len() - at - 1))
    };
    path.match_indices('/').find(fits).map(|(at, _)| (&path[..at], &path[at + 1..]))
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
