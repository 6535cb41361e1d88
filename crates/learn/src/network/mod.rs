//! A network's plan: the graph its layers make, and what lies where in the flat buffers.
//!
//! Parameters and state are each one flat f32 buffer, so that what goes over a wire or into a file
//! is what is in memory. Never computes anything but starting values.

mod build;
mod initialise;

use crate::Error;
use planaria_recipe::model::Activation;
use planaria_recipe::shape::Window;
use planaria_recipe::train::Loss;
use planaria_recipe::{Layer, Recipe, Shape};
use std::ops::Range;

/// Number of a node in the graph.
pub type NodeId = usize;

/// Whether a tensor is trained or only kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Follows its gradient.
    Parameter,
    /// Running averages of batch normalisation.
    State,
}

/// A named part of the flat parameters or state.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Such as `layers.3.main.0.kernel`.
    pub name: String,
    /// Which buffer it is part of.
    pub kind: Kind,
    /// Its dimensions, Keras' order.
    pub shape: Vec<usize>,
    /// Where it lies in that buffer.
    pub range: Range<usize>,
}

/// One operation on one or more earlier results.
#[derive(Debug, Clone)]
pub struct Node {
    /// What is done.
    pub op: Op,
    /// To which results.
    pub inputs: Vec<NodeId>,
    /// Shape of its result.
    pub shape: Shape,
}

/// What a node does.
#[derive(Debug, Clone)]
pub enum Op {
    Input,
    /// Matrix product and bias.
    Dense {
        /// `[inputs][units]` in the parameters.
        kernel: Range<usize>,
        /// In the parameters.
        bias: Option<Range<usize>>,
    },
    /// Convolution and bias.
    Conv {
        /// `[rows][columns][input channels / groups][filters]` in the parameters.
        kernel: Range<usize>,
        /// In the parameters.
        bias: Option<Range<usize>>,
        /// How the kernel slides.
        window: Window,
        groups: usize,
    },
    /// Largest value of each window.
    MaxPool(Window),
    /// Mean of each window.
    AveragePool(Window),
    /// Mean over all pixels.
    GlobalAverage,
    /// Image to vector: the same values.
    Flatten,
    BatchNorm(BatchNorm),
    LayerNorm {
        /// In the parameters.
        gamma: Range<usize>,
        /// In the parameters.
        beta: Range<usize>,
        /// Added to the variance.
        epsilon: f32,
    },
    /// Random zeros while training.
    Dropout {
        /// Share of zeros.
        rate: f32,
    },
    Activate(Activation),
    /// First input · scale + second input.
    Add {
        /// Factor of the first input.
        scale: f32,
    },
    /// Inputs side by side in the channels.
    Concat,
}

/// Where a batch normalisation's numbers lie.
#[derive(Debug, Clone)]
pub struct BatchNorm {
    /// Scale, in the parameters.
    pub gamma: Range<usize>,
    /// Shift, in the parameters.
    pub beta: Range<usize>,
    /// Running mean, in the state.
    pub mean: Range<usize>,
    /// Running variance, in the state.
    pub variance: Range<usize>,
    /// Share of the old running average kept at each step.
    pub momentum: f32,
    /// Added to the variance.
    pub epsilon: f32,
}

/// A network: its graph and the plan of its flat buffers.
#[derive(Debug, Clone)]
pub struct Network {
    pub(crate) nodes: Vec<Node>,
    pub(crate) output: NodeId,
    tensors: Vec<Tensor>,
    starts: Vec<initialise::Start>,
    parameters: usize,
    state: usize,
}

impl Network {
    /// Plans the network that `layers` make of examples of shape `input`.
    pub fn new(layers: &[Layer], input: Shape) -> Result<Self, Error> {
        build::network(layers, input)
    }

    /// The network of a resolved recipe, whose preset is written out.
    pub fn of(recipe: &Recipe, input: Shape) -> Result<Self, Error> {
        Self::new(recipe.model.layers.as_deref().unwrap_or_default(), input)
    }

    /// Named ranges in plan order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Length of the flat parameters.
    pub fn parameter_count(&self) -> usize {
        self.parameters
    }

    /// Length of the flat state.
    pub fn state_count(&self) -> usize {
        self.state
    }

    /// Length of the statistics that a shard returns: count, mean and M2 of each normalised channel.
    pub fn stats_count(&self) -> usize {
        // State holds a mean and a variance per channel.
        self.state / 2 * 3
    }

    /// Shape of one example.
    pub fn input(&self) -> Shape {
        self.nodes[0].shape
    }

    /// Shape of the result.
    pub fn output(&self) -> Shape {
        self.nodes[self.output].shape
    }

    /// The node whose values the loss takes: a last softmax or sigmoid that the loss computes
    /// itself is left out.
    pub(crate) fn scored(&self, loss: Loss) -> NodeId {
        let node = &self.nodes[self.output];
        match (&node.op, loss) {
            (Op::Activate(Activation::Softmax), Loss::CrossEntropy)
            | (Op::Activate(Activation::Sigmoid), Loss::BinaryCrossEntropy) => node.inputs[0],
            _ => self.output,
        }
    }

    /// Starting parameters and state, drawn from the seed.
    pub fn initialise(&self, seed: u64) -> (Vec<f32>, Vec<f32>) {
        initialise::values(self, seed)
    }
}
