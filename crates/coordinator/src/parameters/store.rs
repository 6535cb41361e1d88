//! All chunks of a server, and the step that is being gathered.
//!
//! Threads that bring gradients meet here: whoever completes a chunk sums, updates and hands it
//! out. A gradient of a step whose turn has not come waits at the gate. Knows nothing of links.

use super::chunk::{Arrived, CHUNK, CHUNK_BLOCKS, Chunk, Tree, Update, Values};
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::tree::{Segment, segments};
use planaria_numerics::{optimizer, schedule};
use planaria_protocol::message::{Share, Steps};
use planaria_recipe::train::Train;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Rounds that may be known ahead; the coordinator sends one or two.
const ROUNDS_MAX: usize = 64;

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
        self.blocks.start * BLOCK..(self.blocks.end * BLOCK).min(self.parameters)
    }

    /// Examples of a batch of an epoch.
    fn examples_of(&self, batch: u64) -> u64 {
        let size = self.train.batch as u64;
        self.examples.saturating_sub(batch * size).min(size)
    }

    /// How parameters follow their gradients in a step.
    fn update(&self, step: u64) -> Update<'_> {
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
    steps: Steps,
    /// In order; they tile the shards.
    pub segments: Vec<Segment>,
    /// The worker that sends each segment.
    pub owners: Vec<u32>,
    /// Workers with shards, who get the new parameters.
    pub workers: Vec<u32>,
}

impl Round {
    fn new(shards: usize, steps: Steps, shares: &[Share]) -> Self {
        let (mut list, mut owners) = (vec![], vec![]);
        for share in shares {
            let run = share.shards.start as usize..share.shards.end as usize;
            list.extend(segments(shards, run));
            owners.resize(list.len(), share.worker);
        }
        let with_shards = shares.iter().filter(|s| !s.shards.is_empty());
        Self { steps, segments: list, owners, workers: with_shards.map(|s| s.worker).collect() }
    }

    /// Index of a segment that `worker` sends.
    pub fn segment(&self, worker: u32, segment: Segment) -> Option<usize> {
        let at = self.segments.iter().position(|s| *s == segment)?;
        (self.owners[at] == worker).then_some(at)
    }

    /// The worker that computes a shard.
    pub fn owner(&self, shard: usize) -> Option<u32> {
        let at = self.segments.iter().position(|s| s.range().contains(&shard))?;
        Some(self.owners[at])
    }

    fn batch(&self, step: u64) -> u64 {
        self.steps.batches.start + (step - self.steps.first_step)
    }
}

/// Whether the step being gathered may be added to.
#[derive(Debug)]
struct Gate {
    /// Steps committed: the number of the step being gathered.
    step: u64,
    /// Its round; nothing until the coordinator has planned it.
    round: Option<Arc<Round>>,
    ahead: VecDeque<Arc<Round>>,
    closed: bool,
}

/// What is left to do once a thread's blocks are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More chunks are to come.
    Gathering,
    /// Every chunk is summed and waits for the factor that clips it.
    Summed,
    /// Every chunk is updated.
    Applied,
}

/// The blocks of one server.
#[derive(Debug)]
pub struct Store {
    settings: Settings,
    chunks: Vec<Chunk>,
    /// Chunks of the step being gathered that are not done.
    left: AtomicUsize,
    gate: Mutex<Gate>,
    opened: Condvar,
}

/// Why blocks were not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused<E> {
    /// The sender does not hold this segment in this round.
    #[error("shards {0:?} of step {1} are not this worker's")]
    Segment(Segment, u64),
    /// The blocks are not held here, or their length is wrong.
    #[error("{1} bytes from block {0} on are not whole blocks held here")]
    Blocks(usize, usize),
    /// They had come already.
    #[error("blocks of step {0} came twice")]
    Twice(u64),
    /// The server is ending.
    #[error("the server is ending")]
    Closed,
    /// Reading them failed.
    #[error(transparent)]
    Read(E),
}

