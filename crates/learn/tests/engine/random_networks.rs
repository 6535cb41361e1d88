//! Random small networks against the f64 reference and its finite differences, and their bits on
//! every instruction set. A failure names its seed; `PLANARIA_SEEDS=from..to` tries others.

use crate::naive::{Case, Wanted, check_all};
use crate::support::*;
use planaria_learn::engines::cpu::CpuTrainer;
use planaria_learn::{Examples, Isa, Network, Trainer, Weights};
use planaria_numerics::random::Stream;
use planaria_recipe::model::{Activation, Conv2D, Size2};
use planaria_recipe::shape::{after_all, conv_window};
use planaria_recipe::train::{Adam, Loss, Optimizer};
use planaria_recipe::{Layer, Shape};

/// Seeds to try, given how many there are by default.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("PLANARIA_SEEDS") else { return 0..count };
    let (from, to) = text.split_once("..").expect("PLANARIA_SEEDS is `from..to`");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn agree_with_the_reference() {
    check_all(seeds(150).map(|seed| Draw(draws(seed)).case(seed)));
}

#[test]
fn have_the_same_bits_on_every_instruction_set() {
    for seed in seeds(150) {
        let case = Draw(draws(seed)).case(seed);
        let mut first = None;
        for (i, isa) in Isa::all().into_iter().enumerate() {
            let (weights, outputs) = train(&case, isa, 1 + i % 3);
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
            let all = [bits(&weights.parameters), bits(&weights.state), bits(&outputs)];
            let first = first.get_or_insert_with(|| all.clone());
            assert!(*first == all, "seed {seed}, {}: {:?}", isa.name(), case.layers);
        }
    }
}

fn train(case: &Case, isa: Isa, threads: usize) -> (Weights, Vec<f32>) {
    let network = Network::new(&case.layers, case.input).expect("the layers fit");
    let mut settings = case.settings();
    settings.optimizer = Optimizer::Adam(Adam::default());
    (settings.isa, settings.threads) = (Some(isa), threads);
    let mut trainer = CpuTrainer::new(network, settings);
    for step in 0..2 {
        let inputs = values(step, case.examples * case.input.len());
        let examples = Examples { inputs: &inputs, targets: case.targets() };
        trainer.step(step, 0.01, examples).expect("the step is finite");
    }
    let mut outputs = vec![0.0; case.examples * trainer.network().output().len()];
    trainer.predict(&values(9, case.examples * case.input.len()), &mut outputs);
    (trainer.weights(), outputs)
}

/// Draws networks.
struct Draw(Stream);

