//! What a server does with gradients and shards, in any order and on any number of threads: the
//! bits of a plain sum and a plain update.

#[path = "support/values.rs"]
mod values;

use planaria_coordinator::parameters::chunk::{Bulk, FromLink, Turn};
use planaria_coordinator::parameters::region::{Backing, Identity, Place, Region, Shape};
use planaria_coordinator::parameters::store::{Progress, Reach, Refused, Settings, Store};
use planaria_coordinator::parameters::tally::{Counted, Tally};
use planaria_learn::{Network, Statistics};
use planaria_numerics::aggregate::{BLOCK, clip_factor};
use planaria_numerics::tree::{self, Segment};
use planaria_numerics::{optimizer, schedule};
use planaria_protocol::Error;
use planaria_protocol::message::{Share, Steps};
use planaria_recipe::model::{BatchNormalization, Layer};
use planaria_recipe::shape;
use planaria_recipe::train::{Adam, Optimizer, Rmsprop, Sgd, Train};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use values::Values;

/// Splitmix64.
struct Coin(u64);

impl Coin {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

fn train(coin: &mut Coin, shards: usize, clip: bool) -> Train {
    let optimizers = [
        Optimizer::Sgd(Sgd { momentum: 0.0, ..Sgd::default() }),
        Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::default() }),
        Optimizer::Adam(Adam::default()),
        Optimizer::Adamw(Adam { weight_decay: 0.1, ..Adam::default() }),
        Optimizer::Rmsprop(Rmsprop::default()),
    ];
    Train {
        epochs: 2,
        batch: 7,
        shards,
        optimizer: optimizers[coin.below(5)].clone(),
        warmup_steps: coin.below(3) as u64,
        clip_norm: clip.then_some(0.5),
        ..Train::default()
    }
}

/// Some workers, each with a run of the shards; some stand by.
fn shares(coin: &mut Coin, shards: usize) -> Vec<Share> {
    let workers = coin.below(5) + 1;
    let mut cuts: Vec<u32> = (1..workers).map(|_| coin.below(shards + 1) as u32).collect();
    cuts.sort_unstable();
    cuts.insert(0, 0);
    cuts.push(shards as u32);
    (0..)
        .zip(cuts.windows(2))
        .map(|(worker, cut)| Share { worker, shards: cut[0]..cut[1] })
        .collect()
}

/// Bits, so that signs of zeros and the like count.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// What the values become by a plain sum and a plain update.
fn plain(
    settings: &Settings,
    step: u64,
    (parameters, slots): (&mut [f32], &mut [Vec<f32>]),
    shards: &[Vec<f32>],
    examples: u64,
) -> Vec<f64> {
    let train = &settings.train;
    let range = settings.range();
    let (mut gradient, mut scratch) = (vec![0.0; range.len()], Vec::new());
    let mut squares = Vec::new();
    for from in (0..range.len()).step_by(BLOCK) {
        let to = (from + BLOCK).min(range.len());
        let scale = 1.0 / examples as f32;
        let shard = |v: usize| &shards[v][from..to];
        let out = &mut gradient[from..to];
        squares.push(tree::tree_sum(train.shards, shard, scale, out, &mut scratch));
    }
    if let Some(limit) = train.clip_norm {
        let factor = clip_factor(squares.iter().sum::<f64>().sqrt(), limit);
        gradient.iter_mut().for_each(|g| *g *= factor);
    }
    let steps_per_epoch = settings.examples.div_ceil(train.batch as u64);
    let steps = steps_per_epoch * train.epochs as u64;
    let rate = schedule::learning_rate(train, schedule::Progress { step, steps_per_epoch, steps });
    let mut slots: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
    optimizer::update(&train.optimizer, step, rate, parameters, &gradient, &mut slots);
    squares
}

/// Blocks from `first` on, of a segment of a worker: what is sent in one message.
struct Piece {
    segment: Segment,
    first: usize,
    values: Vec<f32>,
}

