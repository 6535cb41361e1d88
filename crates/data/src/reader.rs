//! Reading runs ahead of computing: a thread fills the next batches while the last one is used.
//!
//! Batches come in order, from any (epoch, step) on. A batch that is handed back is filled again, so
//! that a steady run allocates nothing. Dropping the reader stops and joins its thread.

use crate::batch::{Batch, Loader};
use crate::error::Error;
use crate::order::{batch_range, batches};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Most batches that wait to be used.
const AHEAD_MAX: usize = 4;
/// Most memory of waiting batches; one always may wait.
const AHEAD_BYTES_MAX: usize = 256 << 20;

/// Batches that are being filled or used.
const IN_HAND: usize = 2;

/// The most memory that batches of so many examples take, each of so many values.
pub fn reading_bytes(batch: usize, values: usize) -> u64 {
    let bytes = batch_bytes(batch, values);
    (bytes as u64).saturating_mul((ahead(bytes) + IN_HAND) as u64)
}

fn batch_bytes(batch: usize, values: usize) -> usize {
    batch.saturating_mul(values).saturating_mul(size_of::<f32>())
}

/// How many batches wait to be used.
fn ahead(batch_bytes: usize) -> usize {
    (AHEAD_BYTES_MAX / batch_bytes.max(1)).clamp(1, AHEAD_MAX)
}

/// Which batches are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Examples in a batch; the last of an epoch may be shorter.
    pub batch: usize,
    /// Epochs, from 0; it starts in the first of them.
    pub epochs: Range<u64>,
    /// Batch of the first epoch that it starts with, from 0.
    pub step: u64,
}

/// The batches of a schedule, read ahead.
#[derive(Debug)]
pub struct Reader {
    ready: Option<Receiver<Result<Batch, Error>>>,
    used: SyncSender<Batch>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    pub fn start(loader: Loader, schedule: Schedule) -> Result<Self, Error> {
        if schedule.batch == 0 {
            return Err(Error::setting("a batch must hold at least one example"));
        }
        let ahead = ahead(batch_bytes(schedule.batch, loader.part().source().shape().len()));
        let (filled, ready) = sync_channel(ahead);
        let (used, empty) = sync_channel(ahead + IN_HAND);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("read-ahead".into())
            .spawn(move || read(&loader, &schedule, &stopped, &filled, &empty))
            .map_err(|e| Error::Reader { message: format!("no thread ({e})") })?;
        Ok(Self { ready: Some(ready), used, stop, thread: Some(thread) })
    }

    /// Hands back a batch so that its memory is used again.
    pub fn recycle(&self, batch: Batch) {
        // A full queue means that there is memory enough; this batch is then dropped.
        let _ = self.used.try_send(batch);
    }

    /// Joins the thread; an error if it broke down.
    fn join(&mut self) -> Result<(), Error> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(Error::Reader { message: "its thread broke down".into() }),
            _ => Ok(()),
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Batch, Error>;

    /// The next batch, as soon as it is read; nothing after the last or after a failure.
    fn next(&mut self) -> Option<Self::Item> {
        match self.ready.as_ref()?.recv() {
            Ok(batch) => Some(batch),
            Err(_) => {
                self.ready = None;
                self.join().err().map(Err)
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that waits to hand over a batch wakes when the reader is gone.
        self.ready = None;
        // Who drops a reader no longer asks how it went.
        let _ = self.join();
    }
}

/// The thread: fills batches until the schedule ends, something fails or the reader is gone.
fn read(
    loader: &Loader,
    schedule: &Schedule,
    stop: &AtomicBool,
    filled: &SyncSender<Result<Batch, Error>>,
    empty: &Receiver<Batch>,
) {
    let n = loader.part().len();
    let mut first = schedule.step;
    for epoch in schedule.epochs.clone() {
        for step in std::mem::take(&mut first)..batches(n, schedule.batch) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let mut batch = empty.try_recv().unwrap_or_default();
            let places = batch_range(n, schedule.batch, step);
            let result = loader.fill(epoch, places, &mut batch).map(|()| {
                batch.step = step;
                batch
            });
            let failed = result.is_err();
            if filled.send(result).is_err() || failed {
                return;
            }
        }
    }
}
