//! A block of gradients that is announced final does not change any more, and every block is
//! announced once. By brute force: all gradients are looked at after every stage.

use crate::runner::deep;
use crate::same_bits::{Run, runs, sgd};
use crate::support::*;
use planaria_learn::engines::cpu::{Cpu, Draw};
use planaria_learn::{Examples, Network, Objective, Targets};
use planaria_numerics::aggregate::BLOCK;
use planaria_recipe::{Layer, Shape};

/// Networks of every operation that writes gradients, with blocks that several layers share and
/// layers of several blocks.
fn networks() -> Vec<(&'static str, Run)> {
    let layers = vec![
        conv3(3, Same, Relu),
        max_pool([2, 2], [2, 2], Valid),
        layer_norm(),
        flatten(),
        dense(500, Gelu),
        layer_norm(),
        dense(40, Tanh),
        batch_norm(),
        residual(vec![dense(40, Relu), layer_norm()], vec![dense(40, Linear)], Relu),
        dense(3, Linear),
    ];
    let mixed = Run::new(image(10, 10, 3), layers, sgd(), None);
    // Biases and the like so long that they have blocks of their own: a whole one lies in any run
    // of two blocks less one.
    let long = 2 * BLOCK + 16;
    let end = || vec![flatten(), dense(3, Linear)];
    let bias = [vec![Layer::Conv2D(conv(long, [1, 1])), act(Tanh), global()], end()].concat();
    let pooled = vec![conv3(long, Valid, Relu), max_pool([2, 2], [2, 2], Valid)];
    let layer = [vec![dense(long, Linear), layer_norm()], end()[1..].to_vec()].concat();
    let batch = [vec![dense(long, Linear), batch_norm()], end()[1..].to_vec()].concat();
    let long = [
        ("deep", deep()),
        ("mixed", mixed),
        ("long bias", Run::new(image(2, 2, 1), bias, sgd(), None)),
        ("long pooled bias", Run::new(image(4, 4, 16), [pooled, end()].concat(), sgd(), None)),
        ("long layer norm", Run::new(Shape::Vector(5), layer, sgd(), None)),
        ("long batch norm", Run::new(Shape::Vector(5), batch, sgd(), None)),
    ];
    runs().into_iter().chain(long).collect()
}

#[test]
fn final_blocks_stay_as_they_are() {
    for (name, run) in networks() {
        let network = Network::new(&run.layers, run.input).expect("the layers fit");
        let settings = &run.settings;
        let objective = Objective { loss: settings.loss, label_smoothing: 0.1 };
        let (parameters, _) = network.initialise(3);
        let engine = Cpu::new(network, objective, None);
        let (mut ws, mut out) = (engine.workspace(5), engine.shard_gradient());
        // What an earlier step has left.
        out.gradients.fill(7.5);
        let mut packed = planaria_learn::Buffer::new(0);
        engine.pack(&parameters, &mut packed);
        for examples in [5, 0, 1] {
            let inputs = values(9, examples * run.input.len());
            let classes = classes(10, examples, 3);
            let batch = Examples { inputs: &inputs, targets: Targets::Classes(&classes) };
            let draw = Draw { seed: 1, step: 2, shard: 3 };
            let mut seen: Vec<Vec<f32>> = vec![];
            let weights = (parameters.as_slice(), &*packed);
            engine.gradient_by_stage(&mut ws, weights, batch, draw, &mut out, |stage, g| {
                assert_eq!(stage, seen.len());
                seen.push(g.to_vec());
            });
            check(name, engine.finals(), &seen);
            // The last look is the result.
            assert_eq!(seen.last().expect("there are stages").as_slice(), &*out.gradients);
            let mut plain = engine.shard_gradient();
            engine.gradient(&mut ws, weights, batch, draw, &mut plain);
            assert_eq!(bits_of(&plain.gradients), bits_of(&out.gradients), "{name}");
        }
    }
}

fn check(name: &str, finals: &[Vec<std::ops::Range<usize>>], seen: &[Vec<f32>]) {
    assert_eq!(finals.len(), seen.len(), "{name}: a list for each stage");
    let last = seen.last().expect("there are stages");
    let mut announced = vec![0; last.len().div_ceil(BLOCK)];
    for (stage, ranges) in finals.iter().enumerate() {
        for block in ranges.iter().cloned().flatten() {
            announced[block] += 1;
            let range = block * BLOCK..((block + 1) * BLOCK).min(last.len());
            for later in &seen[stage..] {
                assert_eq!(
                    bits_of(&later[range.clone()]),
                    bits_of(&last[range.clone()]),
                    "{name}: block {block} changes after stage {stage}, where it is final"
                );
            }
        }
    }
    assert!(announced.iter().all(|n| *n == 1), "{name}: every block once: {announced:?}");
}

fn bits_of(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn blocks_become_final_as_early_as_they_can() {
    let network = Network::new(
        &[dense(64, Relu), dense(64, Relu), dense(64, Relu), dense(3, Linear)],
        Shape::Vector(256),
    )
    .expect("the layers fit");
    let objective =
        Objective { loss: planaria_recipe::train::Loss::CrossEntropy, label_smoothing: 0.0 };
    let engine = Cpu::new(network, objective, None);
    let lists: Vec<_> =
        engine.finals().iter().filter(|r| !r.is_empty()).flatten().cloned().collect();
    // 256·64 + 64, 64·64 + 64, twice, 64·3 + 3 parameters: blocks of 4096 that layers share are
    // final with the lower layer.
    assert_eq!(lists, [6..7, 5..6, 0..5]);
}
