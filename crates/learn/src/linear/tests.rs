//! Steps of the reference: losses fall, precisions agree, checkpoints come back, batches cover all.

use super::*;
use crate::loss::Targets;
use planaria_numerics::coding::exact::DataScale;
use planaria_numerics::random::{Purpose, Stream};
use planaria_recipe::train::{Adam, Coded, LinearPrecision, Method, Optimizer, Rmsprop, Sgd};
use std::ops::Range;

const ROWS: usize = 203;
const FEATURES: usize = 9;

fn model(task: Task) -> Model {
    Model { task, features: FEATURES, bias: true, class_weights: vec![] }
}

/// Binary features, and labels that follow from them but for some noise.
fn examples(classes: u64) -> (Vec<f32>, Vec<u32>) {
    let mut draws = Stream::new(5, Purpose::Test, classes, 0);
    let x: Vec<f32> = (0..ROWS * FEATURES).map(|_| draws.below(2) as f32).collect();
    let class = |row: &[f32]| {
        let ones = row.iter().take(4).sum::<f32>() as u64;
        (ones * classes / 5 + u64::from(draws.below(10) == 0)).min(classes - 1) as u32
    };
    let y = x.chunks_exact(FEATURES).map(class).collect();
    (x, y)
}

fn train(batch: usize) -> Train {
    let (threshold, machines, precision) = (4, 8, LinearPrecision::F64);
    let coded = Some(Coded { threshold, machines, precision, scale: None });
    Train { method: Method::Coded, coded, batch, ..Train::default() }
}

/// Weights after some steps, and the loss before the first and the last.
fn learn(
    model: &Model,
    precision: LinearPrecision,
    optimizer: &Optimizer,
    batch: usize,
    steps: u64,
) -> (Weights, f64, f64) {
    let (x, y) = examples(model.columns().max(2) as u64);
    let targets = model.targets(Targets::Classes(&y));
    let push = |is_kept: bool| {
        let mut plain = Plain::new(model, precision, DataScale(1), is_kept);
        plain.push(&x[..FEATURES * 7], &targets[..7]).unwrap();
        plain.push(&x[FEATURES * 7..], &targets[7..]).unwrap();
        plain
    };
    let (plain, unkept) = (push(true), push(false));
    let mut read =
        |rows: Range<usize>| Some(x[rows.start * FEATURES..rows.end * FEATURES].to_vec());
    let batches = Batches::of(&train(batch), ROWS).unwrap();
    let stepping = Stepping::new(optimizer, 1e-3, Some(5.0));
    let mut weights = Weights::start(model, &stepping);
    let mut losses = Vec::new();
    for step in 0..steps {
        let at = step as usize % batches.len();
        let summed = plain.sum(model, &weights.values, &batches, at, &mut |_| None).unwrap();
        let again = unkept.sum(model, &weights.values, &batches, at, &mut read).unwrap();
        assert_eq!(again, summed, "rows that are read again give the same");
        let failed = unkept.sum(model, &weights.values, &batches, at, &mut |_| None);
        assert!(matches!(failed, Err(plain::Fault::Unread)));
        let rows = summed.outcome.rows;
        losses.push(summed.outcome.loss_sum.value() / rows as f64);
        weights.step(model, &stepping, step, 0.05, rows, &summed.sums).unwrap();
    }
    (weights, losses[0], losses[losses.len() - 1])
}

const TASKS: [Task; 5] = [
    Task::LinearRegression,
    Task::Logistic,
    Task::SquaredHinge,
    Task::Hinge,
    Task::Softmax { classes: 3 },
];

fn momentum() -> Optimizer {
    Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::default() })
}

#[test]
fn every_task_learns_in_every_precision() {
    for task in TASKS {
        let model = model(task);
        let (f64s, first, last) = learn(&model, LinearPrecision::F64, &momentum(), ROWS, 100);
        assert!(last < 0.8 * first, "{task:?}: {first} to {last}");
        let far = |precision: LinearPrecision| {
            let (other, ..) = learn(&model, precision, &momentum(), ROWS, 100);
            let top = f64s.values.iter().fold(0.0f64, |top, w| top.max(w.abs()));
            let pairs = f64s.values.iter().zip(&other.values);
            pairs.fold(0.0f64, |far, (a, b)| far.max((a - b).abs())) / top
        };
        if task != Task::Hinge {
            assert!(
                far(LinearPrecision::Exact) < 1e-9,
                "{task:?}: {}",
                far(LinearPrecision::Exact)
            );
            assert!(far(LinearPrecision::F32) < 1e-4, "{task:?}: {}", far(LinearPrecision::F32));
        }
    }
}

