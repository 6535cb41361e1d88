//! The operations a program is made of.

use super::Dense;
use super::conv::Conv;
use crate::engines::cpu::kernels::pool::Pool;
use planaria_recipe::model::Activation;
use std::ops::Range;

/// Number of a tensor in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub usize);

/// The slot of the examples.
pub const INPUT: Slot = Slot(0);

/// Where a convolution's bias comes from.
#[derive(Debug, Clone)]
pub enum Bias {
    /// There is none.
    None,
    Parameters(Range<usize>),
    /// The normalisation folded into the convolution.
    Folded,
}

/// What is added to a normalised tensor.
#[derive(Debug, Clone, Copy)]
pub enum NormAddend {
    None,
    Tensor(Slot),
    /// Another tensor, normalised by another normalisation.
    Norm(usize, Slot),
}

/// One operation. Those up to `Concat…` work image by image, the last ones on the whole shard.
#[derive(Debug, Clone)]
pub enum Operation {
    /// y = relu?(x ∗ weights + bias + plus)
    Conv { conv: usize, x: Slot, bias: Bias, plus: Option<Slot>, relu: bool, y: Slot },
    /// Adds x, dz to the weights' gradient.
    ConvWeights { conv: usize, x: Slot, dz: Slot },
    /// dx (+)= dz ∗ flipped weights
    ConvInput { conv: usize, dz: Slot, dx: Slot, add: bool },
    /// Adds g's sum per channel to a bias' gradient.
    BiasSum { bias: Range<usize>, g: Slot },
    /// Adds z to the normalisation's sums.
    Sums { norm: usize, z: Slot },
    /// y = relu?(normalised z + addend)
    Norm { norm: usize, z: Slot, addend: NormAddend, relu: bool, y: Slot },
    /// Masks g by y and adds to the sums of the backward pass.
    Reduce { norm: usize, g: Slot, y: Option<Slot>, z: Slot, second: Option<(usize, Slot)> },
    /// dz = the normalisation's input gradient of g
    NormInput { norm: usize, g: Slot, z: Slot, dz: Slot },
    /// Largest of each window; `which` holds bytes.
    MaxPool { pool: Pool, x: Slot, y: Slot, which: Slot },
    /// dx = g where the largest values were
    MaxPoolInput { pool: Pool, g: Slot, which: Slot, dx: Slot },
    /// Adds to the weight and bias gradient of a convolution below relu and a 2×2 pool, from the
    /// pool's gradient g, in which only one pixel of each window is not zero.
    PooledWeights { conv: usize, x: Slot, g: Slot, which: Slot },
    /// dx = input gradient of such a convolution
    PooledInput { conv: usize, g: Slot, which: Slot, dx: Slot },
    /// Mean of each window.
    AveragePool { pool: Pool, x: Slot, y: Slot },
    /// dx = g spread over each window
    AveragePoolInput { pool: Pool, g: Slot, dx: Slot },
    /// Mean over all pixels.
    GlobalAverage { x: Slot, y: Slot },
    /// dx = g spread over all pixels
    GlobalAverageInput { g: Slot, dx: Slot },
    /// y = f(x)
    Activate { f: Activation, x: Slot, y: Slot },
    /// dx = f'(x) · g
    ActivateInput { f: Activation, x: Slot, y: Slot, g: Slot, dx: Slot },
    /// g = 0 where y is not positive
    Mask { g: Slot, y: Slot },
    /// y = layer normalisation of x
    LayerNorm { gamma: Range<usize>, beta: Range<usize>, epsilon: f32, x: Slot, y: Slot },
    LayerNormInput {
        gamma: Range<usize>,
        beta: Range<usize>,
        epsilon: f32,
        x: Slot,
        g: Slot,
        dx: Slot,
    },
    /// y = x with random zeros; also the gradient.
    Dropout { layer: usize, rate: f32, x: Slot, y: Slot },
    /// y = relu?(a · scale + b)
    AddScaled { a: Slot, scale: f32, b: Slot, relu: bool, y: Slot },
    /// to (+)= from · scale
    ScaleInto { from: Slot, scale: f32, add: bool, to: Slot },
    /// Copies `count` channels from one tensor's channel `from_at` to another's `to_at`.
    CopyChannels { from: Slot, from_at: usize, to: Slot, to_at: usize, count: usize },
    /// y = relu?(x · weights + bias), whole shard
    Dense { dense: usize, x: Slot, relu: bool, y: Slot },
    /// Weight, bias and perhaps input gradient of a dense layer, whole shard
    DenseGradient { dense: usize, x: Slot, g: Slot, dx: Option<Slot> },
    /// Loss of the outputs and its gradient, whole shard
    Loss { outputs: Slot, g: Slot },
}

