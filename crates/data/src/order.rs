//! Orders and cuts: which example stands where, as a function of the seed alone.
//!
//! Batch t of an epoch of n examples holds positions t·batch .. min((t+1)·batch, n) of that epoch's
//! order; shard v of a batch of n holds positions ⌊vn/V⌋..⌊(v+1)n/V⌋ of the batch. Nothing here knows
//! who computes what.

use planaria_numerics::random::{Purpose, Stream};
use std::ops::Range;

/// Half rounds of the cipher; more than the four after which a Feistel cipher with good round
/// functions cannot be told from chance (Luby and Rackoff 1988).
const ROUNDS: usize = 8;

/// A random order of 0..n that needs no memory: any place can be asked alone.
///
/// A Feistel cipher on pairs (left, right) of the smallest near-square grid that holds n numbers;
/// the few grid cells beyond n are walked over (Black and Rogaway, "Ciphers with arbitrary finite
/// domains", CT-RSA 2002). Its round keys come from a counter-based stream.
#[derive(Debug, Clone)]
pub struct Permutation {
    n: u64,
    left: u64,
    right: u64,
    keys: Option<[u64; ROUNDS]>,
}

impl Permutation {
    /// The order that `random` picks.
    pub fn new(n: u64, mut random: Stream) -> Self {
        let keys = std::array::from_fn(|_| random.next_u64());
        let right = n.isqrt().max(1);
        Self { n, left: n.div_ceil(right), right, keys: Some(keys) }
    }

    /// The order 0, 1, 2, …
    pub fn identity(n: u64) -> Self {
        Self { n, left: 1, right: n, keys: None }
    }

    /// The number at place `i`; `i` < n.
    pub fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.n, "place {i} of {}", self.n);
        let Some(keys) = &self.keys else { return i };
        // The cipher permutes the grid, so walking from a cell below n comes back below n.
        let mut x = self.encipher(i, keys);
        while x >= self.n {
            x = self.encipher(x, keys);
        }
        x
    }

    fn encipher(&self, x: u64, keys: &[u64; ROUNDS]) -> u64 {
        let (mut l, mut r) = (x / self.right, x % self.right);
        for pair in keys.chunks_exact(2) {
            l = add(l, scatter(r ^ pair[0], self.left), self.left);
            r = add(r, scatter(l ^ pair[1], self.right), self.right);
        }
        l * self.right + r
    }
}

/// (a + b) mod m for a, b < m.
fn add(a: u64, b: u64, m: u64) -> u64 {
    let sum = a + b;
    if sum >= m { sum - m } else { sum }
}

/// A number below `m` (below 2³²) from all bits of `x`: the finaliser of MurmurHash3.
fn scatter(x: u64, m: u64) -> u64 {
    let x = (x ^ (x >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let x = (x ^ (x >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    ((x >> 32) * m) >> 32
}

/// The order of `n` examples in `epoch`.
pub fn epoch_order(seed: u64, epoch: u64, n: u64) -> Permutation {
    Permutation::new(n, Stream::new(seed, Purpose::Shuffle, epoch, n))
}

/// Batches of an epoch; the last may be short. `batch` > 0.
pub fn batches(n: u64, batch: usize) -> u64 {
    n.div_ceil(batch as u64)
}

/// Positions in an epoch's order that batch `step` (from 0) of it holds.
pub fn batch_range(n: u64, batch: usize, step: u64) -> Range<u64> {
    let start = step.saturating_mul(batch as u64).min(n);
    start..start.saturating_add(batch as u64).min(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_order_holds_each_number_once(seed: u64, epoch in 0u64..5, n in 1u64..3000) {
            let order = epoch_order(seed, epoch, n);
            let mut seen = vec![false; n as usize];
            for i in 0..n {
                let x = order.at(i) as usize;
                prop_assert!(!std::mem::replace(&mut seen[x], true));
            }
        }

        #[test]
        fn batches_tile_the_epoch(n in 0u64..5000, batch in 1usize..300) {
            let mut next = 0;
            for step in 0..batches(n, batch) {
                let range = batch_range(n, batch, step);
                prop_assert!(range.start == next && !range.is_empty());
                next = range.end;
            }
            prop_assert_eq!(next, n);
            prop_assert!(batch_range(n, batch, batches(n, batch)).is_empty());
            prop_assert!(batch_range(n, batch, u64::MAX).is_empty());
        }
    }

    #[test]
    fn orders_differ_by_seed_and_epoch_and_look_random() {
        let n = 60_000;
        let list = |seed, epoch| (0..n).map(move |i| epoch_order(seed, epoch, n).at(i));
        assert!(list(1, 0).zip(list(1, 0)).all(|(a, b)| a == b));
        for (seed, epoch) in [(2, 0), (1, 1)] {
            let same = list(1, 0).zip(list(seed, epoch)).filter(|(a, b)| a == b).count();
            assert!(same < 12, "{same} places in common");
        }
        // The mean place of each tenth of the numbers is near the middle.
        let mut sums = [0.0; 10];
        for (i, x) in list(1, 0).enumerate() {
            sums[(x * 10 / n) as usize] += i as f64;
        }
        for sum in sums {
            let mean = sum / (n / 10) as f64 / n as f64;
            assert!((mean - 0.5).abs() < 0.015, "{mean}");
        }
        // Neighbours do not stay neighbours.
        let order: Vec<u64> = list(1, 0).collect();
        assert!(order.windows(2).filter(|w| w[0] + 1 == w[1]).count() < 12);
    }

    #[test]
    fn great_orders_can_be_asked_anywhere() {
        let n = 1_000_000_000_007;
        let order = epoch_order(3, 4, n);
        for i in [0, 1, n / 2, n - 1] {
            assert!(order.at(i) < n);
        }
    }

    #[test]
    fn the_order_never_changes() {
        // What an old checkpoint resumes into.
        let order = epoch_order(7, 2, 10);
        let list: Vec<u64> = (0..10).map(|i| order.at(i)).collect();
        assert_eq!(list, [6, 3, 8, 5, 7, 0, 1, 2, 9, 4]);
    }
}