/// All a worker sends of a step, cut at random places, in random order.
fn pieces(coin: &mut Coin, settings: &Settings, share: &Share, shards: &[Vec<f32>]) -> Vec<Piece> {
    let run = share.shards.start as usize..share.shards.end as usize;
    let (base, blocks) = (settings.blocks.start, settings.blocks.len());
    let mut scratch = Vec::new();
    let mut pieces = Vec::new();
    for segment in tree::segments(settings.train.shards, run) {
        let mut sum = vec![0.0; settings.range().len()];
        let shard = |v: usize| shards[v].as_slice();
        tree::segment_sum(settings.train.shards, segment, shard, &mut sum, &mut scratch);
        let mut at = 0;
        while at < blocks {
            let end = at + 1 + coin.below(blocks - at);
            let values = sum[at * BLOCK..(end * BLOCK).min(sum.len())].to_vec();
            pieces.push(Piece { segment, first: base + at, values });
            at = end;
        }
    }
    coin.shuffle(&mut pieces);
    pieces
}

/// A region of this process alone.
fn region(shape: Shape) -> Region {
    let identity = Identity { tag: [0; 32], boot: [0; 16] };
    let place = Place { index: 0, identity, backing: Backing::Memory };
    Region::make(&place, shape, &(Arc::new(|_: &str| {}) as _)).unwrap()
}

fn store(settings: &Settings, parameters: &[f32], slots: &[Vec<f32>]) -> Store {
    let store = Store::new(settings.clone(), region(settings.shape(0)), None);
    store.begin_with(0, parameters, slots, &[]).unwrap();
    store
}

/// Parameters and optimizer slots, as a checkpoint would have them.
fn saved(store: &Store, step: u64) -> (Vec<f32>, Vec<Vec<f32>>) {
    let third = store.snapshot(step).unwrap();
    let (values, _) = third.values();
    let slots = values.optimizer().iter().map(|slot| slot.to_vec());
    (values.parameters.to_vec(), slots.collect())
}

fn send(
    store: &Store,
    link: u64,
    step: u64,
    piece: &Piece,
    ready: impl FnMut(usize, &[f32]),
) -> Result<Progress, Refused> {
    send_by(store, link, step, piece, &mut Values(&piece.values), ready)
}

fn send_by(
    store: &Store,
    link: u64,
    step: u64,
    piece: &Piece,
    bulk: &mut dyn Bulk,
    ready: impl FnMut(usize, &[f32]),
) -> Result<Progress, Refused> {
    let entered = store.enter(store.era(), step)?.expect("its turn is not over");
    let segment = entered.round.segment(piece.segment);
    let segment = segment.ok_or(Refused::Segment(piece.segment, step))?;
    store.gradient(&entered, FromLink { link, segment }, piece.first, bulk, ready)
}

