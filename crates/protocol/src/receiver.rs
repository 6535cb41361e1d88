//! The end of a link that hears.
//!
//! Owns the order and the bounds of what comes in. Headers and control messages are read ahead into
//! a small buffer; bulk goes straight to where the caller wants it. Never allocates for a frame
//! (what a message holds, it holds), and never goes on after a fault.

use crate::error::Error;
use crate::frame::{self, HEADER_BYTES, Header};
use crate::outbox::Outbox;
use crate::ticks::{TICK, Ticks};
use crate::transport::Reading;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

/// Read ahead at a time: many small frames, but little of a large frame's bulk.
const AHEAD: usize = 8 << 10;

/// A message and the length of what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incoming<M> {
    pub message: M,
    /// Bulk to be read before the next message.
    pub bulk_bytes: usize,
}

/// The end of a link that hears.
pub struct Receiver {
    reading: Box<dyn Reading>,
    outbox: Arc<Outbox>,
    generation: u64,
    sequence: u64,
    /// `buffer[start..end]` was read ahead.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    bulk_left: usize,
    bytes: u64,
    failed: bool,
    /// What is left of the time of a peer that has not said who it is.
    ticks: Option<Ticks>,
}

impl Receiver {
    pub(crate) fn new(reading: Box<dyn Reading>, outbox: Arc<Outbox>, generation: u64) -> Self {
        Self {
            reading,
            outbox,
            generation,
            sequence: 0,
            buffer: vec![0; AHEAD],
            start: 0,
            end: 0,
            bulk_left: 0,
            bytes: 0,
            failed: false,
            ticks: None,
        }
    }

    /// Next message; waits for it. `None` when the peer has hung up between frames, or this end has
    /// closed the link.
    pub fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<Incoming<M>>, Error> {
        self.usable()?;
        let result = self.next();
        self.note(result)
    }

    /// The first message, which has no bulk, of a peer that has so much time left to say it.
    pub(crate) fn first<M: DeserializeOwned>(&mut self, ticks: Ticks) -> Result<Option<M>, Error> {
        self.set_timeout(Some(TICK))?;
        self.ticks = Some(ticks);
        let first = self.receive()?;
        self.ticks = None;
        self.set_timeout(None)?;
        match self.bulk_left {
            0 => Ok(first.map(|first| first.message)),
            bytes => self.note(Err(Error::BulkTooLong { bytes: bytes as u64, most: 0 })),
        }
    }

    /// Reads the next `into.len()` bytes of the bulk, which may be read in pieces.
    pub fn read_bulk(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.usable()?;
        if into.len() > self.bulk_left {
            return Err(Error::BulkShort { asked: into.len(), left: self.bulk_left });
        }
        let result = self.bulk(into);
        self.note(result)
    }

    /// Reads the rest of the bulk and forgets it.
    pub fn skip_bulk(&mut self) -> Result<(), Error> {
        self.usable()?;
        let result = self.forget();
        self.note(result)
    }

    /// Reads the rest of the bulk, at most `max` bytes, into a new vector.
    pub fn bulk_vec(&mut self, max: usize) -> Result<Vec<u8>, Error> {
        let bytes = self.bulk_left;
        if bytes > max {
            let error = Error::BulkTooLong { bytes: bytes as u64, most: max as u64 };
            return self.note(Err(error));
        }
        let mut bulk = vec![0; bytes];
        self.read_bulk(&mut bulk)?;
        Ok(bulk)
    }

    /// Bytes of all frames so far.
    pub fn bytes_received(&self) -> u64 {
        self.bytes
    }

    /// How long the peer may be silent from now on; `None` is for ever. Silence is then an error.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.reading.set_timeout(timeout).map_err(Error::io("setting a time-out"))
    }

    fn next<M: DeserializeOwned>(&mut self) -> Result<Option<Incoming<M>>, Error> {
        if self.bulk_left > 0 {
            return Err(Error::BulkLeft { bytes: self.bulk_left });
        }
        if self.outbox.is_closed() || !self.fill(HEADER_BYTES, "a header")? {
            return Ok(None);
        }
        let header = self.buffer[self.start..].first_chunk().expect("filled");
        let header = Header::decode(header)?;
        header.expect(self.generation, self.sequence)?;
        let (control, bulk) = (header.control_bytes as usize, header.bulk_bytes as usize);
        self.take(HEADER_BYTES);
        if control > 0 && !self.fill(control, "a control message")? {
            return Err(Error::Cut("a frame"));
        }
        let message = frame::message(&self.buffer[self.start..self.start + control])?;
        self.take(control);
        self.sequence += 1;
        self.bulk_left = bulk;
        Ok(Some(Incoming { message, bulk_bytes: bulk }))
    }

    fn bulk(&mut self, mut into: &mut [u8]) -> Result<(), Error> {
        while !into.is_empty() {
            let ahead = &self.buffer[self.start..self.end];
            let n = if ahead.is_empty() {
                // What follows the bulk comes with the same call: the next frame's beginning.
                let asked = into.len();
                let (first, second) = (IoSliceMut::new(into), IoSliceMut::new(&mut self.buffer));
                let read = self.reading.read(&mut [first, second]);
                let read = read.map_err(Error::io("reading bulk"))?;
                if read == 0 {
                    return Err(Error::Cut("bulk"));
                }
                (self.start, self.end) = (0, read.saturating_sub(asked));
                self.bytes += read.min(asked) as u64;
                read.min(asked)
            } else {
                let n = ahead.len().min(into.len());
                into[..n].copy_from_slice(&ahead[..n]);
                self.take(n);
                n
            };
            self.bulk_left -= n;
            into = &mut into[n..];
        }
        Ok(())
    }

    fn forget(&mut self) -> Result<(), Error> {
        while self.bulk_left > 0 {
            if self.start == self.end && !self.fill(1, "bulk")? {
                return Err(Error::Cut("bulk"));
            }
            let n = (self.end - self.start).min(self.bulk_left);
            self.take(n);
            self.bulk_left -= n;
        }
        Ok(())
    }

    /// Reads until `n` bytes are there, which is at most the bound of a control message. False when
    /// the peer has hung up and there is none.
    fn fill(&mut self, n: usize, what: &'static str) -> Result<bool, Error> {
        if self.end - self.start < n && self.start + n > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if n > self.buffer.len() {
                self.buffer.resize(n, 0);
            }
        }
        while self.end - self.start < n {
            let mut free = [IoSliceMut::new(&mut self.buffer[self.end..])];
            let read = match &mut self.ticks {
                None => self.reading.read(&mut free),
                Some(ticks) => {
                    ticks.spend(what)?;
                    self.reading.read_once(&mut free)
                }
            };
            let has_time = |error: &io::Error| {
                let later = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
                self.ticks.is_some() && later.contains(&error.kind())
            };
            let read = match read {
                Err(error) if has_time(&error) => continue,
                read => read.map_err(Error::io("reading a frame"))?,
            };
            match read {
                0 if self.start == self.end => return Ok(false),
                0 => return Err(Error::Cut(what)),
                read => self.end += read,
            }
        }
        Ok(true)
    }

    fn take(&mut self, n: usize) {
        self.start += n;
        self.bytes += n as u64;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    fn usable(&self) -> Result<(), Error> {
        match self.failed {
            true => Err(self.outbox.why()),
            false => Ok(()),
        }
    }

    /// After a fault it is not known where the next frame begins: the link is over, both ways.
    fn note<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| {
            self.failed = true;
            match self.outbox.is_closed() {
                true => Error::Closed,
                false => {
                    self.outbox.fail(&error);
                    error
                }
            }
        })
    }
}
