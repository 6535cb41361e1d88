//! The index at the end of an .xz file, which states the unpacked size without unpacking.
//!
//! Layout: "The .xz File Format", version 1.2.1, sections 2.1.2 (footer) and 4 (index).

use crate::error::Error;
use planaria_store::Object;
use std::path::Path;

const HEADER_BYTES: u64 = 12;
const FOOTER_BYTES: u64 = 12;
/// Largest index looked at: about 100,000 blocks.
const INDEX_BYTES_MAX: u64 = 1 << 20;
/// Most streams looked at in one file.
const STREAMS_MAX: usize = 1000;

/// Sum of the unpacked sizes that the indexes of all streams state.
pub fn stated_bytes(path: &Path, file: &dyn Object) -> Result<u64, Error> {
    let bad = || Error::corrupt(path, "the xz index at its end is damaged or cut off");
    let mut end = file.bytes();
    let mut total = 0u64;
    for _ in 0..STREAMS_MAX {
        let (start, unpacked) = match last_stream(file, end) {
            Ok(found) => found.ok_or_else(bad)?,
            Err(e) => return Err(Error::io(path, e.into())),
        };
        total = total.checked_add(unpacked).ok_or_else(bad)?;
        if start == 0 {
            return Ok(total);
        }
        end = start;
    }
    Err(bad())
}

/// Start and unpacked size of the stream that ends at `end`; none if there is no such stream.
fn last_stream(
    file: &dyn Object,
    mut end: u64,
) -> Result<Option<(u64, u64)>, planaria_store::Error> {
    let mut footer = [0; FOOTER_BYTES as usize];
    loop {
        if end < HEADER_BYTES + FOOTER_BYTES {
            return Ok(None);
        }
        file.read(end - FOOTER_BYTES, &mut footer)?;
        // Streams may be followed by zeros in fours.
        match footer[8..] {
            [0, 0, 0, 0] => end -= 4,
            [_, _, b'Y', b'Z'] => break,
            _ => return Ok(None),
        }
    }
    let words = u32::from_le_bytes([footer[4], footer[5], footer[6], footer[7]]);
    let index_bytes = (u64::from(words) + 1) * 4;
    let around = HEADER_BYTES + FOOTER_BYTES + index_bytes;
    if index_bytes > INDEX_BYTES_MAX || end < around {
        return Ok(None);
    }
    let mut index = vec![0; index_bytes as usize];
    file.read(end - FOOTER_BYTES - index_bytes, &mut index)?;
    Ok(sizes(&index).and_then(|(packed, unpacked)| {
        let start = end.checked_sub(around.checked_add(packed)?)?;
        Some((start, unpacked))
    }))
}

/// Packed and unpacked bytes of all blocks in an index.
fn sizes(index: &[u8]) -> Option<(u64, u64)> {
    let (&0, mut rest) = index.split_first()? else { return None };
    let count = number(&mut rest)?;
    let (mut packed, mut unpacked) = (0u64, 0u64);
    for _ in 0..count {
        packed = packed.checked_add(number(&mut rest)?.checked_next_multiple_of(4)?)?;
        unpacked = unpacked.checked_add(number(&mut rest)?)?;
    }
    Some((packed, unpacked))
}

/// A number in groups of seven bits, lowest first.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
