//! What a worker of a coded run asks of the source, which has the data: rows, as units.

use super::{Fault, Length, Line, Seal};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::link;
use crate::message::{Agent, HeldOut, Join, Trouble};
use planaria_store::hash::Hasher;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Rows of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Wanted {
    /// The coded rows of a slot, in numbers of the run's precision. In exact arithmetic the head is
    /// JSON of the bounds of the data's columns.
    Block { slot: u16 },
    /// Of each training row the id of the example (u64) and its target (f64).
    Labels,
    /// Of each row of a batch its features and its target. The head is one byte: 0 where the target
    /// is a class (u32), 1 where it is numbers; those and features are f32.
    Batch { part: HeldOut, batch: u64 },
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

impl Ask {
    /// Pieces are of this coding and of what is wanted.
    pub fn seal(&self) -> Seal {
        let (kind, number) = match self.wanted {
            Wanted::Block { slot } => (0u8, u64::from(slot)),
            Wanted::Labels => (1, 0),
            Wanted::Batch { part: HeldOut::Validation, batch } => (2, batch),
            Wanted::Batch { part: HeldOut::Test, batch } => (3, batch),
        };
        let mut hash = Hasher::new();
        hash.update((self.coding.len() as u64).to_le_bytes());
        hash.update(&self.coding);
        hash.update([kind]);
        hash.update(number.to_le_bytes());
        Seal(hash.finish())
    }
}

impl Line<Ask> {
    /// Connects a worker to the source, which is with the coordinator.
    pub fn connect(address: &str, credentials: &Credentials, join: &Join) -> Result<Self, Error> {
        let (sender, receiver) = link::connect(address, credentials, Agent::Coordinator, None)?;
        sender.send(join)?;
        Self::new(sender, receiver)
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
        if ask.first > length.units {
            return Err(Fault::refused(format!(
                "there is no row {} of {}",
                ask.first, length.units
            )));
        }
        self.say_comes(length, head)?;
        let fill = |rows: Range<u64>, out: &mut Vec<u8>| fill(rows, out).map_err(Fault::Refused);
        self.send(ask.first, length, Some(ask.seal()), fill)
    }
}
