//! Files without a name, for what does not fit into memory. The system takes them back when the
//! process ends, however it ends.

use crate::{Error, Object};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are written once, in order, and then read at random.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    bytes: u64,
}

impl Scratch {
    pub fn new() -> io::Result<Self> {
        let folder = folder();
        let named = |e: io::Error| {
            let message = format!("no scratch file in `{}` ({e})", folder.display());
            io::Error::new(e.kind(), message)
        };
        let file = tempfile::tempfile_in(&folder).map_err(named)?;
        Ok(Self { file, bytes: 0 })
    }

    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).map_err(|e| {
            let message = format!("scratch file in `{}`: {e}", folder().display());
            io::Error::new(e.kind(), message)
        })?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// What was written, to be read from any thread.
    pub fn finish(self) -> Arc<dyn Object> {
        Arc::new(self)
    }
}

impl Object for Scratch {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn version(&self) -> &str {
        ""
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Error> {
        self.file.read_exact_at(out, at).map_err(|e| Error::io("read", "scratch file", e))
    }
}

/// `/tmp` may be memory; `/var/tmp` is a disk by convention. `TMPDIR` is the user's word.
fn folder() -> PathBuf {
    let disk = PathBuf::from("/var/tmp");
    match std::env::var_os("TMPDIR").is_none() && disk.is_dir() {
        true => disk,
        false => std::env::temp_dir(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_read_at_random() {
        let mut scratch = Scratch::new().unwrap();
        scratch.append(b"hello ").unwrap();
        scratch.append(b"world").unwrap();
        let object = scratch.finish();
        let mut out = [0; 5];
        object.read(6, &mut out).unwrap();
        assert_eq!((&out, object.bytes()), (b"world", 11));
        assert!(object.read(7, &mut out).is_err());
    }
}
