//! Objects on links of their own: files of checkpoints between a server and the coordinator's
//! machine, rows of a coded run from the source to a worker.
//!
//! Owns the words of such a link and how units (bytes of a file, rows) cross it: in pieces, of which
//! only a few are in flight at a time, so that neither end ever holds the whole and a slow disk
//! slows the other end down. Pieces may be sealed: each then has a hash of what it is and of what is
//! in it. A receiver that was cut off asks for the rest. Every wait has an end. Never opens, names or
//! believes a file.
//!
//! # Layout
//! - [`Line`] (here): one end of a link, whatever is asked on it
//! - [`files`]: what is asked about files of checkpoints
//! - [`rows`]: what is asked about rows of a coded run

pub mod files;
pub mod rows;

use crate::error::Error;
use crate::link::{Incoming, Receiver, Sender};
use crate::message::{Sha256, Trouble};
use planaria_store::hash::Hasher;
pub use planaria_store::transfer::PIECE_BYTES;
use planaria_store::transfer::{self, WINDOW};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::Duration;

/// Interval at which an end that is not ready says so.
pub const PREPARING_EVERY: Duration = Duration::from_secs(5);

/// How long the other end may say nothing: its disk may be slow.
const SILENCE: Duration = Duration::from_secs(60);

/// Times an end may say that it is not ready: an hour in all.
const PREPARING_MAX: u32 = 720;

/// How long a peer that was refused may take to hang up.
const HANG_UP_WITHIN: Duration = Duration::from_secs(5);

/// Most bytes that come before the units.
const HEAD_BYTES_MAX: usize = 256 << 20;

/// How much there is of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Length {
    pub units: u64,
    pub unit_bytes: u64,
}

impl Length {
    /// Of a file.
    pub fn bytes(bytes: u64) -> Self {
        Self { units: bytes, unit_bytes: 1 }
    }

    /// Units that go together.
    fn at_once(self) -> u64 {
        (PIECE_BYTES as u64 / self.unit_bytes.max(1)).max(1)
    }

    /// Units of the piece that begins at `first`.
    fn piece(self, first: u64) -> Range<u64> {
        first..(first + self.at_once()).min(self.units)
    }
}

/// What is said on a link. One end asks; pieces go either way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Word<A> {
    Ask(A),
    /// It takes a while yet.
    Preparing,
    /// So much there is in all; pieces follow from the first unit that was asked for. The bulk is
    /// what comes before the units.
    Comes(Length),
    /// The next units, the bulk, and their seal.
    Piece(Option<Sha256>),
    /// A piece has been taken.
    Taken,
    /// All that was sent is kept.
    Stored,
    /// It cannot be, and the link ends.
    Refused(Trouble),
}

