//! Graph to program: which kernels run in which order on which memory.
//!
//! A program is a list of stages. A stage runs its operations image by image, so that an image
//! stays in the cache while several operations pass over it; a new stage begins where an operation
//! needs a sum over all images (batch normalisation) or works on the whole shard (dense layers).
//! Tensors that live within one stage take one image of scratch; the others one place per image in
//! the arena. Everything is placed before the first step; nothing is allocated inside one.

pub mod conv;
pub mod finals;
mod fuse;
mod inference;
mod operation;
mod schedule;
mod training;

pub use operation::{Bias, NormAddend, Operation, Slot};
pub use schedule::{Finish, Place, Stage};

use crate::engines::cpu::kernels::simd::LANES;
use crate::network::{Network, NodeId, Op};
use crate::statistics::Norm;
use conv::Conv;
use planaria_recipe::train::Loss;
use std::ops::Range;

/// A dense layer, planned.
#[derive(Debug, Clone)]
pub struct Dense {
    /// `[inputs][units]` in the parameters.
    pub kernel: Range<usize>,
    /// In the parameters.
    pub bias: Option<Range<usize>>,
    /// Values per example.
    pub inputs: usize,
    pub units: usize,
    /// Packed transposed weights; empty when the input gradient is not wanted.
    pub backward: Range<usize>,
}

/// A tensor's size.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Pixels (1 for a vector).
    pub pixels: usize,
    pub channels: usize,
}

impl Size {
    /// Values per example.
    pub fn len(self) -> usize {
        self.pixels * self.channels
    }
}

/// Stages and where every tensor lies.
#[derive(Debug)]
pub struct Program {
    pub stages: Vec<Stage>,
    /// Size of each slot.
    pub sizes: Vec<Size>,
    /// Place of each slot.
    pub places: Vec<Place>,
    /// Length of the arena for each example of a shard.
    pub arena_len: usize,
    /// Length of the scratch image.
    pub scratch_len: usize,
    /// Where the result is.
    pub output: Slot,
}

/// Everything about a network that does not change while it trains.
#[derive(Debug)]
pub struct Compiled {
    pub convs: Vec<Conv>,
    /// Its dense layers.
    pub denses: Vec<Dense>,
    /// Its batch normalisations.
    pub norms: Vec<Norm>,
    /// Length of all packed weights.
    pub packed_len: usize,
    /// Forward and backward.
    pub training: Program,
    /// Forward only, batch normalisation folded into the convolutions before it.
    pub inference: Program,
    /// Convolutions that inference folds a normalisation into: (convolution, normalisation).
    pub folds: Vec<(usize, usize)>,
    /// Parameter ranges whose gradient is summed up and so starts from zero.
    pub cleared: Vec<Range<usize>>,
    /// The blocks of gradients that are final after each stage of `training`.
    pub finals: finals::Finals,
}

/// Where each node's plan is found.
pub(crate) struct Index {
    pub conv: Vec<Option<usize>>,
    pub dense: Vec<Option<usize>>,
    pub norm: Vec<Option<usize>>,
    /// Whether a node's result depends on any parameter.
    pub trained: Vec<bool>,
}

/// Compiles a network for a loss.
pub fn compile(network: &Network, loss: Loss) -> Compiled {
    let scored = network.scored(loss);
    let trained = trained_nodes(network);
    let n = network.nodes.len();
    let mut index =
        Index { conv: vec![None; n], dense: vec![None; n], norm: vec![None; n], trained };
    let (mut convs, mut denses, mut norms) = (vec![], vec![], vec![]);
    let mut packed = 0;
    for (id, node) in network.nodes.iter().enumerate() {
        let wants = |id: &NodeId| index.trained[*id];
        match &node.op {
            Op::Conv { .. } => {
                let x = node.inputs[0];
                let conv = Conv::plan(node, network.nodes[x].shape, wants(&x), &mut packed);
                index.conv[id] = Some(convs.len());
                convs.push(conv.expect("the node is a convolution of an image"));
            }
            Op::Dense { kernel, bias } => {
                let x = node.inputs[0];
                let (inputs, units) = (network.nodes[x].shape.len(), node.shape.len());
                let len = if wants(&x) { inputs.next_multiple_of(LANES) * units } else { 0 };
                index.dense[id] = Some(denses.len());
                let (kernel, bias) = (kernel.clone(), bias.clone());
                denses.push(Dense { kernel, bias, inputs, units, backward: packed..packed + len });
                packed += len.next_multiple_of(LANES);
            }
            Op::BatchNorm(plan) => {
                index.norm[id] = Some(norms.len());
                norms.push(Norm::new(plan));
            }
            _ => {}
        }
    }
    let units = fuse::fuse(network, scored);
    for conv in training::pooled_convs(network, &index, &convs, &units).into_values() {
        convs[conv].pooled = true;
    }
    let training = training::lower(network, &index, &convs, &units, scored);
    let (inference, folds) = inference::lower(network, &index, &convs, &units, scored);
    let cleared = cleared_ranges(network, &denses);
    let parameters = network.parameter_count();
    let finals = finals::after_stages(&training.stages, &convs, &denses, &norms, parameters);
    let packed_len = packed;
    Compiled { convs, denses, norms, packed_len, training, inference, folds, cleared, finals }
}

fn trained_nodes(network: &Network) -> Vec<bool> {
    let mut trained: Vec<bool> = vec![];
    for node in &network.nodes {
        let own = matches!(
            node.op,
            Op::Conv { .. } | Op::Dense { .. } | Op::BatchNorm(_) | Op::LayerNorm { .. }
        );
        trained.push(own || node.inputs.iter().any(|i| trained[*i]));
    }
    trained
}

/// All parameters but dense kernels, whose gradients are stored whole.
fn cleared_ranges(network: &Network, denses: &[Dense]) -> Vec<Range<usize>> {
    let mut ranges = vec![];
    let mut at = 0;
    for dense in denses {
        if at < dense.kernel.start {
            ranges.push(at..dense.kernel.start);
        }
        at = dense.kernel.end;
    }
    if at < network.parameter_count() {
        ranges.push(at..network.parameter_count());
    }
    ranges
}