#[test]
fn any_order_on_any_threads_gives_the_bits_of_a_plain_update() {
    for seed in 0..60 {
        let coin = &mut Coin(seed);
        let shards = coin.below(9) + 1;
        let all_blocks = coin.below(20) + 1;
        let parameters = all_blocks * BLOCK - coin.below(BLOCK);
        let from = coin.below(all_blocks);
        let blocks = from..from + 1 + coin.below(all_blocks - from);
        let clip = coin.below(2) == 0;
        let settings =
            Settings { blocks, parameters, train: train(coin, shards, clip), examples: 17 };
        let len = settings.range().len();
        let mut expected = coin.values(len);
        let slots = optimizer::slots(&settings.train.optimizer);
        let mut slots: Vec<Vec<f32>> = vec![vec![0.0; len]; slots];
        let store = store(&settings, &expected, &slots);
        for epoch in 0..2 {
            let shares = shares(coin, shards);
            store.plan(Steps { epoch, batches: 0..3, first_step: epoch * 3 }, &shares).unwrap();
            for batch in 0..3 {
                let step = epoch * 3 + batch;
                let gradients: Vec<Vec<f32>> = (0..shards).map(|_| coin.values(len)).collect();
                let handed: Mutex<BTreeMap<usize, Vec<f32>>> = Mutex::default();
                let ends: Mutex<Vec<Progress>> = Mutex::default();
                let hand = |block: usize, values: &[f32]| {
                    let before = handed.lock().unwrap().insert(block, values.to_vec());
                    assert!(before.is_none(), "seed {seed}: handed out twice");
                };
                std::thread::scope(|scope| {
                    for share in &shares {
                        let pieces = pieces(coin, &settings, share, &gradients);
                        let (store, ends, hand) = (&store, &ends, &hand);
                        scope.spawn(move || {
                            for piece in pieces {
                                let link = share.worker.into();
                                let sent = send(store, link, step, &piece, hand).unwrap();
                                if sent != Progress::Gathering {
                                    ends.lock().unwrap().push(sent);
                                }
                            }
                        });
                    }
                });
                let end = if clip { Progress::Summed } else { Progress::Applied };
                assert_eq!(*ends.lock().unwrap(), [end], "seed {seed}: once, by the last");
                let mut squares = Vec::new();
                store.squares(&mut squares);
                if let Some(limit) = settings.train.clip_norm {
                    assert!(handed.lock().unwrap().is_empty(), "seed {seed}: before the factor");
                    let factor = clip_factor(squares.iter().sum::<f64>().sqrt(), limit);
                    assert_eq!(store.clip(step, factor, hand), Ok(Progress::Applied));
                }
                // What is committed is still what it was, in case the step is never committed.
                let (before, _) = saved(&store, step);
                assert_eq!(bits(&before), bits(&expected), "seed {seed}");
                let examples = if batch == 2 { 3 } else { 7 };
                let values = (expected.as_mut_slice(), slots.as_mut_slice());
                let plain = plain(&settings, step, values, &gradients, examples);
                let as_bits = |v: &[f64]| v.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
                assert_eq!(as_bits(&squares), as_bits(&plain), "seed {seed}: squares");
                assert!(store.commit(step).is_ok() && store.commit(step).is_err());
                let (after, own_slots) = saved(&store, step + 1);
                assert_eq!(bits(&after), bits(&expected), "seed {seed}: after step {step}");
                for (own, slot) in own_slots.iter().zip(&slots) {
                    assert_eq!(bits(own), bits(slot), "seed {seed}: slots after step {step}");
                }
                let all = handed.into_inner().unwrap().into_values().flatten();
                assert_eq!(bits(&all.collect::<Vec<_>>()), bits(&expected), "seed {seed}: handed");
            }
        }
    }
}

/// Two blocks and a bit, held from block 3 on; shards 0 and 1 are worker 0's, 2 and 3 worker 1's.
fn small() -> Store {
    let coin = &mut Coin(1);
    let settings = Settings {
        blocks: 3..6,
        parameters: 5 * BLOCK + 100,
        train: train(coin, 4, false),
        examples: 14,
    };
    let slots = optimizer::slots(&settings.train.optimizer);
    let len = settings.range().len();
    let store = store(&settings, &vec![0.5; len], &vec![vec![0.0; len]; slots]);
    let share = |worker, shards| Share { worker, shards };
    let steps = Steps { epoch: 0, batches: 0..2, first_step: 0 };
    store.plan(steps, &[share(0, 0..2), share(1, 2..4)]).unwrap();
    store
}

fn piece(first_shard: usize, count: usize, first: usize, values: usize) -> Piece {
    let segment = Segment { first: first_shard, count };
    Piece { segment, first, values: vec![1.0; values] }
}

