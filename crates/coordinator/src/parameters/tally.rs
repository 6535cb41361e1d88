//! What server 0 adds up besides gradients: scores, digests of the examples read, and batch norm's
//! statistics, all in the fixed tree over shards.
//!
//! Owns the network's state, which lies in the region. Never sees a gradient.

use super::chunk::Turn;
use super::region::Piece;
use planaria_learn::Statistics;
use planaria_numerics::digest::Digest;
use planaria_numerics::tree;

/// One shard's part of a step.
#[derive(Debug, Clone, Default)]
struct Count {
    is_counted: bool,
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
    /// What is gathered.
    turn: Option<Turn>,
    missing: usize,
    /// What it comes to, once it is complete.
    whole: Option<Counted>,
    statistics: Statistics,
    state: Piece,
}

impl Tally {
    /// For `shards` shards, with a place for the state.
    pub fn new(shards: usize, statistics: Statistics, state: Piece) -> Self {
        let count = Count { stats: vec![0.0; statistics.len()], ..Count::default() };
        Self { shards: vec![count; shards], turn: None, missing: 0, whole: None, statistics, state }
    }

    /// The state after `step` steps, which are the committed ones.
    pub fn state(&self, step: u64) -> &[f32] {
        self.state.after(step).parameters
    }

    /// Where the state lies.
    pub fn piece(&self) -> &Piece {
        &self.state
    }

    /// Brings the state after `step` steps.
    pub fn load(&mut self, step: u64, state: &[f32]) -> Result<(), String> {
        let (own, given) = (self.state.len(), state.len());
        if own != given {
            return Err(format!("{given} values of state are not the network's {own}"));
        }
        self.state.after_mut(step).parameters.copy_from_slice(state);
        self.state.seal(step);
        Ok(())
    }

    /// Starts counting a step; with nothing, nothing counts.
    pub fn expect(&mut self, turn: Option<Turn>) {
        (self.turn, self.whole) = (turn, None);
        self.missing = self.shards.len();
        self.shards.iter_mut().for_each(|count| count.is_counted = false);
    }

    /// Takes in a shard of a step, with its statistics. Says whether the step is complete with it,
    /// and nothing if the shard was counted already, or its step is over.
    pub fn count(
        &mut self,
        turn: Turn,
        shard: usize,
        counted: Counted,
        stats: &[f32],
    ) -> Option<bool> {
        let count = self.shards.get_mut(shard)?;
        if self.turn != Some(turn) || count.is_counted {
            return None;
        }
        count.stats.copy_from_slice(stats);
        let Counted { loss_sum, correct, read } = counted;
        count.is_counted = true;
        (count.loss_sum, count.correct, count.read) = (loss_sum, correct, read);
        self.missing -= 1;
        Some(self.missing == 0)
    }

    /// Shards of the step that have not been counted.
    pub fn missing(&self, turn: Turn) -> Vec<u32> {
        if self.turn != Some(turn) {
            return Vec::new();
        }
        let missing = (0..).zip(&self.shards).filter(|(_, count)| !count.is_counted);
        missing.map(|(shard, _)| shard).collect()
    }

    /// What the step comes to, if it is complete.
    pub fn whole(&self) -> Option<Counted> {
        self.whole
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
        let (before, after) = self.state.step(step);
        after.parameters.copy_from_slice(before.parameters);
        let whole = &self.shards[0];
        statistics.update_running(&whole.stats, after.parameters);
        self.state.seal(step + 1);
        let whole = Counted { loss_sum: whole.loss_sum, correct: whole.correct, read: whole.read };
        self.whole = Some(whole);
        whole
    }
}
