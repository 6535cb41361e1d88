//! What goes wrong in a world, and when: chosen by the seed.

use crate::coin::Coin;
use crate::net::{Hole, Mishap};
use std::time::Duration;

/// Tells the coin that redundancy is chosen by from the seed's own.
const REDUNDANCY: u64 = 0x5eed_0fc0_91e5;
/// Tells the coin that coded runs are chosen by from the seed's own.
const CODED: u64 = 0x5eed_0fc0_ded5;

/// Something that goes wrong. Whom it strikes is chosen when it does.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A process is killed, after it has done so many more things that others see.
    Kill(Whom, u32),
    /// A process is suspended for a while.
    Pause(Whom, Duration),
    /// A worker is so many times slower for a while.
    Slow(u32, Duration),
    /// Something happens to a frame.
    Frame(Mishap),
    /// A link is cut.
    Cut,
    /// A process is not heard, or hears nothing, or both.
    Hole(Whom, Hole),
    /// Everything is killed, and the run is resumed later.
    KillAll,
    /// The user presses Ctrl-C, and resumes the run later.
    Stop,
    /// Another number of workers is wanted.
    Scale(u32),
    /// The disk takes nothing for a while.
    FullDisk(Duration),
    /// The disk takes something again.
    EmptyDisk,
    /// A byte of the newest checkpoint is another, or what follows it is cut off.
    Damage(bool),
    /// A byte of the record is another.
    DamageRecord,
    /// The checkpoints are deleted.
    Delete,
    /// What servers and coordinator have kept is deleted.
    LoseKept,
}

/// Whom a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    Coordinator,
    Server,
    Worker,
    Foreground,
}

/// What the seed has chosen.
#[derive(Debug, Clone)]
pub struct Plan {
    pub recipe: usize,
    /// Workers to start with.
    pub workers: u32,
    /// Workers below which the run waits.
    pub workers_min: u32,
    /// Workers beyond the first that compute each shard.
    pub redundancy: u32,
    /// Time that a shard takes to compute.
    pub shard: Duration,
    /// Bytes that may wait for a worker besides two steps' parameters.
    pub spare_bytes: usize,
    pub keep: usize,
    /// Whether a session goes on from what a killed one has kept.
    pub goes_on: bool,
    /// When, and what.
    pub faults: Vec<(Duration, Fault)>,
    /// When nothing goes wrong any more.
    pub heal: Duration,
}

impl Plan {
    /// That of a seed; without faults, where none are wanted.
    pub fn new(seed: u64, recipes: usize, workers: Option<u32>, faults: bool) -> Self {
        let mut coin = Coin::new(seed);
        let recipe = coin.below(recipes as u64) as usize;
        let workers = workers.unwrap_or_else(|| coin.pick(&[1, 2, 2, 3, 3, 4, 6]));
        let shard = Duration::from_micros(coin.pick(&[300, 2_000, 10_000, 60_000]));
        // About as long as a run takes, so that every phase is struck.
        let length = Duration::from_millis(400) + shard * 12 * 6 / workers.min(4);
        let mut plan = Self {
            recipe,
            workers,
            workers_min: coin.pick(&[1, 1, 1, 2]).min(workers),
            // A coin of its own, so that seeds from before redundancy stay what they were.
            redundancy: Coin::new(seed ^ REDUNDANCY).pick(&[0, 0, 0, 1, 1, 2]),
            shard,
            spare_bytes: coin.pick(&[0, 1 << 20]),
            keep: coin.pick(&[1, 2]),
            goes_on: coin.once_in(2),
            faults: Vec::new(),
            heal: Duration::ZERO,
        };
        if !faults {
            return plan;
        }
        let count = coin.pick(&[1, 1, 2, 2, 3, 4, 6, 9]);
        let mut at = Duration::ZERO;
        for _ in 0..count {
            at = if coin.once_in(3) {
                // Soon after the one before: troubles come together.
                at + coin.between(Duration::ZERO, Duration::from_millis(700))
            } else {
                coin.between(Duration::ZERO, length * 2)
            };
            let fault = fault(&mut coin, workers);
            if let Fault::FullDisk(time) = fault {
                plan.faults.push((at + time, Fault::EmptyDisk));
            }
            plan.faults.push((at, fault));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        let last = plan.faults.last().map_or(at, |(at, _)| *at);
        plan.heal = last + coin.between(Duration::from_secs(1), Duration::from_secs(30));
        plan
    }
}

impl Plan {
    /// Whether a seed's run is a coded one, and which; nothing for the others.
    pub fn code(seed: u64, codes: usize) -> Option<usize> {
        // A coin of its own, so that seeds from before coded runs stay what they were.
        let mut coin = Coin::new(seed ^ CODED);
        coin.once_in(4).then(|| coin.below(codes as u64) as usize)
    }

    /// The same faults in a coded run of these sizes.
    pub fn coded(mut self, recipe: usize, threshold: u32, machines: u32) -> Self {
        let fit = |workers: u32| workers.clamp(threshold, machines);
        (self.recipe, self.redundancy) = (recipe, 0);
        (self.workers, self.workers_min) = (fit(self.workers), threshold);
        for (_, fault) in &mut self.faults {
            match fault {
                // With fewer than the threshold it waits for ever, as it should.
                Fault::Scale(workers) => *workers = fit(*workers),
                Fault::Kill(whom, _) | Fault::Pause(whom, _) | Fault::Hole(whom, _)
                    if *whom == Whom::Server =>
                {
                    *whom = Whom::Worker;
                }
                _ => {}
            }
        }
        self
    }
}

fn whom(coin: &mut Coin) -> Whom {
    coin.pick(&[Whom::Coordinator, Whom::Server, Whom::Server, Whom::Worker, Whom::Worker])
}

fn time(coin: &mut Coin) -> Duration {
    let most = coin.pick(&[50, 500, 3_000, 15_000]);
    coin.between(Duration::from_millis(1), Duration::from_millis(most))
}

fn fault(coin: &mut Coin, workers: u32) -> Fault {
    match coin.below(32) {
        0..=4 => Fault::Kill(whom(coin), 0),
        5..=10 => Fault::Kill(whom(coin), coin.pick(&[1, 2, 3, 5, 8, 13, 40])),
        11..=13 => {
            let whom = if coin.once_in(6) { Whom::Foreground } else { whom(coin) };
            Fault::Pause(whom, time(coin))
        }
        14 => Fault::Slow(coin.pick(&[5, 50]), time(coin)),
        15..=17 => {
            let delay = time(coin);
            Fault::Frame(coin.pick(&[
                Mishap::Drop,
                Mishap::Double,
                Mishap::Late,
                Mishap::Delay(delay),
            ]))
        }
        18..=19 => Fault::Cut,
        20..=22 => {
            let (out, into) = coin.pick(&[(true, true), (true, false), (false, true)]);
            let hole = Hole { loses: coin.once_in(2), out, into, until: time(coin) };
            Fault::Hole(whom(coin), hole)
        }
        23 => Fault::KillAll,
        24 => Fault::Stop,
        25..=26 => Fault::Scale(1 + coin.below(u64::from(workers) + 2) as u32),
        27 => Fault::FullDisk(time(coin)),
        28 => Fault::Damage(coin.once_in(2)),
        29 => Fault::DamageRecord,
        30 => Fault::Delete,
        _ => Fault::LoseKept,
    }
}
