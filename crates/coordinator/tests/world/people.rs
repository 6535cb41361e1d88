//! Servers and workers of a simulated world, as `docs/design/spine.md` has them.

use super::{Coin, Shape, saved};
use planaria_coordinator::decide::cluster::Input;
use planaria_learn::{Scores, Targets};
use planaria_numerics::aggregate::shard_range;
use planaria_protocol::message::{
    FromServer, FromWorker, HeldOut, Share, Steps, ToServer, ToWorker,
};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

pub struct Server {
    index: u32,
    pub blocks: usize,
    clip: bool,
    /// Steps committed.
    pub committed: u64,
    /// Steps applied, which workers have the parameters of.
    pub applied: u64,
    summed: u64,
    factor: bool,
    counted: u64,
    rounds: VecDeque<(Steps, Vec<Share>)>,
    saving: BTreeSet<u64>,
    begun: bool,
}

impl Server {
    pub fn new(index: u32, shape: &Shape, step: u64) -> Self {
        let blocks = shard_range(shape.blocks as usize, shape.servers as usize, index as usize);
        Self {
            index,
            blocks: blocks.len(),
            clip: shape.clip,
            committed: step,
            applied: step,
            summed: step,
            factor: false,
            counted: step,
            rounds: VecDeque::new(),
            saving: BTreeSet::new(),
            begun: false,
        }
    }

    pub fn hear(&mut self, order: ToServer) -> Option<FromServer> {
        match order {
            ToServer::Begin { blocks, step, .. } => {
                assert!(!self.begun, "begun twice");
                assert_eq!((blocks.len(), step), (self.blocks, self.committed));
                self.begun = true;
                return Some(FromServer::Ready);
            }
            ToServer::Round { steps, shares } => {
                let end = self.rounds.back().map_or(self.committed, |(s, _)| s.steps().end);
                assert!(steps.first_step >= end, "rounds in order");
                self.rounds.push_back((steps, shares));
            }
            ToServer::Clip { step, .. } => {
                assert!(self.clip && step == self.committed && self.summed == step + 1);
                self.factor = true;
            }
            ToServer::Commit { step } => {
                assert_eq!(step, self.committed, "commits in order");
                if self.blocks > 0 {
                    assert_eq!(self.applied, step + 1, "nothing is committed that is not applied");
                }
                self.committed += 1;
                self.applied = self.committed;
                self.summed = self.committed;
                while self.rounds.front().is_some_and(|(s, _)| s.steps().end <= self.committed) {
                    self.rounds.pop_front();
                }
            }
            ToServer::Save { step, .. } => {
                assert_eq!(step, self.committed, "only what is committed is saved");
                self.saving.insert(step);
                assert_eq!(self.saving.len(), 1, "one checkpoint at a time");
            }
            ToServer::Finish => {}
        }
        None
    }

    /// Whether all shards of the step being gathered are computed.
    fn gathered(&self, workers: &[Worker]) -> bool {
        let Some((steps, shares)) = self.rounds.front() else { return false };
        let done = |share: &Share| {
            share.shards.is_empty() || workers[share.worker as usize].computed > self.committed
        };
        steps.steps().contains(&self.committed) && shares.iter().all(done)
    }

    fn next(&self, workers: &[Worker]) -> Vec<u8> {
        let mut next = Vec::new();
        if !self.saving.is_empty() {
            next.push(b's');
        }
        if self.factor {
            next.push(b'a');
        }
        if self.gathered(workers) {
            if self.index == 0 && self.counted == self.committed {
                next.push(b'c');
            }
            if self.blocks > 0 && self.summed == self.committed && self.applied == self.committed {
                next.push(if self.clip { b'm' } else { b'a' });
            }
        }
        next
    }

    pub fn can(&self, workers: &[Worker]) -> bool {
        !self.next(workers).is_empty()
    }

    pub fn act(
        &mut self,
        workers: &[Worker],
        coin: &mut Coin,
        full: bool,
    ) -> Option<(FromServer, Vec<f64>)> {
        let next = self.next(workers);
        let step = self.committed;
        Some(match next[coin.below(next.len() as u64) as usize] {
            b's' => (saved(self.saving.pop_first().unwrap(), full), vec![]),
            b'm' => {
                self.summed += 1;
                (FromServer::Summed { step }, vec![1.0; self.blocks])
            }
            b'a' => {
                self.factor = false;
                self.applied += 1;
                let squares = if self.clip { vec![] } else { vec![1.0; self.blocks] };
                (FromServer::Applied { step }, squares)
            }
            _ => {
                self.counted += 1;
                let (steps, _) = &self.rounds[0];
                let batch = steps.batches.start + (step - steps.first_step);
                let read = [2 * batch, 2 * batch + 1].into_iter().collect();
                (FromServer::Counted { step, loss_sum: 1.0, correct: 1, read }, vec![])
            }
        })
    }
}

#[derive(Default)]
pub struct Worker {
    /// The step after the last computed.
    pub computed: u64,
    orders: VecDeque<Order>,
    begun: bool,
}

enum Order {
    Lease(Steps, u64),
    Evaluate(HeldOut, u64, Range<u64>),
}

impl Worker {
    pub fn hear(&mut self, order: ToWorker) -> Option<FromWorker> {
        match order {
            ToWorker::Begin { .. } => {
                assert!(!self.begun, "begun twice");
                self.begun = true;
                return Some(FromWorker::Ready { engine: "e".into(), threads: 1 });
            }
            ToWorker::Lease { steps, shards } => {
                assert!(!shards.is_empty(), "a lease of nothing");
                let first = steps.first_step;
                self.orders.push_back(Order::Lease(steps, first));
            }
            ToWorker::Evaluate { part, step, batches } => {
                assert!(!batches.is_empty(), "an evaluation of nothing");
                self.orders.push_back(Order::Evaluate(part, step, batches));
            }
            ToWorker::Finish => {}
        }
        None
    }

    /// Whether it has what its next order needs.
    pub fn can(&self, servers: &[Server]) -> bool {
        match self.orders.front() {
            None => false,
            Some(Order::Lease(_, step)) => {
                servers.iter().all(|s| s.applied >= *step || s.blocks == 0)
            }
            Some(Order::Evaluate(_, step, _)) => servers.iter().all(|s| s.committed >= *step),
        }
    }

    pub fn act(&mut self, coin: &mut Coin) -> (Option<Input>, Option<FromWorker>) {
        match self.orders.front_mut() {
            Some(Order::Lease(steps, step)) => {
                self.computed = *step + 1;
                *step += 1;
                if *step < steps.steps().end {
                    return (None, None);
                }
                let pace = FromWorker::Pace {
                    step: *step,
                    examples: 1,
                    busy_seconds: 0.001 * (1 + coin.below(50)) as f64,
                    waiting_seconds: 0.01,
                };
                self.orders.pop_front();
                (None, Some(pace))
            }
            Some(Order::Evaluate(part, _, batches)) => {
                let (part, batch) = (*part, batches.start);
                batches.start += 1;
                if batches.is_empty() {
                    self.orders.pop_front();
                }
                let mut scores = Scores::new(2, 2);
                scores.count(&[0.0, 1.0], Targets::Classes(&[1]), 0.5);
                (Some(Input::Scored(part, batch, scores)), None)
            }
            None => unreachable!("`can` said so"),
        }
    }
}
