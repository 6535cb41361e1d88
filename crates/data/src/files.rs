//! Files as streams of bytes: found, opened and, where they are packed, unpacked.
//!
//! Whether a file is packed is read from its first bytes; a name that ends in `.gz` or `.xz` must
//! agree. Nothing here holds a whole file, and no size a file claims is believed before its bytes
//! have come. The only module of this crate that reaches a store.

mod xz;

use crate::content::Content;
use crate::error::Error;
use crate::source::DataFile;
use flate2::bufread::MultiGzDecoder;
use planaria_store::{Found, Location, Object};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes that a matrix in memory may take.
pub const MATRIX_BYTES_MAX: u64 = 16 << 30;
/// Most memory that unpacking one .xz file may take (its largest preset needs 65 MiB).
const XZ_MEMORY_KIB_MAX: u32 = 128 << 10;
/// Bytes that are handed on at once; whole blocks of the content's mark, and whole values.
const PIECE_BYTES: usize = 1 << 20;
/// Names listed when the right one is not there.
const LISTED_MAX: usize = 8;

/// An open file, unpacked as it is read.
pub struct Stream {
    path: PathBuf,
    bytes: Box<dyn Read + Send>,
    content: Content,
    /// Where the bytes can be read at random, if they are not packed.
    plain: Option<Arc<dyn Object>>,
    stored_bytes: u64,
}

/// How a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Xz,
}

impl Stream {
    /// Opens a file; an empty one is an error.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (packing, file) = start(path)?;
        let object = file.get_ref().object.clone();
        let stored_bytes = object.bytes();
        let plain = (packing == Packing::Plain).then_some(object);
        let bytes: Box<dyn Read + Send> = match packing {
            Packing::Plain => Box::new(file),
            Packing::Gzip => Box::new(MultiGzDecoder::new(file)),
            Packing::Xz => {
                Box::new(lzma_rust2::XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB_MAX))
            }
        };
        Ok(Self { path: path.into(), bytes, content: Content::new(), plain, stored_bytes })
    }

    /// Where the bytes can be read at random; nothing if they are packed.
    pub fn plain(&self) -> Option<&Arc<dyn Object>> {
        self.plain.as_ref()
    }

    /// The file, with the mark of what was read of it.
    pub fn data_file(&self) -> DataFile {
        DataFile { path: self.path.clone(), bytes: self.stored_bytes, mark: Some(self.mark()) }
    }

    /// Fills `out` as far as the file goes and says how far that is; `place` names where a failure
    /// to unpack happened.
    pub fn fill(
        &mut self,
        out: &mut [u8],
        place: impl Fn(usize) -> String,
    ) -> Result<usize, Error> {
        let filled = self.take(out, 0, &place)?;
        self.content.add(&out[..filled]);
        Ok(filled)
    }

    /// Hands on up to `len` bytes, in pieces of which all but the last are of the same size, and
    /// says how many there were.
    pub fn pass(
        &mut self,
        len: u64,
        place: impl Fn(usize) -> String,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let mut piece = vec![0; len.min(PIECE_BYTES as u64) as usize];
        let mut passed = 0;
        while passed < len {
            let length = (len - passed).min(PIECE_BYTES as u64) as usize;
            let filled = self.take(&mut piece[..length], passed as usize, &place)?;
            self.content.extend(&piece[..filled]);
            take(&piece[..filled])?;
            passed += filled as u64;
            if filled < length {
                break;
            }
        }
        self.content.end();
        Ok(passed)
    }

    fn take(
        &mut self,
        out: &mut [u8],
        before: usize,
        place: &impl Fn(usize) -> String,
    ) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < out.len() {
            match self.bytes.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failure(e, &place(before + filled))),
            }
        }
        Ok(filled)
    }

    /// Whether the file ends here. Reading on to the end also checks the checksums of packed files.
    pub fn ended(&mut self) -> Result<bool, Error> {
        Ok(self.fill(&mut [0], |_| "after the last record".into())? == 0)
    }

    /// A mark of what was read so far.
    pub fn mark(&self) -> u128 {
        self.content.mark()
    }

    /// A failure to unpack is the file's fault unless the system says that it is its own.
    fn failure(&self, cause: io::Error, place: &str) -> Error {
        if cause.raw_os_error().is_some() {
            return Error::io(&self.path, cause);
        }
        Error::corrupt(
            &self.path,
            format!("{place}: the packed data is damaged or cut short ({cause})"),
        )
    }
}

