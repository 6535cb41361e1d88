//! One part of a checkpoint: a range of the parameters and what goes with it.
//!
//! ```text
//! magic      8 bytes  PLANARIA
//! version    u32      3
//! length     u32      of the header
//! header     JSON     step, range of parameters, slots, length of the state
//! buffers    f32      parameters, each slot of the optimizer, state (of part 0)
//! trailer    32 bytes SHA-256 of everything before
//! ```
//!
//! All numbers are little-endian. Owns these bytes; they are written and read in blocks, so that no
//! second copy of the weights is ever in memory. Never knows which parts belong together.

use super::{FORMAT, MAGIC, Weights};
use crate::bytes::as_bytes;
use crate::{durable, plain};
use planaria_store::hash::{Hasher, hex};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Cursor, Read, Write};
use std::ops::Range;
use std::path::Path;

const PREFIX_BYTES: usize = 16;
const TRAILER_BYTES: usize = 32;
/// A header has five numbers.
const HEADER_BYTES_MAX: usize = 1024;
/// Values converted at a time.
const BLOCK: usize = 16 * 1024;

/// What a part is to hold.
#[derive(Debug, Clone, Copy)]
pub struct PartView<'a> {
    /// Steps done.
    pub step: u64,
    /// Number of the first parameter.
    pub start: u64,
    /// The parameters from there on.
    pub parameters: &'a [f32],
    /// The same range of each of the optimizer's slots.
    pub slots: &'a [&'a [f32]],
    /// The whole state in part 0, and nothing in the others.
    pub state: &'a [f32],
}

/// A part that is on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartInfo {
    /// Its name in the folder.
    pub file: String,
    /// SHA-256 of the whole file, as `sha256sum` prints it.
    pub sha256: String,
    pub bytes: u64,
}

/// A part and the parameters it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    #[serde(flatten)]
    pub info: PartInfo,
    /// Its first parameter.
    pub start: u64,
    /// The one after its last.
    pub end: u64,
}

