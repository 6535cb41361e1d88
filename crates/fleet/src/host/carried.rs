//! A channel that a link carries: of a host that called by itself, and of the controller it called.
//!
//! Owns nothing but both ends' bytes; what is said on them is [`messages`](crate::messages)'. A piece that
//! is written is one frame of the link, and is read as bytes again. Never makes a link.

use crate::channel::{Channel, StderrTail};
use crate::messages::FRAME_BYTES_MAX;
use planaria_protocol::{Receiver, Sender};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Longest piece: a message of a channel and its length.
const PIECE_BYTES_MAX: usize = FRAME_BYTES_MAX + 4;

/// What stands before each piece on the link.
#[derive(Serialize, Deserialize)]
struct Piece(u8);

/// The bytes that come in.
pub struct Reading {
    receiver: Receiver,
    piece: Vec<u8>,
    read: usize,
}

/// The bytes that go out.
pub struct Writing(Sender);

/// Both directions of a link as bytes.
pub fn halves(sender: Sender, receiver: Receiver) -> (Reading, Writing) {
    (Reading { receiver, piece: Vec::new(), read: 0 }, Writing(sender))
}

/// A link as a controller's channel to a host.
pub fn channel(sender: Sender, receiver: Receiver) -> Channel {
    let closes = sender.clone();
    let (reading, writing) = halves(sender, receiver);
    Channel {
        reading: Box::new(reading),
        writing: Box::new(writing),
        closing: Arc::new(move || closes.close()),
        stderr_tail: StderrTail::default(),
    }
}

impl Read for Reading {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() {
            let Some(_) = self.receiver.receive::<Piece>().map_err(io::Error::other)? else {
                return Ok(0);
            };
            self.piece = self.receiver.bulk_vec(PIECE_BYTES_MAX).map_err(io::Error::other)?;
            self.read = 0;
        }
        let left = &self.piece[self.read..];
        let bytes = left.len().min(into.len());
        into[..bytes].copy_from_slice(&left[..bytes]);
        self.read += bytes;
        Ok(bytes)
    }
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES_MAX)];
        self.0.send_with(&Piece(0), piece).map_err(io::Error::other)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
