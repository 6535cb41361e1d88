//! The inference program: forward only, batch normalisation folded into the convolution below it.

use super::conv::{Conv, Method};
use super::fuse::{Plus, Unit};
use super::operation::{Bias, INPUT, NormAddend, Operation, Slot};
use super::schedule::schedule;
use super::training::{plain, pool, size};
use super::{Index, Program, Size};
use crate::network::{Network, NodeId, Op};
use std::collections::{BTreeMap, BTreeSet};

/// The program, and which (convolution, normalisation) pairs it folds.
pub fn lower(
    network: &Network,
    index: &Index,
    convs: &[Conv],
    units: &[Unit],
    scored: NodeId,
) -> (Program, Vec<(usize, usize)>) {
    let mut l = Lower {
        network,
        index,
        convs,
        operations: vec![],
        sizes: vec![size(network.input())],
        value: BTreeMap::from([(0, INPUT)]),
        views: vec![],
        folded: foldable(network, units, scored),
        folds: vec![],
    };
    for unit in units {
        l.unit(unit);
    }
    let output = l.value[&scored];
    (schedule(l.operations, l.sizes, &l.views, output, |_| false), l.folds)
}

/// Nodes of convolutions (without relu) whose one user is a normalisation.
fn foldable(network: &Network, units: &[Unit], scored: NodeId) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    for unit in units {
        if let Unit::Conv { node, relu: false, y, .. } = unit {
            let users: Vec<_> =
                network.nodes.iter().filter(|n| n.inputs.contains(y)).map(|n| &n.op).collect();
            if *y != scored && matches!(users.as_slice(), [Op::BatchNorm(_)]) {
                found.insert(*node);
            }
        }
    }
    found
}

struct Lower<'a> {
    network: &'a Network,
    index: &'a Index,
    convs: &'a [Conv],
    operations: Vec<Operation>,
    sizes: Vec<Size>,
    value: BTreeMap<NodeId, Slot>,
    views: Vec<(Slot, Slot)>,
    folded: BTreeSet<NodeId>,
    folds: Vec<(usize, usize)>,
}

impl Lower<'_> {
    fn slot_for(&mut self, node: NodeId) -> Slot {
        self.sizes.push(size(self.network.nodes[node].shape));
        let slot = Slot(self.sizes.len() - 1);
        self.value.insert(node, slot);
        slot
    }

    fn unit(&mut self, unit: &Unit) {
        match *unit {
            Unit::Conv { node, x, relu, y } => {
                if self.folded.contains(&node) {
                    return; // computed where its normalisation stands
                }
                let bias = match &self.network.nodes[node].op {
                    Op::Conv { bias: Some(b), .. } => Bias::Parameters(b.clone()),
                    _ => Bias::None,
                };
                let conv = self.index.conv[node].expect("a convolution's node");
                let (x, y) = (self.value[&x], self.slot_for(y));
                self.operations.push(Operation::Conv { conv, x, bias, plus: None, relu, y });
            }
            Unit::Dense { node, x, relu, y } => {
                let dense = self.index.dense[node].expect("a dense layer's node");
                let (x, y) = (self.value[&x], self.slot_for(y));
                self.operations.push(Operation::Dense { dense, x, relu, y });
            }
            Unit::Norm { node, z, plus, relu, y } => self.norm(node, z, plus, relu, y),
            Unit::Add { a, scale, b, relu, y } => {
                let (a, b, y) = (self.value[&a], self.value[&b], self.slot_for(y));
                self.operations.push(Operation::AddScaled { a, scale, b, relu, y });
            }
            Unit::Plain { node } => self.plain(node),
        }
    }

    /// relu?(normalised z + plus): in the convolution below where possible.
    fn norm(&mut self, node: NodeId, z: NodeId, plus: Plus, relu: bool, y: NodeId) {
        let norm = self.index.norm[node].expect("a batch normalisation's node");
        let plus = match plus {
            Plus::Nothing => None,
            Plus::Tensor(t) => Some(self.value[&t]),
            Plus::Norm(other, z2) => {
                self.norm(other, z2, Plus::Nothing, false, other);
                Some(self.value[&other])
            }
        };
        let conv = self.folded.contains(&z).then(|| self.index.conv[z].expect("a convolution"));
        // The depthwise kernel adds nothing but a bias.
        match conv.filter(|c| plus.is_none() || self.convs[*c].method != Method::Depthwise) {
            Some(conv) => {
                self.folds.push((conv, norm));
                let x = self.value[&self.network.nodes[z].inputs[0]];
                let y = self.slot_for(y);
                let bias = Bias::Folded;
                self.operations.push(Operation::Conv { conv, x, bias, plus, relu, y });
            }
            None => {
                if let Some(conv) = conv {
                    self.folds.push((conv, norm));
                    let x = self.value[&self.network.nodes[z].inputs[0]];
                    let a = self.slot_for(z);
                    let bias = Bias::Folded;
                    let operation =
                        Operation::Conv { conv, x, bias, plus: None, relu: false, y: a };
                    self.operations.push(operation);
                    let (b, y) = (plus.expect("else it was folded"), self.slot_for(y));
                    self.operations.push(Operation::AddScaled { a, scale: 1.0, b, relu, y });
                    return;
                }
                let (z, y) = (self.value[&z], self.slot_for(y));
                let addend = plus.map_or(NormAddend::None, NormAddend::Tensor);
                self.operations.push(Operation::Norm { norm, z, addend, relu, y });
            }
        }
    }

    fn plain(&mut self, node: NodeId) {
        let n = &self.network.nodes[node];
        let x = self.value[&n.inputs[0]];
        if matches!(n.op, Op::Flatten | Op::Dropout { .. }) {
            let y = self.slot_for(node);
            self.views.push((y, x));
            return;
        }
        let y = self.slot_for(node);
        let operation = match &n.op {
            Op::MaxPool(w) => {
                let bytes = n.shape.len().div_ceil(4);
                self.sizes.push(Size { pixels: 1, channels: bytes });
                let which = Slot(self.sizes.len() - 1);
                Operation::MaxPool { pool: pool(self.network, node, *w), x, y, which }
            }
            Op::Concat => {
                let mut to_at = 0;
                for input in &n.inputs {
                    let from = self.value[input];
                    let count = self.sizes[from.0].channels;
                    let (from_at, to) = (0, y);
                    let copy = Operation::CopyChannels { from, from_at, to, to_at, count };
                    self.operations.push(copy);
                    to_at += count;
                }
                return;
            }
            _ => plain(self.network, node, x, y),
        };
        self.operations.push(operation);
    }
}
