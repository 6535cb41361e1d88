//! Ready-made networks as plain lists of layers.
//!
//! A new preset is a name in [`Preset`] and a function here. Shapes are checked afterwards like
//! those of any list of layers.

use crate::model::{
    Activation, BatchNormalization, Conv2D, Dense, Initializer, Layer, NoOptions, Padding,
    Pooling2D, Preset, Residual, Size2,
};

/// The layers of a preset whose last layer has `units` outputs.
pub fn expand(preset: Preset, units: usize) -> Vec<Layer> {
    match preset {
        Preset::Mlp => mlp(units),
        Preset::Cnn => cnn(units),
        Preset::Resnet20 => resnet_cifar(3, units),
        Preset::Resnet32 => resnet_cifar(5, units),
        Preset::Resnet44 => resnet_cifar(7, units),
        Preset::Resnet56 => resnet_cifar(9, units),
        Preset::Resnet18 => resnet18(units),
    }
}

fn mlp(units: usize) -> Vec<Layer> {
    vec![
        Layer::Flatten(NoOptions {}),
        dense(128, Activation::Relu),
        dense(64, Activation::Relu),
        dense(units, Activation::Linear),
    ]
}

fn cnn(units: usize) -> Vec<Layer> {
    let conv = |filters| {
        Layer::Conv2D(Conv2D {
            filters,
            kernel_size: Size2::Square(3),
            strides: Size2::Square(1),
            padding: Padding::Valid,
            groups: 1,
            activation: Activation::Relu,
            use_bias: true,
            kernel_initializer: Initializer::GlorotUniform,
            bias_initializer: Initializer::Zeros,
        })
    };
    let pool = Pooling2D {
        pool_size: Size2::Square(2),
        strides: Some(Size2::Square(2)),
        padding: Padding::Valid,
    };
    vec![
        conv(32),
        conv(64),
        Layer::MaxPooling2D(pool),
        Layer::Flatten(NoOptions {}),
        dense(128, Activation::Relu),
        dense(units, Activation::Linear),
    ]
}

/// He et al. 2016, section 4.2: 6n+2 layers, with the projection shortcuts of option B.
fn resnet_cifar(blocks: usize, units: usize) -> Vec<Layer> {
    let mut layers = vec![conv(16, 3, 1), norm(), relu()];
    for (stage, filters) in [16, 32, 64].into_iter().enumerate() {
        layers.extend(stage_of(blocks, filters, stage > 0));
    }
    layers.push(Layer::GlobalAveragePooling2D(NoOptions {}));
    layers.push(dense(units, Activation::Linear));
    layers
}

/// He et al. 2016, table 1.
fn resnet18(units: usize) -> Vec<Layer> {
    let pool = Pooling2D {
        pool_size: Size2::Square(3),
        strides: Some(Size2::Square(2)),
        padding: Padding::Same,
    };
    let mut layers = vec![conv(64, 7, 2), norm(), relu(), Layer::MaxPooling2D(pool)];
    for (stage, filters) in [64, 128, 256, 512].into_iter().enumerate() {
        layers.extend(stage_of(2, filters, stage > 0));
    }
    layers.push(Layer::GlobalAveragePooling2D(NoOptions {}));
    layers.push(dense(units, Activation::Linear));
    layers
}

/// Basic blocks of one width; the first halves the image when `down`.
fn stage_of(blocks: usize, filters: usize, down: bool) -> impl Iterator<Item = Layer> {
    (0..blocks).map(move |i| basic_block(filters, down && i == 0))
}

fn basic_block(filters: usize, down: bool) -> Layer {
    let stride = if down { 2 } else { 1 };
    let shortcut = if down { vec![conv(filters, 1, 2), norm()] } else { vec![] };
    Layer::Residual(Residual {
        layers: vec![conv(filters, 3, stride), norm(), relu(), conv(filters, 3, 1), norm()],
        shortcut,
        scale: 1.0,
        activation: Activation::Relu,
    })
}

/// A convolution before a batch normalisation: no bias.
fn conv(filters: usize, kernel: usize, stride: usize) -> Layer {
    Layer::Conv2D(Conv2D {
        filters,
        kernel_size: Size2::Square(kernel),
        strides: Size2::Square(stride),
        padding: Padding::Same,
        groups: 1,
        activation: Activation::Linear,
        use_bias: false,
        kernel_initializer: Initializer::HeNormal,
        bias_initializer: Initializer::Zeros,
    })
}

fn norm() -> Layer {
    Layer::BatchNormalization(BatchNormalization { momentum: 0.9, epsilon: 1e-5 })
}

fn relu() -> Layer {
    Layer::Activation(Activation::Relu)
}

fn dense(units: usize, activation: Activation) -> Layer {
    Layer::Dense(Dense {
        units,
        activation,
        use_bias: true,
        kernel_initializer: Initializer::GlorotUniform,
        bias_initializer: Initializer::Zeros,
    })
}
