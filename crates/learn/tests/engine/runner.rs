//! Runners on any cut of the shards, and a server made of `tree_sum_segments`, the optimizer and
//! `Statistics`, leave the same bits as a trainer.

use crate::same_bits::{Run, SIZES, bits, runs, sgd};
use crate::support::*;
use planaria_learn::engines::cpu::CpuEngine;
use planaria_learn::{
    Engine, Examples, Hooks, Network, Ready, Score, Statistics, Targets, Trainer, Weights, Work,
};
use planaria_numerics::aggregate::{self, BLOCK, shard_range};
use planaria_numerics::optimizer;
use planaria_numerics::tree::{Segment, segments, tree_fold, tree_sum_segments};
use planaria_recipe::{Layer, Shape};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Enough parameters for several pieces.
pub fn deep() -> Run {
    let wide = |n| vec![conv3(n, Same, Linear), batch_norm(), act(Relu)];
    let layers = [
        wide(32),
        wide(64),
        vec![residual([wide(64), wide(64)].concat(), vec![], Relu), dropout(0.2)],
        wide(128),
        vec![max_pool([2, 2], [2, 2], Valid), flatten(), dense(80, Relu), dense(3, Linear)],
    ];
    Run::new(image(5, 5, 3), layers.concat(), sgd(), Some(0.7))
}

fn networks() -> Vec<(&'static str, Run)> {
    let mlp: Vec<Layer> = vec![dense(200, Relu), dense(100, Relu), dense(3, Linear)];
    let mlp = Run::new(Shape::Vector(500), mlp, sgd(), None);
    runs().into_iter().chain([("deep", deep()), ("mlp", mlp)]).collect()
}

/// Workers' runs of shards, from where each begins.
fn cut(shards: usize, starts: &[usize]) -> Vec<Range<usize>> {
    let ends = starts.iter().skip(1).copied().chain([shards]);
    starts.iter().copied().zip(ends).map(|(from, to)| from..to).collect()
}

fn cuts(shards: usize) -> Vec<Vec<Range<usize>>> {
    let starts: &[&[usize]] = match shards {
        8 => &[&[0], &[0, 3], &[0, 1, 6], &[0, 1, 2, 5, 7], &[0, 1, 2, 3, 4, 5, 6, 7]],
        // Some workers may have nothing to do.
        _ => &[&[0], &[0, 2], &[0, 0, 4], &[0, 1, 2, 3, 4], &[0, 1, 1, 1, 2, 3, 5, 5]],
    };
    starts.iter().map(|s| cut(shards, s)).collect()
}

/// What servers do, in one place.
struct Server {
    run: Run,
    statistics: Statistics,
    weights: Weights,
}

/// A step's outcome as a trainer gives it: loss, right answers, norm.
type Outcome = (u64, u64, u64);

impl Server {
    fn new(run: &Run) -> Self {
        let network = Network::new(&run.layers, run.input).expect("the layers fit");
        let (parameters, state) = network.initialise(run.settings.seed);
        let slots = optimizer::slots(&run.settings.optimizer);
        let optimizer = vec![vec![0.0; parameters.len()]; slots];
        let statistics = Statistics::new(&network);
        assert_eq!(statistics.len(), network.stats_count());
        let weights = Weights { parameters, state, optimizer };
        Self { run: run.clone(), statistics, weights }
    }

