//! What a link's senders and its writing thread share: the half, the queue, and how the link ended.
//!
//! Owns the order of frames among threads and the queue of what the peer has not taken. A frame
//! goes straight from the caller's slices to the socket while the peer takes it. When the peer has
//! taken nothing for [`GRACE`] it is *slow*: until it has caught up, frames are copied and a thread
//! writes them. Never makes a caller wait for a slow peer, unless the queue is full.
//!
//! The thread that writes holds the [`WriteHalf`]: the socket's writing half and the bytes that come next. While
//! the half is at home nothing waits; while it is away, frames line up in the queue.

use crate::error::Error;
use crate::frame;
use crate::frame_loss;
use crate::transport::{Closing, Writing};
use crate::write_half::WriteHalf;
use serde::Serialize;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Most bytes that wait for a peer (and one control message more).
pub(crate) const QUEUE_BYTES: usize = 64 << 20;

/// How long a full queue may stand still.
const STALL: Duration = Duration::from_secs(60);

/// A peer that takes nothing for so long is slow.
const GRACE: Duration = Duration::from_millis(2);

/// How long the writing thread waits before it looks whether the link is still wanted.
const PATIENCE: Duration = Duration::from_millis(100);

/// Frames up to this are copied while others write, as long as no more than `QUEUE_SOFT` waits;
/// longer ones are cheaper to write in turn than to copy (measured: `examples/link_bench.rs`).
const COPY_BYTES: usize = 64 << 10;
const QUEUE_SOFT: usize = 1 << 20;

/// What all threads of a link share.
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Something was written, or the link has ended.
    moved: Condvar,
    /// The writing thread has something to do.
    work: Condvar,
    closing: Box<dyn Closing>,
    generation: u64,
    bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// At home: nothing waits.
    half: Option<WriteHalf>,
    /// For the writing thread.
    handed: Option<WriteHalf>,
    /// Frames after what the half has.
    queue: Vec<u8>,
    /// Bytes that were copied and are not written.
    queued: usize,
    /// Bytes that a sender is writing without copying them.
    in_hand: usize,
    /// Bytes written in all, to see progress.
    written: u64,
    /// The peer is behind, and no sender waits for it any more.
    is_slow: bool,
    sequence: u64,
    has_writer: bool,
    phase: Phase,
}

#[derive(Default, PartialEq)]
enum Phase {
    #[default]
    Open,
    /// No more frames; what waits is written.
    Ending,
    /// The peer hears the end; this end may still hear.
    Ended,
    Closed,
    Failed(String),
}

impl Outbox {
    pub(crate) fn new(
        writing: Box<dyn Writing>,
        closing: Box<dyn Closing>,
        generation: u64,
    ) -> Self {
        let state = State { half: Some(WriteHalf::new(writing)), ..State::default() };
        Self {
            state: Mutex::new(state),
            moved: Condvar::new(),
            work: Condvar::new(),
            closing,
            generation,
            bytes: AtomicU64::new(0),
        }
    }

    /// The generation that both ends are of.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Sends a frame, or queues it.
    pub(crate) fn send<M: Serialize>(
        self: &Arc<Self>,
        message: &M,
        bulk: &[u8],
    ) -> Result<(), Error> {
        self.send_or_leave(message, bulk, true).map(drop)
    }

    /// Sends a frame, or queues it; not if it would have to wait for room.
    pub(crate) fn try_send<M: Serialize>(
        self: &Arc<Self>,
        message: &M,
        bulk: &[u8],
    ) -> Result<bool, Error> {
        self.send_or_leave(message, bulk, false)
    }

    fn send_or_leave<M: Serialize>(
        self: &Arc<Self>,
        message: &M,
        bulk: &[u8],
        waits: bool,
    ) -> Result<bool, Error> {
        let Some(mut guard) = self.find_room(bulk.len(), waits)? else { return Ok(false) };
        let state = &mut *guard;
        if frame_loss::takes_next() {
            // Its number is used up, so the peer will see that something is missing.
            state.sequence += 1;
            return Ok(true);
        }
        let (generation, sequence) = (self.generation, state.sequence);
        let Some(half) = &mut state.half else {
            let before = state.queue.len();
            frame::append(&mut state.queue, message, bulk.len(), generation, sequence)?;
            state.queue.extend_from_slice(bulk);
            let frame = state.queue.len() - before;
            state.queued += frame;
            state.sequence += 1;
            self.bytes.fetch_add(frame as u64, Ordering::Relaxed);
            return Ok(true);
        };
        frame::append(&mut half.next, message, bulk.len(), generation, sequence)?;
        state.sequence += 1;
        self.bytes.fetch_add((half.next.len() + bulk.len()) as u64, Ordering::Relaxed);
        let written = match half.write_now(bulk) {
            Ok(written) => written,
            Err(source) => return Err(self.broke(state, source)),
        };
        let bulk = half.advance(written, bulk);
        state.written += written as u64;
        if half.left() == 0 && bulk.is_empty() {
            half.clear();
            return Ok(true);
        }
        let half = state.half.take().expect("it was at home");
        state.in_hand = half.left() + bulk.len();
        drop(guard);
        self.write_here(half, bulk, waits).map(|()| true)
    }

