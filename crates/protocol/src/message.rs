//! What processes say to each other.
//!
//! Every link begins with [`Join`]. After it the coordinator speaks [`ToWorker`], [`ToServer`] or
//! [`ToConsole`], and hears [`FromWorker`], [`FromServer`] or [`FromConsole`]. Messages between it and
//! a worker are an envelope that all training methods share, with each [method's](methods) own
//! payload inside. Workers and servers speak [`Push`] and [`Pull`] over links of their own, so that
//! control never waits behind tensors. A server whose machine does not have the run's folder sends
//! [transfers](crate::transfer::files) over one more, and a worker of a coded run gets its
//! [rows](crate::transfer::rows) over one.
//!
//! A message may be followed by *bulk*: raw little-endian bytes whose meaning its comment gives.
//! Messages of every step have no lists of their own (those are bulk), so that reading them
//! allocates nothing. Steps, epochs and batches count from 0; step t turns the parameters after t
//! steps into those after t + 1.

pub use crate::agent::Agent;
pub use crate::terms::{HeldOut, Loss, Outcome, ServerRange, Sha256, Share, Steps, Trouble};

use crate::event::Event;
use crate::methods;
use planaria_numerics::digest::Digest;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Version of everything on the wire; both sides must have the same.
pub const VERSION: u16 = 8;

/// First message of a process that connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    pub agent: Agent,
    /// Which build of planaria it runs; all of a run must be the same.
    pub build: String,
    /// Its process, by the number that the controller knows it by.
    pub pid: u32,
    /// Its machine; nothing for the controller's own.
    #[serde(default)]
    pub machine: Option<String>,
    /// Where a server listens for workers.
    pub address: Option<String>,
    /// What a server has kept from before.
    pub kept: Option<Kept>,
    /// What the link is for.
    pub purpose: LinkPurpose,
}

impl Join {
    /// Of a process on the controller's machine that wants to take part.
    pub fn new(agent: Agent, build: impl Into<String>, pid: u32) -> Self {
        Self {
            agent,
            build: build.into(),
            pid,
            machine: None,
            address: None,
            kept: None,
            purpose: LinkPurpose::Work,
        }
    }
}

/// What a link to the coordinator is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkPurpose {
    /// To take part in the run.
    #[default]
    Work,
    /// A server's files of checkpoints, in [transfers](crate::transfer::files): it is a member by another link.
    Parts,
    /// From one worker of a coded run to another: products and entries.
    Peer,
    /// A coded run's rows for a worker, as [transfers](crate::transfer::rows): it is a member by another link.
    Blocks,
}

/// Parameters that a server has kept through the loss of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub blocks: Range<u32>,
    /// Steps whose parameters it holds whole: the committed ones, and those applied after them.
    pub steps: Vec<u64>,
    /// Steps of a copy that is still to be written to a checkpoint.
    pub snapshot: Option<u64>,
}

/// Where a server's parameters come from when it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// From the recipe's seed.
    Seed,
    /// From this checkpoint's folder.
    Checkpoint(String),
    /// It holds them.
    Kept,
}

/// A fault that a process is asked to suffer: a share of the frames it sends is lost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FrameLoss {
    /// Of 1,000 frames, how many are lost; all of them is a partition.
    pub drop_per_mille: u32,
    /// For how long.
    pub seconds: f64,
    /// Which ones follows from this.
    pub seed: u64,
}

/// From the coordinator to a worker: what every method shares, and what its own method says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// What workers of its method are told; bulk as that says.
    Method(methods::Command),
    /// Score the parameters after `step` steps on these batches of a held-out part.
    Evaluate {
        part: HeldOut,
        step: u64,
        /// Batches of [`EVALUATION_BATCH`] examples.
        batches: Range<u64>,
        /// Whether the worker has first to enter, where its method lets workers enter.
        enter: bool,
    },
    /// Forget what was ordered: others have it. Say `Revoked`.
    Revoke {
        /// Comes back in the answer.
        ticket: u64,
    },
    /// End all links and join again.
    Rejoin,
    /// The coordinator lives.
    Alive,
    /// Lose frames on purpose.
    FrameLoss(FrameLoss),
    /// The run is over, or goes on without this worker: end.
    Finish,
}

