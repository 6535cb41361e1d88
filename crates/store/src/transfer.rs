//! Bytes on their way from one machine to another: what both ends do, over any transport.
//!
//! The sender announces length and, where it is known, SHA-256; pieces follow in order, a few in
//! flight at a time. The receiver writes under a temporary name, takes no more than was announced,
//! compares, syncs and renames. So a file is whole or not there, and neither end holds more than
//! pieces of it. Links (`protocol::transfer`), the channel to hosts (`fleet`) and the mirror of a
//! detached run carry them.

use crate::durable::Draft;
use crate::hash::Hasher;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Most bytes of a piece.
pub const PIECE_BYTES: usize = 1 << 20;
/// Pieces that may be in flight before one is acknowledged.
pub const WINDOW: usize = 8;
/// Bytes after which what was written goes to the disk, so that the last sync does not take long.
const SYNC_EVERY: u64 = 64 << 20;

/// What is known of an object before its first piece.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Announced {
    /// Nothing for a stream whose end is known when it is there.
    pub bytes: Option<u64>,
    pub sha256: Option<[u8; 32]>,
}

/// Why a transfer cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it changed after it was listed")]
    Changed,
    #[error("it does not match its SHA-256: bytes were changed")]
    Mismatch,
    #[error("bytes {at} to {end} are more than the {announced} that were announced")]
    TooLong { at: u64, end: u64, announced: u64 },
    #[error("a piece from byte {at} on came where byte {due} is due")]
    OutOfOrder { at: u64, due: u64 },
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Io(e) => e,
            fault => Self::other(fault),
        }
    }
}

/// The sender's end: an object cut into pieces.
#[derive(Debug)]
pub struct Outgoing<R> {
    from: R,
    announced: Announced,
    at: u64,
    hash: Hasher,
    is_over: bool,
}

impl<R: Read> Outgoing<R> {
    pub fn new(from: R, announced: Announced) -> Self {
        Self::starting(from, announced, 0)
    }

    fn starting(from: R, announced: Announced, at: u64) -> Self {
        // A piece has to come even of nothing, where the end is not announced.
        let is_over = announced.bytes.is_some_and(|bytes| at >= bytes);
        Self { from, announced, at, hash: Hasher::new(), is_over }
    }

    /// Bytes that were sent.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Whether all bytes were sent.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next piece, of at most so many bytes. An object that is shorter than announced, or has
    /// another SHA-256, has changed.
    pub fn next(&mut self, bytes_max: usize) -> Result<Vec<u8>, Fault> {
        let most = bytes_max as u64;
        let length = self.announced.bytes.map_or(most, |bytes| (bytes - self.at).min(most));
        let mut piece = Vec::new();
        (&mut self.from).take(length).read_to_end(&mut piece)?;
        let is_short = (piece.len() as u64) < length;
        if is_short && self.announced.bytes.is_some() {
            return Err(Fault::Changed);
        }
        self.at += piece.len() as u64;
        self.is_over = is_short || self.announced.bytes == Some(self.at);
        if let Some(expected) = self.announced.sha256 {
            self.hash.update(&piece);
            if self.is_over && self.hash.clone().finish() != expected {
                return Err(Fault::Changed);
            }
        }
        Ok(piece)
    }
}

impl<R: Read + Seek> Outgoing<R> {
    /// From byte `at` on: the receiver has the others. Only length can be checked then.
    pub fn resume(mut from: R, bytes: u64, at: u64) -> io::Result<Self> {
        from.seek(SeekFrom::Start(at))?;
        Ok(Self::starting(from, Announced { bytes: Some(bytes), sha256: None }, at))
    }
}

/// The receiver's end: a file under a temporary name, which is gone with this unless it is kept.
#[derive(Debug)]
pub struct Incoming {
    draft: Draft,
    announced: Announced,
    at: u64,
    hash: Hasher,
    unsynced: u64,
}

impl Incoming {
    pub fn new(draft: Draft, announced: Announced) -> Self {
        Self { draft, announced, at: 0, hash: Hasher::new(), unsynced: 0 }
    }

    /// Goes on with `part`, which stays where it is when this is dropped, from byte `at` on; what
    /// it has beyond that is cut off.
    pub fn resume(part: PathBuf, path: &Path, bytes: u64, at: u64) -> Result<Self, Fault> {
        let draft = Draft::part(part, path)?;
        let due = draft.file.metadata()?.len();
        if at > due {
            return Err(Fault::OutOfOrder { at, due });
        }
        draft.file.set_len(at)?;
        (&draft.file).seek(SeekFrom::Start(at))?;
        let announced = Announced { bytes: Some(bytes), sha256: None };
        Ok(Self { at, ..Self::new(draft, announced) })
    }

    /// The file, such as to give it other permissions.
    pub fn file(&self) -> &std::fs::File {
        &self.draft.file
    }

