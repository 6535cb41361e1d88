//! Files of a checkpoint on a link of their own, between a server and the coordinator's machine.
//!
//! Owns the words of such a link and how a file crosses it: in pieces, of which only a few are on
//! their way at a time, so that neither end ever holds a whole file and a slow disk slows the other
//! end down. Every wait has an end. Never opens, names or believes a file.

use crate::error::Error;
use crate::link::{Incoming, Receiver, Sender};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::time::Duration;

/// Most bytes of a piece.
pub const PIECE_BYTES: usize = 1 << 20;

/// Pieces that may be on their way before one is answered.
const WINDOW: u64 = 8;

/// How long the other end may say nothing: its disk may be slow.
const SILENCE: Duration = Duration::from_secs(60);

/// How long whoever was refused may take to hang up.
const FAREWELL: Duration = Duration::from_secs(5);

/// What is said on a link for parts. A server asks (`Put`, `Get`); pieces go either way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parcel {
    /// Server: so many bytes are its part of the checkpoint that is being written; pieces follow.
    Put {
        /// Name of the checkpoint's folder.
        checkpoint: String,
        /// Name of the file in it.
        file: String,
        bytes: u64,
        sha256: String,
    },
    /// Server: send me this file of a checkpoint.
    Get {
        /// Name of the checkpoint's folder.
        checkpoint: String,
        /// Name of the file in it.
        file: String,
    },
    /// Answer to `Get`: so many bytes; pieces follow.
    Comes { bytes: u64 },
    /// The next bytes, as bulk.
    Piece,
    /// A piece has been taken.
    Taken,
    /// Answer to `Put`: the file is on the disk, whole, under its name.
    Stored,
    /// It cannot be, and the link ends.
    Refused { why: String },
}

/// Why a file did not cross.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The link was lost, or never made.
    #[error(transparent)]
    Link(#[from] Error),
    /// The other end will not.
    #[error("{0}")]
    Refused(String),
    /// It cannot be read or written at this end.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The other end does not keep to the order of words.
    #[error("the other end says {0} where something else is due")]
    OutOfTurn(&'static str),
}

/// One end of a link for parts.
pub struct Line {
    sender: Sender,
    receiver: Receiver,
    piece: Vec<u8>,
}

impl Line {
    /// Over a link on which everybody knows who the other is.
    pub fn new(sender: Sender, mut receiver: Receiver) -> Result<Self, Error> {
        receiver.set_timeout(Some(SILENCE))?;
        Ok(Self { sender, receiver, piece: Vec::new() })
    }

    /// Says something.
    pub fn say(&self, parcel: &Parcel) -> Result<(), Error> {
        self.sender.send(parcel)
    }

    /// What the other end says next, which must have no bulk; nothing when it has hung up.
    pub fn hear(&mut self) -> Result<Option<Parcel>, Fault> {
        match self.receiver.receive::<Parcel>()? {
            Some(Incoming { bulk_bytes: 0, message: Parcel::Refused { why } }) => {
                Err(Fault::Refused(why))
            }
            Some(Incoming { bulk_bytes: 0, message }) => Ok(Some(message)),
            Some(incoming) => Err(Fault::OutOfTurn(name(&incoming.message))),
            None => Ok(None),
        }
    }

    /// What the other end answers.
    pub fn answer(&mut self) -> Result<Parcel, Fault> {
        self.hear()?.ok_or(Fault::Link(Error::Cut("a parcel")))
    }

    /// Sends the next `bytes` bytes of a file, and waits until all of them are taken.
    pub fn send(&mut self, from: &mut impl Read, bytes: u64) -> Result<(), Fault> {
        let (mut left, mut open) = (bytes, 0);
        while left > 0 || open > 0 {
            if left > 0 && open < WINDOW {
                let length = left.min(PIECE_BYTES as u64) as usize;
                self.piece.resize(length, 0);
                from.read_exact(&mut self.piece)?;
                self.sender.send_with(&Parcel::Piece, &self.piece)?;
                (left, open) = (left - length as u64, open + 1);
                continue;
            }
            match self.answer()? {
                Parcel::Taken => open -= 1,
                other => return Err(Fault::OutOfTurn(name(&other))),
            }
        }
        Ok(())
    }

    /// Takes `bytes` bytes in; `put` is given them in order, a piece at a time.
    pub fn take(
        &mut self,
        bytes: u64,
        mut put: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), Fault> {
        let mut left = bytes;
        while left > 0 {
            let incoming = self.receiver.receive::<Parcel>()?;
            let incoming = incoming.ok_or(Error::Cut("a parcel"))?;
            let length = match incoming.message {
                Parcel::Piece => incoming.bulk_bytes,
                Parcel::Refused { why } => return Err(Fault::Refused(why)),
                other => return Err(Fault::OutOfTurn(name(&other))),
            };
            if length == 0 || length > PIECE_BYTES || length as u64 > left {
                return Err(Fault::OutOfTurn("a piece of another length"));
            }
            self.piece.resize(length, 0);
            self.receiver.read_bulk(&mut self.piece)?;
            put(&self.piece)?;
            self.say(&Parcel::Taken)?;
            left -= length as u64;
        }
        Ok(())
    }

    /// Says why not, and stays until the other end has hung up: what is on its way would otherwise
    /// take the answer down with the connection.
    pub fn refuse(mut self, why: String) {
        let said = self.say(&Parcel::Refused { why });
        if said.and_then(|()| self.receiver.set_timeout(Some(FAREWELL))).is_err() {
            return;
        }
        if self.receiver.skip_bulk().is_err() {
            return;
        }
        for _ in 0..=WINDOW {
            let Ok(Some(_)) = self.receiver.receive::<Parcel>() else { break };
            if self.receiver.skip_bulk().is_err() {
                break;
            }
        }
    }
}

fn name(parcel: &Parcel) -> &'static str {
    match parcel {
        Parcel::Put { .. } => "`put`",
        Parcel::Get { .. } => "`get`",
        Parcel::Comes { .. } => "`comes`",
        Parcel::Piece => "`piece`",
        Parcel::Taken => "`taken`",
        Parcel::Stored => "`stored`",
        Parcel::Refused { .. } => "`refused`",
    }
}
