//! Examples of leased shards, read ahead of use on a thread of their own.
//!
//! What will be needed is known from the leases; it is read lowest step first, and handed out by
//! task. A caller that needs a portion that the thread has not begun reads it itself, so an extra lease of
//! an early step waits for nothing. Used portions are filled again, so that a steady run allocates
//! nothing.

use crate::gradient::{Lease, Task};
use planaria_data::order::batch_range;
use planaria_data::{Batch, Error, Loader};
use planaria_numerics::aggregate::shard_range;
use planaria_protocol::message::Steps;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Portions that may wait to be used.
const AHEAD_MAX: usize = 4;

/// Empty portions that are kept for their memory.
const SPARE_MAX: usize = AHEAD_MAX + 2;

/// The examples of some shards of one step.
#[derive(Debug, Default)]
pub struct Portion {
    /// The step, over the whole run.
    pub step: u64,
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

/// Which portions will be needed, and which are there. Clones are of the same.
#[derive(Clone, Default)]
pub struct Wanted(Arc<Shared>);

#[derive(Default)]
struct Shared {
    list: Mutex<List>,
    changed: Condvar,
}

#[derive(Default)]
struct List {
    leases: Vec<Lease>,
    /// Read, and waiting to be used; by step and lease.
    ready: Vec<((u64, u64), Portion)>,
    spare: Vec<Portion>,
    /// What the thread reads this moment.
    reading: Option<(u64, u64)>,
    /// What the thread reads is not needed any more.
    is_unwanted: bool,
    /// Why the thread has ended.
    failed: Option<Error>,
    /// Nothing more is wanted.
    is_closed: bool,
}

impl Wanted {
    /// A lease has come, the one with this number.
    pub fn lease(&self, number: u64, steps: &Steps, shards: &Range<u32>) {
        let lease = Lease::new(number, steps.clone(), shards.clone());
        if lease.is_worked_off() {
            return;
        }
        self.list().leases.push(lease);
        self.0.changed.notify_all();
    }

    /// A task is not needed any more.
    pub fn skip(&self, task: &Task) {
        let mut list = self.list();
        let key = (task.step, task.lease);
        if !list.begin(key) && !list.drop_reading(|k| k == key) {
            list.drop_ready(|k| k == key);
        }
        self.0.changed.notify_all();
    }

    /// Leases with numbers below this are not needed any more.
    pub fn forget(&self, leases: u64) {
        let mut list = self.list();
        list.leases.retain(|lease| lease.number >= leases);
        list.drop_reading(|(_, lease)| lease < leases);
        list.drop_ready(|(_, lease)| lease < leases);
        self.0.changed.notify_all();
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.list.lock().expect("no thread panics with the list")
    }
}

impl List {
    /// What to read next: lowest step first, in the order of leases.
    fn first(&self) -> Option<(u64, u64)> {
        self.leases.iter().map(|lease| (lease.next, lease.number)).min()
    }

    /// Takes a task off what is to be read; false if it is not to be read, or begun already.
    fn begin(&mut self, key: (u64, u64)) -> bool {
        let Some(at) = self.leases.iter().position(|l| (l.next, l.number) == key) else {
            return false;
        };
        self.leases[at].next += 1;
        if self.leases[at].is_worked_off() {
            self.leases.remove(at);
        }
        true
    }

    fn drop_reading(&mut self, which: impl Fn((u64, u64)) -> bool) -> bool {
        let found = self.reading.is_some_and(which);
        self.is_unwanted |= found;
        found
    }

    fn drop_ready(&mut self, which: impl Fn((u64, u64)) -> bool) {
        while let Some(at) = self.ready.iter().position(|(key, _)| which(*key)) {
            let (_, portion) = self.ready.swap_remove(at);
            self.keep(portion);
        }
    }

    /// Keeps a portion for its memory.
    fn keep(&mut self, portion: Portion) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(portion);
        }
    }
}

pub struct ReadAhead {
    wanted: Wanted,
    loader: Loader,
    cut: Cut,
}