impl Store {
    /// The blocks with their values after `step` steps: parameters and each optimizer slot.
    pub fn new(settings: Settings, step: u64, parameters: &[f32], slots: &[Vec<f32>]) -> Self {
        let range = settings.range();
        let count = optimizer::slots(&settings.train.optimizer);
        assert!(parameters.len() == range.len() && slots.len() == count, "values fit the blocks");
        let segments_max = settings.train.shards;
        let chunks: Vec<Chunk> = (0..range.len())
            .step_by(CHUNK)
            .map(|from| {
                let to = (from + CHUNK).min(range.len());
                let chunk = Chunk::new(to - from, count, segments_max);
                let mut values = chunk.values();
                let slot = &mut values.slots[step as usize % 2];
                slot.parameters.copy_from_slice(&parameters[from..to]);
                for (own, saved) in slot.optimizer.iter_mut().zip(slots) {
                    own.copy_from_slice(&saved[from..to]);
                }
                drop(values);
                chunk
            })
            .collect();
        let gate = Gate { step, round: None, ahead: VecDeque::new(), closed: false };
        Self {
            settings,
            chunks,
            left: AtomicUsize::new(0),
            gate: Mutex::new(gate),
            opened: Condvar::new(),
        }
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Steps committed.
    pub fn step(&self) -> u64 {
        self.gate().step
    }

    /// Learns the shares of steps to come.
    pub fn plan(&self, steps: Steps, shares: &[Share]) -> Result<(), String> {
        let shards = self.settings.train.shards;
        let mut next = 0;
        for share in shares {
            if share.shards.start != next || share.shards.end < next {
                return Err(format!("shares {shares:?} do not follow each other"));
            }
            next = share.shards.end;
        }
        if next as usize != shards {
            return Err(format!("shares {shares:?} are not of {shards} shards"));
        }
        let round = Arc::new(Round::new(shards, steps, shares));
        let mut gate = self.gate();
        if gate.ahead.len() == ROUNDS_MAX {
            return Err(format!("more than {ROUNDS_MAX} rounds are planned ahead"));
        }
        gate.ahead.push_back(round);
        self.open(gate);
        Ok(())
    }

    /// The round of the step whose turn it is, if it is this one.
    pub fn round(&self, step: u64) -> Option<Arc<Round>> {
        let gate = self.gate();
        gate.round.clone().filter(|_| gate.step == step)
    }

    /// The step being gathered is every server's: the next one may be added to.
    pub fn commit(&self, step: u64) -> bool {
        let mut gate = self.gate();
        if gate.step != step {
            return false;
        }
        gate.step += 1;
        if gate.round.as_ref().is_some_and(|r| !r.steps.steps().contains(&gate.step)) {
            gate.round = None;
        }
        if gate.round.is_some() {
            // The same shares go on.
            let segments = gate.round.as_ref().map_or(0, |r| r.segments.len());
            self.expect(segments);
            self.opened.notify_all();
            return true;
        }
        self.open(gate);
        true
    }

    /// Nothing more is taken; whoever waits is let go.
    pub fn close(&self) {
        self.gate().closed = true;
        self.opened.notify_all();
    }

    /// The round of a step, as soon as it is that step's turn; nothing if its turn is over.
    pub fn enter<E>(&self, step: u64) -> Result<Option<Arc<Round>>, Refused<E>> {
        let mut gate = self.gate();
        loop {
            if gate.closed {
                return Err(Refused::Closed);
            }
            if step < gate.step {
                return Ok(None);
            }
            if let (true, Some(round)) = (step == gate.step, &gate.round) {
                return Ok(Some(round.clone()));
            }
            gate = self.opened.wait(gate).expect("no thread panics at the gate");
        }
    }

    /// Waits until so many steps are committed; false if more are, or never will be.
    pub fn reach(&self, step: u64) -> bool {
        let mut gate = self.gate();
        while gate.step < step && !gate.closed {
            gate = self.opened.wait(gate).expect("no thread panics at the gate");
        }
        gate.step == step
    }

    /// Takes in blocks of a step's gradient from a worker's segment: `read` is called with one
    /// place after another to fill. `ready` is called with every chunk that is thereby updated: its
    /// first block and its new parameters.
    pub fn gradient<E>(
        &self,
        round: &Round,
        (step, segment): (u64, usize),
        (first_block, bytes): (usize, usize),
        mut read: impl FnMut(&mut [f32]) -> Result<(), E>,
        mut ready: impl FnMut(usize, &[f32]),
    ) -> Result<Progress, Refused<E>> {
        let (mut at, end) = self.local_blocks(first_block, bytes)?;
        let mut progress = Progress::Gathering;
        while at < end {
            let index = at / CHUNK_BLOCKS;
            let chunk = &self.chunks[index];
            let first = at % CHUNK_BLOCKS;
            let count = (end - at).min(chunk.blocks() - first);
            let arrived = chunk.arrive(segment, step, first..first + count, &mut read);
            match arrived.map_err(Refused::Read)? {
                Arrived::Twice => return Err(Refused::Twice(step)),
                Arrived::Waiting => {}
                Arrived::Complete(values) => {
                    progress = self.complete(round, step, index, values, &mut ready);
                }
            }
            at += count;
        }
        Ok(progress)
    }

    /// Updates from gradients that waited for their factor.
    pub fn clip(&self, step: u64, factor: f32, mut ready: impl FnMut(usize, &[f32])) {
        for (index, chunk) in self.chunks.iter().enumerate() {
            let mut values = chunk.values();
            values.clip_and_update(factor, self.settings.update(step));
            ready(self.first_block(index), &values.slots[(step + 1) as usize % 2].parameters);
        }
    }

    /// Appends the sum of squares of each block's gradient.
    pub fn squares(&self, out: &mut Vec<f64>) {
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.values().squares[..chunk.blocks()]);
        }
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// First block of a chunk, and a copy of its parameters after `step` steps, which must be the
    /// committed ones. A copy, so that nobody waits for whoever it is sent to.
    pub fn parameters(&self, chunk: usize, step: u64) -> (usize, Vec<f32>) {
        let values = self.chunks[chunk].values();
        (self.first_block(chunk), values.slots[step as usize % 2].parameters.clone())
    }

