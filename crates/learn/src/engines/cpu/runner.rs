//! A worker's half of a step: some shards on this process' threads.
//!
//! While the last shards go through their backward pass, blocks of gradients become final one after
//! another. When every shard of the run has passed some blocks, they are summed over each segment
//! of the run (a node of the shards' tree) and handed out, while the pass goes on: by a thread of
//! its own, the sender, so that computing need not wait for sending. Never finishes the tree,
//! updates parameters or knows where gradients go.

use super::Cpu;
use super::packing::Packing;
use super::parts::{Claims, Parts};
use super::predictor::Predictor;
use super::shard::{Draw, Results};
use super::threads::{Meeting, ThreadPool, wait_until};
use super::workspace::{ThreadScratch, Workspace};
use crate::buffer::Buffer;
use crate::engines::cpu::kernels::simd::LANES;
use crate::engines::cpu::program::finals::in_pieces;
use crate::engines::{Engine, Hooks, Ready, Score, Settings, Work};
use crate::loss::Objective;
use crate::network::Network;
use planaria_numerics::aggregate::{BLOCK, shard_range};
use planaria_numerics::tree::{Segment, each_segment, segment_sum_in_place};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

/// Blocks handed out at a time, about: enough that a message costs little beside its content
/// (256 KiB), few enough that threads share the summing of a large layer.
const PIECE: usize = 16;

/// Computes some shards of each step, and says which blocks are ready while it goes on.
pub struct CpuEngine {
    engine: Cpu,
    settings: Settings,
    pool: ThreadPool,
    packed: Buffer,
    packing: Packing,
    pieces: Pieces,
    /// Wakes the sender; nothing where all is handed out at the end of the pass.
    wakeup: Option<Wakeup>,
    /// Packing, shards and pieces, taken anew each round.
    claims: [Claims; 3],
    round: usize,
    workspaces: Vec<Workspace>,
    threads: Vec<ThreadScratch>,
    /// Shards of the last step computed.
    run: Range<usize>,
    segments: Vec<Segment>,
    /// Gradients of the run's shards, `stride` apart.
    gradients: Buffer,
    stride: usize,
    /// Statistics of the run's shards, one after another.
    stats: Vec<f32>,
    scores: Vec<Score>,
    predictor: Predictor,
}

/// What is handed out together, and how far the shards have come.
struct Pieces {
    blocks: Vec<Range<usize>>,
    /// Which of `blocks` are final after each stage.
    of_stage: Vec<Range<usize>>,
    /// Shards that have passed each stage.
    passed: Vec<AtomicUsize>,
    /// The last stage after which something is final.
    last: usize,
}

/// Wakes a thread that waits for shards to pass a stage.
#[derive(Default)]
struct Wakeup {
    lock: Mutex<()>,
    notified: Condvar,
}

impl Wakeup {
    fn notify(&self) {
        drop(self.lock.lock().expect("no thread panics with the wakeup"));
        self.notified.notify_one();
    }

    fn wait_until(&self, done: impl Fn() -> bool) {
        let mut lock = self.lock.lock().expect("no thread panics with the wakeup");
        while !done() {
            lock = self.notified.wait(lock).expect("no thread panics with the wakeup");
        }
    }
}

impl Pieces {
    fn new(engine: &Cpu) -> Self {
        let (mut blocks, mut of_stage) = (vec![], vec![]);
        for pieces in in_pieces(&engine.compiled.finals, PIECE) {
            let from = blocks.len();
            blocks.extend(pieces);
            of_stage.push(from..blocks.len());
        }
        let passed = of_stage.iter().map(|_| AtomicUsize::new(0)).collect();
        let last = of_stage.iter().rposition(|pieces| !pieces.is_empty()).unwrap_or(0);
        Self { blocks, of_stage, passed, last }
    }

    /// Whether something is final before the end of the pass.
    fn come_early(&self) -> bool {
        self.of_stage[..self.last].iter().any(|pieces| !pieces.is_empty())
    }
}

impl CpuEngine {
    /// For the network and settings that a [`super::trainer::CpuTrainer`] of the whole step would
    /// have; `optimizer` and `clip_norm` are not used.
    pub fn new(network: Network, settings: Settings) -> Self {
        let objective =
            Objective { loss: settings.loss, label_smoothing: settings.label_smoothing };
        let engine = Cpu::new(network, objective, settings.isa);
        let threads = settings.threads.clamp(1, 1024);
        let packing = Packing::new(&engine.compiled);
        let pieces = Pieces::new(&engine);
        let wakeup = pieces.come_early().then(Wakeup::default);
        Self {
            pool: ThreadPool::new(threads + usize::from(wakeup.is_some())),
            packed: Buffer::new(engine.compiled.packed_len),
            claims: [packing.len(), settings.shards, pieces.blocks.len()].map(Claims::new),
            packing,
            pieces,
            wakeup,
            round: 0,
            workspaces: vec![],
            threads: (0..=threads)
                .map(|_| ThreadScratch::new(&engine.compiled, settings.shards))
                .collect(),
            run: 0..0,
            // A run needs at most two segments of each size.
            segments: Vec::with_capacity(2 * usize::BITS as usize),
            gradients: Buffer::new(0),
            stride: engine.network.parameter_count().next_multiple_of(LANES),
            stats: vec![],
            scores: vec![],
            predictor: Predictor::new(),
            engine,
            settings,
        }
    }