/// Examples scored at a time. Scores are added up batch by batch, so it is part of the arithmetic.
pub const EVALUATION_BATCH: usize = 256;

/// From a worker to the coordinator: what every method shares, and what its own method says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// What workers of its method say; bulk as that says.
    Method(methods::Report),
    /// It has all it needs to compute.
    Ready {
        /// Engine and instruction set.
        engine: String,
        /// Threads that compute.
        threads: u32,
    },
    /// Scores of one batch of a held-out part; the bulk is JSON of `planaria_learn::Scores`.
    Evaluated {
        part: HeldOut,
        /// Whose parameters: scores of others come late, and are let go.
        step: u64,
        batch: u64,
    },
    /// All orders are forgotten.
    Revoked {
        /// As in the order.
        ticket: u64,
    },
    Alive,
    /// It cannot go on.
    Failed(Trouble),
}

/// From the coordinator to a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToServer {
    /// Hold these blocks.
    Begin {
        blocks: Range<u32>,
        /// Where they come from.
        source: Source,
        /// Steps that are done.
        step: u64,
    },
    /// The shares of some steps.
    Round {
        steps: Steps,
        /// Who computes which shards of them, in the order of shards.
        shares: Vec<Share>,
    },
    /// Which segments of the step have not come?
    Missing { step: u64 },
    /// All blocks of all servers are summed: scale the gradient by this and update.
    Clip {
        step: u64,
        /// Factor of the gradient.
        factor: f32,
    },
    /// Every server has applied `step`: its parameters are the run's.
    Commit { step: u64 },
    /// Write the parameters after `step` steps to this folder. They are the committed ones, or
    /// those of the copy that was kept.
    Save {
        /// Steps done.
        step: u64,
        /// An existing folder.
        folder: String,
    },
    /// The coordinator lives.
    Alive,
    /// Lose frames on purpose.
    FrameLoss(FrameLoss),
    /// The run is over: end.
    Finish,
}

/// From a server to the coordinator. Server 0 also adds up what is not gradients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromServer {
    /// The blocks are there.
    Ready,
    /// Where gradients are clipped: all its blocks of the step are summed. The bulk is one f64 per
    /// block, the sum of its squares.
    Summed {
        step: u64,
    },
    /// The step is applied and waits for its commit. The bulk is as for `Summed`, and empty where
    /// that was sent.
    Applied {
        step: u64,
    },
    /// Server 0: all shards of the step have been counted.
    Counted {
        step: u64,
        /// Sum of the loss over the examples.
        loss_sum: f64,
        /// Examples whose class was right.
        correct: u64,
        /// The examples that were read.
        read: Digest,
    },
    /// What it did since the last such message.
    Load {
        seconds: f64,
        /// Processor time in them.
        busy_seconds: f64,
        /// Bytes sent to workers.
        bytes_out: u64,
        /// Answers that came late, for what was counted already.
        late: u64,
    },
    /// What has not come of a step that is being gathered.
    Missing {
        step: u64,
        /// First shard and number of shards of each segment that lacks blocks.
        segments: Vec<(u32, u32)>,
        /// Server 0: shards that are not counted.
        shards: Vec<u32>,
    },
    /// A worker has entered: it was sent the parameters after `step` steps.
    Pulled {
        worker: u32,
        /// Steps done.
        step: u64,
        /// Of this server's blocks.
        sha256: Sha256,
    },
    Alive,
    /// Its part of a checkpoint is on the disk.
    Saved {
        /// Steps done.
        step: u64,
        /// Name of the file in the folder.
        file: String,
        sha256: String,
        bytes: u64,
    },
    /// Its part of a checkpoint could not be written.
    NotSaved {
        /// Steps done.
        step: u64,
        why: String,
    },
    /// It cannot go on.
    Failed(Trouble),
}

