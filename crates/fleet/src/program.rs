//! The program that goes to machines: this one, by its hash.
//!
//! Owns its bytes' hash and what a machine must be to run it. Never delivers it; providers do.

use planaria_store::hash::{Hasher, hex};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Bytes read at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// A program, and what it needs.
#[derive(Debug, Clone)]
pub struct Program {
    /// Where its file is here.
    pub path: PathBuf,
    /// SHA-256 of the file, in hexadecimal: its name on machines.
    pub sha256: String,
    /// Length of the file.
    pub bytes: u64,
    /// The processor it was built for, as `uname -m` says.
    pub arch: &'static str,
    /// What it says when it is asked which build it is (`planaria agent build`).
    pub build: String,
}

impl Program {
    /// Reads the file once.
    pub fn read(path: &Path, build: &str) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let (mut hash, mut bytes) = (Hasher::new(), 0);
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let read = file.read(&mut block)?;
            if read == 0 {
                break;
            }
            hash.update(&block[..read]);
            bytes += read as u64;
        }
        let sha256 = hex(&hash.finish());
        let (path, build) = (path.to_path_buf(), build.to_owned());
        Ok(Self { path, sha256, bytes, arch: std::env::consts::ARCH, build })
    }
}
