//! Steps that were committed and are in no event yet: what an audit adds up.
//!
//! Pure counting. Its owner decides when a range ends: with an epoch, a checkpoint, the end.

use planaria_numerics::digest::Digest;
use planaria_protocol::event::What;
use std::ops::Range;

/// Steps of one epoch, one after another.
#[derive(Debug, Default)]
pub struct Ledger(Option<Committed>);

#[derive(Debug)]
struct Committed {
    epoch: u64,
    steps: Range<u64>,
    read: Digest,
}

impl Ledger {
    /// Steps of `epoch` were committed.
    pub fn add(&mut self, epoch: u64, steps: Range<u64>, read: Digest) {
        let none = || Committed { epoch, steps: steps.start..steps.start, read: Digest::default() };
        let range = self.0.get_or_insert_with(none);
        debug_assert_eq!((range.epoch, range.steps.end), (epoch, steps.start));
        range.steps.end = steps.end;
        range.read = range.read.combine(read);
    }

    /// The steps since the last time, as an event.
    pub fn close(&mut self) -> Option<What> {
        let Committed { epoch, steps, read } = self.0.take()?;
        Some(What::Committed { epoch, first_step: steps.start, end_step: steps.end, read })
    }
}
