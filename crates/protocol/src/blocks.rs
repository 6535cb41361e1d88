//! Rows of a coded run on a link of their own: from the source, which has the data, to a worker.
//!
//! Owns the words of such a link and how rows cross it: in pieces of whole rows, each with a hash
//! of what it is and of what is in it, of which only a few are on their way at a time. So neither
//! end needs more memory than a few pieces, a piece that was changed or is another's is not
//! believed, and whoever was cut off asks for the rest. Every wait has an end. Never encodes and
//! never looks into a row.

use crate::error::Error;
use crate::link::{self, Incoming, Receiver, Sender};
use crate::message::{HeldOut, Join, Sha256, Trouble};
use crate::passport::Passport;
use serde::{Deserialize, Serialize};
use sha2::Digest;
use std::ops::Range;
use std::time::Duration;

/// Most bytes of a piece, unless a single row has more.
pub const PIECE_BYTES: usize = 1 << 20;

/// How often a source that is not ready says so.
pub const PREPARING_EVERY: Duration = Duration::from_secs(5);

/// Pieces that may be on their way before one is answered.
const WINDOW: u64 = 8;

/// How long the other end may say nothing.
const SILENCE: Duration = Duration::from_secs(60);

/// How often a source may say that it is not ready: an hour in all.
const PREPARING_MAX: u32 = 720;

/// How long whoever was refused may take to hang up.
const FAREWELL: Duration = Duration::from_secs(5);

/// Most bytes that come before the rows.
const HEAD_BYTES_MAX: usize = 256 << 20;

/// Rows of the data, as somebody wants them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Wanted {
    /// The coded rows of a slot, in numbers of the run's precision. In exact arithmetic the head is
    /// JSON of the bounds of the data's columns.
    Block { slot: u16 },
    /// Of each training row the id of the example (u64) and its target (f64).
    Labels,
    /// Of each row of a batch its features and its target. The head is one byte: 0 where the target
    /// is a class (u32), 1 where it is numbers; those and features are f32.
    Batch {
        /// Of which part.
        part: HeldOut,
        batch: u64,
    },
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Asking {
    /// Send these rows.
    Rows(Ask),
    /// A piece has been taken.
    Taken,
}

/// Rows that are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Digest of the coding that they are of.
    pub coding: String,
    pub wanted: Wanted,
    /// The first that the worker does not have.
    pub first: u64,
}

/// What a source says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Telling {
    /// The data is being opened.
    Preparing,
    /// So much there is in all; pieces follow from the first row that was asked for. The bulk is
    /// the head.
    Comes(Length),
    /// The next rows, the bulk.
    Piece {
        /// Hash of the coding, what was wanted, the number of the first row, and the rows.
        sha256: Sha256,
    },
    /// It cannot be, and the link ends.
    Refused(Trouble),
}

/// How much there is of what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Length {
    pub rows: u64,
    /// Bytes of each.
    pub row_bytes: u64,
}

impl Length {
    /// Rows that go together.
    fn at_once(self) -> u64 {
        (PIECE_BYTES as u64 / self.row_bytes.max(1)).max(1)
    }
}

