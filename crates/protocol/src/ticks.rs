//! How long authentication may take, all in all.
//!
//! Owns the budget of one connection that is not known yet. Every read takes at most a tick and
//! costs one, so a peer that feeds single bytes gains no time. Never asks a clock.

use crate::error::Error;
use std::io::{ErrorKind, Read};
use std::time::Duration;

/// How long one read waits.
pub(crate) const TICK: Duration = Duration::from_millis(100);

const TICKS: u32 = 50;

/// How long all of it may take.
pub const LIMIT: Duration = Duration::from_millis(TICK.as_millis() as u64 * TICKS as u64);

/// What is left of the time of one connection, whose reads must wait for a [`TICK`] at most.
pub(crate) struct Ticks(u32);

impl Ticks {
    pub(crate) fn new() -> Self {
        Self(TICKS)
    }

    /// One more read; an error where there was one too many.
    pub(crate) fn spend(&mut self, what: &'static str) -> Result<(), Error> {
        let left = self.0.checked_sub(1);
        self.0 = left.ok_or(Error::TooLate { what, within: LIMIT })?;
        Ok(())
    }

    /// Reads some bytes, at least one.
    pub(crate) fn read<R: Read + ?Sized>(
        &mut self,
        from: &mut R,
        into: &mut [u8],
        what: &'static str,
    ) -> Result<usize, Error> {
        loop {
            self.spend(what)?;
            match from.read(into) {
                Ok(0) => return Err(Error::HungUp(what)),
                Ok(n) => return Ok(n),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    ErrorKind::ConnectionReset => return Err(Error::HungUp(what)),
                    _ => return Err(Error::io("reading from the other end")(error)),
                },
            }
        }
    }

    /// Reads so many bytes.
    pub(crate) fn read_exact<R: Read + ?Sized>(
        &mut self,
        from: &mut R,
        mut into: &mut [u8],
        what: &'static str,
    ) -> Result<(), Error> {
        while !into.is_empty() {
            let n = self.read(from, into, what)?;
            into = &mut into[n..];
        }
        Ok(())
    }
}
