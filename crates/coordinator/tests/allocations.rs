//! A server's part of a step allocates nothing once it has run: an allocator that counts says so.
//! (Links and the worker's part have tests of their own; `examples/exchange` counts them together.)

#[path = "support/values.rs"]
mod values;

use planaria_coordinator::parameters::region::{Backing, Identity, Place, Region};
use planaria_coordinator::parameters::store::{Progress, Settings, Store};
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::tree::Segment;
use planaria_protocol::message::{Share, Steps};
use planaria_recipe::train::{Adam, Optimizer, Train};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use values::Values;

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

const STEPS: u64 = 8;
const PARAMETERS: usize = 70 * BLOCK + 5;

#[test]
fn a_servers_step_allocates_nothing() {
    for clip_norm in [None, Some(1.0)] {
        let store = store(clip_norm);
        let gradient = vec![0.25f32; PARAMETERS];
        let mut squares = Vec::new();
        let mut before = 0;
        for step in 0..STEPS {
            // The first steps make room, one for each of the two slots.
            if step == 2 {
                before = COUNT.load(Ordering::SeqCst);
            }
            take(&store, step, &gradient, &mut squares);
            store.commit(step).expect("applied");
        }
        assert_eq!(COUNT.load(Ordering::SeqCst) - before, 0, "clip_norm {clip_norm:?}");
        assert_eq!(store.step(), STEPS);
    }
}

/// One step: three segments of two workers, then the factor where there is one.
fn take(store: &Store, step: u64, gradient: &[f32], squares: &mut Vec<f64>) {
    let (turn, round) = store.enter(store.era(), step).expect("open").expect("its turn");
    let mut progress = Progress::Gathering;
    for (link, first, count) in [(0, 0, 2), (0, 2, 1), (1, 3, 1)] {
        let segment = round.segment(Segment { first, count }).expect("the round's");
        let bulk = &mut Values(gradient);
        let taken = store.gradient((turn, &round), (link, segment), 0, bulk, |_, _| {});
        progress = taken.expect("taken");
    }
    squares.clear();
    store.squares(squares);
    if progress == Progress::Summed {
        progress = store.clip(step, 0.5, |_, _| {}).expect("its turn");
    }
    assert_eq!(progress, Progress::Applied);
}

fn store(clip_norm: Option<f32>) -> Store {
    let optimizer = Optimizer::Adam(Adam::default());
    let train = Train { shards: 4, batch: 8, clip_norm, optimizer, ..Train::default() };
    let blocks = 0..PARAMETERS.div_ceil(BLOCK);
    let settings = Settings { blocks, parameters: PARAMETERS, train, examples: 8 * STEPS };
    let identity = Identity { tag: [0; 32], boot: [0; 16] };
    let place = Place { index: 0, identity, backing: Backing::Memory };
    let region = Region::make(&place, settings.shape(0), &(Arc::new(|_: &str| {}) as _));
    let store = Store::new(settings, region.expect("memory"), None);
    let slots = vec![vec![0.0; PARAMETERS]; 2];
    store.begin_with(0, &vec![1.0; PARAMETERS], &slots, &[]).expect("begun");
    let steps = Steps { epoch: 0, batches: 0..STEPS, first_step: 0 };
    let shares = [Share { worker: 0, shards: 0..3 }, Share { worker: 1, shards: 3..4 }];
    store.plan(steps, &shares).expect("planned");
    store
}
