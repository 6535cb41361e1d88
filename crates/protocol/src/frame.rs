//! The header of a frame: how long it is, and where it belongs.
//!
//! A frame is 32 bytes of header, a control message, and bulk. Owns the bounds of both and the
//! order of the header's fields (little-endian). Never looks into what the frame carries.

use crate::error::Error;
use postcard::ser_flavors::Flavor;
use serde::{Serialize, de::DeserializeOwned};

/// Length of a header.
pub const HEADER_BYTES: usize = 32;

/// Longest control message.
pub const CONTROL_BYTES: usize = 1 << 20;

/// Longest bulk, in bytes.
pub const BULK_BYTES: u64 = 1 << 30;

/// First two bytes of every frame.
pub const MAGIC: u16 = 0x4c50;

/// What stands before a control message and its bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Length of the control message.
    pub control_bytes: u32,
    /// Length of the bulk after it.
    pub bulk_bytes: u64,
    /// The run's session, so that nothing late can pass for something new.
    pub generation: u64,
    /// Frames before this one in this direction.
    pub sequence: u64,
}

impl Header {
    /// As it crosses the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        // 2..4 is the kind, of which there is one.
        bytes[4..8].copy_from_slice(&self.control_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bulk_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    /// Reads a header and holds it to the bounds.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Error> {
        let [m0, m1, k0, k1, c0, c1, c2, c3, rest @ ..] = *bytes;
        let long = |at: usize| {
            u64::from_le_bytes(std::array::from_fn(|i| rest.get(at + i).copied().unwrap_or(0)))
        };
        let (magic, kind) = (u16::from_le_bytes([m0, m1]), u16::from_le_bytes([k0, k1]));
        if magic != MAGIC {
            return Err(Error::Magic { found: magic, expected: MAGIC });
        }
        if kind != 0 {
            return Err(Error::Kind(kind));
        }
        let header = Self {
            control_bytes: u32::from_le_bytes([c0, c1, c2, c3]),
            bulk_bytes: long(0),
            generation: long(8),
            sequence: long(16),
        };
        if header.control_bytes as usize > CONTROL_BYTES {
            let (bytes, most) = (header.control_bytes.into(), CONTROL_BYTES as u64);
            return Err(Error::ControlTooLong { bytes, most });
        }
        if header.bulk_bytes > BULK_BYTES {
            return Err(Error::BulkTooLong { bytes: header.bulk_bytes, most: BULK_BYTES });
        }
        Ok(header)
    }

    /// Holds a header to the place where it was found.
    pub fn expect(&self, generation: u64, sequence: u64) -> Result<(), Error> {
        if self.generation != generation {
            return Err(Error::Generation { found: self.generation, expected: generation });
        }
        if self.sequence != sequence {
            return Err(Error::Sequence { found: self.sequence, expected: sequence });
        }
        Ok(())
    }
}

/// Appends header and control message to `into`, which is as before after an error.
pub fn append<M: Serialize>(
    into: &mut Vec<u8>,
    message: &M,
    bulk_bytes: usize,
    generation: u64,
    sequence: u64,
) -> Result<(), Error> {
    let start = into.len();
    let result = (|| {
        let bulk_bytes = bulk_bytes as u64;
        if bulk_bytes > BULK_BYTES {
            return Err(Error::BulkTooLong { bytes: bulk_bytes, most: BULK_BYTES });
        }
        into.extend_from_slice(&[0; HEADER_BYTES]);
        let control = start + HEADER_BYTES;
        postcard::serialize_with_flavor(message, Bounded { into, most: control + CONTROL_BYTES })
            .map_err(|source| match source {
            postcard::Error::SerializeBufferFull => {
                let most = CONTROL_BYTES as u64;
                Error::ControlTooLong { bytes: most + 1, most }
            }
            other => Error::Unencodable(other),
        })?;
        let control_bytes =
            u32::try_from(into.len() - control).expect("the writer kept to the bound");
        let header = Header { control_bytes, bulk_bytes, generation, sequence };
        into[start..control].copy_from_slice(&header.encode());
        Ok(())
    })();
    if result.is_err() {
        into.truncate(start);
    }
    result
}

/// Reads a control message, which must fill its bytes.
pub fn message<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, Error> {
    let (message, rest) = postcard::take_from_bytes(bytes)
        .map_err(|source| Error::Undecodable { bytes: bytes.len(), source })?;
    match rest.len() {
        0 => Ok(message),
        trailing => Err(Error::Trailing { bytes: bytes.len(), trailing }),
    }
}

/// Where a message is written: at the end of a buffer that is used again and again.
struct Bounded<'a> {
    into: &'a mut Vec<u8>,
    most: usize,
}

impl Flavor for Bounded<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if bytes.len() > self.most - self.into.len() {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.into.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
