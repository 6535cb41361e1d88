//! What a network is made of, in Keras' words.
//!
//! These types are the single source of the recipe's `model` section: the checker, the JSON
//! Schema and the engine all read them. A new layer starts here.

use serde::{Deserialize, Serialize};

crate::json::json!(Model, Layer);

/// The `model` section: either a list of layers or the name of a ready-made network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The layers, first to last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<Layer>>,
    /// A ready-made network instead of `layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// A saved network that stays as it is: what it makes of the examples is what is learned from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
}

/// The first layers of a saved network, as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// The folder of the run that trained it, relative to the current directory.
    pub from: String,
    /// How many of its layers; all before the last `Dense` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 1, max = 100_000)))]
    pub layers: Option<usize>,
}

/// Ready-made networks. The last layer's units follow from the data's classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Dense 128, Dense 64, classes.
    Mlp,
    /// Two 3×3 convolutions (32, 64), 2×2 max pooling, Dense 128, classes.
    Cnn,
    /// CIFAR residual network of 20 layers (He et al. 2016).
    Resnet20,
    /// CIFAR residual network of 32 layers.
    Resnet32,
    /// CIFAR residual network of 44 layers.
    Resnet44,
    /// CIFAR residual network of 56 layers.
    Resnet56,
    /// ImageNet-style residual network of 18 layers.
    Resnet18,
}

/// One layer. Every constant has Keras' default and is written out in the resolved recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Layer {
    /// Fully connected layer.
    Dense(Dense),
    /// Two-dimensional convolution.
    Conv2D(Conv2D),
    /// Largest value of each window.
    MaxPooling2D(Pooling2D),
    /// Mean value of each window.
    AveragePooling2D(Pooling2D),
    /// Mean over all pixels of each channel.
    GlobalAveragePooling2D(NoOptions),
    /// Image to vector.
    Flatten(NoOptions),
    /// Normalises each channel over the shard's examples.
    BatchNormalization(BatchNormalization),
    /// Normalises each pixel (or vector) over its channels.
    LayerNormalization(LayerNormalization),
    /// Zeroes a random share of the values while training.
    Dropout(Dropout),
    /// An activation function on its own.
    Activation(Activation),
    /// `activation(layers(x) · scale + shortcut(x))`.
    Residual(Residual),
    /// The branches' outputs side by side in the channel axis.
    Concat(Concat),
}

impl Layer {
    /// Keras' name of the layer, as recipes write it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Dense(_) => "Dense",
            Self::Conv2D(_) => "Conv2D",
            Self::MaxPooling2D(_) => "MaxPooling2D",
            Self::AveragePooling2D(_) => "AveragePooling2D",
            Self::GlobalAveragePooling2D(_) => "GlobalAveragePooling2D",
            Self::Flatten(_) => "Flatten",
            Self::BatchNormalization(_) => "BatchNormalization",
            Self::LayerNormalization(_) => "LayerNormalization",
            Self::Dropout(_) => "Dropout",
            Self::Activation(_) => "Activation",
            Self::Residual(_) => "Residual",
            Self::Concat(_) => "Concat",
        }
    }
}

/// A layer without options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

/// Options of `Dense`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Dense {
    /// Number of outputs.
    #[cfg_attr(test, schemars(range(min = 1, max = 1_000_000)))]
    pub units: usize,
    /// Activation applied to the output.
    #[serde(default)]
    pub activation: Activation,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// How the kernel starts.
    #[serde(default)]
    pub kernel_initializer: Initializer,
    /// How the bias starts.
    #[serde(default = "zeros")]
    pub bias_initializer: Initializer,
}

/// Options of `Conv2D`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Conv2D {
    /// Number of output channels.
    #[cfg_attr(test, schemars(range(min = 1, max = 65_536)))]
    pub filters: usize,
    /// Height and width of the kernel.
    pub kernel_size: Size2,
    /// Step between outputs.
    #[serde(default = "Size2::one")]
    pub strides: Size2,
    /// `same` keeps the size (divided by the strides), `valid` uses whole windows only.
    #[serde(default)]
    pub padding: Padding,
    /// Channel groups; `groups` = input channels makes it depthwise.
    #[serde(default = "one")]
    #[cfg_attr(test, schemars(range(min = 1, max = 65_536)))]
    pub groups: usize,
    /// Activation applied to the output.
    #[serde(default)]
    pub activation: Activation,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// How the kernel starts.
    #[serde(default)]
    pub kernel_initializer: Initializer,
    /// How the bias starts.
    #[serde(default = "zeros")]
    pub bias_initializer: Initializer,
}

