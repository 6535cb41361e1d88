//! A connection under TLS: bytes out are cut into records and sealed, bytes in are opened.
//!
//! Owns the buffers between a link and its socket, one for each direction. Reading and writing
//! share nothing but the source of new keys, which is asked once in 2^24 records. The reading side
//! never has anything to send: keys are renewed by their writer, and no peer asks the other for it.
//! Never waits longer than it is told.

use super::record::{
    ALERT, DATA, HANDSHAKE, HEADER_BYTES, Key, PLAIN_BYTES, RECORD_BYTES, RECORDS_MAX,
    TRAILER_BYTES, invalid, length,
};
use crate::error::Error;
use crate::socket::Socket;
use crate::ticks::TICK;
use crate::transport::{Halves, Reading, Shared, Transport, Writing};
use rustls::ConnectionTrafficSecrets;
use rustls::kernel::KernelConnection;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Records sealed at a time, and read at a time: few enough to stay in a processor's cache.
const BATCH: usize = 8;

/// Most plain bytes that one call writes: a thread that waits for room wants to see it.
const CALL_BYTES: usize = 1 << 20;

/// The handshake message by which a writer says that its next record is under its next key.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// The alert by which a writer says that no more comes.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// Where the next keys of a connection come from.
pub(super) trait Renewal: Send {
    fn next_to_write(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;
    fn next_to_read(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;
}

impl<Data: Send> Renewal for KernelConnection<Data> {
    fn next_to_write(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_tx_secret()
    }

    fn next_to_read(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_rx_secret()
    }
}

type Renewing = Arc<Mutex<Box<dyn Renewal>>>;

/// A connection whose ends have shown each other their certificates.
pub(super) struct Tls {
    stream: Arc<Socket>,
    sealing: Sealing,
    opening: Opening,
}

/// What the handshake leaves: the keys out and in, what it has opened already, and what it has read
/// and not opened.
pub(super) struct Agreed {
    pub(super) keys: (Key, Key),
    pub(super) renewal: Box<dyn Renewal>,
    pub(super) opened: Vec<u8>,
    pub(super) unopened: Vec<u8>,
}

impl Tls {
    pub(super) fn new(stream: Socket, agreed: Agreed) -> Self {
        let (stream, renewal) = (Arc::new(stream), Arc::new(Mutex::new(agreed.renewal)));
        let (out, into) = agreed.keys;
        let sealing = Sealing {
            socket: Shared(stream.clone()),
            key: out,
            renewal: renewal.clone(),
            records_max: RECORDS_MAX,
            sealed: Vec::new(),
            at: 0,
            ends: Vec::new(),
            done: 0,
        };
        // As if it had been read ahead: what is opened first, then the rest.
        let mut buffer = agreed.opened;
        let plain = 0..buffer.len();
        buffer.extend_from_slice(&agreed.unopened);
        let (start, end) = (plain.end, buffer.len());
        buffer.resize(end.max(RECORD_BYTES), 0);
        let socket = Shared(stream.clone());
        let opening =
            Opening { socket, key: into, renewal, buffer, start, end, plain, is_ended: false };
        Self { stream, sealing, opening }
    }

    /// Renews its key after fewer records than it may seal.
    #[cfg(test)]
    pub(super) fn renew_after(&mut self, records: u64) {
        self.sealing.records_max = records;
    }
}

impl Transport for Tls {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(timeout)?;
        self.stream.set_write_timeout(timeout)
    }

    fn split(self: Box<Self>) -> io::Result<Halves> {
        let Self { stream, sealing, opening } = *self;
        stream.set_nodelay()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        Ok(Halves {
            writing: Box::new(sealing),
            reading: Box::new(opening),
            closing: Box::new(Shared(stream)),
        })
    }
}

impl Read for Tls {
    /// Reads the socket once at most, so that its time-out bounds this too.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.opening.read_some(&mut [IoSliceMut::new(into)], 1)
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.sealing.write_within(&[IoSlice::new(bytes)], TICK)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The half that writes. Bytes count as written when the socket has taken their whole record; until
/// then the caller offers them again, and they are not sealed again.
struct Sealing {
    socket: Shared,
    key: Key,
    renewal: Renewing,
    records_max: u64,
    /// Records; the socket has taken those before `at`.
    sealed: Vec<u8>,
    at: usize,
    /// Of each record: where it ends, and how many plain bytes it holds.
    ends: Vec<(usize, usize)>,
    /// Of these, so many are counted as written.
    done: usize,
}

impl Writing for Sealing {
    fn write_now(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut written = 0;
        loop {
            written += self.send()?;
            if self.at < self.sealed.len() || written >= CALL_BYTES {
                return Ok(written);
            }
            self.clear();
            self.seal_batch(parts, written)?;
            if self.sealed.is_empty() {
                return Ok(written);
            }
        }
    }