    fn computing(&self) -> usize {
        self.pool.threads() - usize::from(self.wakeup.is_some())
    }

    /// Makes room for a run; allocates only where it is longer than all before.
    fn prepare(&mut self, run: Range<usize>) {
        self.round += 1;
        self.pieces.passed.iter_mut().for_each(|passed| *passed.get_mut() = 0);
        if run == self.run {
            return;
        }
        self.segments.clear();
        self.segments.extend(each_segment(self.settings.shards, run.clone()));
        let capacity = self.settings.batch.div_ceil(self.settings.shards);
        while self.workspaces.len() < self.computing().min(run.len()) {
            self.workspaces.push(self.engine.workspace(capacity));
        }
        if self.gradients.len() < run.len() * self.stride {
            self.gradients = Buffer::new(run.len() * self.stride);
        }
        self.stats.resize(run.len() * self.engine.network.stats_count(), 0.0);
        self.scores.resize(run.len(), Score::default());
        self.run = run;
    }
}

impl Engine for CpuEngine {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn network(&self) -> &Network {
        &self.engine.network
    }

    fn objective(&self) -> Objective {
        self.engine.objective
    }

    fn threads(&self) -> usize {
        self.computing()
    }

    fn compute(&mut self, work: Work<'_>, Hooks { ready, is_over }: Hooks<'_>) -> usize {
        let Work { step, parameters, shards: run, examples_in_step, batch } = work;
        let all = self.settings.shards;
        let count = self.engine.network.parameter_count();
        assert!(examples_in_step <= self.settings.batch, "a batch has at most `batch` examples");
        assert!(run.end <= all, "a run is of the shards there are");
        assert_eq!(parameters.len(), count, "the network's parameters");
        self.prepare(run.clone());
        if run.is_empty() {
            return 0;
        }
        // Shards lie one after another in a batch.
        let first = shard_range(examples_in_step, all, run.start).start;
        let examples = shard_range(examples_in_step, all, run.end - 1).end - first;
        let given = batch.inputs.len() / self.engine.network.input().len();
        assert_eq!(given, examples, "the examples of the run's shards");

        let (round, threads) = (self.round, self.computing());
        let [packs, shards, pieces] = &self.claims;
        let packed = Parts::new(&mut self.packed, 1);
        let scratches = Parts::new(&mut self.threads, 1);
        let workspaces = Parts::new(&mut self.workspaces, 1);
        let stats_count = self.engine.network.stats_count();
        let stats = Parts::new(&mut self.stats, 1);
        let scores = Parts::new(&mut self.scores, 1);
        let (engine, settings, packing) = (&self.engine, &self.settings, &self.packing);
        let counter = Counter {
            shards: all,
            parameters: count,
            run: run.clone(),
            segments: &self.segments,
            pieces: &self.pieces,
            claims: pieces,
            round,
            gradients: Parts::new(&mut self.gradients, self.stride),
            stride: self.stride,
            wakeup: self.wakeup.as_ref(),
            ready,
            left_out: AtomicUsize::new(0),
        };
        let meeting = Meeting::default();
        let workers = threads.min(run.len());
        self.pool.run(|thread| {
            // SAFETY (all of this closure): each part is written by the one thread that took its
            // number; packed weights are read after a meeting; gradients are `Counter`'s matter.
            let scratch = unsafe { &mut scratches.part(thread)[0] };
            if thread == threads {
                return counter.carry(&mut scratch.sum);
            }
            packs.share(round, thread, threads, |task| unsafe {
                let (isa, compiled) = (engine.isa, &engine.compiled);
                packing.run(task, isa, compiled, parameters, &packed, &mut scratch.pack);
            });
            meeting.wait(threads);
            if thread < workers {
                let ws = unsafe { &mut workspaces.part(thread)[0] };
                shards.share_first(run.len(), round, (thread, workers), |index| {
                    if is_over() {
                        return counter.leave_out(&mut scratch.sum);
                    }
                    let shard = run.start + index;
                    let range = shard_range(examples_in_step, all, shard);
                    let examples = engine.part(batch, range.start - first..range.end - first);
                    let draw = Draw { seed: settings.seed, step, shard: shard as u32 };
                    let mut results = Results {
                        gradients: counter.of(shard, 0..count),
                        // SAFETY: as above.
                        stats: unsafe {
                            stats.range(index * stats_count..(index + 1) * stats_count)
                        },
                        score: Score::default(),
                    };
                    // SAFETY: as above.
                    let weights = unsafe { (parameters, packed.all()) };
                    engine.run_shard(ws, weights, examples, draw, &mut results, |stage| {
                        counter.passed(stage, &mut scratch.sum);
                    });
                    // SAFETY: as above.
                    unsafe { scores.part(index)[0] = results.score };
                });
            }
            counter.help(&mut scratch.sum);
        });
        run.len() - counter.left_out.into_inner()
    }

