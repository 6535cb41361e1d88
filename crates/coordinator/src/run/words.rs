//! What a run is given at the beginning, what it is told, and what it answers. Never decides
//! anything.

use super::course::Setup;
use super::record::Record;
use planaria_learn::Scores;
use planaria_numerics::aggregate::{BLOCK, shard_range};
use planaria_protocol::checkpoint::PartInfo;
use planaria_protocol::event::What;
use planaria_protocol::launch::{Facts, Size};
use planaria_protocol::message::{
    Agent, EVALUATION_BATCH, FromServer, FromWorker, HeldOut, Join, Loss, ToServer, ToWorker,
};
use planaria_protocol::state::State;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// What a run is given when it begins.
#[derive(Debug, Clone)]
pub struct Session {
    pub config: Config,
    pub setup: Setup,
    pub origin: Origin,
    /// Seconds of the run that are past at time zero.
    pub seconds_before: f64,
}

/// What does not change in a session, whatever the method.
#[derive(Debug, Clone)]
pub struct Config {
    /// Workers that are wanted to begin with.
    pub workers: u32,
    /// Workers below which the run waits.
    pub workers_min: u32,
    /// Servers that hold parameters; none where the method has none.
    pub servers: u32,
    /// Blocks of parameters in all.
    pub blocks: u32,
    /// Batches to score after an epoch, and at the end.
    pub held_out: [u64; 2],
    /// The build that all members must be.
    pub build: String,
}

impl Config {
    /// What follows from what is known of the data and how many processes there are.
    pub fn of(facts: &Facts, size: Size, build: &str) -> Self {
        let blocks = facts.parameters.div_ceil(BLOCK as u64);
        let batches = |examples: u64| examples.div_ceil(EVALUATION_BATCH as u64);
        Self {
            workers: size.workers,
            workers_min: size.workers_min,
            servers: size.servers,
            blocks: blocks as u32,
            held_out: [batches(facts.validation), batches(facts.test)],
            build: build.to_owned(),
        }
    }

    /// By server: its first parameter and the one after the last, of so many in all.
    pub fn ranges(&self, parameters: u64) -> Vec<Range<u64>> {
        let parameter = |block: u32| (u64::from(block) * BLOCK as u64).min(parameters);
        let range = |server: u32| {
            let blocks = self.blocks_of(server);
            parameter(blocks.start)..parameter(blocks.end)
        };
        (0..self.servers).map(range).collect()
    }

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
    pub after: Option<Loss>,
}

impl Origin {
    /// The record, unless it is from before what was told: steps would count twice.
    pub fn newest_record(&self) -> Option<&Record> {
        self.record.as_ref().filter(|record| record.state.step >= self.told)
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A process has joined.
    Joined(Join),
    /// A process has gone.
    Left(Left),
    /// A worker said something, with its bulk.
    Worker { worker: u32, said: FromWorker, bulk: Vec<u8> },
    /// A worker has scored a batch.
    Scored(Box<Scored>),
    /// A server said something, with the squares that came with it.
    Server(u32, FromServer, Vec<f64>),
    /// The folder of a checkpoint was asked for.
    CheckpointBegun(Begun),
    /// The method's own part of a checkpoint is on the disk; or why not.
    PartWritten { step: u64, written: Result<PartInfo, String> },
    /// A checkpoint's manifest is on the disk, in this folder; or why not.
    ManifestWritten(Result<String, String>),
    /// A stop was asked for.
    Stop(String),
    /// So many workers are wanted from now on.
    Scale(u32),
    /// What the controller tells of machines.
    Report(Box<What>),
    /// Time has passed. Comes at least every tenth of a second, unless the process could not run.
    Tick,
}

impl Input {
    /// A worker said something that has no bulk.
    pub fn worker(worker: u32, said: impl Into<FromWorker>) -> Self {
        Self::Worker { worker, said: said.into(), bulk: Vec::new() }
    }
}

/// A process that has gone: its link has ended, or it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub agent: Agent,
    pub pid: u32,
    /// How that was seen.
    pub how: String,
    /// Whether its supervisor says so, who knows best.
    pub ended: bool,
}

/// Scores of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    pub worker: u32,
    pub part: HeldOut,
    /// Whose parameters it was scored with: after so many steps.
    pub step: u64,
    pub batch: u64,
    pub scores: Scores,
}

/// What came of making a folder for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    pub step: u64,
    /// The folder; or why there is none.
    pub folder: Result<String, String>,
    /// A checkpoint that something has removed.
    pub vanished: Option<String>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Write this where another coordinator finds it, before anything after it is done.
    Keep(Box<Record>),
    /// Keep the method's own state after so many steps where another coordinator finds it.
    KeepState { step: u64, state: Vec<u8> },
    /// Say this to a worker.
    ToWorker { worker: u32, message: ToWorker, bulk: Option<Arc<Vec<u8>>> },
    /// Say this to a server.
    ToServer(u32, ToServer),
    /// Write this down and tell all consoles.
    Record(What),
    /// Make a folder for a checkpoint of these steps, and say `CheckpointBegun`.
    BeginCheckpoint { step: u64 },
    /// Write the method's own part of the checkpoint under way, and say `PartWritten`.
    WritePart { step: u64, snapshot: Arc<Snapshot> },
    /// Remove what was written of a checkpoint that does not come about.
    Abandon,
    /// Write a checkpoint's manifest, and say `ManifestWritten`.
    WriteManifest(Box<Saving>),
    /// Tell the supervisor how many workers are wanted.
    Pool(u32),
    /// Let the supervisor end this process.
    Kill(Agent, u32),
    /// Take the record away: the next coordinator is to go on without it.
    Forget,
    /// This coordinator cannot go on; another is to take its place.
    Restart,
    /// The run is over.
    End,
}

impl Action {
    /// Says something without bulk to a worker.
    pub fn to_worker(worker: u32, message: impl Into<ToWorker>) -> Self {
        Self::ToWorker { worker, message: message.into(), bulk: None }
    }
}

/// An action and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
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
    /// Those that are on the disk.
    pub parts: Vec<Option<PartInfo>>,
}

/// What a method that holds parameters itself writes to a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// A layer's parameters.
    pub parameters: Vec<f32>,
    pub state: Vec<f32>,
}