impl Part {
    /// Whether a reader of a range needs this part, which has a number.
    pub(super) fn is_in(&self, number: usize, range: &Range<u64>) -> bool {
        let touched = self.start < range.end && range.start < self.end;
        touched || number == 0 && range.start == 0
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    step: u64,
    start: u64,
    end: u64,
    slots: u32,
    state: u64,
}

/// The name of a part's file.
pub fn name(index: u32) -> String {
    format!("part-{index}")
}

/// Whether a file of this name is a part; such a name leads nowhere else.
pub fn is_name(name: &str) -> bool {
    let number = name.strip_prefix("part-").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

/// Most bytes that a part of so many parameters can have.
pub fn bytes_max(parameters: u64, slots: u32, state: u64) -> u64 {
    let fixed = (PREFIX_BYTES + HEADER_BYTES_MAX + TRAILER_BYTES) as u64;
    let values = parameters.saturating_mul(u64::from(slots) + 1).saturating_add(state);
    values.saturating_mul(4).saturating_add(fixed)
}

/// Writes part `index` into a checkpoint's folder. The names in the folder are made to last when
/// the manifest is written.
pub fn write_part(folder: &Path, index: u32, view: &PartView<'_>) -> io::Result<PartInfo> {
    let (file, head) = (name(index), head(view)?);
    let (sha256, bytes) = durable::put_with(&folder.join(&file), |file| {
        let mut out = Output { file, hash: Hasher::new(), bytes: 0 };
        pieces(&head, view).try_for_each(|piece| out.bytes(piece))?;
        let trailer = out.hash.clone().finish();
        out.bytes(&trailer)?;
        Ok((hex(&out.hash.finish()), out.bytes))
    })?;
    Ok(PartInfo { file, sha256, bytes })
}

/// Part `index` as its file would be, on no disk: what it will be known by, and its bytes in order.
pub fn stream_part<'v>(
    index: u32,
    view: &PartView<'v>,
) -> io::Result<(PartInfo, impl Read + use<'v>)> {
    let (file, head) = (name(index), head(view)?);
    let mut out = Output { file: &mut io::sink(), hash: Hasher::new(), bytes: 0 };
    pieces(&head, view).try_for_each(|piece| out.bytes(piece))?;
    let trailer: [u8; TRAILER_BYTES] = out.hash.clone().finish();
    out.bytes(&trailer)?;
    let info = PartInfo { file, sha256: hex(&out.hash.finish()), bytes: out.bytes };
    let slots: Vec<&'v [f32]> = view.slots.to_vec();
    let values = [view.parameters].into_iter().chain(slots).chain([view.state]);
    let values: Vec<Cursor<&'v [u8]>> = values.map(|part| Cursor::new(as_bytes(part))).collect();
    let read = Cursor::new(head).chain(Several(values.into())).chain(Cursor::new(trailer));
    Ok((info, read))
}

/// What stands before a part's buffers.
fn head(view: &PartView<'_>) -> io::Result<Vec<u8>> {
    let count = view.parameters.len();
    if view.slots.iter().any(|slot| slot.len() != count) {
        return Err(io::Error::other("a slot of the optimizer is not as long as the parameters"));
    }
    let header = Header {
        step: view.step,
        start: view.start,
        end: view.start + count as u64,
        slots: view.slots.len() as u32,
        state: view.state.len() as u64,
    };
    let header = serde_json::to_vec(&header).expect("a header has string keys only");
    let length = (header.len() as u32).to_le_bytes();
    Ok([&MAGIC[..], &FORMAT.to_le_bytes(), &length, &header].concat())
}

/// All of a part but its trailer, in blocks.
fn pieces<'a>(head: &'a [u8], view: &'a PartView<'_>) -> impl Iterator<Item = &'a [u8]> {
    let values = [view.parameters].into_iter().chain(view.slots.iter().copied());
    let values = values.chain([view.state]).flat_map(|values| values.chunks(BLOCK));
    [head].into_iter().chain(values.map(as_bytes))
}

/// Several buffers read one after another.
struct Several<'v>(VecDeque<Cursor<&'v [u8]>>);

impl Read for Several<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(first) = self.0.front_mut() {
            let read = first.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            self.0.pop_front();
        }
        Ok(0)
    }
}

/// A file and the hash of what went into it.
struct Output<'a, W> {
    file: &'a mut W,
    hash: Hasher,
    bytes: u64,
}

impl<W: Write> Output<'_, W> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

/// What the manifest says of a part, and what of it is asked for.
pub(super) struct Wanted {
    pub step: u64,
    pub slots: u32,
    pub state: u64,
    /// Parameters to keep, counted over all parts.
    pub range: Range<u64>,
    pub with_state: bool,
}

