//! Graph to units: operations that one pass over an image can do together.

use crate::network::{Network, Node, NodeId, Op};
use planaria_recipe::model::Activation;
use planaria_recipe::shape::Window;

/// One unit of work; `y` is the node whose result it makes.
#[derive(Debug, Clone)]
pub enum Unit {
    /// Convolution, bias and perhaps relu.
    Conv { node: NodeId, x: NodeId, relu: bool, y: NodeId },
    /// Dense layer and perhaps relu.
    Dense { node: NodeId, x: NodeId, relu: bool, y: NodeId },
    /// Batch normalisation, something added, and perhaps relu.
    Norm { node: NodeId, z: NodeId, plus: Plus, relu: bool, y: NodeId },
    /// Sum, and perhaps relu.
    Add { a: NodeId, scale: f32, b: NodeId, relu: bool, y: NodeId },
    /// Anything else: one node.
    Plain { node: NodeId },
}

/// What is added to a normalised tensor.
#[derive(Debug, Clone, Copy)]
pub enum Plus {
    Nothing,
    Tensor(NodeId),
    /// Another normalisation (node) of another result.
    Norm(NodeId, NodeId),
}

/// Groups the network's nodes up to `scored`.
pub fn fuse(network: &Network, scored: NodeId) -> Vec<Unit> {
    let nodes = &network.nodes;
    let mut consumers = vec![vec![]; nodes.len()];
    for (id, node) in nodes.iter().enumerate().take(scored + 1) {
        for input in &node.inputs {
            consumers[*input].push(id);
        }
    }
    consumers[scored].push(usize::MAX);
    let absorbed = |id: NodeId| match consumers[id].as_slice() {
        [one] if *one != usize::MAX => absorbs(&nodes[*one], &nodes[id]),
        _ => false,
    };
    (1..=scored)
        .filter(|id| !absorbed(*id) && !consumers[*id].is_empty())
        .map(|id| unit(nodes, id, &absorbed))
        .collect()
}

/// Whether `consumer` can do `node`'s work on the way.
fn absorbs(consumer: &Node, node: &Node) -> bool {
    match (&node.op, &consumer.op) {
        (
            Op::Conv { .. } | Op::Dense { .. } | Op::BatchNorm(_) | Op::Add { .. },
            Op::Activate(Activation::Relu),
        ) => true,
        (Op::BatchNorm(_), Op::Add { scale }) => {
            *scale == 1.0 && consumer.inputs[0] != consumer.inputs[1]
        }
        _ => false,
    }
}

fn unit(nodes: &[Node], y: NodeId, absorbed: &impl Fn(NodeId) -> bool) -> Unit {
    let (node, relu) = match (&nodes[y].op, nodes[y].inputs.as_slice()) {
        (Op::Activate(Activation::Relu), [x]) if absorbed(*x) => (*x, true),
        _ => (y, false),
    };
    let inputs = &nodes[node].inputs;
    match &nodes[node].op {
        Op::Conv { .. } => Unit::Conv { node, x: inputs[0], relu, y },
        Op::Dense { .. } => Unit::Dense { node, x: inputs[0], relu, y },
        Op::BatchNorm(_) => Unit::Norm { node, z: inputs[0], plus: Plus::Nothing, relu, y },
        Op::Add { scale } => {
            let (a, b) = (inputs[0], inputs[1]);
            let norm = |id: NodeId| absorbed(id) && matches!(nodes[id].op, Op::BatchNorm(_));
            let below = |id: NodeId| nodes[id].inputs[0];
            match (norm(a), norm(b)) {
                (true, true) => {
                    Unit::Norm { node: a, z: below(a), plus: Plus::Norm(b, below(b)), relu, y }
                }
                (true, false) => {
                    Unit::Norm { node: a, z: below(a), plus: Plus::Tensor(b), relu, y }
                }
                (false, true) => {
                    Unit::Norm { node: b, z: below(b), plus: Plus::Tensor(a), relu, y }
                }
                (false, false) => Unit::Add { a, scale: *scale, b, relu, y },
            }
        }
        _ => Unit::Plain { node },
    }
}

/// Whether a window is 2×2 pixels, side by side, without padding.
pub fn is_plain_2x2(w: &Window) -> bool {
    w.kernel_h == 2
        && w.kernel_w == 2
        && w.stride_h == 2
        && w.stride_w == 2
        && w.pad_top + w.pad_left + w.pad_bottom + w.pad_right == 0
}
