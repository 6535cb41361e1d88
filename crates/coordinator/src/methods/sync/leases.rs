//! Who computes which shards of which steps: the rounds under way, and their segments.
//!
//! A segment is what one holder sends: a subtree of the shards. It is fixed when its round is
//! planned and may change hands, as often as it must; with redundancy several have it, and the worker that
//! is first counts. Never decides who should have it.

use planaria_numerics::tree::segments;
use planaria_protocol::message::{Share, Steps};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A segment and who computes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    pub shards: Range<u32>,
    /// The workers with a lease for it; none while there is no worker.
    pub holders: Vec<u32>,
}

impl Held {
    /// Number of its shards.
    pub fn count(&self) -> u32 {
        self.shards.end - self.shards.start
    }
}

/// A round that is leased and not yet committed to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Leased {
    pub steps: Steps,
    /// In the order of shards.
    pub held: Vec<Held>,
}

impl Leased {
    /// What is left of the steps when so many are committed.
    pub fn rest(&self, step: u64) -> Steps {
        let first_step = step.max(self.steps.first_step);
        let passed = first_step - self.steps.first_step;
        let Steps { epoch, batches, .. } = self.steps.clone();
        Steps { epoch, batches: batches.start + passed..batches.end, first_step }
    }

    /// Shards by holder.
    pub fn loads(&self) -> BTreeMap<u32, u32> {
        let mut loads = BTreeMap::new();
        for held in &self.held {
            for holder in &held.holders {
                *loads.entry(*holder).or_insert(0) += held.count();
            }
        }
        loads
    }

    /// Shards that no worker has.
    fn orphans(&self) -> u32 {
        self.held.iter().filter(|held| held.holders.is_empty()).map(Held::count).sum()
    }
}

/// All rounds under way, in order.
#[derive(Debug, Default)]
pub struct Leases {
    rounds: Vec<Leased>,
}

impl Leases {
    /// A new round, dealt out like this. Each of the copies is one of the shares again, for
    /// another worker.
    pub fn add(&mut self, shards_in_step: u32, steps: Steps, shares: &[Share], copies: &[Share]) {
        let mut others: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for copy in copies {
            others.entry(copy.shards.start).or_default().push(copy.worker);
        }
        let held = shares.iter().flat_map(|share| {
            let run = share.shards.start as usize..share.shards.end as usize;
            let others = others.get(&share.shards.start).into_iter().flatten();
            let holders: Vec<u32> = [share.worker].iter().chain(others).copied().collect();
            segments(shards_in_step as usize, run).into_iter().map(move |segment| Held {
                shards: segment.first as u32..(segment.first + segment.count) as u32,
                holders: holders.clone(),
            })
        });
        let held = held.collect();
        self.rounds.push(Leased { steps, held });
    }

    /// So many steps are committed.
    pub fn committed(&mut self, step: u64) {
        self.rounds.retain(|round| round.steps.steps().end > step);
    }

    pub fn clear(&mut self) {
        self.rounds.clear();
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Rounds under way.
    pub fn len(&self) -> usize {
        self.rounds.len()
    }

    /// The step after the last that is leased.
    pub fn end(&self) -> Option<u64> {
        self.rounds.last().map(|round| round.steps.steps().end)
    }

    /// The rounds, to be given to others.
    pub fn rounds_mut(&mut self) -> &mut [Leased] {
        &mut self.rounds
    }

    /// The round that a step is of.
    pub fn round(&self, step: u64) -> Option<&Leased> {
        self.rounds.iter().find(|round| round.steps.steps().contains(&step))
    }

    /// Whether a worker has any of them.
    pub fn holds(&self, worker: u32) -> bool {
        self.rounds.iter().flat_map(|r| &r.held).any(|h| h.holders.contains(&worker))
    }

    /// Workers that have any of them.
    pub fn holders(&self) -> BTreeSet<u32> {
        self.rounds.iter().flat_map(|r| &r.held).flat_map(|h| h.holders.iter().copied()).collect()
    }

    /// Workers that have any of the round that ends with so many steps.
    pub fn holders_until(&self, step: u64) -> BTreeSet<u32> {
        let over = self.rounds.iter().filter(|round| round.steps.steps().end == step);
        over.flat_map(|r| &r.held).flat_map(|h| h.holders.iter().copied()).collect()
    }

    /// Takes everything away from a worker; shards of `step` that no worker has any more.
    pub fn release(&mut self, worker: u32, step: u64) -> u32 {
        let orphans = |leases: &Self| leases.round(step).map_or(0, Leased::orphans);
        let before = orphans(self);
        for held in self.rounds.iter_mut().flat_map(|r| &mut r.held) {
            held.holders.retain(|holder| *holder != worker);
        }
        orphans(self) - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(worker: u32, shards: Range<u32>) -> Share {
        Share { worker, shards }
    }

    #[test]
    fn segments_change_hands() {
        let mut leases = Leases::default();
        let steps = Steps { epoch: 1, batches: 4..7, first_step: 14 };
        leases.add(8, steps, &[share(0, 0..3), share(1, 3..8), share(2, 8..8)], &[]);
        let held: Vec<_> =
            leases.rounds[0].held.iter().map(|h| (h.shards.clone(), h.holders.clone())).collect();
        let one = |worker: u32| vec![worker];
        assert_eq!(held, [(0..2, one(0)), (2..3, one(0)), (3..4, one(1)), (4..8, one(1))]);
        assert!(leases.holds(1) && !leases.holds(2));
        assert_eq!(leases.release(1, 15), 5);
        assert!(!leases.holds(1));
        let rest = leases.rounds[0].rest(15);
        assert_eq!((rest.first_step, rest.batches), (15, 5..7));
        leases.committed(16);
        assert_eq!(leases.end(), Some(17));
        leases.committed(17);
        assert!(leases.is_empty());
    }

    #[test]
    fn what_several_have_is_lost_with_the_last_of_them() {
        let mut leases = Leases::default();
        let steps = Steps { epoch: 0, batches: 0..2, first_step: 0 };
        let shares = [share(0, 0..3), share(1, 3..6), share(2, 6..8)];
        let copies = [share(1, 0..3), share(2, 3..6), share(0, 6..8)];
        leases.add(8, steps, &shares, &copies);
        let loads: Vec<(u32, u32)> = leases.rounds[0].loads().into_iter().collect();
        assert_eq!(loads, [(0, 5), (1, 6), (2, 5)]);
        assert_eq!(leases.release(1, 0), 0, "others have all of it");
        assert_eq!(leases.release(2, 0), 3, "what both had no worker has");
        assert_eq!(leases.holders(), BTreeSet::from([0]));
        assert_eq!(leases.holders_until(1), BTreeSet::new());
        assert_eq!(leases.holders_until(2), BTreeSet::from([0]));
    }
}