    /// A copy of the committed values: parameters and each optimizer slot.
    pub fn snapshot(&self, step: u64) -> (Vec<f32>, Vec<Vec<f32>>) {
        let len = self.settings.range().len();
        let count = optimizer::slots(&self.settings.train.optimizer);
        let mut parameters = Vec::with_capacity(len);
        let mut slots = vec![Vec::with_capacity(len); count];
        for chunk in &self.chunks {
            let values = chunk.values();
            let slot = &values.slots[step as usize % 2];
            parameters.extend_from_slice(&slot.parameters);
            for (to, from) in slots.iter_mut().zip(&slot.optimizer) {
                to.extend_from_slice(from);
            }
        }
        (parameters, slots)
    }

    fn complete(
        &self,
        round: &Round,
        step: u64,
        index: usize,
        mut values: MutexGuard<'_, Values>,
        ready: &mut impl FnMut(usize, &[f32]),
    ) -> Progress {
        let train = &self.settings.train;
        let examples = self.settings.examples_of(round.batch(step));
        let scale = 1.0 / examples.max(1) as f32;
        let tree = Tree { shards: train.shards, segments: &round.segments, scale };
        let clips = train.clip_norm.is_some();
        if clips {
            values.sum(tree);
        } else if values.sum_and_update(tree, self.settings.update(step)) {
            ready(self.first_block(index), &values.slots[(step + 1) as usize % 2].parameters);
        }
        // A gradient that is not finite ends the run: the coordinator sees it in the squares.
        drop(values);
        match (self.left.fetch_sub(1, Ordering::AcqRel), clips) {
            (1, true) => Progress::Summed,
            (1, false) => Progress::Applied,
            _ => Progress::Gathering,
        }
    }

    /// Blocks of this store that `bytes` from a block on are.
    fn local_blocks<E>(&self, first: usize, bytes: usize) -> Result<(usize, usize), Refused<E>> {
        let refused = || Refused::Blocks(first, bytes);
        let range = self.settings.range();
        let start = (first >= self.settings.blocks.start).then_some(first * BLOCK);
        let start = start.filter(|s| *s < range.end).ok_or_else(refused)?;
        let end = start + bytes / 4;
        let whole = bytes > 0 && bytes.is_multiple_of(4);
        if !whole || end > range.end || (!end.is_multiple_of(BLOCK) && end != range.end) {
            return Err(refused());
        }
        let base = self.settings.blocks.start;
        Ok((first - base, end.div_ceil(BLOCK) - base))
    }

    fn first_block(&self, chunk: usize) -> usize {
        self.settings.blocks.start + chunk * CHUNK_BLOCKS
    }

    /// Makes way for the step at the gate if its round is known.
    fn open(&self, mut gate: MutexGuard<'_, Gate>) {
        let step = gate.step;
        while gate.round.is_none() {
            // One that is still to come waits.
            if gate.ahead.front().is_none_or(|next| next.steps.first_step > step) {
                break;
            }
            let Some(next) = gate.ahead.pop_front() else { break };
            if next.steps.steps().contains(&step) {
                self.expect(next.segments.len());
                gate.round = Some(next);
            }
        }
        self.opened.notify_all();
    }

    fn expect(&self, segments: usize) {
        self.left.store(self.chunks.len(), Ordering::Release);
        self.chunks.iter().for_each(|chunk| chunk.expect(segments));
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().expect("no thread panics at the gate")
    }
}
