//! What a store must know of its run, and of the steps to come.

use super::super::chunk::Update;
use super::super::region::Shape;
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::tree::{Segment, segments};
use planaria_numerics::{optimizer, schedule};
use planaria_protocol::message::{Share, Steps};
use planaria_recipe::train::Train;
use std::ops::Range;

/// What a store must know of its run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The blocks held here, counted over all servers.
    pub blocks: Range<usize>,
    /// Parameters of the whole network.
    pub parameters: usize,
    /// How it is trained.
    pub train: Train,
    /// Training examples in an epoch.
    pub examples: u64,
}

impl Settings {
    /// The parameters held here.
    pub fn range(&self) -> Range<usize> {
        let value = |block: usize| (block * BLOCK).min(self.parameters);
        value(self.blocks.start)..value(self.blocks.end)
    }

    /// How much a region for them holds.
    pub fn shape(&self, state: usize) -> Shape {
        Shape {
            blocks: self.blocks.start as u32..self.blocks.end as u32,
            parameters: self.range().len(),
            optimizer: optimizer::slots(&self.train.optimizer),
            state,
        }
    }

    /// Examples of a batch of an epoch.
    pub(super) fn examples_of(&self, batch: u64) -> u64 {
        let size = self.train.batch as u64;
        self.examples.saturating_sub(batch * size).min(size)
    }

    /// How parameters follow their gradients in a step.
    pub(super) fn update(&self, step: u64) -> Update<'_> {
        let steps_per_epoch = self.examples.div_ceil(self.train.batch as u64);
        let steps = steps_per_epoch * self.train.epochs as u64;
        let progress = schedule::Progress { step, steps_per_epoch, steps };
        let learning_rate = schedule::learning_rate(&self.train, progress);
        Update { optimizer: &self.train.optimizer, step, learning_rate }
    }
}

/// Some steps with the segments that are sent for each.
#[derive(Debug)]
pub struct Round {
    pub(super) steps: Steps,
    /// In order; they tile the shards.
    pub segments: Vec<Segment>,
}

impl Round {
    pub(super) fn new(shards: usize, steps: Steps, shares: &[Share]) -> Self {
        let run = |share: &Share| share.shards.start as usize..share.shards.end as usize;
        Self { steps, segments: shares.iter().flat_map(|s| segments(shards, run(s))).collect() }
    }

    /// Index of a segment, if it is one of the round's.
    pub fn segment(&self, segment: Segment) -> Option<usize> {
        self.segments.iter().position(|s| *s == segment)
    }

    pub(super) fn batch(&self, step: u64) -> u64 {
        self.steps.batches.start + (step - self.steps.first_step)
    }
}
