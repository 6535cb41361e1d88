//! One step of a worker: compute the shards, push blocks as they become final, report the shards.

use crate::ahead::Portion;
use crate::duty::Input;
use crate::mail::Mail;
use planaria_data::Targets as Read;
use planaria_learn::{Examples, Ready, Runner, Targets};
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::digest::Digest;
use planaria_protocol::Sender;
use planaria_protocol::bytes;
use planaria_protocol::message::{Push, Shelf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The servers, in the order of their blocks.
pub struct Servers {
    shelves: Vec<Shelf>,
    senders: Vec<Sender>,
    /// Which could not be told something.
    lost: Vec<AtomicBool>,
    mail: Arc<Mail>,
}

impl Servers {
    /// Servers and the links to them; where one ends is put in the mail.
    pub fn new(shelves: Vec<Shelf>, senders: Vec<Sender>, mail: Arc<Mail>) -> Self {
        let lost = senders.iter().map(|_| AtomicBool::new(false)).collect();
        Self { shelves, senders, lost, mail }
    }

    /// What each holds, in the order of blocks.
    pub fn shelves(&self) -> &[Shelf] {
        &self.shelves
    }

    /// Tells all of them.
    pub fn tell_all(&self, message: &Push) {
        (0..self.senders.len()).for_each(|at| self.tell(at, message, &[]));
    }

    /// Tells server 0, which counts.
    pub fn tell_first(&self, message: &Push, bulk: &[u8]) {
        let at = self.shelves.iter().position(|s| s.server == 0).unwrap_or(0);
        self.tell(at, message, bulk);
    }

    /// A link that breaks is reported once, and what was to be said is not missed: whoever takes
    /// the place of that server knows nothing of it, and asks for it anew.
    fn tell(&self, at: usize, message: &Push, bulk: &[u8]) {
        let (Some(sender), Some(lost)) = (self.senders.get(at), self.lost.get(at)) else { return };
        if let Err(error) = sender.send_with(message, bulk)
            && !lost.swap(true, Ordering::Relaxed)
        {
            let (server, why) = (self.shelves[at].server, error.to_string());
            self.mail.put(Input::Ended { server, why });
            sender.close();
        }
    }

    /// Sends blocks to whoever holds them.
    fn push(&self, step: u64, ready: &Ready<'_>) {
        let mut at = ready.blocks.start;
        let mut values = ready.values;
        for (place, shelf) in self.shelves.iter().enumerate() {
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
            self.tell(place, &message, bytes::as_bytes(now));
            (at, values) = (end, rest);
        }
    }
}

/// A batch's targets as the engine takes them.
pub fn targets(read: &Read) -> Targets<'_> {
    match read {
        Read::Classes(classes) => Targets::Classes(classes),
        Read::Values(values) => Targets::Values(values),
    }
}

/// Computes the shards of a portion with `parameters` and pushes everything. A link that breaks
/// meanwhile changes nothing but who hears of it.
pub fn compute(
    runner: &mut Runner,
    servers: &Servers,
    parameters: &[f32],
    portion: &Portion,
    shards_in_step: usize,
) {
    let step = portion.step;
    let batch =
        Examples { inputs: &portion.batch.inputs, targets: targets(&portion.batch.targets) };
    let (run, examples) = (portion.shards.clone(), portion.examples_in_step);
    let push = |ready: Ready<'_>| servers.push(step, &ready);
    runner.compute(step, parameters, run, examples, batch, &push);
    for (shard, score, stats) in runner.results() {
        let ids = &portion.batch.ids[portion.places(shards_in_step, shard)];
        let read: Digest = ids.iter().copied().collect();
        let (loss_sum, correct) = (score.loss, score.correct);
        let message = Push::Shard { step, shard: shard as u32, loss_sum, correct, read };
        servers.tell_first(&message, bytes::as_bytes(stats));
    }
}
