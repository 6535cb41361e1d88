//! Records of one size that are read by id: from memory where the budget has room for them, else
//! from where they are.
//!
//! Packed or converted records that do not fit go to a scratch file on disk; records of a plain file
//! are read from that file. Knows nothing of what is in a record.

use crate::budget::{Memory, Reserved};
use crate::error::Error;
use crate::memory::prefetch;
use planaria_store::{Object, Scratch};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many records ahead the processor is told what will be read.
const PREFETCH_AHEAD: usize = 2;
/// Most bytes of neighbouring records that are read at once.
const RUN_BYTES_MAX: usize = 256 << 10;
/// Bytes that are collected before they go to a scratch file.
const WRITE_BYTES: usize = 1 << 20;

/// Bytes that are read at random.
#[derive(Debug)]
pub(crate) struct Blob {
    place: Place,
    /// The file that an error names.
    path: PathBuf,
}

#[derive(Debug)]
enum Place {
    Memory(
        Vec<u8>,
        #[expect(dead_code, reason = "gives its room back when it is dropped")] Reserved,
    ),
    /// From a byte of an object on.
    Object(Arc<dyn Object>, u64),
}

impl Blob {
    /// The bytes, where they are in memory.
    pub fn slice(&self) -> Option<&[u8]> {
        match &self.place {
            Place::Memory(bytes, _) => Some(bytes),
            Place::Object(..) => None,
        }
    }

    /// Bytes `at..at + len`; `room` is where they go if they are not in memory.
    pub fn read<'a>(
        &'a self,
        at: u64,
        len: usize,
        room: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Error> {
        match &self.place {
            Place::Memory(bytes, _) => Ok(&bytes[at as usize..at as usize + len]),
            Place::Object(object, start) => {
                // Grown once, so that a steady run allocates nothing.
                if room.len() < len {
                    room.resize(len.max(RUN_BYTES_MAX), 0);
                }
                let read = object.read(start + at, &mut room[..len]);
                read.map_err(|e| Error::io(&self.path, e.into()))?;
                Ok(&room[..len])
            }
        }
    }
}

/// Records of one size, in one or several blobs.
#[derive(Debug)]
pub(crate) struct Records {
    /// Each with the id of its first record.
    blobs: Vec<(u64, Blob)>,
    count: u64,
    bytes: usize,
}

impl Records {
    /// None yet, of `bytes` bytes each.
    pub fn new(bytes: usize) -> Self {
        Self { blobs: Vec::new(), count: 0, bytes }
    }

    /// `count` records behind those there are.
    pub fn with(mut self, blob: Blob, count: u64) -> Self {
        self.blobs.push((self.count, blob));
        self.count += count;
        self
    }

    pub fn len(&self) -> u64 {
        self.count
    }

    /// Hands out the records of `ids`, in that order, each with its place in `ids`.
    pub fn each(
        &self,
        ids: &[u64],
        room: &mut Vec<u8>,
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        let mut first = 0;
        while first < ids.len() {
            if let Some(later) = ids.get(first + PREFETCH_AHEAD) {
                self.prefetch(*later);
            }
            let (blob, row, left) = self.find(ids[first]);
            let run = match blob.slice() {
                Some(_) => 1,
                None => self.run(&ids[first..], left),
            };
            let read = blob.read(row * self.bytes as u64, run * self.bytes, room)?;
            for (i, record) in read.chunks_exact(self.bytes).enumerate() {
                take(first + i, record);
            }
            first += run;
        }
        Ok(())
    }

    /// Where a record is: its place in a blob, and how many there are from it on.
    fn find(&self, id: u64) -> (&Blob, u64, u64) {
        let at = self.blobs.partition_point(|(first, _)| *first <= id) - 1;
        let end = self.blobs.get(at + 1).map_or(self.count, |(first, _)| *first);
        (&self.blobs[at].1, id - self.blobs[at].0, end - id)
    }

    fn prefetch(&self, id: u64) {
        let (blob, row, _) = self.find(id);
        if let Some(all) = blob.slice() {
            prefetch(&all[row as usize * self.bytes..(row as usize + 1) * self.bytes]);
        }
    }

    /// How many of the first ids are neighbours that can be read at once.
    fn run(&self, ids: &[u64], left: u64) -> usize {
        let most = (RUN_BYTES_MAX / self.bytes).clamp(1, left as usize);
        let neighbours = ids.windows(2).take_while(|pair| pair[0].checked_add(1) == Some(pair[1]));
        1 + neighbours.take(most - 1).count()
    }
}

/// Floats that were stored as little-endian bytes.
pub(crate) fn floats(record: &[u8], out: &mut [f32]) {
    let values = record.as_chunks::<4>().0.iter();
    out.iter_mut().zip(values).for_each(|(out, value)| *out = f32::from_le_bytes(*value));
}

/// Floats as little-endian bytes, in place of what `out` held.
pub(crate) fn float_bytes(values: &[f32], out: &mut Vec<u8>) {
    out.resize(4 * values.len(), 0);
    let places = out.as_chunks_mut::<4>().0.iter_mut();
    places.zip(values).for_each(|(place, value)| *place = value.to_le_bytes());
}

/// Bytes that come in order and will be read at random.
pub(crate) struct Spool {
    state: State,
    path: PathBuf,
}

enum State {
    Memory(Vec<u8>, Reserved),
    Scratch {
        file: Scratch,
        waiting: Vec<u8>,
    },
    /// They can be read where they come from.
    InPlace(Arc<dyn Object>, u64),
    /// They were only inspected.
    Dropped,
}