impl ReadAhead {
    pub fn start(wanted: Wanted, loader: Loader, cut: Cut) -> std::io::Result<Self> {
        let ahead = Self { wanted, loader, cut };
        let thread = Reader { wanted: ahead.wanted.clone(), loader: ahead.loader.clone(), cut };
        // It ends when this is dropped.
        std::thread::Builder::new().name("read-ahead".into()).spawn(move || thread.read_on())?;
        Ok(ahead)
    }

    /// The portion of a task: as it was read ahead, or read now.
    pub fn take(&self, task: &Task) -> Result<Portion, Error> {
        let key = (task.step, task.lease);
        let mut list = self.wanted.list();
        loop {
            if let Some(at) = list.ready.iter().position(|(ready, _)| *ready == key) {
                let (_, portion) = list.ready.swap_remove(at);
                self.wanted.0.changed.notify_all();
                return Ok(portion);
            }
            if let Some(error) = list.failed.take() {
                return Err(error);
            }
            if list.reading != Some(key) || list.is_unwanted {
                break;
            }
            let waited = self.wanted.0.changed.wait(list);
            list = waited.expect("no thread panics with the list");
        }
        list.begin(key);
        let mut portion = list.spare.pop().unwrap_or_default();
        drop(list);
        fill(&self.loader, self.cut, task, &mut portion)?;
        Ok(portion)
    }

    /// Hands a portion back so that its memory is used again.
    pub fn recycle(&self, portion: Portion) {
        self.wanted.list().keep(portion);
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.wanted.list().is_closed = true;
        self.wanted.0.changed.notify_all();
    }
}

struct Reader {
    wanted: Wanted,
    loader: Loader,
    cut: Cut,
}

impl Reader {
    fn read_on(self) {
        let mut list = self.wanted.list();
        loop {
            let idle = |list: &mut List| {
                !list.is_closed && (list.ready.len() >= AHEAD_MAX || list.leases.is_empty())
            };
            let waited = self.wanted.0.changed.wait_while(list, idle);
            list = waited.expect("no thread panics with the list");
            let Some(task) = self.next(&mut list) else { return };
            let mut portion = list.spare.pop().unwrap_or_default();
            drop(list);
            let filled = fill(&self.loader, self.cut, &task, &mut portion);
            list = self.wanted.list();
            list.reading = None;
            let is_unwanted = std::mem::take(&mut list.is_unwanted);
            match filled {
                Err(error) => list.failed = Some(error),
                Ok(()) if is_unwanted => list.keep(portion),
                Ok(()) => list.ready.push(((task.step, task.lease), portion)),
            }
            self.wanted.0.changed.notify_all();
            if list.failed.is_some() {
                return;
            }
        }
    }

    /// Takes the next off the list, and notes that it is being read.
    fn next(&self, list: &mut List) -> Option<Task> {
        if list.is_closed {
            return None;
        }
        let key = list.first()?;
        let lease = list.leases.iter().find(|lease| (lease.next, lease.number) == key)?;
        let task = lease.task();
        list.begin(key);
        list.reading = Some(key);
        Some(task)
    }
}

