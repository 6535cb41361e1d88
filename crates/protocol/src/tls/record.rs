//! One record of TLS 1.3 (RFC 8446, section 5.2): sealed and opened where it lies.
//!
//! Owns a direction's key and the number of its next record, which is never used twice: a key that
//! has sealed [`RECORDS_MAX`] records is not used again. Never touches a socket.

use crate::error::Error;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use std::io;

/// Most plain bytes of a record.
pub(super) const PLAIN_BYTES: usize = 1 << 14;
pub(super) const HEADER_BYTES: usize = 5;
/// After the plain bytes: their kind and the tag.
pub(super) const TRAILER_BYTES: usize = 1 + TAG_BYTES;
const TAG_BYTES: usize = 16;
/// Longest record that is taken, padding included.
pub(super) const RECORD_BYTES: usize = HEADER_BYTES + PLAIN_BYTES + 256;

/// Records under one key. Past 2^24.5 of full length AES-GCM gets weak (RFC 8446, section 5.5).
pub(super) const RECORDS_MAX: u64 = 1 << 24;

/// What a record holds.
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const DATA: u8 = 23;

/// A direction's key.
pub(super) struct Key {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// Number of the next record.
    pub(super) sequence: u64,
}

impl Key {
    /// From what the handshake has agreed on.
    pub(super) fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            return Err(Error::Handshake("it agreed on another cipher than was offered".into()));
        };
        let wrong = || Error::Handshake("its keys are not of the right length".into());
        let key = UnboundKey::new(&AES_128_GCM, key.as_ref()).map_err(|_| wrong())?;
        let iv = iv.as_ref().try_into().map_err(|_| wrong())?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence })
    }

    /// Seals the record that begins at `start` of `records` with room for a header, and ends with
    /// its plain bytes.
    pub(super) fn seal(&mut self, kind: u8, records: &mut Vec<u8>, start: usize) {
        records.push(kind);
        let sealed = records.len() - start - HEADER_BYTES + TAG_BYTES;
        let header = header(u16::try_from(sealed).expect("records are short"));
        let (head, plain) = records[start..].split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header);
        let nonce = self.nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), plain);
        records.extend_from_slice(tag.expect("a record is shorter than a cipher's bound").as_ref());
    }

    /// Opens a whole record where it lies: what it holds, and how many bytes of it follow the header.
    pub(super) fn open(&mut self, record: &mut [u8]) -> io::Result<(u8, usize)> {
        let (head, sealed) = record.split_at_mut(HEADER_BYTES);
        let head: [u8; HEADER_BYTES] = head.try_into().expect("just split");
        let nonce = self.nonce();
        let plain = self.key.open_in_place(nonce, Aad::from(head), sealed);
        let plain = plain.map_err(|_| invalid("a record was changed on its way"))?;
        // Zeros may follow the kind, as padding.
        let last = plain.iter().rposition(|byte| *byte != 0);
        let last = last.ok_or_else(|| invalid("a record without a kind"))?;
        if last > PLAIN_BYTES {
            return Err(invalid("a record that is too long"));
        }
        Ok((plain[last], last))
    }

    /// Each number is used once: the caller renews the key long before they run out.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The length of the record that begins here, once its header is there.
pub(super) fn length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let &[kind, _, _, high, low, ..] = bytes else { return Ok(None) };
    let length = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if kind != DATA {
        return Err(invalid("a record that is not sealed"));
    }
    if !(HEADER_BYTES + TRAILER_BYTES..=RECORD_BYTES).contains(&length) {
        return Err(invalid("a record of a length that no record has"));
    }
    Ok(Some(length))
}

/// What was read cannot be TLS of the peer.
pub(super) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn header(sealed: u16) -> [u8; HEADER_BYTES] {
    let [high, low] = sealed.to_be_bytes();
    [DATA, 3, 3, high, low]
}