#[test]
fn what_is_not_held_or_no_segment_is_refused_and_what_came_already_is_dropped() {
    let store = small();
    let ready = |_: usize, _: &[f32]| {};
    for (first_shard, count) in [(0, 1), (1, 2), (0, 4), (2, 1), (7, 2)] {
        let sent = send(&store, 0, 0, &piece(first_shard, count, 3, BLOCK), ready);
        assert!(matches!(sent, Err(Refused::Segment(..))), "{first_shard} {count}");
    }
    for (first, values) in [
        (2, BLOCK),
        (0, 1),
        (3, 0),
        (3, BLOCK - 1),
        (3, BLOCK + 100),
        (5, BLOCK),
        (5, 99),
        (3, 3 * BLOCK),
        (6, BLOCK),
        (6, 100),
        (u32::MAX as usize, BLOCK),
        (u32::MAX as usize, 1),
    ] {
        let sent = send(&store, 0, 0, &piece(0, 2, first, values), ready);
        assert!(matches!(sent, Err(Refused::Blocks(..))), "{values} from {first}: {sent:?}");
    }
    let all = |store: &Store| store.missing(0).0;
    let (front, back) = (Segment { first: 0, count: 2 }, Segment { first: 2, count: 2 });
    send(&store, 0, 0, &piece(0, 2, 4, BLOCK), ready).unwrap();
    assert_eq!(store.take_late(), 0);
    send(&store, 0, 0, &piece(0, 2, 4, BLOCK), ready).unwrap();
    assert_eq!(store.take_late(), 1, "the same again is dropped");
    assert_eq!(all(&store), [front, back]);
    // Blocks that overlap with what is there are the same bits, and fill what is not.
    send(&store, 0, 0, &piece(0, 2, 3, 2 * BLOCK), ready).unwrap();
    send(&store, 0, 0, &piece(0, 2, 5, 100), ready).unwrap();
    assert_eq!(all(&store), [back]);
    // The same from another worker is late.
    send(&store, 1, 0, &piece(0, 2, 3, 2 * BLOCK + 100), ready).unwrap();
    assert_eq!((store.take_late(), store.take_late()), (1, 0));
    let last = send(&store, 0, 0, &piece(2, 2, 3, 2 * BLOCK + 100), ready).unwrap();
    assert_eq!(last, Progress::Applied, "any link may bring any segment");
    assert_eq!((all(&store), store.missing(1).0), (vec![], vec![]));
}

/// Values whose reader hangs after the first.
struct Hanging<'a> {
    values: Values<'a>,
    reading: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

impl Bulk for Hanging<'_> {
    fn bytes(&self) -> usize {
        self.values.bytes()
    }

    fn read(&mut self, into: &mut [f32]) -> Result<(), Error> {
        self.reading.send(()).unwrap();
        self.go_on.recv().unwrap();
        self.values.read(into)
    }

    fn skip(&mut self, values: usize) -> Result<(), Error> {
        self.values.skip(values)
    }
}

#[test]
fn a_hung_sender_stops_no_other_from_bringing_the_same() {
    let store = small();
    let ready = |_: usize, _: &[f32]| {};
    let whole = |first| piece(first, 2, 3, 2 * BLOCK + 100);
    std::thread::scope(|scope| {
        let ((reading, hangs), (release, go_on)) = (mpsc::channel(), mpsc::channel());
        let stuck = scope.spawn({
            let (store, piece) = (&store, whole(0));
            move || {
                let values = Values(&piece.values);
                let mut bulk = Hanging { values, reading, go_on };
                send_by(store, 7, 0, &piece, &mut bulk, ready).unwrap()
            }
        });
        hangs.recv().unwrap();
        assert_eq!(send(&store, 1, 0, &whole(0), ready).unwrap(), Progress::Gathering);
        assert_eq!(send(&store, 1, 0, &whole(2), ready).unwrap(), Progress::Applied);
        store.commit(0).unwrap();
        assert_eq!(send(&store, 1, 1, &whole(0), ready).unwrap(), Progress::Gathering);
        let before = saved(&store, 1);
        release.send(()).unwrap();
        assert_eq!(stuck.join().unwrap(), Progress::Gathering);
        assert_eq!(store.take_late(), 1);
        assert_eq!(saved(&store, 1), before);
        assert_eq!(store.missing(1).0, [Segment { first: 2, count: 2 }]);
        assert_eq!(send(&store, 2, 1, &whole(2), ready).unwrap(), Progress::Applied);
    });
}

