//! The end of a link that speaks.
//!
//! Owns the order of frames among threads and the queue of what the peer has not taken. A frame
//! goes straight from the caller's slices to the socket as far as it fits; the rest is copied and
//! a thread writes it when the peer reads on. Never makes a caller wait for a slow peer, unless the
//! queue is full.
//!
//! Whoever writes holds the [`Pen`]: the socket's writing half and the bytes that come next. While
//! the pen is at home nothing waits; while it is away, frames line up in the queue.

use crate::error::Error;
use crate::frame;
use crate::pen::Pen;
use crate::transport::{Closing, PATIENCE, Writing};
use serde::Serialize;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Most bytes that wait for a peer (and one control message more).
pub const QUEUE_BYTES: usize = 64 << 20;

/// How long a full queue may stand still.
pub const STALL: Duration = Duration::from_secs(60);

/// Rests of frames longer than this are written by the caller, as long as the peer takes them,
/// instead of being copied.
const COPY_BYTES: usize = 1 << 20;

/// The end of a link that speaks; clones speak on the same link, one frame at a time. When the last
/// is gone, what waits is still written, and then the peer hears the end.
#[derive(Clone)]
pub struct Sender(Arc<Handle>);

/// Tells the last sender from the writing thread and the receiver, which share the rest.
struct Handle(Arc<Shared>);

/// What all threads of a link share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Something was written, or the link has ended.
    moved: Condvar,
    /// The writing thread has something to do.
    work: Condvar,
    closing: Box<dyn Closing>,
    generation: u64,
    bytes: AtomicU64,
}

struct State {
    /// At home: nothing waits.
    pen: Option<Pen>,
    /// For the writing thread.
    handed: Option<Pen>,
    /// Frames after what the pen has.
    queue: Vec<u8>,
    /// Bytes that were copied and are not written.
    queued: usize,
    /// Bytes written in all, to see progress.
    written: u64,
    sequence: u64,
    has_writer: bool,
    phase: Phase,
}

#[derive(Clone, PartialEq)]
enum Phase {
    Open,
    /// No more frames; what waits is written.
    Ending,
    /// The peer hears the end; this end may still hear.
    Ended,
    Closed,
    Failed(String),
}

impl Sender {
    pub(crate) fn new(
        writing: Box<dyn Writing>,
        closing: Box<dyn Closing>,
        generation: u64,
    ) -> Self {
        let state = State {
            pen: Some(Pen::new(writing)),
            handed: None,
            queue: Vec::new(),
            queued: 0,
            written: 0,
            sequence: 0,
            has_writer: false,
            phase: Phase::Open,
        };
        Self(Arc::new(Handle(Arc::new(Shared {
            state: Mutex::new(state),
            moved: Condvar::new(),
            work: Condvar::new(),
            closing,
            generation,
            bytes: AtomicU64::new(0),
        }))))
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.0.0.clone()
    }

    /// Sends a message.
    pub fn send<M: Serialize>(&self, message: &M) -> Result<(), Error> {
        self.send_with(message, &[])
    }

    /// Sends a message and its bulk. Waits only while [`QUEUE_BYTES`] wait for the peer, or, with
    /// large bulk, while the peer is taking it.
    pub fn send_with<M: Serialize>(&self, message: &M, bulk: &[u8]) -> Result<(), Error> {
        let shared = &self.0.0;
        let mut guard = shared.wait_for_room(bulk.len())?;
        let state = &mut *guard;
        let Some(pen) = &mut state.pen else {
            let before = state.queue.len();
            frame::append(
                &mut state.queue,
                message,
                bulk.len(),
                shared.generation,
                state.sequence,
            )?;
            state.queue.extend_from_slice(bulk);
            let frame = state.queue.len() - before;
            state.queued += frame;
            state.sequence += 1;
            shared.bytes.fetch_add(frame as u64, Ordering::Relaxed);
            return Ok(());
        };
        frame::append(&mut pen.next, message, bulk.len(), shared.generation, state.sequence)?;
        state.sequence += 1;
        shared.bytes.fetch_add((pen.next.len() + bulk.len()) as u64, Ordering::Relaxed);
        let written = match pen.write_now(bulk) {
            Ok(written) => written,
            Err(source) => return Err(shared.broke(state, source)),
        };
        let bulk = pen.advance(written, bulk);
        state.written += written as u64;
        if pen.left() == 0 && bulk.is_empty() {
            pen.clear();
            return Ok(());
        }
        let pen = state.pen.take().expect("it was at home");
        if bulk.len() <= COPY_BYTES {
            shared.hand(state, pen, bulk);
            return Ok(());
        }
        drop(guard);
        shared.write_here(pen, bulk)
    }

    /// Waits until the peer's socket has taken all that waits, at most `timeout`, and tells the peer
    /// that no more comes. This end still hears. Past the time the link is closed both ways.
    pub fn flush_and_close(&self, timeout: Duration) -> Result<(), Error> {
        let shared = &self.0.0;
        let mut state = shared.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Ending;
        }
        let waits = |state: &mut State| state.phase == Phase::Ending && state.pen.is_none();
        let (mut state, _) = shared
            .moved
            .wait_timeout_while(state, timeout, waits)
            .expect("nobody panics while writing");
        match &state.phase {
            Phase::Ending if state.pen.is_some() => {
                shared.end(&mut state);
                Ok(())
            }
            Phase::Open | Phase::Ending => {
                let error = Error::Stalled { within: timeout, queued: state.queued };
                shared.over(&mut state, Phase::Failed(error.to_string()));
                Err(error)
            }
            Phase::Ended => Ok(()),
            Phase::Closed => Err(Error::Closed),
            Phase::Failed(why) => Err(Error::Broken(why.clone())),
        }
    }

    /// Ends the link at once, both ways, and wakes whoever waits on it. What waits is lost.
    pub fn close(&self) {
        let shared = &self.0.0;
        shared.over(&mut shared.lock(), Phase::Closed);
    }

    /// Bytes of all frames so far, those that wait included.
    pub fn bytes_sent(&self) -> u64 {
        self.0.0.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were copied and wait for the peer.
    pub fn bytes_waiting(&self) -> usize {
        self.0.0.lock().queued
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Ending;
            if state.pen.is_some() {
                self.0.end(&mut state);
            }
        }
    }
}

