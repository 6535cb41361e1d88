//! Whatever comes over the wire, reading it ends in what was sent or in an error: it never panics,
//! never allocates beyond the bounds, and never takes a frame for another. At least 100,000 cases.

use planaria_numerics::digest::Digest;
use planaria_numerics::random::{Purpose, Stream};
use planaria_protocol::frame::{self, HEADER_BYTES, Header};
use planaria_protocol::message::*;
use planaria_protocol::transport::{Closing, Halves, Reading, Transport, Writing};
use planaria_protocol::{Error, Receiver, Sender, link};
use serde::de::DeserializeOwned;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const ARBITRARY: u64 = 60_000;
const MUTATED: u64 = 60_000;
const GENERATION: u64 = 3;

/// A control message of 1 MiB and a list reserved by its claimed length, with room to double.
const LARGEST: usize = 4 << 20;

struct Watching;

static LARGEST_SEEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST_SEEN.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: forwarded.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST_SEEN.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: forwarded.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: forwarded.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST_SEEN.fetch_max(size, Ordering::Relaxed);
        // SAFETY: forwarded.
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// A peer that has said these bytes and hung up; it gives them out in uneven pieces.
struct Said {
    bytes: Vec<u8>,
    at: usize,
    pieces: Stream,
}

impl Reading for Said {
    fn read(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let most = 1 + self.pieces.below(200) as usize;
        let mut n = 0;
        for part in parts {
            let left = &self.bytes[self.at..];
            let m = part.len().min(left.len()).min(most - n);
            part[..m].copy_from_slice(&left[..m]);
            self.at += m;
            n += m;
        }
        Ok(n)
    }
    fn set_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

struct Nowhere;

impl Writing for Nowhere {
    fn write_now(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(parts.iter().map(|part| part.len()).sum())
    }
    fn write_within(&mut self, parts: &[IoSlice<'_>], _: Duration) -> io::Result<usize> {
        self.write_now(parts)
    }
}

impl Closing for Nowhere {
    fn shutdown(&self, _: Shutdown) {}
}

impl Read for Said {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Reading::read(self, &mut [IoSliceMut::new(into)])
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Said {
    fn set_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
    fn split(self: Box<Self>) -> io::Result<Halves> {
        Ok(Halves { writing: Box::new(Nowhere), reading: self, closing: Box::new(Nowhere) })
    }
}

fn heard(bytes: Vec<u8>, case: u64) -> (Sender, Receiver) {
    let pieces = Stream::new(2, Purpose::Test, case, 1);
    link::over(Box::new(Said { bytes, at: 0, pieces }), GENERATION).expect("nothing can fail")
}

/// Reads frames to the end or the first fault.
fn read_all<M: DeserializeOwned>(bytes: Vec<u8>, case: u64) -> (Vec<(M, Vec<u8>)>, Option<Error>) {
    let (_sender, mut receiver) = heard(bytes, case);
    let mut frames = Vec::new();
    loop {
        match receiver.receive::<M>() {
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
            Ok(Some(incoming)) => match receiver.bulk_vec(LARGEST / 2) {
                Ok(bulk) => frames.push((incoming.message, bulk)),
                Err(error) => return (frames, Some(error)),
            },
        }
    }
}

fn draw_bytes(stream: &mut Stream, most: u64) -> Vec<u8> {
    (0..stream.below(most + 1)).map(|_| stream.next_u32() as u8).collect()
}

#[test]
fn arbitrary_bytes_are_read_or_refused() {
    let mut cases = 0u64;
    let mut decoded = 0u64;
    for case in 0..ARBITRARY {
        let stream = &mut Stream::new(1, Purpose::Test, case, 0);
        let mut bytes = draw_bytes(stream, if case % 4 < 2 { 120 } else { 12 });
        if case % 2 == 0 {
            // Small numbers reach further into the messages: tags, short lists, options.
            bytes.iter_mut().for_each(|byte| *byte %= 12);
        }
        if let Some(header) = bytes.first_chunk() {
            let _ = Header::decode(header);
        }
        decoded += u64::from(frame::message::<Join>(&bytes).is_ok());
        decoded += u64::from(frame::message::<ToWorker>(&bytes).is_ok());
        decoded += u64::from(frame::message::<FromWorker>(&bytes).is_ok());
        decoded += u64::from(frame::message::<ToServer>(&bytes).is_ok());
        decoded += u64::from(frame::message::<FromServer>(&bytes).is_ok());
        decoded += u64::from(frame::message::<Push>(&bytes).is_ok());
        decoded += u64::from(frame::message::<Pull>(&bytes).is_ok());
        decoded += u64::from(frame::message::<FromConsole>(&bytes).is_ok());
        decoded += u64::from(frame::message::<ToConsole>(&bytes).is_ok());
        // The same as a stream, alone and behind a header that fits.
        let alone = read_all::<ToServer>(bytes.clone(), case);
        assert!(alone.0.is_empty() && (alone.1.is_some() || bytes.is_empty()));
        let bulk_bits = 1 + stream.below(30);
        let header = Header {
            control_bytes: stream.below(1 + bytes.len() as u64) as u32,
            bulk_bytes: stream.below(1 << bulk_bits),
            generation: GENERATION,
            sequence: 0,
        };
        let framed = [&header.encode()[..], &bytes].concat();
        match case % 4 {
            0 => drop(read_all::<ToServer>(framed, case)),
            1 => drop(read_all::<FromServer>(framed, case)),
            2 => drop(read_all::<ToWorker>(framed, case)),
            _ => drop(read_all::<Join>(framed, case)),
        }
        cases += 1;
    }
    assert!(cases + MUTATED >= 100_000, "{cases} and {MUTATED} cases");
    assert!(decoded > 1000, "only {decoded} cases were messages: the bytes do not reach far");
    let largest = LARGEST_SEEN.load(Ordering::Relaxed);
    assert!(largest <= LARGEST, "{largest} bytes allocated at once");
}

fn draw_message(stream: &mut Stream) -> Push {
    let long = |stream: &mut Stream| stream.next_u64() >> stream.below(64);
    match stream.below(3) {
        0 => Push::Follow { step: long(stream) },
        1 => Push::Gradient {
            step: long(stream),
            first_shard: long(stream) as u32,
            shards: long(stream) as u32,
            first_block: long(stream) as u32,
        },
        _ => Push::Shard {
            step: long(stream),
            shard: long(stream) as u32,
            loss_sum: f64::from(stream.uniform()),
            correct: long(stream),
            read: Digest::from_iter([long(stream)]),
        },
    }
}

/// What was done to a stream of frames.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Nothing,
    /// To a bit of a frame's header.
    Header,
    /// To a bit of what a frame carries; only its own data can differ.
    Payload,
    /// Bytes were put in or taken out: nothing after this frame may be taken.
    Shift,
    /// This frame is not the one that was to come: neither it nor what follows may be taken.
    Place,
}

#[test]
fn changed_streams_are_refused_or_give_what_was_sent() {
    let mut cases = [0u64; 9];
    for case in 0..MUTATED {
        let stream = &mut Stream::new(3, Purpose::Test, case, 0);
        let sent: Vec<(Push, Vec<u8>)> = (0..1 + stream.below(5))
            .map(|_| (draw_message(stream), draw_bytes(stream, 60)))
            .collect();
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for (sequence, (message, bulk)) in (0..).zip(&sent) {
            let mut frame = Vec::new();
            frame::append(&mut frame, message, bulk.len(), GENERATION, sequence).expect("short");
            frame.extend_from_slice(bulk);
            frames.push(frame);
        }
        let which = stream.below(frames.len() as u64) as usize;
        let length = frames[which].len() as u64;
        let kind = (case % 9) as usize;
        let change = match kind {
            0 => Change::Nothing,
            1 => {
                let bit = stream.below(8 * length) as usize;
                frames[which][bit / 8] ^= 1 << (bit % 8);
                if bit / 8 < HEADER_BYTES { Change::Header } else { Change::Payload }
            }
            2 => {
                // The peer is cut off.
                frames.truncate(which + 1);
                frames[which].truncate(stream.below(length) as usize);
                Change::Place
            }
            3 => {
                let at = stream.below(length) as usize;
                let mut more = draw_bytes(stream, 40);
                more.push(0xa5);
                frames[which].splice(at..at, more);
                Change::Shift
            }
            4 => {
                let at = stream.below(length) as usize;
                let end = at + 1 + stream.below(length - at as u64) as usize;
                frames[which].drain(at..end);
                // Without any trace a whole frame is one that is missing.
                if at == 0 { Change::Place } else { Change::Shift }
            }
            5 => {
                // Said again.
                frames.insert(which + 1, frames[which].clone());
                Change::Place
            }
            6 => {
                // Out of order, or missing.
                let other = stream.below(frames.len() as u64) as usize;
                match which == other {
                    true => drop(frames.remove(which)),
                    false => frames.swap(which, other),
                }
                Change::Place
            }
            7 => {
                // Lengths beyond the bounds.
                let mut header = *frames[which].first_chunk::<HEADER_BYTES>().expect("a frame");
                match stream.below(2) {
                    0 => header[4..8].copy_from_slice(
                        &((frame::CONTROL_BYTES as u32 + 1) | stream.next_u32()).to_le_bytes(),
                    ),
                    _ => header[8..16].copy_from_slice(
                        &((frame::BULK_BYTES + 1) | stream.next_u64()).to_le_bytes(),
                    ),
                }
                frames[which][..HEADER_BYTES].copy_from_slice(&header);
                Change::Place
            }
            _ => {
                // Of another session.
                let late = GENERATION + 1 - 2 * stream.below(2);
                frames[which][16..24].copy_from_slice(&late.to_le_bytes());
                Change::Place
            }
        };
        cases[kind] += 1;

        let (got, error) = read_all::<Push>(frames.concat(), case);
        let shown = || format!("case {case}, {change:?} of frame {which}: {got:?} of {sent:?}");
        let first_wrong = got.iter().zip(&sent).position(|(got, sent)| got != sent);
        match change {
            Change::Nothing => assert!(got == sent && error.is_none(), "{}", shown()),
            Change::Payload => {
                assert!(got.len() <= sent.len(), "{}", shown());
                assert!(first_wrong.is_none_or(|wrong| wrong == which), "{}", shown());
                assert_eq!(error.is_none(), got.len() == sent.len(), "{}", shown());
            }
            Change::Header | Change::Shift => {
                // A wrong length of bulk shows at the next frame.
                assert!(error.is_some() || change == Change::Shift, "{}", shown());
                assert!(got.len() <= which + 1, "{}", shown());
                assert!(first_wrong.is_none_or(|wrong| wrong == which), "{}", shown());
                if change == Change::Header {
                    assert!(got.iter().zip(&sent).all(|(got, sent)| got.0 == sent.0));
                }
            }
            Change::Place => {
                // What came again is refused where it comes, what is missing where it was.
                assert!(first_wrong.is_none(), "{}", shown());
                assert!(got.len() <= which + 1, "{}", shown());
                assert!(error.is_some() || got.len() < sent.len(), "{}", shown());
            }
        }
    }
    let total: u64 = cases.iter().sum();
    assert!(total == MUTATED && total + ARBITRARY >= 100_000, "{cases:?}");
    assert!(LARGEST_SEEN.load(Ordering::Relaxed) <= LARGEST);
}