#[test]
fn what_a_link_brought_by_halves_goes_with_it() {
    let store = small();
    let ready = |_: usize, _: &[f32]| {};
    let rest = piece(2, 2, 3, 2 * BLOCK + 100);
    send(&store, 0, 0, &rest, ready).unwrap();
    send(&store, 4, 0, &piece(0, 2, 3, BLOCK), ready).unwrap();
    store.leave(4);
    // Another link of the same worker begins from nothing.
    send(&store, 5, 0, &piece(0, 2, 4, BLOCK + 100), ready).unwrap();
    assert_eq!(store.missing(0).0, [Segment { first: 0, count: 2 }]);
    assert_eq!(send(&store, 5, 0, &piece(0, 2, 3, BLOCK), ready).unwrap(), Progress::Applied);
}

#[test]
fn a_step_that_is_taken_again_with_other_segments_mixes_with_nothing() {
    let store = small();
    let ready = |_: usize, _: &[f32]| {};
    let whole = |first, count| piece(first, count, 3, 2 * BLOCK + 100);
    let entered = store.enter(store.era(), 0).unwrap().unwrap();
    send(&store, 0, 0, &whole(0, 2), ready).unwrap();
    assert!(store.begin_kept(3).unwrap_err().contains("there are those after 0"));
    store.begin_kept(0).unwrap();
    let shares = [Share { worker: 0, shards: 0..1 }, Share { worker: 1, shards: 1..4 }];
    store.plan(Steps { epoch: 0, batches: 0..2, first_step: 0 }, &shares).unwrap();
    // A worker of the era before still sends, by the segments of that era.
    let late = whole(2, 2);
    let from = FromLink { link: 0, segment: 1 };
    let sent = store.gradient(&entered, from, 3, &mut Values(&late.values), ready);
    assert_eq!((sent.unwrap(), store.take_late()), (Progress::Gathering, 1));
    let count = |first, count| Segment { first, count };
    assert_eq!(store.missing(0).0, [count(0, 1), count(1, 1), count(2, 2)]);
    send(&store, 1, 0, &whole(0, 1), ready).unwrap();
    send(&store, 1, 0, &whole(1, 1), ready).unwrap();
    assert!(store.commit(0).unwrap_err().contains("before it was applied"));
    assert_eq!(send(&store, 1, 0, &whole(2, 2), ready).unwrap(), Progress::Applied);
    store.commit(0).unwrap();
}

#[test]
fn the_next_step_waits_for_the_commit_and_the_end_lets_everyone_go() {
    let store = small();
    let ready = |_: usize, _: &[f32]| {};
    let committed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in [0u32, 1] {
            let (store, committed) = (&store, &committed);
            scope.spawn(move || {
                let whole = |step| {
                    let piece = piece(2 * worker as usize, 2, 3, 2 * BLOCK + 100);
                    send(store, worker.into(), step, &piece, ready).unwrap()
                };
                let first = whole(0);
                if first == Progress::Applied {
                    // Both are in; the other already waits at the gate, or soon will.
                    committed.store(true, Ordering::SeqCst);
                    store.commit(0).unwrap();
                }
                whole(1);
                assert!(committed.load(Ordering::SeqCst), "step 1 was let in before the commit");
            });
        }
    });
    store.commit(1).unwrap();
    assert_eq!(store.step(), 2);
    assert!(store.enter(store.era(), 0).unwrap().is_none(), "its turn is over");
    assert_eq!(
        (store.reach(store.era(), 2), store.reach(store.era(), 1)),
        (Reach::There, Reach::Gone)
    );
    assert!(store.enter_would_wait(2) && store.reach_would_wait(store.era(), 3));
    assert!(!store.enter_would_wait(1) && !store.reach_would_wait(store.era(), 2));
    // Step 2 was not planned: a thread that waits for it is let go when the server ends or begins
    // anew.
    for _ in 0..20 {
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| matches!(store.enter(store.era(), 2), Err(Refused::Closed)));
            let reaching = scope.spawn(|| store.reach(store.era(), 9));
            store.close();
            assert!(waiting.join().unwrap() && reaching.join().unwrap() == Reach::Over);
        });
        store.begin_kept(2).unwrap();
    }
}

