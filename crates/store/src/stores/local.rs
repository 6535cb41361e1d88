//! Files of this machine.

use super::Kind;
use crate::hash::Hasher;
use crate::{Entry, Error, Found, Location, Object, Store, Written, durable};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

pub const KIND: Kind = Kind {
    scheme: "file",
    about: "files of this machine; a plain path means the same",
    open,
    missing,
};

/// Bytes copied at a time.
const PIECE_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

fn open(url: &str) -> Result<Location, Error> {
    match is_stream(path(url)) {
        true => Err(Error::Stream { name: url.into() }),
        false => Ok(Location { store: Arc::new(Local), name: path(url).into() }),
    }
}

/// Whether a name leads to what cannot be read at any place, such as a pipe; `-`, by which commands
/// mean their input, does where no file is called so.
fn is_stream(name: &str) -> bool {
    match fs::metadata(name) {
        Ok(found) => !found.is_dir() && !found.is_file(),
        Err(_) => name == "-",
    }
}

fn path(url: &str) -> &str {
    url.strip_prefix("file://").unwrap_or(url)
}

/// Where a relative path was looked for.
fn missing(url: &str) -> Option<String> {
    let path = Path::new(path(url));
    if path.is_absolute() || path.exists() {
        return None;
    }
    let here = std::env::current_dir().ok()?;
    Some(format!("relative paths start at the current directory, `{}`", here.display()))
}

/// A folder as the system knows it: the empty name is where relative paths start.
fn folder_path(name: &str) -> &str {
    if name.is_empty() { "." } else { name }
}

impl Store for Local {
    fn list(&self, folder: &str) -> Result<Vec<Entry>, Error> {
        let failed = |e| Error::io("list", folder, e);
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder_path(folder)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Other names cannot be written in a recipe.
            let Ok(name) = entry.file_name().into_string() else { continue };
            // A link that leads nowhere is not there.
            let Ok(metadata) = fs::metadata(entry.path()) else { continue };
            entries.push(Entry { name, found: found(&metadata) });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn look(&self, name: &str) -> Result<Option<Found>, Error> {
        match fs::metadata(folder_path(name)) {
            Ok(metadata) => Ok(Some(found(&metadata))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", name, e)),
        }
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, Error> {
        let failed = |e| Error::io("read", name, e);
        // Opening a pipe would wait for a writer.
        if !fs::metadata(name).map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::IsADirectory, "it is not a file")));
        }
        let file = File::open(name).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let (bytes, version) = (metadata.len(), version(&metadata));
        Ok(Arc::new(OpenFile { file, name: name.into(), bytes, version }))
    }

    fn write(&self, name: &str, from: &mut dyn Read) -> Result<Written, Error> {
        let (path, failed) = (Path::new(name), |e| Error::io("write", name, e));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let written = durable::put_with(path, |file| copy(from, file)).map_err(failed)?;
        durable::sync_folder_of(path).map_err(failed)?;
        Ok(written)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        match fs::remove_file(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", name, e)),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    name: String,
    bytes: u64,
    version: String,
}

impl Object for OpenFile {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Error> {
        match self.file.read_exact_at(out, at) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(Error::Changed {
                name: self.name.clone(),
                what: format!(
                    "{} bytes from byte {at} on are not there; it had {}",
                    out.len(),
                    self.bytes
                ),
            }),
            other => other.map_err(|e| Error::io("read", &self.name, e)),
        }
    }
}

fn found(metadata: &Metadata) -> Found {
    match metadata.is_dir() {
        true => Found::Folder,
        false => Found::Object { bytes: metadata.len(), version: version(metadata) },
    }
}

fn version(metadata: &Metadata) -> String {
    let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
    format!("{:x}-{seconds:x}.{nanoseconds:x}-{:x}", metadata.ino(), metadata.len())
}

fn copy(from: &mut dyn Read, to: &mut File) -> io::Result<Written> {
    let (mut piece, mut hash, mut bytes) = (vec![0; PIECE_BYTES], Hasher::new(), 0);
    loop {
        let length = match from.read(&mut piece) {
            Ok(0) => return Ok(Written { bytes, sha256: hash.finish() }),
            Ok(length) => length,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        hash.update(&piece[..length]);
        to.write_all(&piece[..length])?;
        bytes += length as u64;
    }
}
