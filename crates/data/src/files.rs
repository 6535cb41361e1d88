//! Files as streams of bytes: found, opened and, where they are packed, unpacked.
//!
//! Whether a file is packed is read from its first bytes; a name that ends in `.gz` or `.xz` must
//! agree. Nothing here holds a whole file, and no size a file claims is believed before its bytes
//! have come.

mod xz;

use crate::content::Content;
use crate::error::Error;
use crate::source::DataFile;
use flate2::bufread::MultiGzDecoder;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Most bytes that one source may hold in memory.
pub const SOURCE_BYTES_MAX: u64 = 16 << 30;
/// Most memory that unpacking one .xz file may take (its largest preset needs 65 MiB).
const XZ_MEMORY_KIB_MAX: u32 = 128 << 10;
/// Most that one stored byte can become when it is unpacked from .gz (.xz can go beyond).
const EXPANSION_MAX: u64 = 1032;
/// Names listed when the right one is not there.
const LISTED_MAX: usize = 8;

/// An open file, unpacked as it is read.
pub struct Stream {
    path: PathBuf,
    bytes: Box<dyn Read + Send>,
    content: Content,
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
        let bytes: Box<dyn Read + Send> = match packing {
            Packing::Plain => Box::new(file),
            Packing::Gzip => Box::new(MultiGzDecoder::new(file)),
            Packing::Xz => {
                Box::new(lzma_rust2::XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB_MAX))
            }
        };
        Ok(Self { path: path.into(), bytes, content: Content::new() })
    }

    /// Fills `out` as far as the file goes and says how far that is; `place` names where a failure
    /// to unpack happened.
    pub fn fill(
        &mut self,
        out: &mut [u8],
        place: impl Fn(usize) -> String,
    ) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < out.len() {
            match self.bytes.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failure(e, &place(filled))),
            }
        }
        self.content.add(&out[..filled]);
        Ok(filled)
    }

    /// Reads up to `len` bytes.
    pub fn read(&mut self, len: u64, place: impl Fn(usize) -> String) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        let likely = len.min(size(&self.path)?.saturating_mul(EXPANSION_MAX));
        // Untouched room costs nothing; where even that is refused, the buffer grows as it fills.
        let _ = out.try_reserve_exact(likely as usize);
        let result = (&mut self.bytes).take(len).read_to_end(&mut out);
        match result {
            Ok(_) => {
                self.content.add(&out);
                Ok(out)
            }
            Err(e) => Err(self.failure(e, &place(out.len()))),
        }
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
        Packing::Xz => xz::stated_bytes(path, file.into_inner()).map(Some),
    }
}

/// The file with its stored size and, once it was read, the mark of its content.
pub fn data_file(path: &Path, mark: Option<u128>) -> Result<DataFile, Error> {
    Ok(DataFile { path: path.into(), bytes: size(path)?, mark })
}

/// Names in a folder, sorted; names that are not UTF-8 are no data of ours.
pub fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
        let entry = entry.map_err(|e| Error::io(folder, e))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
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

/// Opens a file and looks at its first bytes.
fn start(path: &Path) -> Result<(Packing, BufReader<File>), Error> {
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    if !file.metadata().map_err(|e| Error::io(path, e))?.is_file() {
        return Err(Error::missing(path, "is not a file"));
    }
    let mut file = BufReader::with_capacity(1 << 16, file);
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
    Ok(fs::metadata(path).map_err(|e| Error::io(path, e))?.len())
}