    fn write_within(&mut self, parts: &[IoSlice<'_>], within: Duration) -> io::Result<usize> {
        self.socket.wait_for_room(within)?;
        self.write_now(parts)
    }

    fn finish(&mut self) {
        if self.at < self.sealed.len() {
            return;
        }
        self.clear();
        self.sealed.resize(HEADER_BYTES, 0);
        self.sealed.extend_from_slice(&CLOSE_NOTIFY);
        self.key.seal(ALERT, &mut self.sealed, 0);
        // A peer that takes nothing any more will see the end of the connection itself.
        let _ = self.socket.write_now(&[IoSlice::new(&self.sealed)]);
        self.clear();
    }
}

impl Sealing {
    /// Gives the socket what is sealed, as much as fits: the plain bytes of whole records.
    fn send(&mut self) -> io::Result<usize> {
        while self.at < self.sealed.len() {
            match self.socket.write_now(&[IoSlice::new(&self.sealed[self.at..])])? {
                0 => break,
                sent => self.at += sent,
            }
        }
        let mut written = 0;
        while let Some((_, plain)) = self.ends.get(self.done).filter(|(end, _)| *end <= self.at) {
            written += plain;
            self.done += 1;
        }
        Ok(written)
    }

    /// Seals some of what comes after the first `skipped` bytes of `parts`.
    fn seal_batch(&mut self, parts: &[IoSlice<'_>], mut skipped: usize) -> io::Result<()> {
        let mut room = BATCH * PLAIN_BYTES;
        let mut rest = parts.iter().filter_map(|part| {
            let skip = skipped.min(part.len());
            skipped -= skip;
            (skip < part.len()).then(|| &part[skip..])
        });
        let mut part: &[u8] = rest.next().unwrap_or_default();
        while room > 0 && !part.is_empty() {
            let start = self.begin_record()?;
            let full = start + HEADER_BYTES + PLAIN_BYTES;
            while self.sealed.len() < full && !part.is_empty() {
                let n = part.len().min(full - self.sealed.len());
                self.sealed.extend_from_slice(&part[..n]);
                part = &part[n..];
                if part.is_empty() {
                    part = rest.next().unwrap_or_default();
                }
            }
            room -= self.end_record(DATA, start);
        }
        Ok(())
    }

    /// Room for a header, under a key that may be used.
    fn begin_record(&mut self) -> io::Result<usize> {
        if self.key.sequence >= self.records_max {
            let start = self.sealed.len();
            self.sealed.extend_from_slice(&[0; HEADER_BYTES]);
            self.sealed.extend_from_slice(&KEY_UPDATE);
            self.key.seal(HANDSHAKE, &mut self.sealed, start);
            self.ends.push((self.sealed.len(), 0));
            let mut renewal = self.renewal.lock().expect("no thread panics while renewing");
            self.key = renewed(renewal.next_to_write())?;
        }
        let start = self.sealed.len();
        self.sealed.extend_from_slice(&[0; HEADER_BYTES]);
        Ok(start)
    }

    fn end_record(&mut self, kind: u8, start: usize) -> usize {
        let plain = self.sealed.len() - start - HEADER_BYTES;
        self.key.seal(kind, &mut self.sealed, start);
        self.ends.push((self.sealed.len(), plain));
        plain
    }

    /// Everything was sent; the memory is kept.
    fn clear(&mut self) {
        self.sealed.clear();
        self.ends.clear();
        (self.at, self.done) = (0, 0);
    }
}

/// The half that reads.
struct Opening {
    socket: Shared,
    key: Key,
    renewal: Renewing,
    /// `buffer[start..end]` was read and is still sealed.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Before `start`: opened, and not handed on.
    plain: Range<usize>,
    /// The peer has said that no more comes.
    is_ended: bool,
}

impl Reading for Opening {
    fn read(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_some(parts, usize::MAX)
    }

