//! The training program: forward, loss, backward.
//!
//! Backward goes through the units in reverse. Each tensor has one gradient slot: the first
//! contribution writes it (or is it: the gradient of a sum is the gradient of its terms), later
//! ones add to it. Normalised activations are cheap, so they are computed again rather than kept.

use super::conv::Conv;
use super::fuse::{Plus, Unit, is_plain_2x2};
use super::operation::{Bias, INPUT, NormAddend, Operation, Slot};
use super::schedule::schedule;
use super::{Index, Program, Size, conv::Method};
use crate::engines::cpu::kernels::pool::Pool;
use crate::network::{Network, NodeId, Op};
use planaria_recipe::Shape;
use planaria_recipe::shape::Window;
use std::collections::BTreeMap;

pub fn lower(
    network: &Network,
    index: &Index,
    convs: &[Conv],
    units: &[Unit],
    scored: NodeId,
) -> Program {
    let mut l = Lower::new(network, index, convs, units);
    for unit in units {
        l.forward(unit);
    }
    let outputs = l.value[&scored];
    let g = l.new_slot(l.sizes[outputs.0]);
    l.emit(Operation::Loss { outputs, g });
    l.gradient.insert(scored, g);
    for unit in units.iter().rev() {
        l.backward(unit);
    }
    schedule(l.operations, l.sizes, &l.views, outputs, |c| convs[c].method == Method::Winograd)
}

/// Convolutions that only relu and a 2×2 max pool follow, by the activated result's node.
pub fn pooled_convs(
    network: &Network,
    index: &Index,
    convs: &[Conv],
    units: &[Unit],
) -> BTreeMap<NodeId, usize> {
    let nodes = &network.nodes;
    let mut found = BTreeMap::new();
    for unit in units {
        let Unit::Conv { node, relu: true, y, .. } = unit else { continue };
        let conv = index.conv[*node].expect("a convolution's node");
        let users: Vec<_> = nodes.iter().filter(|n| n.inputs.contains(y)).map(|n| &n.op).collect();
        let under_pool = matches!(users.as_slice(), [Op::MaxPool(w)] if is_plain_2x2(w));
        if under_pool && convs[conv].suits_pooled_gradient() {
            found.insert(*y, conv);
        }
    }
    found
}

/// The forward operation of a node that is the same in training and inference.
pub fn plain(network: &Network, node: NodeId, x: Slot, y: Slot) -> Operation {
    match &network.nodes[node].op {
        Op::AveragePool(w) => Operation::AveragePool { pool: pool(network, node, *w), x, y },
        Op::GlobalAverage => Operation::GlobalAverage { x, y },
        Op::LayerNorm { gamma, beta, epsilon } => Operation::LayerNorm {
            gamma: gamma.clone(),
            beta: beta.clone(),
            epsilon: *epsilon,
            x,
            y,
        },
        Op::Activate(f) => Operation::Activate { f: *f, x, y },
        _ => unreachable!("units and lowerings cover the other operations"),
    }
}

/// The pool a node describes.
pub fn pool(network: &Network, node: NodeId, window: Window) -> Pool {
    match network.nodes[network.nodes[node].inputs[0]].shape {
        Shape::Image { height, width, channels } => Pool { window, height, width, channels },
        Shape::Vector(_) => unreachable!("shapes were checked: pools have images below them"),
    }
}

/// A tensor's size.
pub fn size(shape: Shape) -> Size {
    Size { pixels: shape.pixels(), channels: shape.channels() }
}

struct Lower<'a> {
    network: &'a Network,
    index: &'a Index,
    operations: Vec<Operation>,
    sizes: Vec<Size>,
    /// Slot of each node's result in the forward pass.
    value: BTreeMap<NodeId, Slot>,
    /// Operations that compute a result again in the backward pass.
    recipe: BTreeMap<NodeId, Operation>,
    /// Slot of a result computed again.
    again: BTreeMap<NodeId, Slot>,
    /// Slot of each node's gradient.
    gradient: BTreeMap<NodeId, Slot>,
    /// Slots that are other slots in another shape.
    views: Vec<(Slot, Slot)>,
    /// Bytes that name each pool's largest values.
    which: BTreeMap<NodeId, Slot>,
    /// Convolutions whose gradient is taken straight from the 2×2 pool above them: by conv result.
    pooled: BTreeMap<NodeId, usize>,
}

