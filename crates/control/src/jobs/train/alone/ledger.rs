//! Steps that were committed and are in no event yet: what an audit adds up.
//!
//! Pure counting. Whoever owns it decides when a range ends: with an epoch, a checkpoint, the end.

use planaria_numerics::digest::Digest;
use planaria_protocol::event::What;

/// Steps of one epoch, one after another.
#[derive(Debug, Default)]
pub struct Ledger(Option<Range>);

#[derive(Debug)]
struct Range {
    epoch: u64,
    first_step: u64,
    end_step: u64,
    read: Digest,
}

impl Ledger {
    /// `step`, of `epoch`, was committed.
    pub fn add(&mut self, epoch: u64, step: u64, read: Digest) {
        let none = || Range { epoch, first_step: step, end_step: step, read: Digest::default() };
        let range = self.0.get_or_insert_with(none);
        debug_assert_eq!((range.epoch, range.end_step), (epoch, step));
        range.end_step = step + 1;
        range.read = range.read.combine(read);
    }

    /// The steps since the last time, as an event.
    pub fn close(&mut self) -> Option<What> {
        let Range { epoch, first_step, end_step, read } = self.0.take()?;
        Some(What::Committed { epoch, first_step, end_step, read })
    }
}
