//! What processes say to each other.
//!
//! Every link begins with [`Join`]. After it the coordinator speaks [`ToWorker`], [`ToServer`] or
//! [`ToConsole`], and hears [`FromWorker`], [`FromServer`] or [`FromConsole`]; workers and servers
//! speak [`Push`] and [`Pull`] over links of their own, so that control never waits behind tensors.
//!
//! A message may be followed by *bulk*: raw little-endian bytes whose meaning its comment gives.
//! Messages of every step have no lists of their own (those are bulk), so that reading them
//! allocates nothing. Steps, epochs and batches count from 0; step t turns the parameters after t
//! steps into those after t + 1.

use crate::event::Event;
use planaria_numerics::digest::Digest;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Version of everything on the wire; both sides must have the same.
pub const VERSION: u16 = 1;

/// Who a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Agent {
    /// Decides.
    Coordinator,
    /// Holds a range of parameters.
    Server(u32),
    /// Computes shards.
    Worker(u32),
    /// Watches, and may ask for a stop.
    Console,
}

impl std::fmt::Display for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Coordinator => write!(f, "coordinator"),
            Self::Server(n) => write!(f, "server-{n}"),
            Self::Worker(n) => write!(f, "worker-{n}"),
            Self::Console => write!(f, "console"),
        }
    }
}

/// First message of whoever connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Who connects.
    pub agent: Agent,
    /// Which build of planaria it runs; all of a run must be the same.
    pub build: String,
    /// Its process.
    pub pid: u32,
    /// Where a server listens for workers.
    pub address: Option<String>,
}

/// A server and the blocks of parameters it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shelf {
    /// Number of the server.
    pub server: u32,
    /// Where it listens.
    pub address: String,
    /// Its blocks of 4,096 parameters.
    pub blocks: Range<u32>,
}

/// Some steps of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// Epoch.
    pub epoch: u64,
    /// Batches of the epoch.
    pub batches: Range<u64>,
    /// Step, over the whole run, of the first of them.
    pub first_step: u64,
}

impl Steps {
    /// The steps, over the whole run.
    pub fn steps(&self) -> Range<u64> {
        self.first_step..self.first_step + (self.batches.end - self.batches.start)
    }
}

/// Which worker computes which shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Number of the worker.
    pub worker: u32,
    /// Its shards.
    pub shards: Range<u32>,
}

/// A part of the data that is held out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeldOut {
    /// Scored after each epoch.
    Validation,
    /// Scored at the end.
    Test,
}

impl std::fmt::Display for HeldOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Validation => "validation",
            Self::Test => "test",
        })
    }
}

/// From the coordinator to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// All servers are there: connect to them, get ready, and pull the parameters after `step`
    /// steps.
    Begin {
        /// Every server.
        servers: Vec<Shelf>,
        /// Steps that are done.
        step: u64,
    },
    /// Leases: compute these shards of these steps.
    Lease {
        /// The steps, each as soon as its parameters are there.
        steps: Steps,
        /// The shards of each.
        shards: Range<u32>,
    },
    /// Score the parameters after `step` steps on these batches of a held-out part.
    Evaluate {
        /// Which part.
        part: HeldOut,
        /// Whose parameters.
        step: u64,
        /// Batches of [`EVALUATION_BATCH`] examples.
        batches: Range<u64>,
    },
    /// The run is over: end.
    Finish,
}

/// Examples scored at a time. Scores are added up batch by batch, so it is part of the arithmetic.
pub const EVALUATION_BATCH: usize = 256;

/// From a worker to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// Connected to all servers, data opened, parameters pulled.
    Ready {
        /// Engine and instruction set.
        engine: String,
        /// Threads that compute.
        threads: u32,
    },
    /// A lease was worked off.
    Pace {
        /// The step after its last.
        step: u64,
        /// Examples computed.
        examples: u64,
        /// Seconds of computing.
        busy_seconds: f64,
        /// Seconds of waiting for parameters, data or leases.
        waiting_seconds: f64,
    },
    /// Scores of one batch of a held-out part; the bulk is JSON of `planaria_learn::Scores`.
    Evaluated {
        /// Which part.
        part: HeldOut,
        /// Which batch.
        batch: u64,
    },
    /// It cannot go on.
    Failed(Trouble),
}