/// From a worker to a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Push {
    /// Send me the parameters after `step` steps, and then those of every later step.
    Follow {
        /// Steps done.
        step: u64,
    },
    /// Send me no more.
    Unfollow,
    /// Send me the state after `step` steps (asked of server 0).
    State {
        /// Steps done.
        step: u64,
    },
    /// A part of a step's gradient, summed over shards `first_shard..first_shard + shards`, which
    /// are a subtree. The bulk is f32: the values of whole blocks, one after another.
    Gradient {
        step: u64,
        /// First shard of the subtree.
        first_shard: u32,
        /// Shards of the subtree.
        shards: u32,
        /// First block, counted over all servers.
        first_block: u32,
    },
    /// To server 0: a shard is computed. The bulk is f32: its statistics.
    Shard {
        step: u64,
        shard: u32,
        /// Sum of the loss over its examples.
        loss_sum: f64,
        /// Examples whose class was right.
        correct: u64,
        /// The examples that were read.
        read: Digest,
    },
}

/// From a server to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Pull {
    /// Some blocks after `step` steps. The bulk is f32: their values.
    Parameters {
        /// Steps done.
        step: u64,
        /// First block, counted over all servers.
        first_block: u32,
    },
    /// From server 0: the state after `step` steps, as f32.
    State {
        /// Steps done.
        step: u64,
    },
    /// What was asked for is over: more than `step` steps are committed.
    Gone {
        /// Steps done.
        step: u64,
    },
}

/// From a console to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromConsole {
    /// Send me all events of this session, from the first, and pulses. They come in pages: see
    /// [`ToConsole::More`].
    Watch {
        /// Whether it starts and ends the processes: then it is also told `Pool` and `Kill`.
        supervises: bool,
    },
    /// Send me the page of events that begins with this one.
    More { from: u64 },
    /// End the run as soon as everything is saved.
    Stop {
        /// Why, in words.
        reason: String,
    },
    /// A process that the console started has ended without being told to.
    Ended {
        agent: Agent,
        pid: u32,
        /// How: `killed by signal 9`, `exit code 1`.
        how: String,
    },
    /// Go on with so many workers.
    Scale {
        /// Workers wanted.
        workers: u32,
    },
    /// Go on with so many machines.
    Resize { machines: u32 },
    /// Something happened to the run's machines, which only the controller sees.
    Report {
        /// The JSON of a [`crate::event::What`].
        event: String,
    },
    /// Let a process suffer a fault.
    Chaos { agent: Agent, frame_loss: FrameLoss },
    /// Let a process be killed by the process that started it, as it may be on another machine.
    Kill { agent: Agent },
}

/// From the coordinator to a console.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToConsole {
    /// Something happened. The bulk is the JSON of an [`Event`].
    Event {
        /// Its place in `events.jsonl`, counted from 0: a console that has connected again knows
        /// by it what it has seen.
        index: u64,
    },
    /// There are more events, from this one on, once they are asked for. A console that reads slowly
    /// has a long session's events no faster than it takes them.
    More { from: u64 },
    /// Where the run is at this moment. The bulk is the JSON of a [`crate::event::Pulse`].
    Pulse,
    /// So many workers are wanted: start what is missing. Those beyond are told to end.
    Pool {
        /// Workers wanted.
        workers: u32,
    },
    /// So many machines are wanted.
    Resize { machines: u32 },
    /// A process does not answer: end it, and start another in its place.
    Kill {
        agent: Agent,
        pid: u32,
        /// How that was seen.
        why: String,
    },
    /// The run is over.
    Finish,
}

impl<C: methods::OwnCommand> From<C> for ToWorker {
    fn from(command: C) -> Self {
        Self::Method(command.into())
    }
}

impl<R: methods::OwnReport> From<R> for FromWorker {
    fn from(report: R) -> Self {
        Self::Method(report.into())
    }
}

/// An event as it crosses the wire.
pub fn event_bulk(event: &Event) -> Vec<u8> {
    serde_json::to_vec(event).expect("an event has string keys only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_known_by_their_names() {
        for agent in [Agent::Coordinator, Agent::Worker(0), Agent::Worker(12), Agent::Server(3)] {
            assert_eq!(Agent::named(&agent.to_string()), Some(agent));
        }
        for name in ["console", "worker", "worker-", "worker-x", "clerk-1", ""] {
            assert_eq!(Agent::named(name), None, "{name}");
        }
    }
}
