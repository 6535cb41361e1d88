//! A worker's part of a step, but for the computing, allocates nothing once it has run: an allocator
//! that counts says so. (The engine and links have tests of their own.)

use planaria_data::Loader;
use planaria_numerics::aggregate::BLOCK;
use planaria_protocol::message::{ServerRange, Steps};
use planaria_protocol::methods::sync;
use planaria_recipe::sections::{Augment, Data, Format, Normalize};
use planaria_worker::gradient::parameters::{Parameters, Wrong};
use planaria_worker::gradient::read_ahead::{Cut, ReadAhead, Wanted};
use planaria_worker::gradient::servers::Arrival;
use planaria_worker::methods::sync::duty::{Input, Work};
use planaria_worker::methods::sync::{Do, Engine, Event, Sync};
use planaria_worker::session::{Effect, Worker};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::SeqCst);
        // SAFETY: forwarded.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: forwarded.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::SeqCst);
        // SAFETY: forwarded.
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Steps of a lease, which are an epoch, and leases.
const STEPS: u64 = 40;
const LEASES: u64 = 50;

/// How much is read ahead, and so how much memory there is to be filled again, depends on who is
/// faster. It has a bound, which is far below one allocation per step.
const SETTLING: usize = 100;

#[test]
fn a_workers_step_allocates_nothing() {
    let mut worker = joined();
    let inbox = worker.inbox().clone();
    let told = inbox.clone();
    let parameters =
        Parameters::new(3 * BLOCK, move |report| told.put(Arrival::Parameters(report).into()));
    let mut writers = parameters.writers(&[0..1, 1..3]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (wanted, loader) = (Wanted::default(), loader(folder.path()));
    let ahead = ReadAhead::start(wanted.clone(), loader, Cut { batch: 16, shards: 4 }).unwrap();

    let lease = |number: u64| {
        let steps = Steps { epoch: number, batches: 0..STEPS, first_step: number * STEPS };
        wanted.lease(number, &steps, &(0..2));
        let enter = number == 0;
        let lease = sync::Command::Lease { steps, shards: 0..2, enter };
        inbox.hear(Duration::ZERO, lease.into(), Vec::new());
    };
    lease(0);
    let mut complete = |step: u64| {
        for (writer, blocks) in writers.iter_mut().zip([0..1, 1..3]) {
            let fill = |values: Option<&mut [f32]>| -> Result<(), Wrong> {
                values.expect("its turn").fill(0.5);
                Ok(())
            };
            writer.fill(step, blocks.start, blocks.len() * BLOCK * 4, fill).unwrap();
        }
    };
    complete(0);
    let (mut before, mut computed) = (0, 0);
    while computed < LEASES * STEPS {
        let effect = worker.next(Duration::ZERO).expect("something goes on");
        match effect {
            Effect::Own(Do::Hash { step }) => {
                worker.answer(Event::Duty(Input::Hashes { step, sha256: vec![] }));
                let entered = sync::Command::Entered { step };
                worker.next(Duration::ZERO);
                inbox.hear(Duration::ZERO, entered.into(), Vec::new());
            }
            Effect::Own(Do::Compute(task)) => {
                assert_eq!(task.step, computed);
                if task.step == STEPS {
                    before = COUNT.load(Ordering::SeqCst);
                }
                if task.step % STEPS == 0 && task.lease + 1 < LEASES {
                    lease(task.lease + 1);
                }
                let portion = ahead.take(&task).unwrap();
                complete(task.step + 1);
                assert!(parameters.see(task.step).is_some());
                ahead.recycle(portion);
                let work = Work { examples: 8, ..Work::default() };
                worker.answer(Event::Duty(Input::Done(work)));
                computed += 1;
            }
            _ => {}
        }
    }
    let allocations = COUNT.load(Ordering::SeqCst) - before;
    assert!(allocations < SETTLING, "{allocations} allocations in {computed} steps");
}

/// A worker that has joined and is connected to its server.
fn joined() -> Worker<Sync> {
    let mut worker = Worker::new(Sync::default(), "nowhere", Duration::ZERO);
    assert_eq!(worker.next(Duration::ZERO), Some(Effect::Join));
    worker.joined();
    assert_eq!(worker.next(Duration::ZERO), Some(Effect::Prepare));
    worker.prepared(Engine::default());
    let server_range = ServerRange { server: 0, address: String::new(), blocks: 0..3 };
    let begin = sync::Command::Begin { servers: vec![server_range] };
    worker.inbox().hear(Duration::ZERO, begin.into(), Vec::new());
    while let Some(effect) = worker.next(Duration::ZERO) {
        if let Effect::Own(Do::Reach { .. }) = effect {
            worker.answer(Event::Reached);
        }
    }
    worker
}

/// Of images in files: digits are drawn as they are read.
fn loader(folder: &Path) -> Loader {
    let idx = |dimensions: &[u32], values: Vec<u8>| {
        let mut bytes = vec![0, 0, 8, dimensions.len() as u8];
        dimensions.iter().for_each(|d| bytes.extend(d.to_be_bytes()));
        bytes.extend(values);
        bytes
    };
    let write = |name: &str, bytes| std::fs::write(folder.join(name), bytes).unwrap();
    let pixels = (0..640 * 16).map(|i| (i % 251) as u8).collect();
    write("train-images-idx3-ubyte", idx(&[640, 4, 4], pixels));
    write("train-labels-idx1-ubyte", idx(&[640], (0..640).map(|i| (i % 10) as u8).collect()));
    let data = Data {
        train: folder.to_str().unwrap().into(),
        test: None,
        validation: None,
        format: Format::Auto,
        table: None,
        examples: None,
        normalize: Normalize::default(),
        augment: Augment::default(),
    };
    let train = planaria_data::open(&data, 1).unwrap().train;
    Loader::training(train, 1, &data.normalize, &data.augment).unwrap()
}
