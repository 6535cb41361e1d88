//! What a server does with gradients and shards, whatever order they come in and on however many
//! threads: the bits of a plain sum and a plain update.

use planaria_coordinator::parameters::store::{Progress, Refused, Settings, Store};
use planaria_coordinator::parameters::tally::{Counted, Tally};
use planaria_learn::{Network, Statistics};
use planaria_numerics::aggregate::{BLOCK, clip_factor};
use planaria_numerics::tree::{self, Segment};
use planaria_numerics::{optimizer, schedule};
use planaria_protocol::message::{Share, Steps};
use planaria_recipe::model::{BatchNormalization, Layer};
use planaria_recipe::shape::Shape;
use planaria_recipe::train::{Adam, Optimizer, Rmsprop, Sgd, Train};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

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

fn send(
    store: &Store,
    worker: u32,
    step: u64,
    piece: &Piece,
    ready: impl FnMut(usize, &[f32]),
) -> Result<Progress, Refused<Infallible>> {
    let round = store.enter(step)?.expect("its turn is not over");
    let index =
        round.segment(worker, piece.segment).ok_or(Refused::Segment(piece.segment, step))?;
    let mut left = piece.values.as_slice();
    let read = |into: &mut [f32]| {
        let (now, rest) = left.split_at(into.len());
        into.copy_from_slice(now);
        left = rest;
        Ok(())
    };
    let place = (piece.first, piece.values.len() * 4);
    store.gradient(&round, (step, index), place, read, ready)
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
        let store = Store::new(settings.clone(), 0, &expected, &slots);
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
                                let sent = send(store, share.worker, step, &piece, hand).unwrap();
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
                    store.clip(step, factor, hand);
                }
                // What is committed is still what it was, in case the step is never committed.
                let (before, _) = store.snapshot(step);
                assert_eq!(bits(&before), bits(&expected), "seed {seed}");
                let examples = if batch == 2 { 3 } else { 7 };
                let values = (expected.as_mut_slice(), slots.as_mut_slice());
                let plain = plain(&settings, step, values, &gradients, examples);
                let as_bits = |v: &[f64]| v.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
                assert_eq!(as_bits(&squares), as_bits(&plain), "seed {seed}: squares");
                assert!(store.commit(step) && !store.commit(step));
                let (after, own_slots) = store.snapshot(step + 1);
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
    let store = Store::new(settings, 0, &vec![0.5; len], &vec![vec![0.0; len]; slots]);
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
fn what_is_not_held_or_not_ones_own_or_came_already_is_refused() {
    let store = small();
    let ready = |_: usize, _: &[f32]| {};
    for (worker, first_shard, count) in
        [(0, 2, 2), (1, 0, 2), (0, 0, 1), (0, 1, 2), (0, 0, 4), (7, 0, 2)]
    {
        let sent = send(&store, worker, 0, &piece(first_shard, count, 3, BLOCK), ready);
        assert!(matches!(sent, Err(Refused::Segment(..))), "{worker} {first_shard} {count}");
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
    send(&store, 0, 0, &piece(0, 2, 4, BLOCK), ready).unwrap();
    for (first, values) in [(4, BLOCK), (3, 2 * BLOCK), (4, BLOCK + 100), (3, 2 * BLOCK + 100)] {
        let sent = send(&store, 0, 0, &piece(0, 2, first, values), ready);
        assert!(matches!(sent, Err(Refused::Twice(0))), "{values} from {first}: {sent:?}");
    }
    // What is right still goes through after all that.
    send(&store, 0, 0, &piece(0, 2, 3, BLOCK), ready).unwrap();
    send(&store, 0, 0, &piece(0, 2, 5, 100), ready).unwrap();
    let last = send(&store, 1, 0, &piece(2, 2, 3, 2 * BLOCK + 100), ready).unwrap();
    assert_eq!(last, Progress::Applied);
    let round = store.enter::<Infallible>(0).unwrap().unwrap();
    assert_eq!([0, 1, 2, 3, 4].map(|s| round.owner(s)), [Some(0), Some(0), Some(1), Some(1), None]);
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
                    send(store, worker, step, &piece, ready).unwrap()
                };
                let first = whole(0);
                if first == Progress::Applied {
                    // Both are in; the other already waits at the gate, or soon will.
                    committed.store(true, Ordering::SeqCst);
                    assert!(store.commit(0));
                }
                whole(1);
                assert!(committed.load(Ordering::SeqCst), "step 1 was let in before the commit");
            });
        }
    });
    assert!(store.commit(1));
    assert_eq!(store.step(), 2);
    assert!(store.enter::<Infallible>(0).unwrap().is_none(), "its turn is over");
    assert!(store.reach(2) && !store.reach(1));
    // Nobody has planned step 2: whoever waits for it is let go at the end.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| matches!(store.enter::<Infallible>(2), Err(Refused::Closed)));
        let reaching = scope.spawn(|| store.reach(9));
        store.close();
        assert!(waiting.join().unwrap() && !reaching.join().unwrap());
    });
}

#[test]
fn shards_are_counted_once_in_any_order() {
    let layers = [Layer::BatchNormalization(BatchNormalization { momentum: 0.9, epsilon: 1e-3 })];
    let input = Shape::Image { height: 2, width: 2, channels: 3 };
    let network = Network::new(&layers, input).unwrap();
    let (_, state) = network.initialise(1);
    let statistics = Statistics::new(&network);
    for seed in 0..50 {
        let coin = &mut Coin(seed);
        let shards = coin.below(9) + 1;
        let mut reference = Tally::new(shards, statistics.clone(), state.clone());
        let mut tally = Tally::new(shards, statistics.clone(), state.clone());
        for step in 0..4 {
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
                assert_eq!(reference.count(step, shard, *counted, stats), shard + 1 == shards);
            }
            let mut order: Vec<usize> = (0..shards).collect();
            coin.shuffle(&mut order);
            for (place, shard) in order.iter().enumerate() {
                let (counted, stats) = &counts[*shard];
                assert_eq!(tally.count(step, *shard, *counted, stats), place + 1 == shards);
                // What comes twice changes nothing.
                let other = Counted { loss_sum: f64::NAN, ..*counted };
                assert!(!tally.count(step, *shard, other, &vec![f32::NAN; stats.len()]));
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
