//! Layers in a few words, with Keras' defaults for the rest.
//!
//! Each is a plain [`Layer`]; for another constant write it out or change the value.
//! Never checks anything: [`Planaria::train`](crate::Planaria::train) does.

pub use planaria_recipe::Layer;
pub use planaria_recipe::model::{Activation, Initializer, Padding};

use planaria_recipe::model::{
    BatchNormalization, Conv2D, Dense, Dropout, NoOptions, Pooling2D, Size2,
};

/// Fully connected, without an activation: a last layer.
pub fn dense(units: usize) -> Layer {
    dense_with(units, Activation::Linear)
}

/// Fully connected, with an activation.
pub fn dense_with(units: usize, activation: Activation) -> Layer {
    Layer::Dense(Dense {
        units,
        activation,
        use_bias: true,
        kernel_initializer: initializer(activation),
        bias_initializer: Initializer::Zeros,
    })
}

/// A convolution with a square kernel and an activation, over whole windows.
pub fn conv2d(filters: usize, kernel_size: usize, activation: Activation) -> Layer {
    Layer::Conv2D(Conv2D {
        filters,
        kernel_size: Size2::Square(kernel_size),
        strides: Size2::Square(1),
        padding: Padding::Valid,
        groups: 1,
        activation,
        use_bias: true,
        kernel_initializer: initializer(activation),
        bias_initializer: Initializer::Zeros,
    })
}

/// The largest value of each 2×2 window.
pub fn max_pooling2d() -> Layer {
    Layer::MaxPooling2D(pooling())
}

/// The mean value of each 2×2 window.
pub fn average_pooling2d() -> Layer {
    Layer::AveragePooling2D(pooling())
}

/// The mean over all pixels of each channel.
pub fn global_average_pooling2d() -> Layer {
    Layer::GlobalAveragePooling2D(NoOptions {})
}

/// Image to vector.
pub fn flatten() -> Layer {
    Layer::Flatten(NoOptions {})
}

/// Normalises each channel over the shard's examples.
pub fn batch_normalization() -> Layer {
    Layer::BatchNormalization(BatchNormalization { momentum: 0.99, epsilon: 1e-3 })
}

/// Zeroes a random share of the values while training.
pub fn dropout(rate: f32) -> Layer {
    Layer::Dropout(Dropout { rate })
}

/// An activation function on its own.
pub fn activation(activation: Activation) -> Layer {
    Layer::Activation(activation)
}

fn pooling() -> Pooling2D {
    Pooling2D { pool_size: Size2::Square(2), strides: None, padding: Padding::Valid }
}

/// He's for what is cut off below zero, else Keras' default.
fn initializer(activation: Activation) -> Initializer {
    match activation {
        Activation::Relu | Activation::LeakyRelu | Activation::Gelu => Initializer::HeNormal,
        _ => Initializer::GlorotUniform,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_the_recipes_defaults() {
        for (layer, recipe) in [
            (dense(10), r#"{"Dense":{"units":10}}"#),
            (
                conv2d(8, 3, Activation::Relu),
                r#"{"Conv2D":{"filters":8,"kernel_size":3,"activation":"relu","kernel_initializer":"he_normal"}}"#,
            ),
            (max_pooling2d(), r#"{"MaxPooling2D":{}}"#),
            (average_pooling2d(), r#"{"AveragePooling2D":{}}"#),
            (global_average_pooling2d(), r#"{"GlobalAveragePooling2D":{}}"#),
            (flatten(), r#"{"Flatten":{}}"#),
            (batch_normalization(), r#"{"BatchNormalization":{}}"#),
            (dropout(0.5), r#"{"Dropout":{"rate":0.5}}"#),
            (activation(Activation::Tanh), r#"{"Activation":"tanh"}"#),
        ] {
            assert_eq!(layer, serde_json::from_str::<Layer>(recipe).unwrap(), "{recipe}");
        }
    }
}