impl Spool {
    /// Of an unknown number of bytes. `path` is the file that they come from.
    pub fn new(path: &Path, memory: &Memory) -> Self {
        Self { state: State::Memory(Vec::new(), memory.nothing()), path: path.into() }
    }

    /// For records that are not kept.
    pub fn nothing(path: &Path) -> Self {
        Self { state: State::Dropped, path: path.into() }
    }

    /// Of `bytes` bytes, if that is known. Those of a plain file that do not fit into memory stay
    /// there: `plain` is the object, and the byte at which they start.
    pub fn of(
        path: &Path,
        bytes: Option<u64>,
        plain: Option<(Arc<dyn Object>, u64)>,
        memory: &Memory,
    ) -> Result<Self, Error> {
        let whole = bytes.and_then(|bytes| memory.reserve(bytes).map(|room| (bytes, room)));
        let state = match (whole, bytes, plain) {
            (Some((bytes, reserved)), _, _) => {
                let mut room = Vec::new();
                // Where it is refused, the vector grows as it fills.
                let _ = room.try_reserve_exact(bytes as usize);
                State::Memory(room, reserved)
            }
            (None, _, Some((object, start))) => State::InPlace(object, start),
            (None, Some(_), None) => scratch(path)?,
            (None, None, None) => return Ok(Self::new(path, memory)),
        };
        Ok(Self { state, path: path.into() })
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.state {
            State::InPlace(..) | State::Dropped => return Ok(()),
            State::Memory(held, reserved) => {
                let needed = held.len() + bytes.len();
                let larger = needed.max(2 * held.len());
                // Growing may copy, so both must fit.
                if needed <= held.capacity() || reserved.grow((larger + held.len()) as u64) {
                    if needed > held.capacity() {
                        held.reserve_exact(larger - held.len());
                    }
                    held.extend_from_slice(bytes);
                    return Ok(());
                }
                let mut spilled = scratch(&self.path)?;
                spilled.write(held, &self.path)?;
                spilled.write(bytes, &self.path)?;
                self.state = spilled;
            }
            State::Scratch { .. } => self.state.write(bytes, &self.path)?,
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Blob, Error> {
        let place = match self.state {
            State::Memory(mut bytes, mut reserved) => {
                bytes.shrink_to_fit();
                reserved.shrink(bytes.len() as u64);
                Place::Memory(bytes, reserved)
            }
            State::InPlace(object, start) => Place::Object(object, start),
            State::Dropped => Place::Memory(Vec::new(), Memory::limited(0).nothing()),
            State::Scratch { mut file, waiting } => {
                file.append(&waiting).map_err(|e| Error::io(&self.path, e))?;
                Place::Object(file.finish(), 0)
            }
        };
        Ok(Blob { place, path: self.path })
    }
}

impl State {
    fn write(&mut self, bytes: &[u8], path: &Path) -> Result<(), Error> {
        let State::Scratch { file, waiting } = self else { return Ok(()) };
        if waiting.is_empty() && bytes.len() >= WRITE_BYTES {
            return file.append(bytes).map_err(|e| Error::io(path, e));
        }
        waiting.extend_from_slice(bytes);
        if waiting.len() >= WRITE_BYTES {
            file.append(waiting).map_err(|e| Error::io(path, e))?;
            waiting.clear();
        }
        Ok(())
    }
}

fn scratch(path: &Path) -> Result<State, Error> {
    let file = Scratch::new().map_err(|e| Error::io(path, e))?;
    Ok(State::Scratch { file, waiting: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(bytes: &[u8], limit: u64) -> (Blob, Memory) {
        let memory = Memory::limited(limit);
        let mut spool = Spool::new(Path::new("x"), &memory);
        bytes.chunks(1000).for_each(|piece| spool.push(piece).unwrap());
        (spool.finish().unwrap(), memory)
    }

    #[test]
    fn records_are_the_same_in_memory_and_on_disk() {
        let bytes: Vec<u8> = (0..700_000u32).map(|i| (i % 253) as u8).collect();
        let ids = [3, 4, 5, 99_999, 0, 1, 2, 2, 1, 50_000];
        let all: Vec<u64> = (0..100_000).collect();
        let read = |limit: u64, ids: &[u64]| {
            let (blob, _) = spool(&bytes, limit);
            assert_eq!(blob.slice().is_some(), limit > 700_000);
            let other = spool(&bytes[..70], limit).0;
            let records = Records::new(7).with(other, 10).with(blob, 100_000);
            let (ids, mut room) = (ids.iter().map(|id| id + 10).collect::<Vec<_>>(), Vec::new());
            let mut out = Vec::new();
            let take = |i: usize, record: &[u8]| {
                assert_eq!(i * 7, out.len());
                out.extend_from_slice(record);
            };
            records.each(&ids, &mut room, take).unwrap();
            out
        };
        for limit in [0, 5_000, 10_000_000] {
            assert_eq!(read(limit, &all), bytes);
            let expect: Vec<u8> =
                ids.iter().flat_map(|id| &bytes[*id as usize * 7..][..7]).copied().collect();
            assert_eq!(read(limit, &ids), expect);
        }
    }

    #[test]
    fn what_is_kept_in_memory_is_counted() {
        let (blob, memory) = spool(&[1; 50_000], 1 << 20);
        assert_eq!(memory.left(), (1 << 20) - 50_000);
        drop(blob);
        assert_eq!(memory.left(), 1 << 20);
        let (_blob, memory) = spool(&[1; 50_000], 40_000);
        assert_eq!(memory.left(), 40_000);
    }
}