/// Reads and compares a part; adds what is wanted of it to `into`.
pub(super) fn read(
    folder: &Path,
    part: &Part,
    wanted: &Wanted,
    into: &mut Weights,
) -> Result<(), String> {
    let unreadable = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => "is missing".to_owned(),
        io::ErrorKind::UnexpectedEof => "is cut short".to_owned(),
        _ => format!("cannot be read: {e}"),
    };
    let mut file = plain::open(&folder.join(&part.info.file)).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    if length != part.info.bytes {
        return Err(format!("has {length} bytes instead of {}", part.info.bytes));
    }
    let mut input = Input { file: &mut file, hash: Hasher::new(), block: Vec::new() };
    let prefix = input.bytes(PREFIX_BYTES).map_err(unreadable)?;
    if &prefix[..8] != MAGIC {
        return Err("is not a part of a planaria checkpoint".into());
    }
    let u32_at = |at: usize| u32::from_le_bytes(prefix[at..at + 4].try_into().expect("4 bytes"));
    let (version, header_bytes) = (u32_at(8), u32_at(12) as usize);
    if version != FORMAT {
        return Err(format!("has format version {version}, not {FORMAT}"));
    }
    if header_bytes > HEADER_BYTES_MAX {
        return Err(format!("has a header of {header_bytes} bytes"));
    }
    let header: Header = serde_json::from_slice(input.bytes(header_bytes).map_err(unreadable)?)
        .map_err(|e| format!("has a header that is not valid: {e}"))?;
    let expected = Header {
        step: wanted.step,
        start: part.start,
        end: part.end,
        slots: wanted.slots,
        state: wanted.state,
    };
    if header != expected {
        return Err(format!("holds {header:?}, but the manifest names {expected:?}"));
    }
    // Before anything is allocated by what a header says: the file really has these values.
    let fixed = (PREFIX_BYTES + header_bytes + TRAILER_BYTES) as u64;
    if buffer_bytes(&header).and_then(|n| n.checked_add(fixed)) != Some(length) {
        return Err("does not have the length that its header names".into());
    }
    let count = part.end - part.start;
    let keep = |at: u64| at.clamp(part.start, part.end) - part.start;
    let keep = keep(wanted.range.start)..keep(wanted.range.end);
    input.values(count, keep.clone(), &mut into.parameters).map_err(unreadable)?;
    for slot in &mut into.optimizer {
        input.values(count, keep.clone(), slot).map_err(unreadable)?;
    }
    let keep = if wanted.with_state { 0..header.state } else { 0..0 };
    input.values(header.state, keep, &mut into.state).map_err(unreadable)?;
    let body = input.hash.clone().finish();
    let trailer = input.bytes(TRAILER_BYTES).map_err(unreadable)?;
    if trailer != body.as_slice() || hex(&input.hash.finish()) != part.info.sha256 {
        return Err("does not match its SHA-256: bytes were changed".into());
    }
    Ok(())
}

/// Bytes of the buffers that a header names, unless they are more than can be.
fn buffer_bytes(header: &Header) -> Option<u64> {
    let count = header.end.checked_sub(header.start)?;
    let values = count.checked_mul(u64::from(header.slots) + 1)?.checked_add(header.state)?;
    values.checked_mul(4)
}

/// A file and the hash of what came out of it.
struct Input<'a> {
    file: &'a mut File,
    hash: Hasher,
    block: Vec<u8>,
}

impl Input<'_> {
    fn bytes(&mut self, count: usize) -> io::Result<&[u8]> {
        self.block.resize(count, 0);
        self.file.read_exact(&mut self.block)?;
        self.hash.update(&self.block);
        Ok(&self.block)
    }

    /// Reads `count` values and adds those of `keep` to `into`.
    fn values(&mut self, count: u64, keep: Range<u64>, into: &mut Vec<f32>) -> io::Result<()> {
        into.reserve_exact((keep.end - keep.start) as usize);
        let mut at = 0;
        while at < count {
            let here = (count - at).min(BLOCK as u64);
            let values = self.bytes(4 * here as usize)?.as_chunks::<4>().0;
            let inside = |place: u64| (place.clamp(at, at + here) - at) as usize;
            let kept = &values[inside(keep.start)..inside(keep.end)];
            into.extend(kept.iter().map(|b| f32::from_le_bytes(*b)));
            at += here;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_streamed_is_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let values: Vec<f32> = (0..40_000).map(|n| n as f32).collect();
        let (slots, state) = ([&values[..30_000], &values[5..30_005]], &values[..7]);
        let parameters = &values[..30_000];
        let view = PartView { step: 3, start: 8, parameters, slots: &slots, state };
        let written = write_part(folder.path(), 1, &view).unwrap();
        let (info, mut read) = stream_part(1, &view).unwrap();
        let mut bytes = Vec::new();
        read.read_to_end(&mut bytes).unwrap();
        assert_eq!(info, written);
        assert!(bytes == std::fs::read(folder.path().join("part-1")).unwrap());
    }
}