impl Shared {
    /// Whether this end closed the link.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().phase == Phase::Closed
    }

    /// What ended the link, for those who ask after its end.
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
        self.state.lock().expect("nobody panics while writing")
    }

    /// The state, when a frame may be written or queued.
    fn wait_for_room(&self, bulk: usize) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.lock();
        // A large frame waits for what is before it, for then it need not be copied.
        let mut copies = bulk <= COPY_BYTES;
        let before_it = state.written + state.queued as u64;
        loop {
            match &state.phase {
                Phase::Open => {}
                Phase::Failed(why) => return Err(Error::Broken(why.clone())),
                Phase::Ending | Phase::Ended | Phase::Closed => return Err(Error::Closed),
            }
            let fits = state.queued + bulk <= QUEUE_BYTES;
            if state.pen.is_some() || fits && (copies || state.written > before_it) {
                return Ok(state);
            }
            let within = if fits { PATIENCE } else { STALL };
            let written = state.written;
            let still = |state: &mut State| {
                state.pen.is_none() && state.written == written && state.phase == Phase::Open
            };
            let (after, result) = self
                .moved
                .wait_timeout_while(state, within, still)
                .expect("nobody panics while writing");
            state = after;
            if result.timed_out() && fits {
                copies = true;
            } else if result.timed_out() {
                let error = Error::Stalled { within, queued: state.queued };
                self.over(&mut state, Phase::Failed(error.to_string()));
                return Err(error);
            }
        }
    }

    /// Writes a large frame without copying it, as long as the peer takes it.
    fn write_here(self: &Arc<Self>, mut pen: Pen, mut bulk: &[u8]) -> Result<(), Error> {
        let mut silent = Duration::ZERO;
        while pen.left() > 0 || !bulk.is_empty() {
            let written = pen.write_patiently(bulk);
            let mut state = self.lock();
            match written {
                Ok(0) if matches!(state.phase, Phase::Closed | Phase::Failed(_)) => {
                    return Err(Error::Closed);
                }
                Ok(0) if state.queued + bulk.len() <= QUEUE_BYTES => {
                    self.hand(&mut state, pen, bulk);
                    return Ok(());
                }
                Ok(0) => {
                    silent += PATIENCE;
                    if silent >= STALL {
                        let error = Error::Stalled { within: STALL, queued: bulk.len() };
                        self.over(&mut state, Phase::Failed(error.to_string()));
                        return Err(error);
                    }
                }
                Ok(written) => {
                    silent = Duration::ZERO;
                    bulk = pen.advance(written, bulk);
                    state.written += written as u64;
                    self.moved.notify_all();
                }
                Err(source) => return Err(self.broke(&mut state, source)),
            }
        }
        pen.clear();
        let mut state = self.lock();
        if state.queue.is_empty() {
            self.home(&mut state, pen);
        } else {
            std::mem::swap(&mut state.queue, &mut pen.next);
            self.give(&mut state, pen);
        }
        Ok(())
    }

    /// Copies what the socket has not taken and leaves it to the writing thread.
    fn hand(self: &Arc<Self>, state: &mut State, mut pen: Pen, bulk: &[u8]) {
        pen.next.extend_from_slice(bulk);
        state.queued += pen.left();
        self.give(state, pen);
    }

    fn give(self: &Arc<Self>, state: &mut State, pen: Pen) {
        state.handed = Some(pen);
        if state.has_writer {
            self.work.notify_one();
            return;
        }
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("link writer".to_string());
        match thread.spawn(move || shared.write_on()) {
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
                self.work.wait_while(self.lock(), idle).expect("nobody panics while writing");
            let Some(pen) = state.handed.take() else { return };
            drop(state);
            self.drain(pen);
        }
    }

    /// Writes all that waits.
    fn drain(&self, mut pen: Pen) {
        let mut silent = Duration::ZERO;
        loop {
            let written = pen.write_patiently(&[]);
            let mut state = self.lock();
            match written {
                Ok(_) if matches!(state.phase, Phase::Closed | Phase::Failed(_)) => return,
                Ok(0) => {
                    silent += PATIENCE;
                    // Nobody else is left to see that the peer has stopped.
                    if state.phase == Phase::Ending && silent >= STALL {
                        let error = Error::Stalled { within: STALL, queued: state.queued };
                        return self.over(&mut state, Phase::Failed(error.to_string()));
                    }
                    continue;
                }
                Ok(written) => {
                    silent = Duration::ZERO;
                    pen.advance(written, &[]);
                    state.queued -= written;
                    state.written += written as u64;
                }
                Err(source) => {
                    self.broke(&mut state, source);
                    return;
                }
            }
            if pen.left() == 0 {
                pen.clear();
                if state.queue.is_empty() {
                    return self.home(&mut state, pen);
                }
                std::mem::swap(&mut state.queue, &mut pen.next);
            }
            self.moved.notify_all();
        }
    }

    fn home(&self, state: &mut State, pen: Pen) {
        state.pen = Some(pen);
        if state.phase == Phase::Ending {
            self.end(state);
        }
        self.moved.notify_all();
    }

    /// Everything is written: tells the peer.
    fn end(&self, state: &mut State) {
        state.phase = Phase::Ended;
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