    /// Takes the piece that starts at byte `at`.
    pub fn take(&mut self, at: u64, piece: &[u8]) -> Result<(), Fault> {
        if at != self.at {
            return Err(Fault::OutOfOrder { at, due: self.at });
        }
        let end = at + piece.len() as u64;
        if let Some(announced) = self.announced.bytes.filter(|bytes| end > *bytes) {
            return Err(Fault::TooLong { at, end, announced });
        }
        self.draft.file.write_all(piece)?;
        if self.announced.sha256.is_some() {
            self.hash.update(piece);
        }
        self.at = end;
        self.unsynced += piece.len() as u64;
        if self.unsynced >= SYNC_EVERY {
            self.unsynced = 0;
            self.draft.file.sync_data()?;
        }
        Ok(())
    }

    /// Bytes that came.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Whether all did that were announced.
    pub fn is_whole(&self) -> bool {
        self.announced.bytes.is_none_or(|bytes| bytes == self.at)
    }

    /// Compares with what was announced, and syncs.
    pub fn check(&mut self) -> Result<(), Fault> {
        self.compare()?;
        Ok(self.draft.file.sync_all()?)
    }

    /// Compares alone, for what is checked again when it is used.
    pub fn compare(&mut self) -> Result<(), Fault> {
        if !self.is_whole() {
            return Err(Fault::Changed);
        }
        let found = self.hash.clone().finish();
        match self.announced.sha256 {
            Some(expected) if expected != found => Err(Fault::Mismatch),
            _ => Ok(()),
        }
    }

    /// Gives it its name; it must have been checked. The sync of the folder is the caller's.
    pub fn keep(self) -> io::Result<()> {
        self.draft.keep()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::sha256;
    use std::fs;

    fn content(bytes: usize) -> (Vec<u8>, Announced) {
        let content: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
        let sha256 = Some(sha256(&content));
        (content, Announced { bytes: Some(bytes as u64), sha256 })
    }

    #[test]
    fn pieces_make_the_file_and_only_then_it_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        for bytes in [0, 1, 1000, 1001] {
            let (content, announced) = content(bytes);
            let mut from = Outgoing::new(&content[..], announced);
            let mut to = Incoming::new(Draft::new(&path, bytes as u64).unwrap(), announced);
            while !from.is_over() {
                let at = from.at();
                to.take(at, &from.next(100).unwrap()).unwrap();
            }
            to.check().unwrap();
            assert!(bytes == 0 || fs::read(&path).ok().as_ref() != Some(&content));
            to.keep().unwrap();
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_as_announced_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (content, announced) = content(100);
        let incoming = |number: u64| {
            Incoming::new(Draft::new(&folder.path().join("a"), number).unwrap(), announced)
        };
        let mut other = content.clone();
        other[50] ^= 1;
        let mut changed = incoming(0);
        changed.take(0, &other).unwrap();
        assert!(matches!(changed.check(), Err(Fault::Mismatch)));
        let mut short = incoming(1);
        short.take(0, &content[..99]).unwrap();
        assert!(matches!(short.check(), Err(Fault::Changed)));
        let mut long = incoming(2);
        assert!(matches!(long.take(0, &[0; 101]), Err(Fault::TooLong { .. })));
        assert!(matches!(long.take(5, b"x"), Err(Fault::OutOfOrder { at: 5, due: 0 })));
        drop((changed, short, long));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(matches!(Outgoing::new(&other[..], announced).next(200), Err(Fault::Changed)));
        assert!(matches!(Outgoing::new(&content[..9], announced).next(200), Err(Fault::Changed)));
    }

    #[test]
    fn a_stream_of_unknown_length_ends_with_a_short_piece() {
        for (bytes, pieces) in [(0, 1), (99, 1), (100, 2), (101, 2)] {
            let (content, _) = content(bytes);
            let mut from = Outgoing::new(&content[..], Announced::default());
            let mut all = Vec::new();
            let mut count = 0;
            while !from.is_over() {
                all.extend(from.next(100).unwrap());
                count += 1;
            }
            assert_eq!((all, count), (content, pieces));
        }
    }

    #[test]
    fn a_part_that_stayed_is_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let (part, path) = (folder.path().join("a.part"), folder.path().join("a"));
        let (content, _) = content(100);
        let mut first = Incoming::resume(part.clone(), &path, 100, 0).unwrap();
        first.take(0, &content[..60]).unwrap();
        drop(first);
        assert!(matches!(
            Incoming::resume(part.clone(), &path, 100, 61),
            Err(Fault::OutOfOrder { at: 61, due: 60 })
        ));
        let mut rest = Outgoing::resume(io::Cursor::new(&content), 100, 40).unwrap();
        let mut second = Incoming::resume(part, &path, 100, 40).unwrap();
        second.take(40, &rest.next(1000).unwrap()).unwrap();
        second.check().unwrap();
        second.keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}
