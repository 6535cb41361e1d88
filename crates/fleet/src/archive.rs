//! What archives of files have in common.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A file of which as many bytes are read as its header says; an error where it has become shorter.
pub struct Exactly {
    file: File,
    left: u64,
    path: PathBuf,
}

impl Exactly {
    pub fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, left: bytes, path: path.to_path_buf() })
    }
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read(&mut buffer[..most])?;
        if read == 0 && most > 0 {
            let what = format!("`{}` has become shorter while it was read", self.path.display());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        self.left -= read as u64;
        Ok(read)
    }
}