    fn result(&self, shard: usize) -> (Score, &[f32]) {
        let (index, stats) = (shard - self.run.start, self.engine.network.stats_count());
        (self.scores[index], &self.stats[index * stats..(index + 1) * stats])
    }

    fn predict(&mut self, weights: (&[f32], &[f32]), inputs: &[f32], outputs: &mut [f32]) {
        self.predictor.prepare(&self.engine, self.pool.threads(), weights);
        self.predictor.run(&self.engine, &self.pool, inputs, outputs);
    }

    fn forget(&mut self) {
        self.predictor.forget();
    }
}

/// Counts the shards that pass each stage, and hands out what all have passed.
///
/// A shard's gradients are written by the thread that computes it, until their last stage is
/// passed; from when all shards have passed that, by the thread that takes their piece. A count
/// that is full was added to by every shard's thread after its writing (`AcqRel`), so that the
/// thread that sees it sees what they wrote.
struct Counter<'a> {
    shards: usize,
    parameters: usize,
    run: Range<usize>,
    segments: &'a [Segment],
    pieces: &'a Pieces,
    claims: &'a Claims,
    round: usize,
    gradients: Parts<'a, f32>,
    stride: usize,
    wakeup: Option<&'a Wakeup>,
    ready: &'a (dyn Fn(Ready<'_>) + Sync),
    /// Shards that are not computed.
    left_out: AtomicUsize,
}

impl<'a> Counter<'a> {
    /// A shard's gradients of some parameters.
    fn of(&self, shard: usize, range: Range<usize>) -> Parts<'a, f32> {
        let from = (shard - self.run.start) * self.stride;
        self.gradients.view(from + range.start..from + range.end)
    }

    /// A shard is not computed, and nothing is handed out: the thread that finds a count full, with
    /// this shard in it, knows.
    fn leave_out(&self, scratch: &mut Vec<f32>) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
        (0..self.pieces.of_stage.len()).for_each(|stage| self.passed(stage, scratch));
    }

    /// One more shard has passed the stage; with the last one its pieces are handed out, by the
    /// sender while there is more to compute.
    fn passed(&self, stage: usize, scratch: &mut Vec<f32>) {
        if self.pieces.of_stage[stage].is_empty() {
            return;
        }
        let passed = self.pieces.passed[stage].fetch_add(1, Ordering::AcqRel) + 1;
        if passed == self.run.len() {
            match self.wakeup {
                Some(wakeup) if stage < self.pieces.last => wakeup.notify(),
                _ => self.hand_out(stage, scratch),
            }
        }
    }

    /// Hands out what becomes ready before the end of the pass; the sender's part.
    fn carry(&self, scratch: &mut Vec<f32>) {
        let Some(wakeup) = self.wakeup else { return };
        for stage in (0..self.pieces.last).filter(|s| !self.pieces.of_stage[*s].is_empty()) {
            let passed = &self.pieces.passed[stage];
            wakeup.wait_until(|| passed.load(Ordering::Acquire) == self.run.len());
            self.hand_out(stage, scratch);
        }
    }

    /// Takes part in handing out what is left; for a thread that has no more shards.
    fn help(&self, scratch: &mut Vec<f32>) {
        for (stage, pieces) in self.pieces.of_stage.iter().enumerate() {
            if !pieces.is_empty() {
                let passed = &self.pieces.passed[stage];
                wait_until(|| passed.load(Ordering::Acquire) == self.run.len());
                self.hand_out(stage, scratch);
            }
        }
    }

    /// Sums and hands out the pieces of a stage that no thread has taken; all shards have passed it.
    fn hand_out(&self, stage: usize, scratch: &mut Vec<f32>) {
        if self.left_out.load(Ordering::Relaxed) > 0 {
            return;
        }
        for piece in self.pieces.of_stage[stage].clone() {
            if !self.claims.take(self.round, piece) {
                continue;
            }
            let blocks = self.pieces.blocks[piece].clone();
            let range = blocks.start * BLOCK..(blocks.end * BLOCK).min(self.parameters);
            for segment in self.segments {
                for from in range.clone().step_by(BLOCK) {
                    let block = from..(from + BLOCK).min(range.end);
                    self.sum_in_place(*segment, block, scratch);
                }
                let sum = self.of(segment.first, range.clone());
                // SAFETY: the piece is final in every shard, and this thread's since it took it.
                let values = unsafe { sum.all() };
                (self.ready)(Ready { segment: *segment, blocks: blocks.clone(), values });
            }
        }
    }

    /// Sums a segment's gradients of one block into its first shard's.
    fn sum_in_place(&self, segment: Segment, block: Range<usize>, scratch: &mut Vec<f32>) {
        let len = block.len();
        let sum = self.of(segment.first, block.clone());
        // SAFETY: as in `hand_out`; the others of the segment are other shards.
        unsafe {
            let other = |shard: usize| self.of(shard, block.clone()).read(0..len);
            segment_sum_in_place(self.shards, segment, other, sum.range(0..len), scratch);
        }
    }
}