    fn step(&mut self, step: usize, runners: &mut [CpuEngine], shares: &[Range<usize>]) -> Outcome {
        let shards = self.run.settings.shards;
        let all: Vec<Segment> =
            shares.iter().flat_map(|run| segments(shards, run.clone())).collect();
        let count = self.weights.parameters.len();
        // NaN until it has come.
        let sums = Mutex::new(vec![vec![f32::NAN; count]; all.len()]);
        let take = |ready: Ready<'_>| {
            let at = all.binary_search(&ready.segment).expect("a segment of the run");
            let range = ready.blocks.start * BLOCK..(ready.blocks.end * BLOCK).min(count);
            let own = &mut sums.lock().expect("no thread panics")[at][range];
            assert!(own.iter().all(|v| v.is_nan()), "each block comes once");
            own.copy_from_slice(ready.values);
        };
        let (inputs, classes) = self.run.batch(step);
        let n = classes.len();
        let (mut scores, mut stats): (Vec<Score>, Vec<Vec<f32>>) = (vec![], vec![]);
        for (runner, run) in runners.iter_mut().zip(shares) {
            let examples = match run.is_empty() {
                true => 0..0,
                false => {
                    let last = shard_range(n, shards, run.end - 1);
                    shard_range(n, shards, run.start).start..last.end
                }
            };
            let width = self.run.input.len();
            let batch = Examples {
                inputs: &inputs[examples.start * width..examples.end * width],
                targets: Targets::Classes(&classes[examples]),
            };
            let parameters = &self.weights.parameters;
            compute(runner, step as u64, parameters, run.clone(), n, batch, &take);
            for shard in run.clone() {
                let (score, own) = runner.result(shard);
                assert_eq!(shard, scores.len());
                scores.push(score);
                stats.push(own.to_vec());
            }
        }
        let sums = sums.into_inner().expect("no thread panics");
        let norm = self.update(step, n, &all, &sums);
        tree_fold(&mut scores, |a, b| {
            a.loss += b.loss;
            a.correct += b.correct;
        });
        tree_fold(&mut stats, |a, b| self.statistics.merge(a, b));
        self.statistics.update_running(&stats[0], &mut self.weights.state);
        (scores[0].loss.to_bits(), scores[0].correct, norm.to_bits())
    }

    fn update(&mut self, step: usize, n: usize, all: &[Segment], sums: &[Vec<f32>]) -> f64 {
        let (settings, weights) = (&self.run.settings, &mut self.weights);
        let (mut scratch, mut squares) = (vec![], vec![]);
        let mut gradient = vec![0.0; weights.parameters.len()];
        for range in aggregate::blocks(gradient.len()) {
            let value = |i: usize| &sums[i][range.clone()];
            let (scale, out) = (1.0 / n as f32, &mut gradient[range.clone()]);
            let square = tree_sum_segments(settings.shards, all, value, scale, out, &mut scratch);
            squares.push(square);
        }
        let norm = squares.iter().sum::<f64>().sqrt();
        if let Some(limit) = settings.clip_norm {
            let factor = aggregate::clip_factor(norm, limit);
            gradient.iter_mut().for_each(|g| *g *= factor);
        }
        let mut slots: Vec<&mut [f32]> =
            weights.optimizer.iter_mut().map(Vec::as_mut_slice).collect();
        let parameters = &mut weights.parameters;
        let o = &settings.optimizer;
        optimizer::update(o, step as u64, 0.05, parameters, &gradient, &mut slots);
        norm
    }
}

fn work<'a>(
    step: u64,
    parameters: &'a [f32],
    shards: Range<usize>,
    examples_in_step: usize,
    batch: Examples<'a>,
) -> Work<'a> {
    Work { step, parameters, shards, examples_in_step, batch }
}

