//! One step of a worker: compute the shards, push blocks as they become final, report the shards.

use super::read_ahead::Portion;
use crate::data::targets;
use planaria_learn::{Engine, Examples, Hooks, Ready, Work};
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::digest::Digest;
use planaria_numerics::tree::Segment;
use planaria_protocol::bytes;
use planaria_protocol::message::{Push, ServerRange};
use std::sync::Mutex;

/// Where what a worker computes goes.
pub trait Outlet: Sync {
    /// The servers and what each holds, in the order of blocks.
    fn server_ranges(&self) -> &[ServerRange];

    /// Tells the server in this place of that order.
    fn tell(&self, at: usize, message: &Push, bulk: &[u8]);

    /// Tells server 0, which counts.
    fn tell_first(&self, message: &Push, bulk: &[u8]) {
        let at = self.server_ranges().iter().position(|s| s.server == 0).unwrap_or(0);
        self.tell(at, message, bulk);
    }

    /// Sends blocks to the servers that hold them.
    fn push(&self, step: u64, ready: &Ready<'_>) {
        let mut at = ready.blocks.start;
        let mut values = ready.values;
        for (place, server_range) in self.server_ranges().iter().enumerate() {
            let end = ready.blocks.end.min(server_range.blocks.end as usize);
            if at < server_range.blocks.start as usize || at >= end {
                continue;
            }
            let (now, rest) = values.split_at(((end - at) * BLOCK).min(values.len()));
            let message = Push::Gradient {
                step,
                first_shard: ready.segment.first as u32,
                shards: ready.segment.count as u32,
                first_block: at as u32,
            };
            self.tell(place, &message, bytes::as_bytes(now));
            (at, values) = (end, rest);
        }
    }
}

/// The first block of each segment, kept until the shards are reported.
///
/// A worker that has all parameters of the next step must be able to rely on this one's commit: what it
/// pushes of the next step waits at the servers for that, and anything it would then be asked to
/// compute of this one would wait behind it, for ever. So no server updates the first block before
/// server 0 has every shard's report, which come before it on the same link.
#[derive(Debug, Default)]
pub struct FirstBlocks {
    segments: Vec<Segment>,
    /// One after another, as long as the block is.
    values: Vec<f32>,
}

impl FirstBlocks {
    fn keep(&mut self, segment: Segment, values: &[f32]) {
        self.segments.push(segment);
        self.values.extend_from_slice(values);
    }

    /// Pushes and forgets them.
    fn push(&mut self, servers: &dyn Outlet, step: u64) {
        let len = self.values.len() / self.segments.len().max(1);
        for (segment, values) in self.segments.iter().zip(self.values.chunks(len.max(1))) {
            servers.push(step, &Ready { segment: *segment, blocks: 0..1, values });
        }
        self.segments.clear();
        self.values.clear();
    }
}

/// Computes the shards of a portion with `parameters` and pushes everything, unless it `is_over`
/// before the last shard is begun: then nothing is pushed. Says how many shards were computed. A
/// link that breaks meanwhile changes nothing but who hears of it.
pub fn compute(
    engine: &mut dyn Engine,
    servers: &dyn Outlet,
    parameters: &[f32],
    portion: &Portion,
    shards_in_step: usize,
    first: &mut FirstBlocks,
    is_over: &(dyn Fn() -> bool + Sync),
) -> usize {
    let step = portion.step;
    let batch =
        Examples { inputs: &portion.batch.inputs, targets: targets(&portion.batch.targets) };
    let kept = Mutex::new(first);
    let push = |ready: Ready<'_>| {
        let mut rest = ready;
        if rest.blocks.start == 0 {
            let (own, others) = rest.values.split_at(BLOCK.min(rest.values.len()));
            let mut kept = kept.lock().expect("no thread panics with the first blocks");
            kept.keep(rest.segment, own);
            rest = Ready { blocks: 1..rest.blocks.end, values: others, ..rest };
        }
        if !rest.blocks.is_empty() {
            servers.push(step, &rest);
        }
    };
    let (shards, examples_in_step) = (portion.shards.clone(), portion.examples_in_step);
    let work = Work { step, parameters, shards, examples_in_step, batch };
    let computed = engine.compute(work, Hooks { ready: &push, is_over });
    if computed < portion.shards.len() {
        return computed;
    }
    for shard in portion.shards.clone() {
        let (score, stats) = engine.result(shard);
        let ids = &portion.batch.ids[portion.places(shards_in_step, shard)];
        let read: Digest = ids.iter().copied().collect();
        let (loss_sum, correct) = (score.loss, score.correct);
        let message = Push::Shard { step, shard: shard as u32, loss_sum, correct, read };
        servers.tell_first(&message, bytes::as_bytes(stats));
    }
    let first = kept.into_inner().expect("no thread panics with the first blocks");
    first.push(servers, step);
    computed
}