impl Operation {
    /// Whether it works on the whole shard at once.
    pub fn is_whole_shard(&self) -> bool {
        matches!(self, Self::Dense { .. } | Self::DenseGradient { .. } | Self::Loss { .. })
    }

    /// The slots it touches.
    pub fn slots(&self) -> Vec<Slot> {
        match self {
            Self::Conv { x, plus, y, .. } => [*x, *y].into_iter().chain(*plus).collect(),
            Self::ConvWeights { x, dz, .. } => vec![*x, *dz],
            Self::ConvInput { dz, dx, .. } => vec![*dz, *dx],
            Self::BiasSum { g, .. } => vec![*g],
            Self::Sums { z, .. } => vec![*z],
            Self::Norm { z, addend, y, .. } => match addend {
                NormAddend::None => vec![*z, *y],
                NormAddend::Tensor(t) | NormAddend::Norm(_, t) => vec![*z, *t, *y],
            },
            Self::Reduce { g, y, z, second, .. } => {
                [*g, *z].into_iter().chain(*y).chain(second.map(|s| s.1)).collect()
            }
            Self::NormInput { g, z, dz, .. } => vec![*g, *z, *dz],
            Self::MaxPool { x, y, which, .. } => vec![*x, *y, *which],
            Self::MaxPoolInput { g, which, dx, .. } => vec![*g, *which, *dx],
            Self::PooledWeights { x, g, which, .. } => vec![*x, *g, *which],
            Self::PooledInput { g, which, dx, .. } => vec![*g, *which, *dx],
            Self::AveragePool { x, y, .. } | Self::GlobalAverage { x, y } => vec![*x, *y],
            Self::AveragePoolInput { g, dx, .. } | Self::GlobalAverageInput { g, dx } => {
                vec![*g, *dx]
            }
            Self::Activate { x, y, .. } => vec![*x, *y],
            Self::ActivateInput { x, y, g, dx, .. } => vec![*x, *y, *g, *dx],
            Self::Mask { g, y } => vec![*g, *y],
            Self::LayerNorm { x, y, .. } | Self::Dropout { x, y, .. } => vec![*x, *y],
            Self::LayerNormInput { x, g, dx, .. } => vec![*x, *g, *dx],
            Self::AddScaled { a, b, y, .. } => vec![*a, *b, *y],
            Self::ScaleInto { from, to, .. } | Self::CopyChannels { from, to, .. } => {
                vec![*from, *to]
            }
            Self::Dense { x, y, .. } => vec![*x, *y],
            Self::DenseGradient { x, g, dx, .. } => [*x, *g].into_iter().chain(*dx).collect(),
            Self::Loss { outputs, g } => vec![*outputs, *g],
        }
    }

    /// The parameters whose gradient it writes or adds to.
    pub fn writes(&self, convs: &[Conv], denses: &[Dense]) -> Vec<Range<usize>> {
        match self {
            Self::ConvWeights { conv, .. } => vec![convs[*conv].kernel.clone()],
            // The kernel's follows from `Finish::Weights`.
            Self::PooledWeights { conv, .. } => convs[*conv].bias.iter().cloned().collect(),
            Self::BiasSum { bias, .. } => vec![bias.clone()],
            Self::LayerNormInput { gamma, beta, .. } => vec![gamma.clone(), beta.clone()],
            Self::DenseGradient { dense, .. } => {
                let d = &denses[*dense];
                std::iter::once(&d.kernel).chain(&d.bias).cloned().collect()
            }
            _ => vec![],
        }
    }

    /// Normalisations whose sums it adds to: (number, whether of the backward pass).
    pub fn sums_into(&self) -> Vec<(usize, bool)> {
        match self {
            Self::Sums { norm, .. } => vec![(*norm, false)],
            Self::Reduce { norm, second, .. } => {
                std::iter::once((*norm, true)).chain(second.map(|s| (s.0, true))).collect()
            }
            _ => vec![],
        }
    }

    /// Normalisations whose finished sums it needs: (number, whether of the backward pass).
    pub fn needs_sums(&self) -> Vec<(usize, bool)> {
        match self {
            Self::Norm { norm, addend, .. } => match addend {
                NormAddend::Norm(second, _) => vec![(*norm, false), (*second, false)],
                _ => vec![(*norm, false)],
            },
            Self::Reduce { norm, second, .. } => {
                std::iter::once((*norm, false)).chain(second.map(|s| (s.0, false))).collect()
            }
            Self::NormInput { norm, .. } => vec![(*norm, true)],
            _ => vec![],
        }
    }
}
