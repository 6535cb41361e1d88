//! One step of a worker: compute the shards, push blocks as they become final, report the shards.

use crate::ahead::Portion;
use planaria_data::Targets as Read;
use planaria_learn::{Examples, Ready, Runner, Targets};
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::digest::Digest;
use planaria_protocol::bytes;
use planaria_protocol::message::{Push, Shelf};
use planaria_protocol::{Error, Sender};
use std::sync::Mutex;

/// A server that could not be told.
#[derive(Debug)]
pub struct Unsent {
    /// Which.
    pub server: u32,
    /// Why not.
    pub why: Error,
}

impl std::fmt::Display for Unsent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "server-{} was lost: {}", self.server, self.why)
    }
}

/// The servers, in the order of their blocks.
pub struct Servers {
    shelves: Vec<Shelf>,
    senders: Vec<Sender>,
}

impl Servers {
    /// Servers and the links to them.
    pub fn new(shelves: Vec<Shelf>, senders: Vec<Sender>) -> Self {
        Self { shelves, senders }
    }

    /// The link to server 0, which counts.
    pub fn first(&self) -> &Sender {
        let at = self.shelves.iter().position(|s| s.server == 0).unwrap_or(0);
        &self.senders[at]
    }

    /// All links.
    pub fn all(&self) -> &[Sender] {
        &self.senders
    }

    /// Sends blocks to whoever holds them.
    fn push(&self, step: u64, ready: &Ready<'_>) -> Result<(), Unsent> {
        let mut at = ready.blocks.start;
        let mut values = ready.values;
        for (shelf, sender) in self.shelves.iter().zip(&self.senders) {
            let end = ready.blocks.end.min(shelf.blocks.end as usize);
            if at < shelf.blocks.start as usize || at >= end {
                continue;
            }
            let (now, rest) = values.split_at(((end - at) * BLOCK).min(values.len()));
            let message = Push::Gradient {
                step,
                first_shard: ready.segment.first as u32,
                shards: ready.segment.count as u32,
                first_block: at as u32,
            };
            let sent = sender.send_with(&message, bytes::as_bytes(now));
            sent.map_err(|why| Unsent { server: shelf.server, why })?;
            (at, values) = (end, rest);
        }
        Ok(())
    }
}

/// A batch's targets as the engine takes them.
pub fn targets(read: &Read) -> Targets<'_> {
    match read {
        Read::Classes(classes) => Targets::Classes(classes),
        Read::Values(values) => Targets::Values(values),
    }
}

/// Computes the shards of a portion with `parameters` and pushes everything.
pub fn compute(
    runner: &mut Runner,
    servers: &Servers,
    parameters: &[f32],
    portion: &Portion,
    shards_in_step: usize,
) -> Result<(), Unsent> {
    let step = portion.step;
    let failed: Mutex<Option<Unsent>> = Mutex::new(None);
    let batch =
        Examples { inputs: &portion.batch.inputs, targets: targets(&portion.batch.targets) };
    let push = |ready: Ready<'_>| {
        if let Err(e) = servers.push(step, &ready) {
            failed.lock().expect("no thread panics with the failure").get_or_insert(e);
        }
    };
    let (run, examples) = (portion.shards.clone(), portion.examples_in_step);
    runner.compute(step, parameters, run, examples, batch, &push);
    if let Some(e) = failed.into_inner().expect("no thread panics with the failure") {
        return Err(e);
    }
    for (shard, score, stats) in runner.results() {
        let ids = &portion.batch.ids[portion.places(shards_in_step, shard)];
        let read: Digest = ids.iter().copied().collect();
        let (loss_sum, correct) = (score.loss, score.correct);
        let message = Push::Shard { step, shard: shard as u32, loss_sum, correct, read };
        let sent = servers.first().send_with(&message, bytes::as_bytes(stats));
        sent.map_err(|why| Unsent { server: 0, why })?;
    }
    Ok(())
}
