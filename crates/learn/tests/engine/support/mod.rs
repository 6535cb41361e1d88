//! Layers in few words, and numbers drawn for tests.

use planaria_learn::{Kind, Network, Weights};
use planaria_numerics::optimizer;
use planaria_numerics::random::{Purpose, Stream};
use planaria_recipe::model::{
    Activation, BatchNormalization, Concat, Conv2D, Dense, Dropout, Initializer,
    LayerNormalization, NoOptions, Padding, Pooling2D, Residual, Size2,
};
use planaria_recipe::train::Optimizer;
use planaria_recipe::{Layer, Shape};

pub use Activation::{Gelu, LeakyRelu, Linear, Relu, Sigmoid, Softmax, Tanh};
pub use Padding::{Same, Valid};

pub fn image(height: usize, width: usize, channels: usize) -> Shape {
    Shape::Image { height, width, channels }
}

pub fn dense(units: usize, activation: Activation) -> Layer {
    Layer::Dense(Dense {
        units,
        activation,
        use_bias: true,
        kernel_initializer: Initializer::GlorotUniform,
        bias_initializer: Initializer::Zeros,
    })
}

/// A convolution without activation, stride 1, no padding.
pub fn conv(filters: usize, kernel: [usize; 2]) -> Conv2D {
    Conv2D {
        filters,
        kernel_size: Size2::Pair(kernel),
        strides: Size2::Square(1),
        padding: Valid,
        groups: 1,
        activation: Linear,
        use_bias: true,
        kernel_initializer: Initializer::HeUniform,
        bias_initializer: Initializer::Zeros,
    }
}

pub fn conv3(filters: usize, padding: Padding, activation: Activation) -> Layer {
    Layer::Conv2D(Conv2D { padding, activation, ..conv(filters, [3, 3]) })
}

pub fn max_pool(size: [usize; 2], strides: [usize; 2], padding: Padding) -> Layer {
    Layer::MaxPooling2D(pooling(size, strides, padding))
}

pub fn average_pool(size: [usize; 2], strides: [usize; 2], padding: Padding) -> Layer {
    Layer::AveragePooling2D(pooling(size, strides, padding))
}

fn pooling(size: [usize; 2], strides: [usize; 2], padding: Padding) -> Pooling2D {
    Pooling2D { pool_size: Size2::Pair(size), strides: Some(Size2::Pair(strides)), padding }
}

pub fn global() -> Layer {
    Layer::GlobalAveragePooling2D(NoOptions {})
}

pub fn flatten() -> Layer {
    Layer::Flatten(NoOptions {})
}

pub fn batch_norm() -> Layer {
    Layer::BatchNormalization(BatchNormalization { momentum: 0.9, epsilon: 1e-3 })
}

pub fn layer_norm() -> Layer {
    Layer::LayerNormalization(LayerNormalization { epsilon: 1e-3 })
}

pub fn dropout(rate: f32) -> Layer {
    Layer::Dropout(Dropout { rate })
}

pub fn act(f: Activation) -> Layer {
    Layer::Activation(f)
}

pub fn residual(layers: Vec<Layer>, shortcut: Vec<Layer>, activation: Activation) -> Layer {
    Layer::Residual(Residual { layers, shortcut, scale: 1.0, activation })
}

pub fn scaled_residual(layers: Vec<Layer>, shortcut: Vec<Layer>, scale: f32) -> Layer {
    Layer::Residual(Residual { layers, shortcut, scale, activation: Relu })
}

pub fn concat(branches: Vec<Vec<Layer>>) -> Layer {
    Layer::Concat(Concat { branches })
}

/// A stream for a test, by its seed.
pub fn draws(seed: u64) -> Stream {
    Stream::new(seed, Purpose::Test, 0, 0)
}

/// Values within ±1.
pub fn values(seed: u64, count: usize) -> Vec<f32> {
    let mut stream = draws(seed);
    (0..count).map(|_| stream.uniform_in(-1.0, 1.0)).collect()
}

/// Classes below `classes`.
pub fn classes(seed: u64, count: usize, classes: usize) -> Vec<u32> {
    let mut stream = draws(seed);
    (0..count).map(|_| stream.below(classes as u64) as u32).collect()
}

/// Weights in which nothing is one or zero by habit: biases, gammas, betas and running averages
/// differ in every channel.
pub fn uneven_weights(network: &Network, o: &Optimizer, seed: u64) -> Weights {
    let (mut parameters, mut state) = network.initialise(seed);
    let mut stream = draws(seed ^ 0x5EED);
    for tensor in network.tensors() {
        let own = match tensor.kind {
            Kind::Parameter => &mut parameters,
            Kind::State => &mut state,
        };
        for v in &mut own[tensor.range.clone()] {
            if !tensor.name.ends_with(".kernel") {
                *v += stream.uniform_in(-0.4, 0.4);
            }
        }
    }
    let optimizer = vec![vec![0.0; parameters.len()]; optimizer::slots(o)];
    Weights { parameters, state, optimizer }
}