/// Reads the examples of a task.
pub fn fill(loader: &Loader, cut: Cut, task: &Task, portion: &mut Portion) -> Result<(), Error> {
    let whole = batch_range(loader.part().len(), cut.batch, task.batch);
    let examples = (whole.end - whole.start) as usize;
    let shards = task.shards.start as usize..task.shards.end as usize;
    let run = match shards.is_empty() {
        true => 0..0,
        false => {
            let first = shard_range(examples, cut.shards, shards.start);
            let last = shard_range(examples, cut.shards, shards.end - 1);
            first.start as u64..last.end as u64
        }
    };
    portion.step = task.step;
    portion.shards = shards;
    portion.examples_in_step = examples;
    loader.fill(task.epoch, whole.start + run.start..whole.start + run.end, &mut portion.batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_recipe::sections::{Augment, Data, Format, Normalize};
    use std::time::Duration;

    const CUT: Cut = Cut { batch: 20, shards: 4 };

    fn loader() -> Loader {
        let data = Data {
            train: "digits".into(),
            test: None,
            validation: None,
            format: Format::Auto,
            table: None,
            examples: Some(200),
            normalize: Normalize::default(),
            augment: Augment::default(),
        };
        let train = planaria_data::open(&data, 1).unwrap().train;
        Loader::training(train, 1, &data.normalize, &data.augment).unwrap()
    }

    fn ahead() -> (Wanted, ReadAhead) {
        let wanted = Wanted::default();
        let ahead = ReadAhead::start(wanted.clone(), loader(), CUT).unwrap();
        (wanted, ahead)
    }

    fn steps(steps: Range<u64>) -> Steps {
        Steps { epoch: 1, first_step: steps.start, batches: steps }
    }

    fn task(step: u64, lease: u64, shards: Range<u32>) -> Task {
        Task { step, lease, epoch: 1, batch: step, shards }
    }

    /// Takes a portion and holds it to what a reader of its own finds.
    fn check(ahead: &ReadAhead, task: &Task) {
        let portion = ahead.take(task).unwrap();
        let mut expected = Portion::default();
        fill(&loader(), CUT, task, &mut expected).unwrap();
        assert_eq!((portion.step, &portion.shards), (task.step, &expected.shards));
        assert_eq!(portion.batch.ids, expected.batch.ids);
        assert_eq!(portion.batch.inputs, expected.batch.inputs);
        ahead.recycle(portion);
    }

    /// Waits until the list is as it should be.
    fn until(wanted: &Wanted, what: impl Fn(&List) -> bool) {
        let waited =
            wanted
                .0
                .changed
                .wait_timeout_while(wanted.list(), Duration::from_secs(20), |list| !what(list));
        assert!(!waited.unwrap().1.timed_out());
    }

    fn is_full(list: &List) -> bool {
        list.ready.len() == AHEAD_MAX && list.reading.is_none()
    }

    #[test]
    fn portions_are_read_ahead_lowest_step_first_and_no_more_than_may_wait() {
        let (wanted, ahead) = ahead();
        wanted.lease(0, &steps(2..9), &(0..2));
        until(&wanted, is_full);
        let keys = |list: &List| list.ready.iter().map(|(key, _)| *key).collect::<Vec<_>>();
        assert_eq!(keys(&wanted.list()), [(2, 0), (3, 0), (4, 0), (5, 0)]);
        for step in 2..9 {
            check(&ahead, &task(step, 0, 0..2));
        }
        until(&wanted, |list| list.leases.is_empty() && list.ready.is_empty());
        assert!(wanted.list().spare.len() <= SPARE_MAX);
    }

    #[test]
    fn an_extra_lease_waits_for_nothing_that_is_read_ahead() {
        let (wanted, ahead) = ahead();
        wanted.lease(0, &steps(2..9), &(0..2));
        until(&wanted, is_full);
        wanted.lease(1, &steps(1..3), &(2..4));
        check(&ahead, &task(1, 1, 2..4));
        check(&ahead, &task(2, 0, 0..2));
        check(&ahead, &task(2, 1, 2..4));
        check(&ahead, &task(3, 0, 0..2));
        // Even one that was not announced.
        check(&ahead, &task(0, 7, 3..4));
    }

    #[test]
    fn what_is_not_needed_any_more_makes_room() {
        let (wanted, ahead) = ahead();
        wanted.lease(0, &steps(0..4), &(0..2));
        wanted.lease(1, &steps(4..8), &(0..3));
        until(&wanted, is_full);
        wanted.skip(&task(0, 0, 0..2));
        wanted.skip(&task(9, 9, 0..2));
        until(&wanted, |list| is_full(list) && list.ready.iter().any(|(key, _)| *key == (4, 1)));
        wanted.skip(&task(7, 1, 0..3));
        wanted.forget(1);
        until(&wanted, |list| is_full(list) || list.leases.is_empty());
        for step in 4..8 {
            check(&ahead, &task(step, 1, 0..3));
        }
        wanted.forget(u64::MAX);
        until(&wanted, |list| list.leases.is_empty() && list.ready.is_empty());
        wanted.lease(0, &steps(5..5), &(0..2));
        assert!(wanted.list().leases.is_empty());
    }
}