/// Unpacked size as the file states it: exact for plain files, the index's word for .xz, nothing for
/// .gz (which states it modulo 2³² only).
pub fn stated_bytes(path: &Path) -> Result<Option<u64>, Error> {
    let (packing, file) = start(path)?;
    match packing {
        Packing::Plain => Ok(Some(size(path)?)),
        Packing::Gzip => Ok(None),
        Packing::Xz => xz::stated_bytes(path, file.get_ref().object.as_ref()).map(Some),
    }
}

/// A file whose content has not been read.
pub fn data_file(path: &Path) -> Result<DataFile, Error> {
    Ok(DataFile { path: path.into(), bytes: size(path)?, mark: None })
}

/// Names in a folder, sorted.
pub fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let place = locate(folder)?;
    let entries = place.store.list(&place.name).map_err(|e| Error::io(folder, e.into()))?;
    Ok(entries.into_iter().map(|entry| entry.name).collect())
}

pub fn is_folder(path: &Path) -> bool {
    matches!(look(path), Ok(Some(Found::Folder)))
}

pub fn exists(path: &Path) -> bool {
    matches!(look(path), Ok(Some(_)))
}

/// Whether two names lead to the same file.
pub fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((look(a), look(b)), (Ok(Some(a)), Ok(Some(b))) if a == b)
}

fn look(path: &Path) -> Result<Option<Found>, Error> {
    let place = locate(path)?;
    place.store.look(&place.name).map_err(|e| Error::io(path, e.into()))
}

fn locate(path: &Path) -> Result<Location, Error> {
    let text = path.to_str().ok_or_else(|| Error::missing(path, "is not a UTF-8 name"))?;
    Location::parse(text).map_err(Error::Place)
}

/// Whether a name leads to a store that there is; the others say which those are.
pub fn check(path: &Path) -> Result<(), Error> {
    locate(path).map(|_| ())
}

/// What a folder holds, for a message.
pub fn listing(names: &[String]) -> String {
    if names.is_empty() {
        return "it is empty".into();
    }
    let shown: Vec<String> = names.iter().take(LISTED_MAX).map(|n| format!("`{n}`")).collect();
    let more = names.len() - shown.len();
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("it holds {}{tail}", shown.join(", "))
}

/// A file name without the ending that says how it is packed.
pub fn unpacked_name(name: &str) -> &str {
    name.strip_suffix(".gz").or_else(|| name.strip_suffix(".xz")).unwrap_or(name)
}

/// An object as a stream.
struct Whole {
    object: Arc<dyn Object>,
    at: u64,
}

impl Read for Whole {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.object.bytes() - self.at;
        let length = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.object.read(self.at, &mut out[..length])?;
        self.at += length as u64;
        Ok(length)
    }
}

/// Opens a file and looks at its first bytes.
fn start(path: &Path) -> Result<(Packing, BufReader<Whole>), Error> {
    if is_folder(path) {
        return Err(Error::missing(path, "is not a file"));
    }
    let place = locate(path)?;
    let object = place.store.open(&place.name).map_err(|e| Error::io(path, e.into()))?;
    let mut file = BufReader::with_capacity(1 << 16, Whole { object, at: 0 });
    let head = file.fill_buf().map_err(|e| Error::io(path, e))?;
    let packing = match head {
        [] => return Err(Error::corrupt(path, "the file is empty")),
        [0x1F, 0x8B, ..] => Packing::Gzip,
        [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Xz,
        _ => Packing::Plain,
    };
    let named = match path.extension().and_then(|e| e.to_str()) {
        Some("gz") if packing != Packing::Gzip => "gzip",
        Some("xz") if packing != Packing::Xz => "xz",
        _ => return Ok((packing, file)),
    };
    Err(Error::corrupt(path, format!("the name says {named}, but its first bytes do not")))
}

fn size(path: &Path) -> Result<u64, Error> {
    match look(path)? {
        Some(Found::Object { bytes, .. }) => Ok(bytes),
        _ => Err(Error::missing(path, "is not a file")),
    }
}