    /// Waits until all is written, then tells the peer that no more comes.
    pub(crate) fn flush(&self, timeout: Duration) -> Result<(), Error> {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Ending;
        }
        let waits = |state: &mut State| state.phase == Phase::Ending && state.half.is_none();
        let (mut state, _) = self
            .moved
            .wait_timeout_while(state, timeout, waits)
            .expect("no thread panics while writing");
        match &state.phase {
            Phase::Ending if state.half.is_some() => {
                self.end(&mut state);
                Ok(())
            }
            Phase::Open | Phase::Ending => {
                let error = Error::Stalled { within: timeout, queued: state.queued };
                self.over(&mut state, Phase::Failed(error.to_string()));
                Err(error)
            }
            Phase::Ended => Ok(()),
            Phase::Closed => Err(Error::Closed),
            Phase::Failed(why) => Err(Error::Broken(why.clone())),
        }
    }

    /// Ends the link at once.
    pub(crate) fn close(&self) {
        self.over(&mut self.lock(), Phase::Closed);
    }

    /// No more frames will come: what waits is written, then the peer hears the end.
    pub(crate) fn let_go(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Ending;
            if state.half.is_some() {
                self.end(&mut state);
            }
        }
    }

    pub(crate) fn bytes_sent(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes_waiting(&self) -> usize {
        self.lock().queued
    }

    /// Whether this end closed the link.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().phase == Phase::Closed
    }

    /// What ended the link, for later callers.
    pub(crate) fn why(&self) -> Error {
        match &self.lock().phase {
            Phase::Failed(why) => Error::Broken(why.clone()),
            _ => Error::Closed,
        }
    }

    /// A fault on the reading side ends the link.
    pub(crate) fn fail(&self, error: &Error) {
        self.over(&mut self.lock(), Phase::Failed(error.to_string()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while writing")
    }

    /// The state, when a frame may be written or queued; nothing where it would have to wait for
    /// room and must not.
    fn find_room(&self, bulk: usize, waits: bool) -> Result<Option<MutexGuard<'_, State>>, Error> {
        let mut state = self.lock();
        let before_it = state.written + (state.queued + state.in_hand) as u64;
        loop {
            match &state.phase {
                Phase::Open => {}
                Phase::Failed(why) => return Err(Error::Broken(why.clone())),
                Phase::Ending | Phase::Ended | Phase::Closed => return Err(Error::Closed),
            }
            let fits = state.queued + bulk <= QUEUE_BYTES;
            let copied = state.is_slow
                || state.written > before_it
                || bulk <= COPY_BYTES && state.queued <= QUEUE_SOFT;
            if state.half.is_some() || fits && copied {
                return Ok(Some(state));
            }
            if !fits && !waits {
                return Ok(None);
            }
            let within = if fits { GRACE } else { STALL };
            let written = state.written;
            let still = |state: &mut State| {
                state.half.is_none() && state.written == written && state.phase == Phase::Open
            };
            let (after, result) = self
                .moved
                .wait_timeout_while(state, within, still)
                .expect("no thread panics while writing");
            state = after;
            if result.timed_out() && fits {
                state.is_slow = true;
            } else if result.timed_out() {
                let error = Error::Stalled { within, queued: state.queued };
                self.over(&mut state, Phase::Failed(error.to_string()));
                return Err(error);
            }
        }
    }

    /// Writes the rest of a frame without copying it, as long as the peer takes it.
    fn write_here(
        self: &Arc<Self>,
        mut half: WriteHalf,
        mut bulk: &[u8],
        waits: bool,
    ) -> Result<(), Error> {
        let mut silent = Duration::ZERO;
        while half.left() > 0 || !bulk.is_empty() {
            let written = half.write_within(bulk, GRACE);
            let mut state = self.lock();
            match written {
                Ok(0) if matches!(state.phase, Phase::Closed | Phase::Failed(_)) => {
                    return Err(Error::Closed);
                }
                // A sender that must not wait may leave one frame more than fits.
                Ok(0) if !waits || state.queued + bulk.len() <= QUEUE_BYTES => {
                    self.hand(&mut state, half, bulk);
                    return Ok(());
                }
                Ok(0) => {
                    silent += GRACE;
                    if silent >= STALL {
                        let error = Error::Stalled { within: STALL, queued: bulk.len() };
                        self.over(&mut state, Phase::Failed(error.to_string()));
                        return Err(error);
                    }
                }
                Ok(written) => {
                    silent = Duration::ZERO;
                    bulk = half.advance(written, bulk);
                    state.in_hand -= written;
                    state.written += written as u64;
                    self.moved.notify_all();
                }
                Err(source) => return Err(self.broke(&mut state, source)),
            }
        }
        half.clear();
        let mut state = self.lock();
        if state.queue.is_empty() {
            self.home(&mut state, half);
        } else {
            std::mem::swap(&mut state.queue, &mut half.next);
            self.give(&mut state, half);
        }
        Ok(())
    }

    /// Copies what the socket has not taken and leaves it to the writing thread.
    fn hand(self: &Arc<Self>, state: &mut State, mut half: WriteHalf, bulk: &[u8]) {
        state.is_slow = true;
        state.in_hand = 0;
        half.next.extend_from_slice(bulk);
        state.queued += half.left();
        self.give(state, half);
    }

    fn give(self: &Arc<Self>, state: &mut State, half: WriteHalf) {
        state.handed = Some(half);
        if state.has_writer {
            self.work.notify_one();
            return;
        }
        let outbox = self.clone();
        let thread = std::thread::Builder::new().name("link writer".to_string());
        match thread.spawn(move || outbox.write_on()) {
            Ok(_) => state.has_writer = true,
            Err(error) => self.over(state, Phase::Failed(format!("starting a thread: {error}"))),
        }
    }

    /// The writing thread: until the link has ended.
    fn write_on(&self) {
        loop {
            let idle = |state: &mut State| {
                state.handed.is_none() && matches!(state.phase, Phase::Open | Phase::Ending)
            };
            let mut state =
                self.work.wait_while(self.lock(), idle).expect("no thread panics while writing");
            let Some(half) = state.handed.take() else { return };
            drop(state);
            self.drain(half);
        }
    }

    /// Writes all that waits.
    fn drain(&self, mut half: WriteHalf) {
        let mut silent = Duration::ZERO;
        loop {
            let written = half.write_within(&[], PATIENCE);
            let mut state = self.lock();
            match written {
                Ok(_) if matches!(state.phase, Phase::Closed | Phase::Failed(_)) => return,
                Ok(0) => {
                    silent += PATIENCE;
                    // No other thread is left to see that the peer has stopped.
                    if state.phase == Phase::Ending && silent >= STALL {
                        let error = Error::Stalled { within: STALL, queued: state.queued };
                        return self.over(&mut state, Phase::Failed(error.to_string()));
                    }
                    continue;
                }
                Ok(written) => {
                    silent = Duration::ZERO;
                    half.advance(written, &[]);
                    state.queued -= written;
                    state.written += written as u64;
                }
                Err(source) => {
                    self.broke(&mut state, source);
                    return;
                }
            }
            if half.left() == 0 {
                half.clear();
                if state.queue.is_empty() {
                    return self.home(&mut state, half);
                }
                std::mem::swap(&mut state.queue, &mut half.next);
            }
            self.moved.notify_all();
        }
    }

    fn home(&self, state: &mut State, half: WriteHalf) {
        state.half = Some(half);
        state.is_slow = false;
        if state.phase == Phase::Ending {
            self.end(state);
        }
        self.moved.notify_all();
    }

    /// Everything is written: tells the peer.
    fn end(&self, state: &mut State) {
        state.phase = Phase::Ended;
        if let Some(half) = &mut state.half {
            half.finish();
        }
        self.closing.shutdown(Shutdown::Write);
        self.work.notify_all();
        self.moved.notify_all();
    }

    /// Ends the link for this reason, unless it has ended for another.
    fn over(&self, state: &mut State, phase: Phase) {
        if !matches!(state.phase, Phase::Closed | Phase::Failed(_)) {
            state.phase = phase;
        }
        self.closing.shutdown(Shutdown::Both);
        self.work.notify_all();
        self.moved.notify_all();
    }

    fn broke(&self, state: &mut State, source: std::io::Error) -> Error {
        let error = Error::Io { what: "writing to the other end", source };
        self.over(state, Phase::Failed(error.to_string()));
        error
    }
}
