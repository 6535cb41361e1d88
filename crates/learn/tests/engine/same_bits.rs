//! Parameters, state and predictions have the same bits whatever computes them: instruction sets,
//! numbers of threads, with and without a stop in between.

use crate::support::*;
use planaria_learn::engines::cpu::CpuTrainer;
use planaria_learn::{Examples, Isa, Network, Settings, StepResult, Targets, Trainer, Weights};
use planaria_recipe::model::{Conv2D, Size2};
use planaria_recipe::train::{Adam, Loss, Optimizer, Rmsprop, Sgd};
use planaria_recipe::{Layer, Shape};

const BATCH: usize = 21;
/// Uneven shards, full ones, and fewer examples than shards.
pub const SIZES: [usize; 4] = [BATCH, 16, 3, 18];

#[derive(Clone)]
pub struct Run {
    pub layers: Vec<Layer>,
    pub input: Shape,
    pub settings: Settings,
}

impl Run {
    pub fn new(
        input: Shape,
        layers: Vec<Layer>,
        optimizer: Optimizer,
        clip_norm: Option<f32>,
    ) -> Self {
        let settings = Settings {
            seed: 11,
            batch: BATCH,
            shards: 8,
            threads: 1,
            loss: Loss::CrossEntropy,
            label_smoothing: 0.1,
            optimizer,
            clip_norm,
            isa: None,
        };
        Self { layers, input, settings }
    }

    pub fn trainer(&self) -> CpuTrainer {
        let network = Network::new(&self.layers, self.input).expect("the layers fit");
        CpuTrainer::new(network, self.settings.clone())
    }

    /// Inputs and classes of a step.
    pub fn batch(&self, step: usize) -> (Vec<f32>, Vec<u32>) {
        let n = SIZES[step];
        (values(step as u64, n * self.input.len()), classes(step as u64 + 50, n, 3))
    }

    pub fn step(&self, trainer: &mut CpuTrainer, step: usize) -> StepResult {
        let (inputs, classes) = self.batch(step);
        let examples = Examples { inputs: &inputs, targets: Targets::Classes(&classes) };
        trainer.step(step as u64, 0.05, examples).expect("the step is finite")
    }

    fn predict(&self, trainer: &mut CpuTrainer) -> Vec<u32> {
        // More than one chunk, and a part of one.
        let n = 37;
        let mut outputs = vec![0.0; n * trainer.network().output().len()];
        trainer.predict(&values(77, n * self.input.len()), &mut outputs);
        bits(&outputs)
    }

    fn go(&self) -> Trace {
        let mut trainer = self.trainer();
        let mut trace = Trace::default();
        for step in 0..SIZES.len() {
            let result = self.step(&mut trainer, step);
            trace.add(&result, &trainer.weights());
        }
        trace.predictions = self.predict(&mut trainer);
        trace
    }
}

/// All that a run leaves behind, as bits.
#[derive(Default, PartialEq)]
struct Trace {
    results: Vec<(u64, u64, u64)>,
    weights: Vec<Vec<u32>>,
    predictions: Vec<u32>,
}

impl Trace {
    fn add(&mut self, r: &StepResult, w: &Weights) {
        self.results.push((r.loss_sum.to_bits(), r.correct, r.gradient_norm.to_bits()));
        self.weights.push(bits(&w.parameters));
        self.weights.push(bits(&w.state));
        self.weights.extend(w.optimizer.iter().map(|s| bits(s)));
    }

    /// Says what differs from `other`.
    fn difference(&self, other: &Self) -> Option<String> {
        if self == other {
            return None;
        }
        let step = self.results.iter().zip(&other.results).position(|(a, b)| a != b);
        let tensor = self.weights.iter().zip(&other.weights).position(|(a, b)| a != b);
        let count =
            |i: usize| self.weights[i].iter().zip(&other.weights[i]).filter(|(a, b)| a != b);
        Some(format!(
            "results differ first at step {step:?}, weights first at buffer {tensor:?} ({:?} \
             numbers), predictions {}",
            tensor.map(|i| count(i).count()),
            if self.predictions == other.predictions { "equal" } else { "differ" },
        ))
    }
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    assert!(values.iter().all(|v| v.is_finite()), "numbers stay finite");
    values.iter().map(|v| v.to_bits()).collect()
}

pub fn sgd() -> Optimizer {
    let decay = 1e-3;
    Optimizer::Sgd(Sgd { learning_rate: 0.05, momentum: 0.9, nesterov: true, weight_decay: decay })
}

pub fn bare(filters: usize, kernel: [usize; 2], stride: usize) -> Layer {
    let strides = Size2::Square(stride);
    Layer::Conv2D(Conv2D { strides, padding: Same, use_bias: false, ..conv(filters, kernel) })
}

