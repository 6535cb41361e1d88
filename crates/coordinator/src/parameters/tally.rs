//! What server 0 adds up besides gradients: scores, digests of the examples read, and batch norm's
//! statistics, all in the fixed tree over shards.
//!
//! Owns the network's state. Never sees a gradient.

use planaria_learn::Statistics;
use planaria_numerics::digest::Digest;
use planaria_numerics::tree;

/// One shard's part of a step.
#[derive(Debug, Clone, Default)]
struct Count {
    /// The step after it, 0 for none.
    after: u64,
    loss_sum: f64,
    correct: u64,
    read: Digest,
    stats: Vec<f32>,
}

/// A whole step, counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counted {
    /// Sum of the loss over the examples.
    pub loss_sum: f64,
    /// Examples whose class was right.
    pub correct: u64,
    /// The examples that were read.
    pub read: Digest,
}

/// Counts of the step being gathered, and the state before and after it.
#[derive(Debug)]
pub struct Tally {
    shards: Vec<Count>,
    missing: usize,
    statistics: Statistics,
    /// After step t in slot t mod 2.
    states: [Vec<f32>; 2],
}

impl Tally {
    /// For `shards` shards, with the state after `step` steps.
    pub fn new(shards: usize, statistics: Statistics, state: Vec<f32>) -> Self {
        let count = Count { stats: vec![0.0; statistics.len()], ..Count::default() };
        Self {
            shards: vec![count; shards],
            missing: shards,
            statistics,
            states: [state.clone(), state],
        }
    }

    /// The state after `step` steps, which are the committed ones.
    pub fn state(&self, step: u64) -> &[f32] {
        &self.states[step as usize % 2]
    }

    /// Takes in a shard of a step, with its statistics. Says whether the step is complete with it;
    /// a shard that was counted already is left alone.
    pub fn count(&mut self, step: u64, shard: usize, counted: Counted, stats: &[f32]) -> bool {
        let count = &mut self.shards[shard];
        if count.after == step + 1 {
            return false;
        }
        count.stats.copy_from_slice(stats);
        let Counted { loss_sum, correct, read } = counted;
        count.after = step + 1;
        (count.loss_sum, count.correct, count.read) = (loss_sum, correct, read);
        self.missing -= 1;
        self.missing == 0
    }

    /// Adds up a complete step and makes the state after it.
    pub fn finish(&mut self, step: u64) -> Counted {
        let statistics = &self.statistics;
        tree::tree_fold(&mut self.shards, |a, b| {
            a.loss_sum += b.loss_sum;
            a.correct += b.correct;
            a.read = a.read.combine(b.read);
            statistics.merge(&mut a.stats, &b.stats);
        });
        let [even, odd] = &mut self.states;
        let (before, after) = if step.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        after.copy_from_slice(before);
        let whole = &self.shards[0];
        statistics.update_running(&whole.stats, after);
        self.missing = self.shards.len();
        Counted { loss_sum: whole.loss_sum, correct: whole.correct, read: whole.read }
    }
}
