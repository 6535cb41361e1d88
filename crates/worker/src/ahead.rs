//! Examples of leased shards, read ahead of use on a thread of their own.
//!
//! What will be needed is known from the leases; batches come back in that order. Used batches are
//! filled again, so that a steady run allocates nothing.

use planaria_data::order::batch_range;
use planaria_data::{Batch, Error, Loader};
use planaria_numerics::aggregate::shard_range;
use planaria_protocol::message::Steps;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Batches that may wait to be used.
const AHEAD_MAX: usize = 4;

/// The examples of some shards of one step.
#[derive(Debug, Default)]
pub struct Portion {
    /// The step, over the whole run.
    pub step: u64,
    /// The shards.
    pub shards: Range<usize>,
    /// Examples of the whole step.
    pub examples_in_step: usize,
    /// The examples of the shards.
    pub batch: Batch,
}

impl Portion {
    /// Places in `batch` of one of the shards of `shards_in_step`.
    pub fn places(&self, shards_in_step: usize, shard: usize) -> Range<usize> {
        let range = |v| shard_range(self.examples_in_step, shards_in_step, v);
        let first = range(self.shards.start).start;
        range(shard).start - first..range(shard).end - first
    }
}

/// What is read, in which order.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Examples in a batch.
    pub batch: usize,
    /// Shards of a batch.
    pub shards: usize,
}

/// Reads ahead.
pub struct Ahead {
    wanted: Sender<(Steps, Range<usize>)>,
    ready: Receiver<Result<Portion, Error>>,
    used: SyncSender<Portion>,
}

impl Ahead {
    /// Starts the thread.
    pub fn start(loader: Loader, cut: Cut) -> std::io::Result<Self> {
        // Leases bound what can be wanted.
        let (wanted, wants) = channel::<(Steps, Range<usize>)>();
        let (filled, ready) = sync_channel(AHEAD_MAX);
        let (used, empty) = sync_channel::<Portion>(AHEAD_MAX + 2);
        let read = move || {
            let n = loader.part().len();
            for (steps, shards) in wants {
                for (step, batch) in steps.steps().zip(steps.batches.clone()) {
                    let mut portion = empty.try_recv().unwrap_or_default();
                    let whole = batch_range(n, cut.batch, batch);
                    let examples = (whole.end - whole.start) as usize;
                    let run = match shards.is_empty() {
                        true => 0..0,
                        false => {
                            let first = shard_range(examples, cut.shards, shards.start);
                            let last = shard_range(examples, cut.shards, shards.end - 1);
                            first.start as u64..last.end as u64
                        }
                    };
                    portion.step = step;
                    portion.shards = shards.clone();
                    portion.examples_in_step = examples;
                    let places = whole.start + run.start..whole.start + run.end;
                    let result = loader.fill(steps.epoch, places, &mut portion.batch);
                    let failed = result.is_err();
                    if filled.send(result.map(|()| portion)).is_err() || failed {
                        return;
                    }
                }
            }
        };
        // It ends when nobody wants or takes anything any more.
        std::thread::Builder::new().name("read-ahead".into()).spawn(read)?;
        Ok(Self { wanted, ready, used })
    }

    /// Where leases are announced, from another thread.
    pub fn announcer(&self) -> Sender<(Steps, Range<usize>)> {
        self.wanted.clone()
    }

    /// The next portion announced; nothing if reading has broken down.
    pub fn next(&self) -> Option<Result<Portion, Error>> {
        self.ready.recv().ok()
    }

    /// Hands a portion back so that its memory is used again.
    pub fn recycle(&self, portion: Portion) {
        // A full queue means that there is memory enough.
        let _ = self.used.try_send(portion);
    }
}