/// From the coordinator to a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToServer {
    /// Hold these blocks.
    Begin {
        /// The blocks.
        blocks: Range<u32>,
        /// Start from this checkpoint's folder; from the seed when left out.
        checkpoint: Option<String>,
        /// Steps that are done.
        step: u64,
    },
    /// The shares of some steps.
    Round {
        /// The steps.
        steps: Steps,
        /// Who computes which shards of them, in the order of shards.
        shares: Vec<Share>,
    },
    /// All blocks of all servers are summed: scale the gradient by this and update.
    Clip {
        /// The step.
        step: u64,
        /// Factor of the gradient.
        factor: f32,
    },
    /// Every server has applied `step`: its parameters are the run's.
    Commit {
        /// The step.
        step: u64,
    },
    /// Write the parameters after `step` steps, which are committed, to this folder.
    Save {
        /// Steps done.
        step: u64,
        /// An existing folder.
        folder: String,
    },
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
        /// The step.
        step: u64,
    },
    /// The step is applied and waits for its commit. The bulk is as for `Summed`, and empty where
    /// that was sent.
    Applied {
        /// The step.
        step: u64,
    },
    /// Server 0: all shards of the step have been counted.
    Counted {
        /// The step.
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
        /// Since when.
        seconds: f64,
        /// Processor time in them.
        busy_seconds: f64,
        /// Bytes sent to workers.
        bytes_out: u64,
    },
    /// Its part of a checkpoint is on the disk.
    Saved {
        /// Steps done.
        step: u64,
        /// Name of the file in the folder.
        file: String,
        /// Its SHA-256.
        sha256: String,
        /// Its length.
        bytes: u64,
    },
    /// Its part of a checkpoint could not be written.
    NotSaved {
        /// Steps done.
        step: u64,
        /// Why.
        why: String,
    },
    /// It cannot go on.
    Failed(Trouble),
}

/// From a worker to a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Push {
    /// Send me the parameters after `step` steps.
    Pull {
        /// Steps done.
        step: u64,
    },
    /// Send me the state after `step` steps (asked of server 0).
    State {
        /// Steps done.
        step: u64,
    },
    /// A part of a step's gradient, summed over shards `first_shard..first_shard + shards`, which
    /// are a subtree. The bulk is f32: the values of whole blocks, one after another.
    Gradient {
        /// The step.
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
        /// The step.
        step: u64,
        /// The shard.
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
}

/// From a console to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromConsole {
    /// Send me all events from now on, and pulses.
    Watch,
    /// End the run as soon as everything is saved.
    Stop {
        /// Why, in words.
        reason: String,
    },
    /// A process that the console started has ended without being told to.
    Ended {
        /// Which.
        agent: Agent,
        /// How: `killed by signal 9`, `exit code 1`.
        how: String,
    },
}

/// From the coordinator to a console.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToConsole {
    /// Something happened. The bulk is the JSON of an [`Event`].
    Event,
    /// Where the run is at this moment. The bulk is the JSON of a [`crate::event::Pulse`].
    Pulse,
    /// The run is over.
    Finish,
}

/// Why a process cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What failed, which value, where.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether the user must change something (and not try again).
    pub fix_input: bool,
}

impl Trouble {
    /// Something failed; trying again may help.
    pub fn new(what: impl std::fmt::Display) -> Self {
        Self { message: what.to_string(), hint: None, fix_input: false }
    }
}

/// An event as it crosses the wire.
pub fn event_bulk(event: &Event) -> Vec<u8> {
    serde_json::to_vec(event).expect("an event has string keys only")
}