pub fn runs() -> Vec<(&'static str, Run)> {
    let basic = |n, stride| {
        vec![bare(n, [3, 3], stride), batch_norm(), act(Relu), bare(n, [3, 3], 1), batch_norm()]
    };
    let residual_network = vec![
        bare(16, [3, 3], 1),
        batch_norm(),
        act(Relu),
        residual(basic(16, 1), vec![], Relu),
        residual(basic(32, 2), vec![bare(32, [1, 1], 2), batch_norm()], Relu),
        dropout(0.3),
        global(),
        dense(3, Linear),
    ];
    let pooled = vec![
        conv3(16, Same, Relu),
        conv3(32, Valid, Relu),
        max_pool([2, 2], [2, 2], Valid),
        dropout(0.25),
        flatten(),
        dense(40, Relu),
        dropout(0.5),
        dense(3, Linear),
    ];
    let depthwise = Layer::Conv2D(Conv2D { groups: 19, padding: Same, ..conv(19, [3, 3]) });
    let grouped = Layer::Conv2D(Conv2D { groups: 2, activation: Gelu, ..conv(20, [2, 3]) });
    let odd = vec![
        conv3(19, Valid, LeakyRelu),
        depthwise,
        layer_norm(),
        concat(vec![vec![conv3(5, Same, Tanh)], vec![], vec![average_pool([3, 3], [1, 1], Same)]]),
        bare(18, [5, 3], 2),
        batch_norm(),
        grouped,
        max_pool([2, 2], [1, 1], Same),
        flatten(),
        dense(17, Sigmoid),
        dense(3, Softmax),
    ];
    let wide =
        vec![dense(300, Relu), dropout(0.2), dense(70, Gelu), batch_norm(), dense(3, Linear)];
    let adam = Adam { learning_rate: 0.01, weight_decay: 0.01, ..Adam::default() };
    let rmsprop = Rmsprop { momentum: 0.5, ..Rmsprop::default() };
    vec![
        ("residual network", Run::new(image(9, 8, 3), residual_network, sgd(), Some(0.5))),
        ("fused pool", Run::new(image(9, 9, 3), pooled, Optimizer::Adam(adam.clone()), None)),
        ("odd sizes", Run::new(image(9, 11, 3), odd, Optimizer::Adamw(adam), Some(0.1))),
        ("wide", Run::new(Shape::Vector(270), wide, Optimizer::Rmsprop(rmsprop), None)),
    ]
}

/// Runs that differ from the plain one only in what must not matter.
fn compare(name: &str, run: &Run, plain: &Trace, change: impl FnOnce(&mut Settings), what: &str) {
    let mut other = run.clone();
    change(&mut other.settings);
    if let Some(text) = plain.difference(&other.go()) {
        panic!("{name}, {what}: {text}");
    }
}

#[test]
fn of_every_instruction_set() {
    for (name, run) in runs() {
        let plain = run.go();
        for isa in Isa::all() {
            compare(name, &run, &plain, |s| s.isa = Some(isa), isa.name());
        }
    }
}

#[test]
fn of_any_number_of_threads() {
    for (name, mut run) in runs() {
        for shards in [8, 5] {
            run.settings.shards = shards;
            let plain = run.go();
            for threads in [1, 2, 3, 8] {
                let what = format!("{shards} shards on {threads} threads");
                compare(name, &run, &plain, |s| s.threads = threads, &what);
            }
        }
    }
}

#[test]
fn of_every_instruction_set_on_one_odd_shard() {
    for (name, mut run) in runs() {
        run.settings.shards = 1;
        let plain = run.go();
        for isa in Isa::all() {
            compare(name, &run, &plain, |s| (s.isa, s.threads) = (Some(isa), 2), isa.name());
        }
    }
}

#[test]
fn after_a_stop_at_every_step() {
    for (name, run) in runs() {
        let whole = run.go();
        for stop in 0..=SIZES.len() {
            let mut first = run.trainer();
            let mut trace = Trace::default();
            for step in 0..stop {
                let result = run.step(&mut first, step);
                trace.add(&result, &first.weights());
            }
            // Another trainer, which has already seen something else.
            let mut second = run.trainer();
            run.step(&mut second, 1);
            run.predict(&mut second);
            second.restore(&first.weights()).expect("the same network");
            for step in stop..SIZES.len() {
                let result = run.step(&mut second, step);
                trace.add(&result, &second.weights());
            }
            trace.predictions = run.predict(&mut second);
            if let Some(text) = whole.difference(&trace) {
                panic!("{name}, stop before step {stop}: {text}");
            }
        }
    }
}

#[test]
fn predictions_in_between_change_nothing() {
    for (name, run) in runs() {
        let whole = run.go();
        let mut trainer = run.trainer();
        let mut trace = Trace::default();
        for step in 0..SIZES.len() {
            run.predict(&mut trainer);
            let result = run.step(&mut trainer, step);
            trace.add(&result, &trainer.weights());
        }
        trace.predictions = run.predict(&mut trainer);
        assert!(whole == trace, "{name}");
    }
}

#[test]
fn a_prediction_does_not_depend_on_its_neighbours() {
    for (name, run) in runs() {
        let mut trainer = run.trainer();
        run.step(&mut trainer, 0);
        let together = run.predict(&mut trainer);
        let inputs = values(77, 37 * run.input.len());
        for (i, one) in inputs.chunks_exact(run.input.len()).enumerate() {
            let mut outputs = [0.0; 3];
            trainer.predict(one, &mut outputs);
            assert_eq!(bits(&outputs), together[3 * i..3 * i + 3], "{name}, example {i}");
        }
    }
}

#[test]
fn shards_change_only_the_rounding_without_batch_norm() {
    let layers = vec![
        conv3(16, Same, Tanh),
        conv3(16, Valid, Relu),
        max_pool([2, 2], [2, 2], Valid),
        layer_norm(),
        flatten(),
        dense(3, Linear),
    ];
    let plain = Optimizer::Sgd(Sgd { learning_rate: 0.05, ..Sgd::default() });
    let mut run = Run::new(image(8, 7, 3), layers, plain, None);
    let after = |run: &Run| {
        let mut trainer = run.trainer();
        let loss = run.step(&mut trainer, 0).loss_sum;
        (loss, trainer.weights().parameters)
    };
    let (cut_loss, cut) = after(&run);
    run.settings.shards = 1;
    let (loss, whole) = after(&run);
    assert!((cut_loss - loss).abs() < 1e-5 * loss, "{cut_loss} and {loss}");
    for (i, (a, b)) in cut.iter().zip(&whole).enumerate() {
        assert!((a - b).abs() < 2e-6, "parameter {i}: {a} and {b}");
    }
    assert_ne!(cut, whole, "the order of additions differs");
}
