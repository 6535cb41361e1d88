//! Layers to graph.

use super::initialise::Start;
use super::{BatchNorm, Kind, Network, Node, NodeId, Op, Tensor};
use crate::Error;
use planaria_recipe::model::{Activation, Conv2D, Dense, Initializer, Residual};
use planaria_recipe::shape::{self, Shape};
use planaria_recipe::{Layer, shape::conv_window, shape::pool_window};
use std::ops::Range;

pub fn network(layers: &[Layer], input: Shape) -> Result<Network, Error> {
    shape::after_all(layers, input).map_err(|m| Error::Shape(m.message))?;
    let mut b = Builder::default();
    b.node(Op::Input, vec![], input);
    let output = b.layers(layers, 0, "layers")?;
    Ok(Network {
        nodes: b.nodes,
        output,
        tensors: b.tensors,
        starts: b.starts,
        parameters: b.parameters,
        state: b.state,
    })
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    tensors: Vec<Tensor>,
    starts: Vec<Start>,
    parameters: usize,
    state: usize,
}

impl Builder {
    fn node(&mut self, op: Op, inputs: Vec<NodeId>, shape: Shape) -> NodeId {
        self.nodes.push(Node { op, inputs, shape });
        self.nodes.len() - 1
    }

    fn parameter(&mut self, name: String, shape: Vec<usize>, start: Start) -> Range<usize> {
        let len: usize = shape.iter().product();
        let range = self.parameters..self.parameters + len;
        self.parameters = range.end;
        self.tensors.push(Tensor { name, kind: Kind::Parameter, shape, range: range.clone() });
        self.starts.push(start);
        range
    }

    fn state(&mut self, name: String, len: usize, start: Start) -> Range<usize> {
        let range = self.state..self.state + len;
        self.state = range.end;
        let shape = vec![len];
        self.tensors.push(Tensor { name, kind: Kind::State, shape, range: range.clone() });
        self.starts.push(start);
        range
    }

    fn layers(&mut self, layers: &[Layer], input: NodeId, path: &str) -> Result<NodeId, Error> {
        let mut at = input;
        for (i, layer) in layers.iter().enumerate() {
            at = self.layer(layer, at, &format!("{path}.{i}"))?;
        }
        Ok(at)
    }

    fn layer(&mut self, layer: &Layer, x: NodeId, path: &str) -> Result<NodeId, Error> {
        let input = self.nodes[x].shape;
        let shape = shape::after(layer, input).map_err(|m| Error::Shape(m.message))?;
        let channels = shape.channels();
        Ok(match layer {
            Layer::Dense(d) => self.dense(d, x, path),
            Layer::Conv2D(c) => self.conv(c, x, shape, path)?,
            Layer::MaxPooling2D(p) => {
                let window = pool_window(p, input).map_err(Error::Shape)?;
                if window.kernel_h * window.kernel_w > 256 {
                    return Err(Error::Shape(
                        "MaxPooling2D windows have at most 256 pixels".into(),
                    ));
                }
                self.node(Op::MaxPool(window), vec![x], shape)
            }
            Layer::AveragePooling2D(p) => {
                let window = pool_window(p, input).map_err(Error::Shape)?;
                self.node(Op::AveragePool(window), vec![x], shape)
            }
            Layer::GlobalAveragePooling2D(_) => self.node(Op::GlobalAverage, vec![x], shape),
            Layer::Flatten(_) => self.node(Op::Flatten, vec![x], shape),
            Layer::BatchNormalization(b) => {
                let name = |part: &str| format!("{path}.{part}");
                let op = Op::BatchNorm(BatchNorm {
                    gamma: self.parameter(name("gamma"), vec![channels], Start::Ones),
                    beta: self.parameter(name("beta"), vec![channels], Start::Zeros),
                    mean: self.state(name("moving_mean"), channels, Start::Zeros),
                    variance: self.state(name("moving_variance"), channels, Start::Ones),
                    momentum: b.momentum,
                    epsilon: b.epsilon,
                });
                self.node(op, vec![x], shape)
            }
            Layer::LayerNormalization(l) => {
                let op = Op::LayerNorm {
                    gamma: self.parameter(format!("{path}.gamma"), vec![channels], Start::Ones),
                    beta: self.parameter(format!("{path}.beta"), vec![channels], Start::Zeros),
                    epsilon: l.epsilon,
                };
                self.node(op, vec![x], shape)
            }
            Layer::Dropout(d) => self.node(Op::Dropout { rate: d.rate }, vec![x], shape),
            Layer::Activation(f) => self.activate(*f, x),
            Layer::Residual(r) => self.residual(r, x, path)?,
            Layer::Concat(c) => {
                let mut inputs = vec![];
                for (i, branch) in c.branches.iter().enumerate() {
                    inputs.push(self.layers(branch, x, &format!("{path}.branch{i}"))?);
                }
                self.node(Op::Concat, inputs, shape)
            }
        })
    }

    fn activate(&mut self, f: Activation, x: NodeId) -> NodeId {
        if f == Activation::Linear {
            return x;
        }
        let shape = self.nodes[x].shape;
        self.node(Op::Activate(f), vec![x], shape)
    }

    fn dense(&mut self, d: &Dense, x: NodeId, path: &str) -> NodeId {
        let inputs = self.nodes[x].shape.len();
        let fans = (inputs, d.units);
        let kernel = self.parameter(
            format!("{path}.kernel"),
            vec![inputs, d.units],
            Start::drawn(d.kernel_initializer, fans),
        );
        let bias = d.use_bias.then(|| self.bias(d.units, d.bias_initializer, path));
        let y = self.node(Op::Dense { kernel, bias }, vec![x], Shape::Vector(d.units));
        self.activate(d.activation, y)
    }

    fn bias(&mut self, len: usize, initializer: Initializer, path: &str) -> Range<usize> {
        self.parameter(format!("{path}.bias"), vec![len], Start::drawn(initializer, (len, len)))
    }

    fn conv(&mut self, c: &Conv2D, x: NodeId, shape: Shape, path: &str) -> Result<NodeId, Error> {
        let input = self.nodes[x].shape;
        let window = conv_window(c, input).map_err(Error::Shape)?;
        let depth = input.channels() / c.groups;
        let field = window.kernel_h * window.kernel_w;
        let kernel = self.parameter(
            format!("{path}.kernel"),
            vec![window.kernel_h, window.kernel_w, depth, c.filters],
            Start::drawn(c.kernel_initializer, (field * depth, field * c.filters)),
        );
        let bias = c.use_bias.then(|| self.bias(c.filters, c.bias_initializer, path));
        let y = self.node(Op::Conv { kernel, bias, window, groups: c.groups }, vec![x], shape);
        Ok(self.activate(c.activation, y))
    }

    fn residual(&mut self, r: &Residual, x: NodeId, path: &str) -> Result<NodeId, Error> {
        let main = self.layers(&r.layers, x, &format!("{path}.main"))?;
        let shortcut = self.layers(&r.shortcut, x, &format!("{path}.shortcut"))?;
        let shape = self.nodes[main].shape;
        let sum = self.node(Op::Add { scale: r.scale }, vec![main, shortcut], shape);
        Ok(self.activate(r.activation, sum))
    }
}