    fn read_once(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_some(parts, 1)
    }

    fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(timeout)
    }
}

impl Opening {
    /// Opens what is there into `parts`; where nothing is, reads the socket, so many times at most.
    fn read_some(&mut self, parts: &mut [IoSliceMut<'_>], mut reads: usize) -> io::Result<usize> {
        let room: usize = parts.iter().map(|part| part.len()).sum();
        let mut filled = 0;
        loop {
            filled += self.hand_on(parts, filled);
            if filled == room || self.is_ended {
                return Ok(filled);
            }
            if self.open_next()? {
                continue;
            }
            if filled > 0 {
                return Ok(filled);
            }
            reads = reads.checked_sub(1).ok_or(ErrorKind::WouldBlock)?;
            if !self.read_socket()? {
                return Ok(0);
            }
        }
    }

    /// Copies what is opened to `parts`, of which the first `filled` bytes are taken.
    fn hand_on(&mut self, parts: &mut [IoSliceMut<'_>], mut filled: usize) -> usize {
        let mut copied = 0;
        for part in parts {
            let skip = filled.min(part.len());
            filled -= skip;
            let n = self.plain.len().min(part.len() - skip);
            let from = self.plain.start;
            part[skip..skip + n].copy_from_slice(&self.buffer[from..from + n]);
            self.plain.start += n;
            copied += n;
        }
        copied
    }

    /// Opens the next record, if all of it is there.
    fn open_next(&mut self) -> io::Result<bool> {
        let sealed = &mut self.buffer[self.start..self.end];
        let Some(length) = length(sealed)?.filter(|length| *length <= sealed.len()) else {
            return Ok(false);
        };
        let (kind, bytes) = self.key.open(&mut sealed[..length])?;
        let from = self.start + HEADER_BYTES;
        self.start += length;
        let plain = from..from + bytes;
        match (kind, &self.buffer[plain.clone()]) {
            (DATA, _) => self.plain = plain,
            (ALERT, said) if *said == CLOSE_NOTIFY => self.is_ended = true,
            (ALERT, said) => return Err(refusal(said)),
            (HANDSHAKE, said) if *said == KEY_UPDATE => {
                let mut renewal = self.renewal.lock().expect("no thread panics while renewing");
                self.key = renewed(renewal.next_to_read())?;
            }
            _ => return Err(invalid("a record of a kind that is not known")),
        }
        Ok(true)
    }

    /// Reads what has come, at least something; false where the peer has hung up.
    ///
    /// It may do so without the alert that says so: one that was killed does, and who can cut the
    /// wire can. Frames know their length and the end of a run is a message, so no more is lost by
    /// it than a process.
    fn read_socket(&mut self) -> io::Result<bool> {
        self.make_room();
        let n = self.socket.read(&mut [IoSliceMut::new(&mut self.buffer[self.end..])])?;
        self.end += n;
        match (n, self.start == self.end) {
            (0, true) => Ok(false),
            (0, false) => Err(invalid("the other end hung up in the middle of a record")),
            _ => Ok(true),
        }
    }

    /// What is sealed moves to the front; a buffer that one read has filled may grow.
    fn make_room(&mut self) {
        const MOST: usize = BATCH * (HEADER_BYTES + PLAIN_BYTES + TRAILER_BYTES);
        let was_filled = self.end == self.buffer.len();
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        self.plain = 0..0;
        if was_filled && self.buffer.len() < MOST {
            self.buffer.resize(MOST, 0);
        }
    }
}

fn renewed(next: Result<(u64, ConnectionTrafficSecrets), rustls::Error>) -> io::Result<Key> {
    let next = next.map_err(|e| Error::Handshake(e.to_string()));
    next.and_then(Key::new).map_err(io::Error::other)
}

/// What the peer says when it does not believe what it was shown.
fn refusal(alert: &[u8]) -> io::Error {
    let why = match alert {
        [_, 42..=46 | 48 | 116] => "this process' certificate is not of its run".to_owned(),
        [_, description] => format!("TLS alert {description}"),
        _ => "a TLS alert that cannot be read".to_owned(),
    };
    io::Error::new(ErrorKind::ConnectionAborted, format!("the other end refused: {why}"))
}
