//! All chunks of a server, and the step that is being gathered.
//!
//! Threads that bring gradients meet here: the one that completes a chunk sums, updates and hands it
//! out. A gradient of a step whose turn has not come waits at the gate. Owns when marks are set.
//! Knows nothing of links.

mod copy;
mod round;

pub use copy::Copied;
pub use round::{Round, Settings};

use super::chunk::{Arrived, Bulk, CHUNK, CHUNK_BLOCKS, Chunk, FromLink, Tree, Turn, Values};
use super::region::{Marked, Marks, Pieces, Region, Third};
use super::tally::{Counted, Tally};
use planaria_learn::Statistics;
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::tree::Segment;
use planaria_protocol::message::{Share, Steps};
use planaria_protocol::planted::{self, Planted};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Rounds that may be known ahead; the coordinator sends one or two.
const ROUNDS_MAX: usize = 64;

/// Whether the step being gathered may be added to.
#[derive(Debug)]
struct Gate {
    /// Times the server has begun.
    era: u64,
    /// Steps committed: the number of the step being gathered.
    step: u64,
    /// Its round; nothing until the coordinator has planned it.
    round: Option<Arc<Round>>,
    ahead: VecDeque<Arc<Round>>,
    /// Before the server begins, and at its end.
    is_closed: bool,
}

impl Gate {
    fn turn(&self) -> Turn {
        Turn { era: self.era, step: self.step }
    }
}

/// A step whose turn it is.
#[derive(Debug, Clone)]
pub struct Entered {
    pub turn: Turn,
    /// The segments that are sent for it.
    pub round: Arc<Round>,
}

/// What a step still lacks before it is applied.
#[derive(Debug)]
struct Pending {
    turn: Option<Turn>,
    /// All chunks are one part, and the state is one.
    parts: usize,
    /// The last step whose factor has come: a second one changes nothing.
    clipped: Option<Turn>,
}

/// What the coordinator should have been told of a step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Told {
    /// That every chunk is summed and waits for the factor that clips it.
    pub summed: bool,
    /// What the shards come to.
    pub counted: Option<Counted>,
    /// That everything is updated.
    pub applied: bool,
}

/// What is left to do once a thread's blocks are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More is to come.
    Gathering,
    /// Every chunk is summed and waits for the factor that clips it.
    Summed,
    /// Every chunk is updated, and the state is. The region says so.
    Applied,
}

/// Whether a step is the last that is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    There,
    /// More steps are committed.
    Gone,
    /// The server has ended, or begun anew.
    Over,
}

/// The blocks of one server.
#[derive(Debug)]
pub struct Store {
    settings: Settings,
    marks: Marks,
    chunks: Vec<Chunk>,
    /// On the server that keeps the state.
    tally: Option<Mutex<Tally>>,
    /// Chunks of the step being gathered that are not done.
    left: AtomicUsize,
    pending: Mutex<Pending>,
    gate: Mutex<Gate>,
    opened: Condvar,
    /// The copy; shared with the thread that writes it.
    third: Mutex<Arc<Third>>,
    /// Values that came for what was there already.
    late: AtomicU64,
}

/// Why blocks were not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It is not one of the round's.
    #[error("shards {0:?} of step {1} are no segment of this round")]
    Segment(Segment, u64),
    /// The blocks are not held here, or their length is wrong.
    #[error("{1} bytes from block {0} on are not whole blocks held here")]
    Blocks(usize, usize),
    /// The server is ending, or has begun anew.
    #[error("the server is ending")]
    Closed,
    /// Reading them failed.
    #[error(transparent)]
    Read(#[from] planaria_protocol::Error),
}