impl<'a> Lower<'a> {
    fn new(network: &'a Network, index: &'a Index, convs: &[Conv], units: &[Unit]) -> Self {
        let mut l = Self {
            network,
            index,
            operations: vec![],
            sizes: vec![size(network.input())],
            value: BTreeMap::from([(0, INPUT)]),
            recipe: BTreeMap::new(),
            again: BTreeMap::new(),
            gradient: BTreeMap::new(),
            views: vec![],
            which: BTreeMap::new(),
            pooled: BTreeMap::new(),
        };
        l.pooled = pooled_convs(network, index, convs, units);
        l
    }

    fn emit(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    fn new_slot(&mut self, size: Size) -> Slot {
        self.sizes.push(size);
        Slot(self.sizes.len() - 1)
    }

    fn slot_for(&mut self, node: NodeId) -> Slot {
        let slot = self.new_slot(size(self.network.nodes[node].shape));
        self.value.insert(node, slot);
        slot
    }

    fn norm(&self, node: NodeId) -> usize {
        self.index.norm[node].expect("a batch normalisation's node")
    }

    fn forward(&mut self, unit: &Unit) {
        match *unit {
            Unit::Conv { node, x, relu, y } => {
                let conv = self.index.conv[node].expect("a convolution's node");
                let bias = match &self.network.nodes[node].op {
                    Op::Conv { bias: Some(b), .. } => Bias::Parameters(b.clone()),
                    _ => Bias::None,
                };
                let (x, slot) = (self.value[&x], self.slot_for(y));
                self.emit(Operation::Conv { conv, x, bias, plus: None, relu, y: slot });
            }
            Unit::Dense { node, x, relu, y } => {
                let dense = self.index.dense[node].expect("a dense layer's node");
                let (x, y) = (self.value[&x], self.slot_for(y));
                self.emit(Operation::Dense { dense, x, relu, y });
            }
            Unit::Norm { node, z, plus, relu, y } => {
                let norm = self.norm(node);
                let z = self.value[&z];
                self.emit(Operation::Sums { norm, z });
                let addend = match plus {
                    Plus::Nothing => NormAddend::None,
                    Plus::Tensor(t) => NormAddend::Tensor(self.value[&t]),
                    Plus::Norm(other, z2) => {
                        let (other, z2) = (self.norm(other), self.value[&z2]);
                        self.emit(Operation::Sums { norm: other, z: z2 });
                        NormAddend::Norm(other, z2)
                    }
                };
                let slot = self.slot_for(y);
                let operation = Operation::Norm { norm, z, addend, relu, y: slot };
                if matches!(plus, Plus::Nothing) {
                    self.recipe.insert(y, operation.clone());
                }
                self.emit(operation);
            }
            Unit::Add { a, scale, b, relu, y } => {
                let (a, b, y) = (self.value[&a], self.value[&b], self.slot_for(y));
                self.emit(Operation::AddScaled { a, scale, b, relu, y });
            }
            Unit::Plain { node } => self.forward_plain(node),
        }
    }

    fn forward_plain(&mut self, node: NodeId) {
        let n = &self.network.nodes[node];
        let x = self.value[&n.inputs[0]];
        if matches!(n.op, Op::Flatten) {
            let y = self.slot_for(node);
            self.views.push((y, x));
            return;
        }
        let y = self.slot_for(node);
        let operation = match &n.op {
            Op::MaxPool(w) => {
                let bytes = n.shape.len().div_ceil(4);
                let which = self.new_slot(Size { pixels: 1, channels: bytes });
                self.which.insert(node, which);
                Operation::MaxPool { pool: pool(self.network, node, *w), x, y, which }
            }
            Op::Dropout { rate } => Operation::Dropout { layer: node, rate: *rate, x, y },
            Op::Concat => return self.forward_concat(node, y),
            _ => plain(self.network, node, x, y),
        };
        self.emit(operation);
    }

    fn forward_concat(&mut self, node: NodeId, to: Slot) {
        let mut to_at = 0;
        for input in &self.network.nodes[node].inputs {
            let from = self.value[input];
            let count = self.sizes[from.0].channels;
            self.emit(Operation::CopyChannels { from, from_at: 0, to, to_at, count });
            to_at += count;
        }
    }

    /// The slot of a node's result in the backward pass.
    fn kept(&mut self, node: NodeId) -> Slot {
        if let Some(slot) = self.again.get(&node) {
            return *slot;
        }
        let Some(mut operation) = self.recipe.get(&node).cloned() else {
            return self.value[&node];
        };
        let slot = self.new_slot(size(self.network.nodes[node].shape));
        if let Operation::Norm { y, .. } = &mut operation {
            *y = slot;
        }
        self.emit(operation);
        self.again.insert(node, slot);
        slot
    }

    /// Where a contribution to a node's gradient goes, and whether it adds to what is there.
    fn contribute(&mut self, node: NodeId) -> (Slot, bool) {
        if let Some(slot) = self.gradient.get(&node) {
            return (*slot, true);
        }
        let slot = self.new_slot(size(self.network.nodes[node].shape));
        self.gradient.insert(node, slot);
        (slot, false)
    }

    /// Emits an operation that writes (never adds) a contribution to a node's gradient.
    fn contribute_by(&mut self, node: NodeId, operation: impl FnOnce(Slot) -> Operation) {
        let (to, add) = self.contribute(node);
        if !add {
            self.emit(operation(to));
            return;
        }
        let from = self.new_slot(self.sizes[to.0]);
        self.emit(operation(from));
        self.emit(Operation::ScaleInto { from, scale: 1.0, add: true, to });
    }

    /// Passes gradient `g` on unchanged. The slot itself is passed on when nothing is there yet.
    fn pass_on(&mut self, node: NodeId, g: Slot) {
        if let Some(to) = self.gradient.get(&node) {
            let to = *to;
            self.emit(Operation::ScaleInto { from: g, scale: 1.0, add: true, to });
        } else {
            self.gradient.insert(node, g);
        }
    }

    fn trained(&self, node: NodeId) -> bool {
        self.index.trained[node]
    }

    fn backward(&mut self, unit: &Unit) {
        match *unit {
            Unit::Conv { node, x, relu, y } => {
                if !self.pooled.contains_key(&y) {
                    self.backward_conv(node, x, relu, y);
                }
            }
            Unit::Dense { node, x, relu, y } => {
                let g = self.gradient[&y];
                if relu {
                    let y = self.kept(y);
                    self.emit(Operation::Mask { g, y });
                }
                let dense = self.index.dense[node].expect("a dense layer's node");
                let kept = self.kept(x);
                if self.trained(x) {
                    self.contribute_by(x, |dx| Operation::DenseGradient {
                        dense,
                        x: kept,
                        g,
                        dx: Some(dx),
                    });
                } else {
                    self.emit(Operation::DenseGradient { dense, x: kept, g, dx: None });
                }
            }
            Unit::Norm { node, z, plus, relu, y } => self.backward_norm(node, z, plus, relu, y),
            Unit::Add { a, scale, b, relu, y } => self.backward_add(a, scale, b, relu, y),
            Unit::Plain { node } => self.backward_plain(node),
        }
    }

    fn backward_conv(&mut self, node: NodeId, x: NodeId, relu: bool, y: NodeId) {
        let dz = self.gradient[&y];
        if relu {
            let y = self.kept(y);
            self.emit(Operation::Mask { g: dz, y });
        }
        if let Op::Conv { bias: Some(bias), .. } = &self.network.nodes[node].op {
            self.emit(Operation::BiasSum { bias: bias.clone(), g: dz });
        }
        let conv = self.index.conv[node].expect("a convolution's node");
        let kept = self.kept(x);
        self.emit(Operation::ConvWeights { conv, x: kept, dz });
        if self.trained(x) {
            let (dx, add) = self.contribute(x);
            self.emit(Operation::ConvInput { conv, dz, dx, add });
        }
    }

    fn backward_norm(&mut self, node: NodeId, z: NodeId, plus: Plus, relu: bool, y: NodeId) {
        let norm = self.norm(node);
        let g = self.gradient[&y];
        let kept = relu.then(|| self.kept(y));
        let kept_z = self.kept(z);
        let second = match plus {
            Plus::Norm(other, z2) => Some((self.norm(other), self.kept(z2))),
            _ => None,
        };
        self.emit(Operation::Reduce { norm, g, y: kept, z: kept_z, second });
        if self.trained(z) {
            self.contribute_by(z, |dz| Operation::NormInput { norm, g, z: kept_z, dz });
        }
        match plus {
            Plus::Nothing => {}
            Plus::Tensor(t) if self.trained(t) => self.pass_on(t, g),
            Plus::Tensor(_) => {}
            Plus::Norm(other, z2) if self.trained(z2) => {
                let (norm, z) = (self.norm(other), self.kept(z2));
                self.contribute_by(z2, |dz| Operation::NormInput { norm, g, z, dz });
            }
            Plus::Norm(..) => {}
        }
    }

    fn backward_add(&mut self, a: NodeId, scale: f32, b: NodeId, relu: bool, y: NodeId) {
        let Some(g) = self.gradient.get(&y).copied() else { return };
        if relu {
            let y = self.kept(y);
            self.emit(Operation::Mask { g, y });
        }
        if self.trained(a) {
            // A copy, because the slot itself may be passed on below.
            let (to, add) = self.contribute(a);
            self.emit(Operation::ScaleInto { from: g, scale, add, to });
        }
        if self.trained(b) {
            self.pass_on(b, g);
        }
    }

    fn backward_plain(&mut self, node: NodeId) {
        let n = &self.network.nodes[node];
        let x = n.inputs[0];
        let Some(g) = self.gradient.get(&node).copied() else { return };
        if !self.trained(x) && !matches!(n.op, Op::LayerNorm { .. } | Op::Concat) {
            return;
        }
        match &n.op {
            Op::Flatten => {
                let view = self.new_slot(size(self.network.nodes[x].shape));
                self.views.push((view, g));
                self.pass_on(x, view);
            }
            Op::MaxPool(w) => self.backward_max_pool(node, *w, x, g),
            Op::AveragePool(w) => {
                let pool = pool(self.network, node, *w);
                self.contribute_by(x, |dx| Operation::AveragePoolInput { pool, g, dx });
            }
            Op::GlobalAverage => {
                self.contribute_by(x, |dx| Operation::GlobalAverageInput { g, dx });
            }
            Op::LayerNorm { gamma, beta, epsilon } => {
                let (gamma, beta, epsilon) = (gamma.clone(), beta.clone(), *epsilon);
                let kept = self.kept(x);
                let input = |dx| Operation::LayerNormInput { gamma, beta, epsilon, x: kept, g, dx };
                if self.trained(x) {
                    self.contribute_by(x, input);
                } else {
                    let unused = self.new_slot(self.sizes[g.0]);
                    self.emit(input(unused));
                }
            }
            Op::Dropout { rate } => {
                let (layer, rate) = (node, *rate);
                self.contribute_by(x, |y| Operation::Dropout { layer, rate, x: g, y });
            }
            Op::Activate(f) => {
                let (f, kept, y) = (*f, self.kept(x), self.kept(node));
                self.contribute_by(x, |dx| Operation::ActivateInput { f, x: kept, y, g, dx });
            }
            Op::Concat => self.backward_concat(node, g),
            _ => unreachable!("fused units cover the other operations"),
        }
    }

    fn backward_concat(&mut self, node: NodeId, from: Slot) {
        let mut from_at = 0;
        for input in self.network.nodes[node].inputs.clone() {
            let count = self.network.nodes[input].shape.channels();
            if self.trained(input) {
                self.contribute_by(input, |to| Operation::CopyChannels {
                    from,
                    from_at,
                    to,
                    to_at: 0,
                    count,
                });
            }
            from_at += count;
        }
    }

    fn backward_max_pool(&mut self, node: NodeId, window: Window, x: NodeId, g: Slot) {
        let which = self.which[&node];
        let Some(conv) = self.pooled.get(&x).copied() else {
            let pool = pool(self.network, node, window);
            self.contribute_by(x, |dx| Operation::MaxPoolInput { pool, g, which, dx });
            return;
        };
        // relu before the pool passes on what relu after it would.
        let y = self.value[&node];
        self.emit(Operation::Mask { g, y });
        let below = self.conv_input(x);
        let kept = self.kept(below);
        self.emit(Operation::PooledWeights { conv, x: kept, g, which });
        if self.trained(below) {
            self.contribute_by(below, |dx| Operation::PooledInput { conv, g, which, dx });
        }
    }

    /// Input of the convolution whose activated result is `y`.
    fn conv_input(&self, y: NodeId) -> NodeId {
        let node = self.network.nodes[y].inputs[0];
        self.network.nodes[node].inputs[0]
    }
}
