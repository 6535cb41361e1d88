//! A worker's way to the source: the process that has the run's data and encodes it.
//!
//! Owns the retries, and the rows that have arrived: a worker that is cut off asks for the rest, a
//! few times, and must then join again. A refused request is not repeated. Never opens data, and
//! never gives out incomplete rows.

use crate::session::shell::Log;
use planaria_protocol::Credentials;
use planaria_protocol::message::{Join, LinkPurpose, Trouble};
use planaria_protocol::transfer::rows::{Ask, Wanted};
use planaria_protocol::transfer::{Fault, Length, Line};
use std::time::Duration;

/// Requests without an answer before the source counts as unreachable.
const TRIES: u32 = 5;

/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// Why there are no rows.
#[derive(Debug, PartialEq, Eq)]
pub enum Missed {
    /// The source refuses them, so the process cannot go on.
    Refused(Trouble),
    /// The source is not reached: a worker that joins again may ask again.
    Away,
}

impl From<Trouble> for Missed {
    fn from(trouble: Trouble) -> Self {
        Self::Refused(trouble)
    }
}

/// What a download logs to, and what ends it.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    pub log: &'a Log,
    /// Whether they are not wanted any more.
    pub is_over: &'a dyn Fn() -> bool,
}

/// Where the source is, and what it is asked about.
pub struct Source {
    address: String,
    credentials: Credentials,
    join: Join,
    coding: String,
}

impl Source {
    /// Beside the coordinator at this address, for a worker that joins like this.
    pub fn new(address: &str, credentials: &Credentials, join: &Join, coding: &str) -> Self {
        Self {
            address: address.to_owned(),
            credentials: credentials.clone(),
            join: Join { purpose: LinkPurpose::Blocks, ..join.clone() },
            coding: coding.to_owned(),
        }
    }

    /// Fetches what is missing of some rows.
    pub fn fetch<T>(
        &self,
        wanted: Wanted,
        into: &mut Download<T>,
        watch: Watch<'_>,
    ) -> Result<(), Missed> {
        let mut tries = 0;
        while !into.is_whole() {
            let before = into.rows();
            let fault = match self.ask(wanted, into, watch) {
                Ok(()) => continue,
                Err(Some(Fault::Refused(trouble))) => return Err(Missed::Refused(trouble)),
                Err(Some(fault)) => fault,
                Err(None) => return Err(Missed::Away),
            };
            tries = if into.rows() > before { 1 } else { tries + 1 };
            let (have, all) = (into.rows(), into.length.units);
            (watch.log)(&format!("has {have} of {all} rows from the source: {fault}"));
            if tries >= TRIES || (watch.is_over)() {
                return Err(Missed::Away);
            }
            std::thread::park_timeout(PAUSE);
        }
        Ok(())
    }

    /// Asks once; no fault, and an error, where they are not wanted any more.
    fn ask<T>(
        &self,
        wanted: Wanted,
        into: &mut Download<T>,
        watch: Watch<'_>,
    ) -> Result<(), Option<Fault>> {
        let mut line = Line::connect(&self.address, &self.credentials, &self.join)
            .map_err(|error| Some(error.into()))?;
        let ask = Ask { coding: self.coding.clone(), wanted, first: into.rows() };
        let seal = Some(ask.seal());
        line.ask(ask).map_err(Fault::from)?;
        let (length, head) = line.hear_comes()?;
        if length != into.length {
            return Err(Some(Fault::OutOfTurn("another length")));
        }
        into.bytes += head.len() as u64;
        into.head = head;
        while !into.is_whole() {
            if (watch.is_over)() {
                return Err(None);
            }
            line.take_piece(into.rows(), length, seal, |piece| {
                into.put(piece).ok_or(Fault::OutOfTurn("NaN, infinity or half a number"))
            })?;
        }
        Ok(())
    }
}

/// Rows as they come.
pub struct Download<T> {
    length: Length,
    read: fn(&[u8]) -> Option<Vec<T>>,
    values: Vec<T>,
    /// Values of a row.
    width: usize,
    head: Vec<u8>,
    bytes: u64,
}

impl<T> Download<T> {
    /// For `rows` rows of `width` values, each of so many bytes.
    pub fn new(
        rows: usize,
        width: usize,
        value_bytes: usize,
        read: fn(&[u8]) -> Option<Vec<T>>,
    ) -> Self {
        let length = Length { units: rows as u64, unit_bytes: (width * value_bytes) as u64 };
        let values = Vec::with_capacity(rows * width);
        Self { length, read, values, width: width.max(1), head: Vec::new(), bytes: 0 }
    }

    /// Rows that are there.
    pub fn rows(&self) -> u64 {
        (self.values.len() / self.width) as u64
    }

    /// Whether all rows have come.
    pub fn is_whole(&self) -> bool {
        self.rows() == self.length.units
    }

    /// Bytes that came since this was last asked for.
    pub fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }

    /// All values, and what came before them; nothing where not all are there.
    pub fn finish(self) -> Option<(Vec<T>, Vec<u8>)> {
        self.is_whole().then_some((self.values, self.head))
    }

    fn put(&mut self, piece: &[u8]) -> Option<()> {
        self.bytes += piece.len() as u64;
        self.values.append(&mut (self.read)(piece)?);
        Some(())
    }
}

#[cfg(test)]
mod tests;