impl Store {
    /// The blocks in this region, with nothing in it that counts yet; with statistics, it keeps the
    /// state as well.
    pub fn new(settings: Settings, region: Region, statistics: Option<Statistics>) -> Self {
        assert!(*region.shape() == settings.shape(region.shape().state), "the region fits");
        let segments_max = settings.train.shards;
        let Pieces { marks, runs, state, third } = region.into_pieces(CHUNK);
        let tally = statistics.map(|s| Mutex::new(Tally::new(segments_max, s, state)));
        let gate = Gate { era: 0, step: 0, round: None, ahead: VecDeque::new(), is_closed: true };
        Self {
            settings,
            marks,
            chunks: runs.into_iter().map(|run| Chunk::new(run, segments_max)).collect(),
            tally,
            left: AtomicUsize::new(0),
            pending: Mutex::new(Pending { turn: None, parts: 0, clipped: None }),
            gate: Mutex::new(gate),
            opened: Condvar::new(),
            third: Mutex::new(Arc::new(third)),
            late: AtomicU64::new(0),
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

    /// Times it has begun or ended: messages of an earlier era are refused.
    pub fn era(&self) -> u64 {
        self.gate().era
    }

    /// What its region holds.
    pub fn marked(&self) -> Marked {
        self.marks.read()
    }

    /// Nothing more is taken; waiting threads are let go. The region stays as it is.
    pub fn close(&self) {
        let mut gate = self.gate();
        gate.is_closed = true;
        gate.era += 1;
        gate.round = None;
        gate.ahead.clear();
        // A thread at work in a chunk is done with it, and changes no other after this.
        self.chunks.iter().for_each(|chunk| chunk.expect(None, 0));
        if let Some(mut tally) = self.tally() {
            tally.expect(None);
        }
        self.pending().turn = None;
        self.opened.notify_all();
    }

    fn open_at(&self, step: u64) {
        let mut gate = self.gate();
        gate.step = step;
        gate.is_closed = false;
        self.opened.notify_all();
    }

    /// No server is to go on from the region.
    pub fn remove(&self) {
        self.marks.remove();
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

    /// The step being gathered is every server's: the next one may be added to.
    pub fn commit(&self, step: u64) -> Result<(), String> {
        let mut gate = self.gate();
        if gate.step != step || gate.is_closed {
            return Err(format!("step {step} was committed out of turn"));
        }
        if self.parts() == 0 {
            self.marks.set_applied(step + 1);
        } else if self.marks.read().applied != Some(step + 1) {
            return Err(format!("step {step} was committed before it was applied"));
        }
        self.marks.set_committed(step + 1);
        gate.step += 1;
        if gate.round.as_ref().is_some_and(|r| !r.steps.steps().contains(&gate.step)) {
            gate.round = None;
        }
        if let Some(round) = &gate.round {
            // The same shares go on.
            self.expect(gate.turn(), round.segments.len());
            self.opened.notify_all();
            return Ok(());
        }
        self.open(gate);
        Ok(())
    }

    /// Whether [`Store::enter`] would wait.
    pub fn enter_would_wait(&self, step: u64) -> bool {
        let gate = self.gate();
        !gate.is_closed && (step > gate.step || step == gate.step && gate.round.is_none())
    }

    /// A step, as soon as it is its turn; nothing if its turn is over. A caller of another era is
    /// refused.
    pub fn enter(&self, era: u64, step: u64) -> Result<Option<Entered>, Refused> {
        let mut gate = self.gate();
        loop {
            if gate.is_closed || gate.era != era {
                return Err(Refused::Closed);
            }
            if step < gate.step {
                return Ok(None);
            }
            if let (true, Some(round)) = (step == gate.step, &gate.round) {
                return Ok(Some(Entered { turn: gate.turn(), round: round.clone() }));
            }
            gate = self.opened.wait(gate).expect("no thread panics at the gate");
        }
    }

    /// Whether [`Store::reach`] would wait.
    pub fn reach_would_wait(&self, era: u64, step: u64) -> bool {
        let gate = self.gate();
        !gate.is_closed && gate.era == era && step > gate.step
    }

    /// Waits until so many steps are committed.
    pub fn reach(&self, era: u64, step: u64) -> Reach {
        let mut gate = self.gate();
        loop {
            if gate.is_closed || gate.era != era {
                return Reach::Over;
            }
            if gate.step >= step {
                return if gate.step == step { Reach::There } else { Reach::Gone };
            }
            gate = self.opened.wait(gate).expect("no thread panics at the gate");
        }
    }

    /// Takes in blocks of a step's gradient from a link's segment. `ready` is called with every
    /// chunk that is thereby updated: its first block and its new parameters.
    pub fn gradient(
        &self,
        entered: &Entered,
        from: FromLink,
        first_block: usize,
        bulk: &mut dyn Bulk,
        mut ready: impl FnMut(usize, &[f32]),
    ) -> Result<Progress, Refused> {
        let (mut at, end) = self.local_blocks(first_block, bulk.bytes())?;
        let mut progress = Progress::Gathering;
        let mut is_late = false;
        while at < end {
            let index = at / CHUNK_BLOCKS;
            let chunk = &self.chunks[index];
            let first = at % CHUNK_BLOCKS;
            let count = (end - at).min(chunk.blocks() - first);
            match chunk.arrive(from, entered.turn, first..first + count, bulk)? {
                Arrived::Late => is_late = true,
                Arrived::Waiting => {}
                Arrived::Complete(values) => {
                    progress = self.complete(entered, index, values, &mut ready);
                }
            }
            at += count;
        }
        if is_late {
            self.note_late();
        }
        Ok(progress)
    }

    /// Takes in a shard that is no gradient; says what all of them come to, and how far the step is
    /// with it.
    pub fn count(
        &self,
        turn: Turn,
        shard: usize,
        counted: Counted,
        stats: &[f32],
    ) -> Option<(Counted, Progress)> {
        let mut tally = self.tally()?;
        match tally.count(turn, shard, counted, stats) {
            None => {
                self.note_late();
                None
            }
            Some(false) => None,
            Some(true) => {
                let whole = tally.finish(turn.step);
                drop(tally);
                let is_told = !self.chunks.is_empty();
                let applied = self.part_done(turn) && is_told;
                let progress = if applied { Progress::Applied } else { Progress::Gathering };
                Some((whole, progress))
            }
        }
    }

    /// Updates from gradients that waited for their factor.
    pub fn clip(
        &self,
        step: u64,
        factor: f32,
        mut ready: impl FnMut(usize, &[f32]),
    ) -> Result<Progress, String> {
        let gate = self.gate();
        let turn = gate.turn();
        let is_due = !gate.is_closed && turn.step == step && gate.round.is_some();
        drop(gate);
        if !is_due || self.left.load(Ordering::Acquire) != 0 {
            return Err(format!("step {step} was clipped out of turn"));
        }
        if self.pending().clipped.replace(turn) == Some(turn) {
            // What was told twice is answered twice.
            return Ok(Progress::Gathering);
        }
        for (index, chunk) in self.chunks.iter().enumerate() {
            let mut values = chunk.values();
            values.clip_and_update(factor, self.settings.update(step));
            values.updated = Some(turn);
            ready(self.first_block(index), values.piece.after(step + 1).parameters);
        }
        Ok(if self.part_done(turn) { Progress::Applied } else { Progress::Gathering })
    }

    /// Appends the sum of squares of each block's gradient.
    pub fn squares(&self, out: &mut Vec<f64>) {
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.values().squares[..chunk.blocks()]);
        }
    }

    /// What has not come of a step: segments that lack blocks, and shards not counted. Nothing if
    /// the step is not being gathered.
    pub fn missing(&self, step: u64) -> (Vec<Segment>, Vec<u32>) {
        let gate = self.gate();
        let Some(round) = gate.round.clone().filter(|_| gate.step == step) else {
            return (Vec::new(), Vec::new());
        };
        let turn = gate.turn();
        drop(gate);
        let lacks = |at: usize| self.chunks.iter().any(|chunk| !chunk.has(turn, at));
        let segments = round.segments.iter().enumerate().filter(|(at, _)| lacks(*at));
        let segments = segments.map(|(_, segment)| *segment).collect();
        (segments, self.tally().map_or_else(Vec::new, |tally| tally.missing(turn)))
    }

    /// What the coordinator should know of the step being gathered; nothing of another.
    pub fn told(&self, step: u64) -> Told {
        let gate = self.gate();
        if gate.is_closed || gate.step != step || gate.round.is_none() {
            return Told::default();
        }
        let turn = gate.turn();
        drop(gate);
        let counted = self.tally().and_then(|tally| tally.whole());
        if self.chunks.is_empty() {
            return Told { counted, ..Told::default() };
        }
        let applied = self.marks.read().applied == Some(step + 1);
        let clips = self.settings.train.clip_norm.is_some();
        let is_summed = clips && self.left.load(Ordering::Acquire) == 0;
        let summed = is_summed && self.pending().clipped != Some(turn);
        Told { summed, counted, applied }
    }

    /// A link has ended: what it has brought of a chunk and is not all is forgotten.
    pub fn leave(&self, link: u64) {
        self.chunks.iter().for_each(|chunk| chunk.leave(link));
    }

    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Answers that came for what was there already, since this was last asked.
    pub fn take_late(&self) -> u64 {
        self.late.swap(0, Ordering::Relaxed)
    }

    /// Something came for what was there already.
    pub fn note_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    fn complete(
        &self,
        entered: &Entered,
        index: usize,
        mut values: MutexGuard<'_, Values>,
        ready: &mut impl FnMut(usize, &[f32]),
    ) -> Progress {
        let Entered { turn, round } = entered;
        let (train, step) = (&self.settings.train, turn.step);
        let examples = self.settings.examples_of(round.batch(step));
        let scale = 1.0 / examples.max(1) as f32;
        let tree = Tree { shards: train.shards, segments: &round.segments, scale };
        let clips = train.clip_norm.is_some();
        if planted::is(Planted::MarkBeforeValues) {
            self.marks.set_applied(step + 1);
        }
        if clips {
            values.sum(tree);
        } else if values.sum_and_update(tree, self.settings.update(step)) {
            values.updated = Some(*turn);
            ready(self.first_block(index), values.piece.after(step + 1).parameters);
        }
        // A gradient that is not finite ends the run: the coordinator sees it in the squares.
        // Counted while the chunk is held, so that no other turn's chunk can be meant.
        let is_last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        drop(values);
        match (is_last, clips) {
            (true, true) => Progress::Summed,
            (true, false) if self.part_done(*turn) => Progress::Applied,
            _ => Progress::Gathering,
        }
    }

    /// Blocks of this store that `bytes` from a block on are.
    fn local_blocks(&self, first: usize, bytes: usize) -> Result<(usize, usize), Refused> {
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
                self.expect(gate.turn(), next.segments.len());
                gate.round = Some(next);
            }
        }
        self.opened.notify_all();
    }

    /// Starts gathering; the gate is held.
    fn expect(&self, turn: Turn, segments: usize) {
        self.chunks.iter().for_each(|chunk| chunk.expect(Some(turn), segments));
        self.left.store(self.chunks.len(), Ordering::Release);
        if let Some(mut tally) = self.tally() {
            tally.expect(Some(turn));
        }
        *self.pending() = Pending { turn: Some(turn), parts: self.parts(), clipped: None };
    }

    /// What must be done before a step is applied: the chunks, and the state.
    fn parts(&self) -> usize {
        usize::from(!self.chunks.is_empty()) + usize::from(self.tally.is_some())
    }

    /// One of a step's parts is done. Says whether the step is applied with it, and marks it.
    fn part_done(&self, turn: Turn) -> bool {
        let mut pending = self.pending();
        if pending.turn != Some(turn) {
            return false;
        }
        pending.parts = pending.parts.saturating_sub(1);
        if pending.parts > 0 {
            return false;
        }
        pending.turn = None;
        self.marks.set_applied(turn.step + 1);
        true
    }

    fn tally(&self) -> Option<MutexGuard<'_, Tally>> {
        let tally = self.tally.as_ref()?;
        Some(tally.lock().expect("no thread panics with the tally"))
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("no thread panics with what is pending")
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().expect("no thread panics at the gate")
    }
}