/// Why an object did not cross.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The link was lost, or never made.
    #[error(transparent)]
    Link(#[from] Error),
    /// The other end will not, or cannot.
    #[error("{}", .0.message)]
    Refused(Trouble),
    /// It cannot be read or written at this end.
    #[error("{0}")]
    File(#[from] io::Error),
    /// What came is not what was sent.
    #[error("units from {first} on do not match their SHA-256: bytes were changed")]
    Changed { first: u64 },
    /// The other end does not keep to the order of words.
    #[error("the other end says {0} where something else is due")]
    OutOfTurn(&'static str),
}

impl Fault {
    pub fn refused(why: impl std::fmt::Display) -> Self {
        Self::Refused(Trouble::new(why))
    }
}

impl From<transfer::Fault> for Fault {
    fn from(fault: transfer::Fault) -> Self {
        match fault {
            transfer::Fault::Io(e) => Self::File(e),
            fault => Self::refused(fault),
        }
    }
}

/// What pieces are sealed with: they are of this object, and of no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal(pub Sha256);

impl Seal {
    fn of(self, first: u64, bytes: &[u8]) -> Sha256 {
        let mut hash = Hasher::new();
        hash.update(self.0);
        hash.update(first.to_le_bytes());
        hash.update(bytes);
        hash.finish()
    }
}

/// One end of a link on which `A` is asked.
pub struct Line<A> {
    sender: Sender,
    receiver: Receiver,
    piece: Vec<u8>,
    asks: PhantomData<A>,
}

impl<A: Serialize + DeserializeOwned> Line<A> {
    /// Over a link on which both ends know who the other is.
    pub fn new(sender: Sender, mut receiver: Receiver) -> Result<Self, Error> {
        receiver.set_timeout(Some(SILENCE))?;
        Ok(Self { sender, receiver, piece: Vec::new(), asks: PhantomData })
    }

    /// Asks the other end.
    pub fn ask(&self, ask: A) -> Result<(), Error> {
        self.sender.send(&Word::Ask(ask))
    }

    /// What the other end asks next; nothing when it has hung up.
    pub fn hear(&mut self) -> Result<Option<A>, Fault> {
        match self.receiver.receive::<Word<A>>()? {
            None => Ok(None),
            Some(Incoming { bulk_bytes: 0, message: Word::Ask(ask) }) => Ok(Some(ask)),
            Some(incoming) => Err(unexpected(incoming.message)),
        }
    }

    /// Says that it takes a while yet.
    pub fn say_preparing(&self) -> Result<(), Error> {
        self.sender.send(&Word::<A>::Preparing)
    }

    /// Announces what was asked for.
    pub fn say_comes(&self, length: Length, head: &[u8]) -> Result<(), Error> {
        self.sender.send_with(&Word::<A>::Comes(length), head)
    }

    /// What is announced: how much there is, and what comes before the units.
    pub fn hear_comes(&mut self) -> Result<(Length, Vec<u8>), Fault> {
        for _ in 0..PREPARING_MAX {
            match self.word()? {
                Word::Preparing => {}
                Word::Comes(length) => {
                    return Ok((length, self.receiver.bulk_vec(HEAD_BYTES_MAX)?));
                }
                word => return Err(unexpected(word)),
            }
        }
        Err(Fault::OutOfTurn("`preparing`, for an hour"))
    }

    /// Says that what came is kept.
    pub fn say_stored(&self) -> Result<(), Error> {
        self.sender.send(&Word::<A>::Stored)
    }

    /// Waits until what was sent is kept.
    pub fn hear_stored(&mut self) -> Result<(), Fault> {
        match self.word()? {
            Word::Stored => Ok(()),
            word => Err(unexpected(word)),
        }
    }

    /// Sends units from `first` on, and waits until all of them are taken. `fill` puts the bytes of
    /// some units into a buffer that is empty.
    pub fn send(
        &mut self,
        first: u64,
        length: Length,
        seal: Option<Seal>,
        mut fill: impl FnMut(Range<u64>, &mut Vec<u8>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (mut next, mut open) = (first, 0);
        while next < length.units || open > 0 {
            if next < length.units && open < WINDOW {
                let units = length.piece(next);
                self.piece.clear();
                fill(units.clone(), &mut self.piece)?;
                let seal = seal.map(|seal| seal.of(next, &self.piece));
                self.sender.send_with(&Word::<A>::Piece(seal), &self.piece)?;
                (next, open) = (units.end, open + 1);
                continue;
            }
            match self.word()? {
                Word::Taken => open -= 1,
                word => return Err(unexpected(word)),
            }
        }
        Ok(())
    }

    /// The bytes of the next units, of which `first` is the first; checked, and acknowledged once
    /// `put` has them.
    pub fn take_piece<T>(
        &mut self,
        first: u64,
        length: Length,
        seal: Option<Seal>,
        put: impl FnOnce(&[u8]) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let Incoming { message, bulk_bytes } = self.incoming()?;
        let found = match message {
            Word::Piece(found) => found,
            word => return Err(unexpected(word)),
        };
        let units = length.piece(first.min(length.units));
        let bytes = (units.end - units.start).checked_mul(length.unit_bytes);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or(Fault::OutOfTurn("a piece of another length"))?;
        if bulk_bytes != bytes {
            return Err(Fault::OutOfTurn("a piece of another length"));
        }
        self.piece.resize(bytes, 0);
        self.receiver.read_bulk(&mut self.piece)?;
        if seal.is_some_and(|seal| found != Some(seal.of(first, &self.piece))) {
            return Err(Fault::Changed { first });
        }
        let put = put(&self.piece)?;
        self.sender.send(&Word::<A>::Taken)?;
        Ok(put)
    }

    /// Takes all bytes of a file; `put` is given them in order, a piece at a time.
    pub fn take(
        &mut self,
        bytes: u64,
        mut put: impl FnMut(u64, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut at = 0;
        while at < bytes {
            at += self.take_piece(at, Length::bytes(bytes), None, |piece| {
                put(at, piece)?;
                Ok(piece.len() as u64)
            })?;
        }
        Ok(())
    }

    /// Says why not, and stays until the other end has hung up: what is in flight would otherwise
    /// take the answer down with the connection.
    pub fn refuse(mut self, trouble: Trouble) {
        let said = self.sender.send(&Word::<A>::Refused(trouble));
        if said.and_then(|()| self.receiver.set_timeout(Some(HANG_UP_WITHIN))).is_err() {
            return;
        }
        if self.receiver.skip_bulk().is_err() {
            return;
        }
        for _ in 0..=WINDOW {
            let Ok(Some(_)) = self.receiver.receive::<Word<A>>() else { break };
            if self.receiver.skip_bulk().is_err() {
                break;
            }
        }
    }

    fn word(&mut self) -> Result<Word<A>, Fault> {
        Ok(self.incoming()?.message)
    }

    fn incoming(&mut self) -> Result<Incoming<Word<A>>, Fault> {
        Ok(self.receiver.receive::<Word<A>>()?.ok_or(Error::Cut("a transfer"))?)
    }
}

fn unexpected<A>(word: Word<A>) -> Fault {
    match word {
        Word::Refused(trouble) => Fault::Refused(trouble),
        Word::Ask(_) => Fault::OutOfTurn("a question"),
        Word::Preparing => Fault::OutOfTurn("`preparing`"),
        Word::Comes(_) => Fault::OutOfTurn("`comes`"),
        Word::Piece(_) => Fault::OutOfTurn("`piece`"),
        Word::Taken => Fault::OutOfTurn("`taken`"),
        Word::Stored => Fault::OutOfTurn("`stored`"),
    }
}

#[cfg(test)]
mod tests;
