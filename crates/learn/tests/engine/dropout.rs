//! Dropout: how much is zeroed, and what the masks depend on. Seen from outside: under one dense
//! layer with kernel 1 the gradient of each weight is its dropped input.

use crate::support::*;
use planaria_learn::engines::cpu::CpuTrainer;
use planaria_learn::{Examples, Isa, Network, Settings, Targets, Trainer, Weights};
use planaria_recipe::Shape;
use planaria_recipe::train::{Loss, Optimizer, Sgd};

const WIDTH: usize = 4_001;

/// The mask (0, or what survivors are multiplied by) of each input of one example at `step`.
/// `shard` of 3 holds the only example that counts.
fn mask(rate: f32, seed: u64, step: u64, shard: usize) -> Vec<f32> {
    let layers = [dropout(rate), dense(1, Linear)];
    let network = Network::new(&layers, Shape::Vector(WIDTH)).expect("the layers fit");
    let sgd = Sgd { learning_rate: 1.0, momentum: 0.5, nesterov: false, weight_decay: 0.0 };
    let mut trainer = CpuTrainer::new(
        network,
        Settings {
            seed,
            batch: 3,
            shards: 3,
            threads: 2,
            loss: Loss::Mse,
            label_smoothing: 0.0,
            optimizer: Optimizer::Sgd(sgd),
            clip_norm: None,
            isa: Some(Isa::detect()),
        },
    );
    let (parameters, slot) = (vec![0.0; WIDTH + 1], vec![0.0; WIDTH + 1]);
    let start = Weights { parameters, state: vec![], optimizer: vec![slot] };
    trainer.restore(&start).expect("the weights fit");
    // The output is 0; the gradient of (output + 1.5)² is 3, of the others' 0; the mean is over 3.
    let mut targets = [0.0; 3];
    targets[shard] = -1.5;
    let inputs = vec![1.0; 3 * WIDTH];
    let examples = Examples { inputs: &inputs, targets: Targets::Values(&targets) };
    trainer.step(step, 1.0, examples).expect("the step is finite");
    trainer.weights().optimizer[0][..WIDTH].to_vec()
}

fn zeros(mask: &[f32]) -> f64 {
    mask.iter().filter(|v| **v == 0.0).count() as f64 / mask.len() as f64
}

/// Share of inputs that two masks treat alike.
fn alike(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len() as f64
}

#[test]
fn zeroes_its_share_and_scales_the_rest() {
    for rate in [0.0f32, 0.1, 0.25, 0.5, 0.9, 0.999] {
        let mask = mask(rate, 1, 0, 0);
        let share = zeros(&mask);
        let deviation = (f64::from(rate * (1.0 - rate)) / WIDTH as f64).sqrt();
        assert!((share - f64::from(rate)).abs() <= 4.5 * deviation, "rate {rate}: {share}");
        let wanted = 1.0 / (1.0 - rate);
        for v in mask.iter().filter(|v| **v != 0.0) {
            assert!((v - wanted).abs() <= 1e-5 * wanted, "rate {rate}: survivor is {v}");
        }
    }
}

#[test]
fn masks_repeat_by_seed_step_and_shard_and_differ_otherwise() {
    let base = mask(0.5, 1, 3, 1);
    assert_eq!(base, mask(0.5, 1, 3, 1));
    for (what, other) in [
        ("seed", mask(0.5, 2, 3, 1)),
        ("step", mask(0.5, 1, 4, 1)),
        ("far step", mask(0.5, 1, 3 + (1 << 32), 1)),
        ("shard", mask(0.5, 1, 3, 2)),
    ] {
        let share = alike(&base, &other);
        assert!((share - 0.5).abs() < 0.04, "another {what} shares {share} of the mask");
    }
}

#[test]
fn neighbouring_values_are_independent() {
    let mask = mask(0.5, 5, 0, 0);
    for lag in [1, 2, 3, 4, 8, 16] {
        let share = alike(&mask[lag..], &mask[..WIDTH - lag]);
        assert!((share - 0.5).abs() < 0.04, "lag {lag}: {share}");
    }
}

/// Two dropouts one after another: a value survives both with the product of the shares.
#[test]
fn layers_draw_on_their_own() {
    let layers = [dropout(0.5), dropout(0.5), dense(1, Linear)];
    let network = Network::new(&layers, Shape::Vector(WIDTH)).expect("the layers fit");
    let sgd = Sgd { momentum: 0.5, ..Sgd::default() };
    let mut trainer = CpuTrainer::new(
        network,
        Settings {
            seed: 1,
            batch: 2,
            shards: 1,
            threads: 1,
            loss: Loss::Mse,
            label_smoothing: 0.0,
            optimizer: Optimizer::Sgd(sgd),
            clip_norm: None,
            isa: None,
        },
    );
    let inputs = [vec![1.0; WIDTH], vec![0.0; WIDTH]].concat();
    let examples = Examples { inputs: &inputs, targets: Targets::Values(&[900.0, 0.0]) };
    trainer.step(0, 0.0, examples).expect("the step is finite");
    let share = zeros(&trainer.weights().optimizer[0][..WIDTH]);
    assert!((share - 0.75).abs() < 0.03, "{share}");
}

/// Examples of one shard have masks of their own.
#[test]
fn examples_draw_on_their_own() {
    let both = |inputs: [f32; 2]| {
        let layers = [dropout(0.5), dense(1, Linear)];
        let network = Network::new(&layers, Shape::Vector(WIDTH)).expect("the layers fit");
        let mut trainer = CpuTrainer::new(
            network,
            Settings {
                seed: 1,
                batch: 2,
                shards: 1,
                threads: 1,
                loss: Loss::Mse,
                label_smoothing: 0.0,
                optimizer: Optimizer::Sgd(Sgd { momentum: 0.5, ..Sgd::default() }),
                clip_norm: None,
                isa: None,
            },
        );
        let inputs: Vec<f32> = inputs.iter().flat_map(|v| vec![*v; WIDTH]).collect();
        let examples = Examples { inputs: &inputs, targets: Targets::Values(&[900.0, 900.0]) };
        trainer.step(0, 0.0, examples).expect("the step is finite");
        let gradient = trainer.weights().optimizer[0][..WIDTH].to_vec();
        gradient.iter().map(|g| f32::from(u8::from(*g != 0.0))).collect::<Vec<f32>>()
    };
    let share = alike(&both([1.0, 0.0]), &both([0.0, 1.0]));
    assert!((share - 0.5).abs() < 0.04, "{share}");
}

#[test]
fn inference_drops_nothing() {
    let run = |layers: &[_]| {
        let network = Network::new(layers, Shape::Vector(9)).expect("the layers fit");
        let mut trainer = CpuTrainer::new(
            network,
            Settings {
                seed: 4,
                batch: 1,
                shards: 1,
                threads: 1,
                loss: Loss::Mse,
                label_smoothing: 0.0,
                optimizer: Optimizer::Sgd(Sgd::default()),
                clip_norm: None,
                isa: None,
            },
        );
        let mut outputs = [0.0; 8];
        trainer.predict(&values(1, 18), &mut outputs);
        outputs
    };
    let with =
        [dropout(0.7), dense(7, Relu), dropout(0.7), dropout(0.2), dense(4, Linear), dropout(0.4)];
    assert_eq!(run(&with), run(&[dense(7, Relu), dense(4, Linear)]));
}