#[test]
fn every_optimizer_learns_with_small_batches() {
    for optimizer in [
        Optimizer::Sgd(Sgd::default()),
        momentum(),
        Optimizer::Sgd(Sgd { momentum: 0.9, nesterov: true, ..Sgd::default() }),
        Optimizer::Adam(Adam::default()),
        Optimizer::Adamw(Adam { weight_decay: 0.01, ..Adam::default() }),
        Optimizer::Rmsprop(Rmsprop::default()),
        Optimizer::Rmsprop(Rmsprop { momentum: 0.5, ..Rmsprop::default() }),
    ] {
        let (_, first, last) =
            learn(&model(Task::SquaredHinge), LinearPrecision::F64, &optimizer, 50, 400);
        assert!(last < 0.8 * first, "{optimizer:?}: {first} to {last}");
    }
}

#[test]
fn a_checkpoint_holds_every_bit() {
    for task in TASKS {
        let model = model(task);
        let (weights, ..) = learn(&model, LinearPrecision::F64, &momentum(), ROWS, 10);
        let stepping = Stepping::new(&momentum(), 0.0, None);
        let back = Weights::restore(&model, &stepping, &weights.state()).unwrap();
        assert_eq!(back, weights);
        assert!(Weights::restore(&model, &stepping, &weights.weight_state()).is_err());
        let parameters = weights.parameters(&model);
        let columns = model.columns();
        assert_eq!(parameters.len(), model.weights());
        assert_eq!(parameters[FEATURES * columns], weights.values[FEATURES] as f32, "the bias");
        assert_eq!(parameters[columns], weights.values[1] as f32, "the second feature");
    }
}

#[test]
fn batches_take_every_row_once() {
    for (rows, batch) in [(203, 1_000), (203, 50), (203, 4), (7, 4), (3, 100), (400, 399)] {
        let train = train(batch);
        let batches = Batches::of(&train, rows).unwrap();
        assert_eq!(batches.len(), train.steps_per_epoch(rows), "{rows} by {batch}");
        let mut seen: Vec<usize> =
            (0..batches.len()).flat_map(|b| batches.rows(b)).flatten().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..rows).collect::<Vec<_>>(), "{rows} by {batch}");
    }
}

#[test]
fn class_weights_scale_slopes_and_training_losses() {
    let plain = model(Task::SquaredHinge);
    let heavy = Model { class_weights: vec![1.0, 3.0], ..plain.clone() };
    let (mut a, mut b) = ([0.2, 0.2], [0.2, 0.2]);
    let (one, two) = (plain.judge(&mut a, &[-1.0, 1.0]), heavy.judge(&mut b, &[-1.0, 1.0]));
    assert_eq!((b[0], b[1]), (a[0], 3.0 * a[1]));
    assert!((two.loss_sum.value() - one.loss_sum.value() - 2.0 * 0.8 * 0.8).abs() < 1e-12);
    assert_eq!(one.correct, 1);
}

#[test]
fn a_product_that_overflows_is_no_small_loss() {
    for task in [Task::LinearRegression, Task::Logistic, Task::Hinge, Task::SquaredHinge] {
        for product in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let loss = model(task).outcome(&[product], &[1.0]).loss_sum.value();
            assert_eq!(loss, f64::INFINITY, "{task:?} of {product}");
        }
    }
}

#[test]
fn a_range_that_could_be_left_names_its_feature() {
    let model = model(Task::LinearRegression);
    let mut plain = Plain::new(&model, LinearPrecision::Exact, DataScale(1), true);
    let mut row = vec![0.0; FEATURES];
    row[3] = 4e6;
    plain.push(&row, &[1.0]).unwrap();
    let weights = vec![1.0; model.weights()];
    let batches = Batches::of(&train(1_000), 1).unwrap();
    let refused = match plain.sum(&model, &weights, &batches, 0, &mut |_| None) {
        Err(plain::Fault::Coding(error)) => error,
        other => panic!("{other:?}"),
    };
    let names: Vec<String> = (0..FEATURES).map(|i| format!("f{i}")).collect();
    let text = plain::named(&refused, &names).to_string();
    assert!(text.contains("column 3 is `f3`") && text.contains("2^60"), "{text}");
}