fn compute(
    engine: &mut CpuEngine,
    step: u64,
    parameters: &[f32],
    shards: Range<usize>,
    examples_in_step: usize,
    batch: Examples<'_>,
    ready: &(dyn Fn(Ready<'_>) + Sync),
) {
    let work = work(step, parameters, shards, examples_in_step, batch);
    engine.compute(work, Hooks { ready, is_over: &|| false });
}

fn runners(run: &Run, count: usize, threads: usize) -> Vec<CpuEngine> {
    let settings = planaria_learn::Settings { threads, ..run.settings.clone() };
    (0..count)
        .map(|_| {
            let network = Network::new(&run.layers, run.input).expect("the layers fit");
            CpuEngine::new(network, settings.clone())
        })
        .collect()
}

/// A trainer's outcome and weights after each step.
fn trained(run: &Run) -> Vec<(Outcome, Weights)> {
    let mut trainer = run.trainer();
    (0..SIZES.len())
        .map(|step| {
            let r = run.step(&mut trainer, step);
            let outcome = (r.loss_sum.to_bits(), r.correct, r.gradient_norm.to_bits());
            (outcome, trainer.weights())
        })
        .collect()
}

fn assert_same(what: &str, found: (Outcome, &Weights), wanted: &(Outcome, Weights)) {
    assert_eq!(found.0, wanted.0, "{what}: loss, right answers, norm");
    let (a, b) = (found.1, &wanted.1);
    assert!(bits(&a.parameters) == bits(&b.parameters), "{what}: parameters");
    assert!(bits(&a.state) == bits(&b.state), "{what}: state");
    for (a, b) in a.optimizer.iter().zip(&b.optimizer) {
        assert!(bits(a) == bits(b), "{what}: optimizer");
    }
}

#[test]
fn any_cut_has_the_bits_of_a_trainer() {
    for (name, mut run) in networks() {
        for shards in [8, 5] {
            run.settings.shards = shards;
            let wanted = trained(&run);
            for (shares, threads) in cuts(shards).iter().flat_map(|c| [(c, 1), (c, 2)]) {
                let mut server = Server::new(&run);
                let mut runners = runners(&run, shares.len(), threads);
                for (step, wanted) in wanted.iter().enumerate() {
                    let outcome = server.step(step, &mut runners, shares);
                    let what = format!("{name}, {shares:?}, {threads} threads, step {step}");
                    assert_same(&what, (outcome, &server.weights), wanted);
                }
            }
        }
    }
}

#[test]
fn shards_may_be_dealt_anew_before_every_step() {
    for (name, run) in networks() {
        let wanted = trained(&run);
        let mut server = Server::new(&run);
        let mut runners = runners(&run, 8, 3);
        for (step, wanted) in wanted.iter().enumerate() {
            // Longer runs, shorter ones and none.
            let shares = &cuts(8)[[4, 1, 3, 2][step]];
            runners.rotate_left(1);
            let outcome = server.step(step, &mut runners, shares);
            assert_same(&format!("{name}, step {step}"), (outcome, &server.weights), wanted);
        }
    }
}

/// Passes in which the sender gets its turn at least once, surely.
const PASSES_MAX: usize = 200;

#[test]
fn pieces_come_while_the_pass_goes_on() {
    let run = deep();
    let mut runner = runners(&run, 1, 1).pop().expect("one was asked for");
    let (parameters, _) = runner.network().initialise(1);
    let (inputs, classes) = run.batch(0);
    let batch = Examples { inputs: &inputs, targets: Targets::Classes(&classes) };
    let total = parameters.len().div_ceil(BLOCK);
    let mut pass = || {
        let calls = Mutex::new(vec![]);
        compute(&mut runner, 0, &parameters, 0..8, classes.len(), batch, &|ready| {
            calls.lock().expect("no thread panics").push(ready.blocks.clone());
        });
        let calls = calls.into_inner().expect("no thread panics");
        assert!((3..=total / 8).contains(&calls.len()), "few messages, not one: {calls:?}");
        assert!(calls.iter().filter(|c| c.len() < 8).count() <= 2, "no crumbs: {calls:?}");
        calls[0].start > total / 3
    };
    // On a busy machine the sender may not get its turn before the end of a pass, but not always.
    assert!((0..PASSES_MAX).any(|_| pass()), "upper layers first");
}

#[test]
fn what_is_given_up_is_not_handed_out_and_leaves_nothing_behind() {
    for (name, run) in networks() {
        for threads in [1, 3] {
            let (mut given_up, mut plain) = (runners(&run, 1, threads), runners(&run, 1, threads));
            let (inputs, classes) = run.batch(0);
            let batch = Examples { inputs: &inputs, targets: Targets::Classes(&classes) };
            let (parameters, _) = plain[0].network().initialise(1);
            for shards in [0, 1, 5] {
                let (asked, handed_out) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let hooks = Hooks {
                    ready: &|_| _ = handed_out.fetch_add(1, Ordering::Relaxed),
                    is_over: &|| asked.fetch_add(1, Ordering::Relaxed) >= shards,
                };
                let n = classes.len();
                let done = given_up[0].compute(work(0, &parameters, 0..8, n, batch), hooks);
                assert_eq!((done, handed_out.into_inner()), (shards, 0), "{name}");
            }
            let all = &cuts(8)[0];
            let after = Server::new(&run).step(0, &mut given_up, all);
            assert_eq!(after, Server::new(&run).step(0, &mut plain, all), "{name}");
        }
    }
}

#[test]
fn predictions_are_those_of_a_trainer() {
    for (name, run) in networks() {
        let mut trainer = run.trainer();
        run.step(&mut trainer, 0);
        let mut runner = runners(&run, 1, 2).pop().expect("one was asked for");
        let inputs = values(5, 37 * run.input.len());
        let (mut a, mut b) = (vec![0.0; 37 * 3], vec![0.0; 37 * 3]);
        // Of other weights first, to be forgotten.
        let (parameters, state) = runner.network().initialise(99);
        runner.predict((&parameters, &state), &inputs, &mut b);
        trainer.predict(&inputs, &mut a);
        runner.forget();
        runner.predict((trainer.parameters(), trainer.state()), &inputs, &mut b);
        assert_eq!(bits(&a), bits(&b), "{name}");
    }
}