impl Draw {
    fn one<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.0.below(from.len() as u64) as usize].clone()
    }

    fn chance(&mut self, share: f32) -> bool {
        self.0.uniform() < share
    }

    fn case(&mut self, seed: u64) -> Case {
        let input = if self.chance(0.12) {
            Shape::Vector(self.one(&[1, 4, 16, 21]))
        } else {
            let (height, width) = (1 + self.0.below(9) as usize, 1 + self.0.below(9) as usize);
            image(height, width, self.one(&[1, 2, 3, 3, 8, 16, 17, 32]))
        };
        let mut layers = vec![];
        self.grow(&mut layers, input, 0);
        let units = self.one(&[1, 2, 3, 5, 17]);
        layers.push(dense(units, Linear));
        let mut case = Case::new(format!("seed {seed}"), input, layers);
        case.seed = seed;
        case = case.examples(self.one(&[1, 2, 3, 5, 8]));
        case.shards = self.one(&[1, 1, 1, 2, 3]);
        if units == 1 || self.chance(0.3) {
            case.loss = self.one(&[Loss::BinaryCrossEntropy, Loss::Mse, Loss::SquaredHinge]);
            if self.chance(0.4) {
                case.wanted = Wanted::Values(values(seed, units * case.examples));
            }
        } else {
            case.label_smoothing = self.one(&[0.0, 0.1]);
        }
        case.name = format!("{} {input} × {} {:?}", case.name, case.examples, case.layers);
        case
    }

    /// Some layers, ending in a vector when on the outside.
    fn grow(&mut self, layers: &mut Vec<Layer>, input: Shape, depth: usize) {
        for _ in 0..1 + self.0.below(5) {
            let shape = after_all(layers, input).expect("layers fit so far");
            match shape {
                Shape::Image { .. } => layers.extend(self.on_image(shape, depth)),
                Shape::Vector(_) => layers.extend(self.on_vector(shape, depth)),
            }
        }
        if let Shape::Image { .. } = after_all(layers, input).expect("layers fit") {
            if self.chance(0.25) {
                layers.push(global());
            } else {
                layers.push(flatten());
            }
            if self.chance(0.4) {
                let shape = after_all(layers, input).expect("layers fit");
                layers.extend(self.on_vector(shape, depth));
            }
        }
    }

    fn activation(&mut self) -> Activation {
        self.one(&[Linear, Relu, Relu, Relu, LeakyRelu, Gelu, Sigmoid, Tanh, Softmax])
    }

    fn on_image(&mut self, shape: Shape, depth: usize) -> Vec<Layer> {
        match self.0.below(16) {
            0..=4 => vec![self.any_conv(shape)],
            5 => self.pooled_conv(shape),
            6 => vec![self.pool(shape)],
            7 => vec![batch_norm()],
            8 => vec![batch_norm(), act(Relu)],
            9 if shape.channels() > 1 => vec![layer_norm()],
            9 | 10 => vec![act(self.activation())],
            11 => vec![dropout(0.0)],
            _ if depth > 1 => self.keeping(shape, depth),
            12 | 13 => vec![self.residual(shape, depth)],
            14 => vec![self.projected(shape)],
            _ => vec![self.concat(shape, depth)],
        }
    }

    fn on_vector(&mut self, shape: Shape, depth: usize) -> Vec<Layer> {
        let f = self.activation();
        match self.0.below(9) {
            0..=2 => vec![dense(self.one(&[1, 3, 16, 19]), f)],
            3 => vec![batch_norm()],
            4 => vec![batch_norm(), act(Relu)],
            5 if shape.len() > 1 => vec![layer_norm()],
            5 | 6 => vec![act(f)],
            _ if depth > 1 => vec![dense(shape.len(), f)],
            7 => vec![self.residual(shape, depth)],
            _ => vec![self.concat(shape, depth)],
        }
    }

    fn any_conv(&mut self, shape: Shape) -> Layer {
        let channels = shape.channels();
        loop {
            let filters = self.one(&[1, 3, 8, 16, 16, 17, 32]);
            let mut c =
                conv(filters, [self.one(&[1, 2, 3, 3, 3, 5, 7]), self.one(&[1, 2, 3, 3, 3, 5])]);
            c.strides = Size2::Pair([self.one(&[1, 1, 1, 2, 3]), self.one(&[1, 1, 1, 2, 3])]);
            c.padding = self.one(&[Same, Valid]);
            c.activation = self.activation();
            c.use_bias = self.chance(0.6);
            c.groups = self.one(&[1, 1, 1, 2, channels]);
            if c.groups == channels && self.chance(0.5) {
                c.filters = channels;
            }
            if self.chance(0.25) {
                (c.kernel_size, c.strides) = (Size2::Square(3), Size2::Square(1));
            }
            if conv_window(&c, shape).is_ok() {
                return Layer::Conv2D(c);
            }
        }
    }

    /// A convolution, relu and a 2×2 pool, if they fit.
    fn pooled_conv(&mut self, shape: Shape) -> Vec<Layer> {
        let filters = self.one(&[16, 32]);
        let padding = self.one(&[Valid, Valid, Same]);
        let layers =
            vec![conv3(filters, padding, Relu), max_pool([2, 2], [2, 2], self.one(&[Valid, Same]))];
        if after_all(&layers, shape).is_ok() { layers } else { vec![conv3(filters, Same, Relu)] }
    }

    fn pool(&mut self, shape: Shape) -> Layer {
        loop {
            let size = [self.one(&[1, 2, 2, 3]), self.one(&[1, 2, 2, 3])];
            let strides = [self.one(&[1, 2, 2, 3]), self.one(&[1, 2, 2, 3])];
            let make = self.one(&[max_pool, average_pool]);
            let pool = make(size, strides, self.one(&[Same, Valid]));
            if after_all(std::slice::from_ref(&pool), shape).is_ok() {
                return pool;
            }
        }
    }

    /// Layers that keep the shape.
    fn keeping(&mut self, shape: Shape, depth: usize) -> Vec<Layer> {
        // Of one channel alone nothing is left but rounding.
        let norm = if shape.channels() > 1 { layer_norm() } else { act(Tanh) };
        let mut layers = vec![];
        for _ in 0..self.0.below(4) {
            let f = self.activation();
            let Shape::Image { channels, .. } = shape else {
                let all = [dense(shape.len(), f), batch_norm(), norm.clone(), act(f), act(Relu)];
                layers.push(self.one(&all));
                continue;
            };
            let bare = Conv2D { padding: Same, use_bias: false, ..conv(channels, [3, 3]) };
            let own = Conv2D { groups: channels, ..bare.clone() };
            let mut all = vec![
                conv3(channels, Same, f),
                Layer::Conv2D(bare),
                Layer::Conv2D(own),
                batch_norm(),
                batch_norm(),
                norm.clone(),
                act(f),
                act(Relu),
                average_pool([3, 3], [1, 1], Same),
                max_pool([2, 2], [1, 1], Same),
            ];
            if depth < 2 {
                all.push(self.residual(shape, depth + 1));
            }
            layers.push(self.one(&all));
        }
        layers
    }

    fn residual(&mut self, shape: Shape, depth: usize) -> Layer {
        let main = self.keeping(shape, depth + 1);
        let shortcut = if self.chance(0.4) { self.keeping(shape, depth + 1) } else { vec![] };
        // A sum that depends on no parameter is a case of its own, in `finite_difference`.
        let plain = |l: &Layer| {
            let name = l.name();
            name.ends_with("Pooling2D") || name == "Activation"
        };
        let trained = !main.iter().all(plain);
        let main = if trained { main } else { [vec![batch_norm()], main].concat() };
        let scale = self.one(&[1.0, 1.0, 0.3]);
        let Layer::Residual(mut r) = scaled_residual(main, shortcut, scale) else {
            unreachable!("just made")
        };
        r.activation = self.one(&[Relu, Relu, Linear, Gelu]);
        Layer::Residual(r)
    }

    /// A block as residual networks have it where the image shrinks.
    fn projected(&mut self, shape: Shape) -> Layer {
        let (filters, stride) = (self.one(&[5, 16, 32]), self.one(&[1, 2]));
        let bare = |filters, kernel, stride| {
            let strides = Size2::Square(stride);
            let own = conv(filters, [kernel, kernel]);
            Layer::Conv2D(Conv2D { strides, padding: Same, use_bias: false, ..own })
        };
        let mut main = vec![bare(filters, 3, stride), batch_norm(), act(Relu), bare(filters, 3, 1)];
        let mut shortcut = vec![bare(filters, 1, stride)];
        if self.chance(0.8) {
            main.push(batch_norm());
        }
        if self.chance(0.8) {
            shortcut.push(batch_norm());
        }
        assert!(after_all(&main, shape).is_ok(), "`same` fits any image");
        residual(main, shortcut, self.one(&[Relu, Linear]))
    }

    fn concat(&mut self, shape: Shape, depth: usize) -> Layer {
        let mut branches = vec![];
        for _ in 0..2 + self.0.below(2) {
            let mut branch = self.keeping(shape, depth + 1);
            if self.chance(0.6) {
                let (n, f) = (self.one(&[1, 5, 16]), self.activation());
                branch.push(match shape {
                    Shape::Image { .. } => conv3(n, Same, f),
                    Shape::Vector(_) => dense(n, f),
                });
            }
            branches.push(branch);
        }
        concat(branches)
    }
}