#[test]
fn shards_are_counted_once_in_any_order() {
    let layers = [Layer::BatchNormalization(BatchNormalization { momentum: 0.9, epsilon: 1e-3 })];
    let input = shape::Shape::Image { height: 2, width: 2, channels: 3 };
    let network = Network::new(&layers, input).unwrap();
    let (_, state) = network.initialise(1);
    let statistics = Statistics::new(&network);
    for seed in 0..50 {
        let coin = &mut Coin(seed);
        let shards = coin.below(9) + 1;
        let tally = || {
            let shape = Shape { blocks: 0..0, parameters: 0, optimizer: 0, state: state.len() };
            let piece = region(shape).into_pieces(BLOCK).state;
            let mut tally = Tally::new(shards, statistics.clone(), piece);
            assert!(tally.load(0, &state[1..]).is_err());
            tally.load(0, &state).unwrap();
            tally
        };
        let (mut reference, mut tally) = (tally(), tally());
        for step in 0..4 {
            let turn = Turn { era: 1, step };
            reference.expect(Some(turn));
            tally.expect(Some(turn));
            let counts: Vec<(Counted, Vec<f32>)> = (0..shards)
                .map(|shard| {
                    let counted = Counted {
                        loss_sum: f64::from(coin.values(1)[0]),
                        correct: coin.below(9) as u64,
                        read: [step * 100 + shard as u64].into_iter().collect(),
                    };
                    let stats = coin.values(statistics.len());
                    (counted, stats.into_iter().map(|v| v.abs() + 1.0).collect())
                })
                .collect();
            for (shard, (counted, stats)) in counts.iter().enumerate() {
                let is_last = reference.count(turn, shard, *counted, stats);
                assert_eq!(is_last, Some(shard + 1 == shards));
            }
            let mut order: Vec<usize> = (0..shards).collect();
            coin.shuffle(&mut order);
            for (place, shard) in order.iter().enumerate() {
                let (counted, stats) = &counts[*shard];
                assert!(tally.missing(turn).contains(&(*shard as u32)));
                let other = Turn { era: 0, step };
                assert_eq!(tally.count(other, *shard, *counted, stats), None);
                let is_last = tally.count(turn, *shard, *counted, stats);
                assert_eq!(is_last, Some(place + 1 == shards));
                assert_eq!(tally.missing(turn).len(), shards - place - 1);
                // What comes twice changes nothing.
                let other = Counted { loss_sum: f64::NAN, ..*counted };
                assert_eq!(tally.count(turn, *shard, other, &vec![f32::NAN; stats.len()]), None);
            }
            let before = bits(tally.state(step));
            let (a, b) = (reference.finish(step), tally.finish(step));
            assert_eq!(a.loss_sum.to_bits(), b.loss_sum.to_bits(), "seed {seed}");
            assert_eq!((a.correct, a.read), (b.correct, b.read), "seed {seed}");
            assert_eq!(a.read.count, shards as u64);
            assert_eq!(bits(tally.state(step)), before, "the state before a step stays");
            assert_eq!(bits(tally.state(step + 1)), bits(reference.state(step + 1)));
            assert_ne!(bits(tally.state(step + 1)), before);
        }
    }
}