/// Why rows did not cross.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The link was lost, or never made.
    #[error(transparent)]
    Link(#[from] Error),
    /// The source will not, or cannot.
    #[error("{}", .0.message)]
    Refused(Trouble),
    /// What came is not what was sent.
    #[error("rows from {first} on do not match their SHA-256: bytes were changed")]
    Changed {
        /// The first of them.
        first: u64,
    },
    /// The other end does not keep to the order of words.
    #[error("the other end says {0} where something else is due")]
    OutOfTurn(&'static str),
}

/// The source's end of a link.
pub struct Giver {
    sender: Sender,
    receiver: Receiver,
    piece: Vec<u8>,
}

impl Giver {
    /// Over a link on which everybody knows who the other is.
    pub fn new(sender: Sender, mut receiver: Receiver) -> Result<Self, Error> {
        receiver.set_timeout(Some(SILENCE))?;
        Ok(Self { sender, receiver, piece: Vec::new() })
    }

    /// What the worker asks for next; nothing when it has hung up.
    pub fn hear(&mut self) -> Result<Option<Ask>, Fault> {
        match self.receiver.receive::<Asking>()? {
            None => Ok(None),
            Some(Incoming { bulk_bytes: 0, message: Asking::Rows(ask) }) => Ok(Some(ask)),
            Some(_) => Err(Fault::OutOfTurn("`taken`")),
        }
    }

    /// Says that it takes a while yet.
    pub fn say_preparing(&self) -> Result<(), Error> {
        self.sender.send(&Telling::Preparing)
    }

    /// Sends what is asked for, and waits until all of it is taken. `fill` puts the bytes of some
    /// rows into a buffer that is empty.
    pub fn give(
        &mut self,
        ask: &Ask,
        length: Length,
        head: &[u8],
        mut fill: impl FnMut(Range<u64>, &mut Vec<u8>) -> Result<(), Trouble>,
    ) -> Result<(), Fault> {
        if ask.first > length.rows {
            let (first, rows) = (ask.first, length.rows);
            return Err(Fault::Refused(Trouble::new(format!("row {first} of {rows} is none"))));
        }
        self.sender.send_with(&Telling::Comes(length), head)?;
        let (mut next, mut open) = (ask.first, 0);
        while next < length.rows || open > 0 {
            if next < length.rows && open < WINDOW {
                let rows = next..(next + length.at_once()).min(length.rows);
                self.piece.clear();
                fill(rows.clone(), &mut self.piece).map_err(Fault::Refused)?;
                let sha256 = hash(ask, next, &self.piece);
                self.sender.send_with(&Telling::Piece { sha256 }, &self.piece)?;
                (next, open) = (rows.end, open + 1);
                continue;
            }
            match self.receiver.receive::<Asking>()? {
                Some(Incoming { bulk_bytes: 0, message: Asking::Taken }) => open -= 1,
                Some(_) => return Err(Fault::OutOfTurn("`rows`")),
                None => return Err(Error::Cut("rows").into()),
            }
        }
        Ok(())
    }

    /// Says why not, and stays until the other end has hung up: what is on its way would otherwise
    /// take the answer down with the connection.
    pub fn refuse(mut self, trouble: Trouble) {
        let said = self.sender.send(&Telling::Refused(trouble));
        if said.and_then(|()| self.receiver.set_timeout(Some(FAREWELL))).is_err() {
            return;
        }
        for _ in 0..=WINDOW {
            let Ok(Some(_)) = self.receiver.receive::<Asking>() else { break };
            if self.receiver.skip_bulk().is_err() {
                break;
            }
        }
    }
}

/// The worker's end of a link.
pub struct Taker {
    sender: Sender,
    receiver: Receiver,
    piece: Vec<u8>,
}

impl Taker {
    /// Connects to the source, which is with the coordinator.
    pub fn connect(address: &str, passport: &Passport, join: &Join) -> Result<Self, Error> {
        let (sender, receiver) = link::connect(address, passport, None)?;
        sender.send(join)?;
        Self::over(sender, receiver)
    }

    /// Over a link on which everybody knows who the other is.
    pub fn over(sender: Sender, mut receiver: Receiver) -> Result<Self, Error> {
        receiver.set_timeout(Some(SILENCE))?;
        Ok(Self { sender, receiver, piece: Vec::new() })
    }

    /// Asks for rows: how much there is, and the head.
    pub fn ask(&mut self, ask: &Ask) -> Result<(Length, Vec<u8>), Fault> {
        self.sender.send(&Asking::Rows(ask.clone()))?;
        for _ in 0..PREPARING_MAX {
            match self.hear()? {
                Telling::Preparing => {}
                Telling::Comes(length) => {
                    return Ok((length, self.receiver.bulk_vec(HEAD_BYTES_MAX)?));
                }
                Telling::Piece { .. } => return Err(Fault::OutOfTurn("`piece`")),
                Telling::Refused(trouble) => return Err(Fault::Refused(trouble)),
            }
        }
        Err(Fault::OutOfTurn("`preparing`, for an hour"))
    }

    /// The bytes of the next rows, of which `first` is the first; believed, and the source told.
    pub fn piece(&mut self, ask: &Ask, length: Length, first: u64) -> Result<&[u8], Fault> {
        let sha256 = match self.hear()? {
            Telling::Piece { sha256 } => sha256,
            Telling::Refused(trouble) => return Err(Fault::Refused(trouble)),
            _ => return Err(Fault::OutOfTurn("another answer")),
        };
        let rows = length.at_once().min(length.rows.saturating_sub(first));
        let bytes = rows.checked_mul(length.row_bytes).and_then(|b| usize::try_from(b).ok());
        let bytes = bytes.ok_or(Fault::OutOfTurn("a piece of another length"))?;
        self.piece = self.receiver.bulk_vec(bytes)?;
        if self.piece.len() != bytes || bytes == 0 {
            return Err(Fault::OutOfTurn("a piece of another length"));
        }
        if hash(ask, first, &self.piece) != sha256 {
            return Err(Fault::Changed { first });
        }
        self.sender.send(&Asking::Taken)?;
        Ok(&self.piece)
    }

    fn hear(&mut self) -> Result<Telling, Fault> {
        let incoming = self.receiver.receive::<Telling>()?;
        Ok(incoming.ok_or(Error::Cut("rows"))?.message)
    }
}

/// What a piece is known by.
fn hash(ask: &Ask, first: u64, bytes: &[u8]) -> Sha256 {
    let (kind, number) = match ask.wanted {
        Wanted::Block { slot } => (0u8, u64::from(slot)),
        Wanted::Labels => (1, 0),
        Wanted::Batch { part: HeldOut::Validation, batch } => (2, batch),
        Wanted::Batch { part: HeldOut::Test, batch } => (3, batch),
    };
    let mut hash = sha2::Sha256::new();
    hash.update((ask.coding.len() as u64).to_le_bytes());
    hash.update(&ask.coding);
    hash.update([kind]);
    hash.update(number.to_le_bytes());
    hash.update(first.to_le_bytes());
    hash.update(bytes);
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
