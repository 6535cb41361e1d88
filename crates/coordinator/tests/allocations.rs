//! A server's part of a step allocates nothing once it has run: an allocator that counts says so.
//! (Links and the worker's part have tests of their own; `examples/exchange` counts them together.)

#[path = "support/values.rs"]
mod values;

use planaria_coordinator::parameters::chunk::FromLink;
use planaria_coordinator::parameters::region::{Backing, Identity, Place, Region};
use planaria_coordinator::parameters::server::{Effect, Event, Outlet, Peer, Server, Used};
use planaria_coordinator::parameters::store::{Progress, Settings, Store};
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::tree::Segment;
use planaria_protocol::launch::Facts;
use planaria_protocol::message::{Agent, FromServer, Pull, Push, Share, Source, Steps, ToServer};
use planaria_recipe::shape::Shape;
use planaria_recipe::train::{Adam, Optimizer, Train};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
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
    // One after the other: they count in one place.
    a_step_of_the_store();
    a_step_of_the_value_around_it();
}

fn a_step_of_the_store() {
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
    let entered = store.enter(store.era(), step).expect("open").expect("its turn");
    let mut progress = Progress::Gathering;
    for (link, first, count) in [(0, 0, 2), (0, 2, 1), (1, 3, 1)] {
        let segment = entered.round.segment(Segment { first, count }).expect("the round's");
        let bulk = &mut Values(gradient);
        let from = FromLink { link, segment };
        let taken = store.gradient(&entered, from, 0, bulk, |_, _| {});
        progress = taken.expect("taken");
    }
    squares.clear();
    store.squares(squares);
    if progress == Progress::Summed {
        progress = store.clip(step, 0.5, |_, _| {}).expect("its turn");
    }
    assert_eq!(progress, Progress::Applied);
}

/// Drops all messages.
struct Mute;

impl Outlet for Mute {
    fn coordinator(&self, _message: &FromServer, _squares: &[f64]) {}

    fn answer(&self, _to: Peer, _message: &Pull, _values: &[f32]) -> bool {
        true
    }

    fn hand_out(&self, _to: Peer, _message: &Pull, _values: &[f32], _waiting_max: usize) -> bool {
        true
    }

    fn close(&self, _link: u64) {}

    fn used(&self) -> Used {
        Used::default()
    }
}

fn a_step_of_the_value_around_it() {
    const UNITS: usize = 500;
    let text = r#"{"name": "server", "data": {"train": "digits"},
        "model": {"layers": [{"Dense": {"units": 500}}]},
        "train": {"shards": 1, "batch": 10, "epochs": 100}}"#;
    let parameters = UNITS * UNITS + UNITS;
    let facts = Facts {
        input: Shape::Vector(UNITS),
        classes: 0,
        examples: 10_000,
        digest: Default::default(),
        validation: 0,
        test: 0,
        parameters: parameters as u64,
        marks: Vec::new(),
        coding: None,
    };
    let identity = Identity { tag: [0; 32], boot: [0; 16] };
    let place = Place { index: 0, identity, backing: Backing::Memory };
    let recipe = serde_json::from_str(text).expect("a recipe");
    let server = Server::new(&recipe, &facts, place, Arc::new(|_: &str| {})).expect("begun");
    let now = Duration::ZERO;
    let order = |order: ToServer| server.on(now, Event::Order(order, None), &Mute);
    server.on(now, Event::Joined { generation: 1 }, &Mute);
    let connected = Event::Connected { link: 0, agent: Agent::Worker(0), generation: 1 };
    let [Effect::Admit(peer)] = server.on(now, connected, &Mute)[..] else {
        panic!("not admitted")
    };
    order(ToServer::Begin { blocks: 0..62, source: Source::Seed, step: 0 });
    let steps = Steps { epoch: 0, batches: 0..1000, first_step: 0 };
    order(ToServer::Round { steps, shares: vec![Share { worker: 0, shards: 0..1 }] });
    let push = |push: Push, values: &[f32]| {
        server.push(peer, &push, &mut Values(values), &Mute).expect("taken");
    };
    push(Push::Follow { step: 0 }, &[]);
    let gradient = vec![0.25f32; parameters];
    let mut before = 0;
    for step in 0..STEPS {
        if step == 2 {
            before = COUNT.load(Ordering::SeqCst);
        }
        push(Push::Gradient { step, first_shard: 0, shards: 1, first_block: 0 }, &gradient);
        let read = Default::default();
        push(Push::Shard { step, shard: 0, loss_sum: 0.0, correct: 0, read }, &[]);
        assert!(order(ToServer::Commit { step }).is_empty());
    }
    assert_eq!(COUNT.load(Ordering::SeqCst) - before, 0);
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
