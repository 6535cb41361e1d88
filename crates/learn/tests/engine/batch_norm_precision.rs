//! Batch normalisation of values whose mean is large beside their deviation: the variance must not
//! drown in the rounding of squares.

use crate::support::*;
use planaria_learn::engines::cpu::CpuTrainer;
use planaria_learn::{Examples, Network, Settings, Targets, Trainer};
use planaria_recipe::model::BatchNormalization;
use planaria_recipe::train::{Loss, Optimizer, Sgd};
use planaria_recipe::{Layer, Shape};

/// (Running mean, running variance, wanted mean, wanted variance) of channel 0 after one step on
/// values of offset ± spread, with nothing kept of what was before.
fn moments(input: Shape, examples: usize, shards: usize, offset: f32, spread: f32) -> [f64; 4] {
    let norm = Layer::BatchNormalization(BatchNormalization { momentum: 0.0, epsilon: 1e-3 });
    let network = Network::new(&[norm, flatten(), dense(2, Linear)], input).expect("they fit");
    let settings = Settings {
        seed: 1,
        batch: examples,
        shards,
        threads: 1,
        loss: Loss::CrossEntropy,
        label_smoothing: 0.0,
        optimizer: Optimizer::Sgd(Sgd::default()),
        clip_norm: None,
        isa: None,
    };
    let mut trainer = CpuTrainer::new(network, settings);
    let inputs: Vec<f32> =
        values(3, examples * input.len()).iter().map(|v| offset + spread * v).collect();
    let targets = classes(4, examples, 2);
    let batch = Examples { inputs: &inputs, targets: Targets::Classes(&targets) };
    trainer.step(0, 0.0, batch).expect("the step is finite");
    let own: Vec<f64> = inputs.iter().step_by(input.channels()).map(|v| f64::from(*v)).collect();
    let count = own.len() as f64;
    let mean = own.iter().sum::<f64>() / count;
    let variance = own.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (count - 1.0);
    let state = trainer.state();
    [f64::from(state[0]), f64::from(state[input.channels()]), mean, variance]
}

#[test]
fn variance_is_right_far_from_zero() {
    let mut wrong = vec![];
    for (offset, spread) in [(0.0, 1.0), (3.0, 0.1), (10.0, 0.1), (100.0, 1.0), (100.0, 0.1)] {
        for (input, examples, shards) in [
            (Shape::Vector(3), 40, 1),
            (Shape::Vector(17), 40, 8),
            (image(8, 7, 5), 4, 1),
            (image(16, 16, 16), 6, 3),
        ] {
            let [mean, variance, wanted_mean, wanted] =
                moments(input, examples, shards, offset, spread);
            let off = (variance - wanted).abs() / wanted;
            if off > 1e-3 || (mean - wanted_mean).abs() > 1e-6 * f64::from(offset + spread) {
                wrong.push(format!(
                    "{offset} ± {spread}, {input} in {shards} shards: variance {variance}, wanted \
                     {wanted}; mean {mean}, wanted {wanted_mean}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
