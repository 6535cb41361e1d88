//! SHA-256, by which files, weights and messages are known again.
//!
//! Owns nothing; `ring` does the work, which the run's certificates bring anyway.

use ring::digest::{Context, Digest, SHA256};
use std::fmt::Write as _;

/// Hashes what comes piece by piece.
#[derive(Clone)]
pub struct Hasher(Context);

impl Hasher {
    pub fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub fn update(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes.as_ref());
    }

    #[must_use]
    pub fn chain_update(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.update(bytes);
        self
    }

    pub fn finish(self) -> [u8; 32] {
        value(&self.0.finish())
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher")
    }
}

/// Of bytes that are all there.
pub fn sha256(bytes: impl AsRef<[u8]>) -> [u8; 32] {
    value(&ring::digest::digest(&SHA256, bytes.as_ref()))
}

/// As `sha256sum` prints it.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn value(digest: &Digest) -> [u8; 32] {
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_hashed_as_the_whole() {
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&sha256("abc")), abc);
        assert_eq!(hex(&Hasher::new().chain_update("a").chain_update("bc").finish()), abc);
    }
}
