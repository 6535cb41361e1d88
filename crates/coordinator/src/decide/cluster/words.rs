//! The words a cluster is spoken to and answers in: what it is given at the beginning, what happens,
//! and what is to be done. Never decides anything.

use crate::coded::keeping::Snapshot;
use crate::decide::record::Record;
use planaria_learn::Scores;
use planaria_numerics::aggregate::shard_range;
use planaria_protocol::event::What;
use planaria_protocol::message::{
    Agent, FromServer, FromWorker, HeldOut, Join, ToServer, ToWorker,
};
use planaria_protocol::methods::coded::{Command, Report};
use planaria_protocol::state::State;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// What does not change in a session.
#[derive(Debug, Clone)]
pub struct Config {
    /// Workers that are wanted to begin with.
    pub workers: u32,
    /// Workers below which the run waits.
    pub workers_min: u32,
    /// Servers that hold parameters.
    pub servers: u32,
    /// Shards of each batch.
    pub shards: u32,
    /// Workers beyond the first that compute each shard.
    pub redundancy: u32,
    /// Blocks of parameters in all.
    pub blocks: u32,
    /// Examples of a batch.
    pub batch: u64,
    /// Largest norm of the gradient.
    pub clip_norm: Option<f32>,
    /// Batches to score after an epoch, and at the end.
    pub held_out: [u64; 2],
    /// Which build everyone must be.
    pub build: String,
}

impl Config {
    /// The blocks of a server: about as many each, in order. Where there are too few, the first
    /// servers have one: server 0, which counts, must not be without.
    pub fn blocks_of(&self, server: u32) -> Range<u32> {
        if self.blocks < self.servers {
            return server.min(self.blocks)..(server + 1).min(self.blocks);
        }
        let range = shard_range(self.blocks as usize, self.servers as usize, server as usize);
        range.start as u32..range.end as u32
    }
}

/// Where a run goes on from.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The checkpoint's folder; from the seed without one.
    pub checkpoint: Option<String>,
    /// The run as the checkpoint has it.
    pub state: State,
    /// What a coordinator before this one has left, which is later.
    pub record: Option<Record>,
    /// Steps that count by what this session's events have told: the record may be lost, or be
    /// from before them.
    pub told: u64,
    /// What was lost, where this coordinator takes the place of another in the same session.
    pub after: Option<String>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A process has joined.
    Joined(Join),
    /// A process has gone: its link has ended, or it has.
    Left {
        agent: Agent,
        pid: u32,
        /// How that was seen.
        how: String,
        /// Whether whoever started it says so, who knows best.
        ended: bool,
    },
    /// A worker said something.
    Worker(u32, FromWorker),
    /// A worker of a coded run said something, with its bulk.
    Coded(u32, Report, Vec<u8>),
    /// A worker has scored, with the parameters after so many steps, a batch.
    Scored(u32, HeldOut, u64, u64, Scores),
    /// A server said something, with the squares that came with it.
    Server(u32, FromServer, Vec<f64>),
    /// A checkpoint's manifest is on the disk, in this folder; or why not.
    ManifestWritten(Result<String, String>),
    /// A stop was asked for.
    Stop(String),
    /// So many workers are wanted from now on.
    Scale(u32),
    /// What the controller tells of machines.
    Report(Box<What>),
    /// Time has passed. Comes at least every tenth of a second, unless nobody could run.
    Tick,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Write this where another coordinator finds it, before anything after it is done.
    Keep(Box<Record>),
    /// Say this to a worker.
    ToWorker(u32, ToWorker),
    /// Say this to a worker of a coded run, with this bulk.
    ToCoded(u32, Command, Arc<Vec<u8>>),
    /// Say this to a server.
    ToServer(u32, ToServer),
    /// Write this down and tell everyone who watches.
    Record(What),
    /// Keep the weights of a coded run after so many steps where another coordinator finds them.
    KeepWeights(u64, Vec<u8>),
    /// Write a checkpoint of a coded run.
    SaveWeights(Box<Saving>, Box<Snapshot>),
    /// Make a folder for a checkpoint of these steps and tell every server to write to it.
    Save(u64),
    /// Remove what was written of a checkpoint that does not come about.
    Abandon,
    /// Write a checkpoint's manifest.
    WriteManifest(Box<Saving>),
    /// Tell whoever starts processes how many workers are wanted.
    Pool(u32),
    /// Let whoever started this process end it.
    Kill(Agent, u32),
    /// Take the record away: the next coordinator is to go on without it.
    Forget,
    /// This coordinator cannot go on; another is to take its place.
    Restart,
    /// The run is over.
    End,
}

/// An action and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    pub reason: Cow<'static, str>,
}

/// A checkpoint on its way to the disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saving {
    /// The run as it was.
    pub state: State,
    /// Whether it is the best epoch so far.
    pub is_best: bool,
    /// Why it is written.
    pub reason: String,
    /// By server: file, SHA-256 and length.
    pub parts: Vec<Option<(String, String, u64)>>,
}