/// Options of `MaxPooling2D` and `AveragePooling2D`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pooling2D {
    /// Height and width of the window.
    #[serde(default = "Size2::two")]
    pub pool_size: Size2,
    /// Step between windows; the window's size when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strides: Option<Size2>,
    /// `same` pads so that every pixel is in a window, `valid` uses whole windows only.
    #[serde(default)]
    pub padding: Padding,
}

/// Options of `BatchNormalization`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchNormalization {
    /// Share of the old running average kept at each step.
    #[serde(default = "bn_momentum")]
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1.0)))]
    pub momentum: f32,
    /// Added to the variance.
    #[serde(default = "norm_epsilon")]
    #[cfg_attr(test, schemars(range(min = 1e-12, max = 1.0)))]
    pub epsilon: f32,
}

/// Options of `LayerNormalization`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LayerNormalization {
    /// Added to the variance.
    #[serde(default = "norm_epsilon")]
    #[cfg_attr(test, schemars(range(min = 1e-12, max = 1.0)))]
    pub epsilon: f32,
}

/// Options of `Dropout`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Share of the values that is zeroed.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 0.999)))]
    pub rate: f32,
}

/// Options of `Residual`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Residual {
    /// The main branch.
    pub layers: Vec<Layer>,
    /// The shortcut branch; the input itself when empty.
    #[serde(default)]
    pub shortcut: Vec<Layer>,
    /// Factor of the main branch (Inception-ResNet uses 0.1 to 0.3).
    #[serde(default = "unit_scale")]
    pub scale: f32,
    /// Activation applied to the sum.
    #[serde(default)]
    pub activation: Activation,
}

/// Options of `Concat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// Branches that each read the same input; an empty branch passes it through.
    pub branches: Vec<Vec<Layer>>,
}

/// Activation functions. `leaky_relu` has slope 0.2 below zero and `gelu` is the exact one, as in Keras.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// No change.
    #[default]
    Linear,
    /// max(x, 0)
    Relu,
    /// x above zero, 0.2·x below
    LeakyRelu,
    /// x·Φ(x)
    Gelu,
    /// 1/(1+e⁻ˣ)
    Sigmoid,
    /// Hyperbolic tangent
    Tanh,
    /// Exponentials that sum to one over the channels
    Softmax,
}

/// How parameters start, as in Keras.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Initializer {
    /// Uniform in ±√(6/(fan_in+fan_out))
    #[default]
    GlorotUniform,
    /// Truncated normal with variance 2/(fan_in+fan_out)
    GlorotNormal,
    /// Uniform in ±√(6/fan_in)
    HeUniform,
    /// Truncated normal with variance 2/fan_in
    HeNormal,
    /// Uniform in ±√(3/fan_in)
    LecunUniform,
    /// Truncated normal with variance 1/fan_in
    LecunNormal,
    /// All zero
    Zeros,
    /// All one
    Ones,
}

/// Padding of convolutions and pools, as in Keras.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Padding {
    /// Whole windows only.
    #[default]
    Valid,
    /// Output size is the input size divided by the strides, rounded up.
    Same,
}

/// A height and a width: one number for both, or a list of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Size2 {
    /// The same for height and width.
    Square(#[cfg_attr(test, schemars(range(min = 1, max = 4096)))] usize),
    /// Height, then width.
    Pair(#[cfg_attr(test, schemars(inner(range(min = 1, max = 4096))))] [usize; 2]),
}

impl Size2 {
    pub fn height(self) -> usize {
        match self {
            Self::Square(n) | Self::Pair([n, _]) => n,
        }
    }
    pub fn width(self) -> usize {
        match self {
            Self::Square(n) | Self::Pair([_, n]) => n,
        }
    }
    fn one() -> Self {
        Self::Square(1)
    }
    fn two() -> Self {
        Self::Square(2)
    }
}

fn yes() -> bool {
    true
}
fn one() -> usize {
    1
}
fn zeros() -> Initializer {
    Initializer::Zeros
}
fn bn_momentum() -> f32 {
    0.99
}
fn norm_epsilon() -> f32 {
    1e-3
}
fn unit_scale() -> f32 {
    1.0
}
