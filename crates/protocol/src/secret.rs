//! The secret that the processes of a run share.
//!
//! Owns its 32 bytes and how they are handed over a pipe. Never shows them by accident: `Debug`
//! prints nothing and there is no `Display`.

use crate::error::Error;
use planaria_store::hash::hex;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

/// 32 random bytes that only the processes of one run know.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    pub fn random() -> Result<Self, Error> {
        Ok(Self(random()?))
    }

    /// The members' secret, where this is the consoles': what a worker or server knows leads to no
    /// console's, and a console needs no second one.
    pub fn for_members(&self) -> Self {
        let code = hmac::sign(&self.key(), b"planaria members");
        Self(code.as_ref().try_into().expect("a code of SHA-256 has 32 bytes"))
    }

    /// For the pipe to another process of the run.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// From the pipe.
    pub fn from_hex(text: &str) -> Result<Self, Error> {
        let digits = text.trim_end().as_bytes();
        let wrong = || Error::SecretText(digits.len());
        let value = |digit: u8| (digit as char).to_digit(16).ok_or_else(wrong);
        if digits.len() != 64 {
            return Err(wrong());
        }
        let mut secret = Self([0; 32]);
        for (byte, pair) in secret.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
        }
        Ok(secret)
    }

    /// The key of a message's code.
    pub(crate) fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Else the compiler may see that the zeros are not read and leave them out.
        std::hint::black_box(&mut self.0);
    }
}

/// Bytes that cannot be guessed.
pub(crate) fn random() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(bytes)
}
