//! Layers and losses once more, in f64, in the plainest loops there are, straight from the recipe.
//!
//! Shares no code with the engine but the recipe's shapes. Never computes a gradient: tests take
//! differences of the loss.

mod check;
mod loss;

pub use check::{Case, check_all};
pub use loss::Wanted;

use planaria_recipe::model::{Activation, BatchNormalization, Concat, Conv2D, Dense, Residual};
use planaria_recipe::shape::{self, Window};
use planaria_recipe::{Layer, Shape};

/// Some examples' values, channels innermost.
#[derive(Clone)]
pub struct Values {
    pub examples: usize,
    pub shape: Shape,
    pub data: Vec<f64>,
}

/// Sums of a batch normalisation's channel.
#[derive(Clone, Copy, Default)]
pub struct Moments {
    pub count: f64,
    pub sum: f64,
    pub square: f64,
}

/// One forward pass; takes parameters from a flat buffer in plan order.
pub struct Pass<'a> {
    parameters: &'a [f64],
    /// Running averages: inference. Without: training.
    state: Option<&'a [f64]>,
    at: usize,
    state_at: usize,
    /// Of each normalised channel, in plan order.
    pub moments: Vec<Moments>,
    /// How near any value came to a kink: to zero below relu, to the next largest in a max pool.
    pub margin: f64,
    /// Multiply-adds done, to tell what a pass costs.
    pub work: usize,
}

/// Output of `layers`, and the pass that made it.
pub fn forward<'a>(
    layers: &[Layer],
    input: Values,
    parameters: &'a [f64],
    state: Option<&'a [f64]>,
) -> (Values, Pass<'a>) {
    let moments = vec![];
    let mut pass = Pass { parameters, state, at: 0, state_at: 0, moments, margin: 1.0, work: 0 };
    let output = pass.list(layers, &input);
    assert_eq!(pass.at, parameters.len(), "the reference takes every parameter");
    (output, pass)
}

impl Pass<'_> {
    fn take(&mut self, count: usize) -> Vec<f64> {
        self.at += count;
        self.parameters[self.at - count..self.at].to_vec()
    }

    fn list(&mut self, layers: &[Layer], x: &Values) -> Values {
        layers.iter().fold(x.clone(), |x, layer| self.layer(layer, &x))
    }

    fn layer(&mut self, layer: &Layer, x: &Values) -> Values {
        let shape = shape::after(layer, x.shape).expect("the test's layers fit");
        match layer {
            Layer::Dense(d) => self.dense(d, x),
            Layer::Conv2D(c) => self.conv(c, x, shape),
            Layer::MaxPooling2D(p) => {
                let window = shape::pool_window(p, x.shape).expect("the window fits");
                pool(&window, x, shape, |seen| {
                    let top = seen.iter().fold(f64::MIN, |a, b| a.max(*b));
                    seen.iter().for_each(|v| self.note(top - v));
                    top
                })
            }
            Layer::AveragePooling2D(p) => {
                let window = shape::pool_window(p, x.shape).expect("the window fits");
                pool(&window, x, shape, |seen| seen.iter().sum::<f64>() / seen.len() as f64)
            }
            Layer::GlobalAveragePooling2D(_) => global_average(x, shape),
            Layer::Flatten(_) => Values { shape, ..x.clone() },
            Layer::BatchNormalization(b) => self.batch_norm(b, x),
            Layer::LayerNormalization(l) => {
                let channels = x.shape.channels();
                let (gamma, beta) = (self.take(channels), self.take(channels));
                layer_norm(x, &gamma, &beta, f64::from(l.epsilon))
            }
            Layer::Dropout(d) => {
                assert!(d.rate == 0.0 || self.state.is_some(), "random layers have no reference");
                x.clone()
            }
            Layer::Activation(f) => self.activate(*f, x.clone()),
            Layer::Residual(r) => self.residual(r, x),
            Layer::Concat(c) => self.concat(c, x, shape),
        }
    }

    fn activate(&mut self, f: Activation, x: Values) -> Values {
        if matches!(f, Activation::Relu | Activation::LeakyRelu) {
            x.data.iter().for_each(|v| self.note(v.abs()));
        }
        activate(f, x)
    }

    /// Notes a distance from a kink; what is exactly on it stays there.
    fn note(&mut self, distance: f64) {
        if distance > 0.0 {
            self.margin = self.margin.min(distance);
        }
    }

    fn dense(&mut self, d: &Dense, x: &Values) -> Values {
        let inputs = x.shape.len();
        let kernel = self.take(inputs * d.units);
        let bias = if d.use_bias { self.take(d.units) } else { vec![0.0; d.units] };
        let mut data = vec![];
        for row in x.data.chunks_exact(inputs) {
            let mut out = bias.clone();
            for (v, weights) in row.iter().zip(kernel.chunks_exact(d.units)) {
                out.iter_mut().zip(weights).for_each(|(o, w)| *o += v * w);
            }
            data.extend(out);
        }
        self.work += kernel.len() * x.examples;
        let shape = Shape::Vector(d.units);
        self.activate(d.activation, Values { examples: x.examples, shape, data })
    }

    fn conv(&mut self, c: &Conv2D, x: &Values, shape: Shape) -> Values {
        let window = shape::conv_window(c, x.shape).expect("the window fits");
        let channels = x.shape.channels();
        let (depth, wide) = (channels / c.groups, c.filters / c.groups);
        let kernel = self.take(window.kernel_h * window.kernel_w * depth * c.filters);
        let bias = if c.use_bias { self.take(c.filters) } else { vec![0.0; c.filters] };
        let mut data = vec![];
        for image in x.data.chunks_exact(x.shape.len()) {
            for_each_window(&window, x.shape, |pixels| {
                let mut out = bias.clone();
                for (tap, pixel) in pixels {
                    for group in 0..c.groups {
                        for d in 0..depth {
                            let v = image[pixel * channels + group * depth + d];
                            let row = (tap * depth + d) * c.filters + group * wide;
                            let weights = &kernel[row..row + wide];
                            let out = &mut out[group * wide..][..wide];
                            out.iter_mut().zip(weights).for_each(|(o, w)| *o += v * w);
                        }
                    }
                }
                data.extend(out);
            });
        }
        self.work += kernel.len() * shape.pixels() * x.examples;
        self.activate(c.activation, Values { examples: x.examples, shape, data })
    }

    fn batch_norm(&mut self, b: &BatchNormalization, x: &Values) -> Values {
        let channels = x.shape.channels();
        let (gamma, beta) = (self.take(channels), self.take(channels));
        let mut y = x.clone();
        let state_at = self.state_at;
        self.state_at += 2 * channels;
        for c in 0..channels {
            let own = || x.data.iter().skip(c).step_by(channels);
            let count = own().count() as f64;
            let sum = own().sum::<f64>();
            let square = own().map(|v| v * v).sum::<f64>();
            self.moments.push(Moments { count, sum, square });
            let (mean, variance) = match self.state {
                Some(state) => (state[state_at + c], state[state_at + channels + c]),
                None => {
                    let mean = sum / count;
                    (mean, own().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count)
                }
            };
            let deviation = (variance + f64::from(b.epsilon)).sqrt();
            for v in y.data.iter_mut().skip(c).step_by(channels) {
                *v = (*v - mean) / deviation * gamma[c] + beta[c];
            }
        }
        y
    }

    fn residual(&mut self, r: &Residual, x: &Values) -> Values {
        let mut sum = self.list(&r.layers, x);
        let shortcut = self.list(&r.shortcut, x);
        for (v, s) in sum.data.iter_mut().zip(&shortcut.data) {
            *v = *v * f64::from(r.scale) + s;
        }
        self.activate(r.activation, sum)
    }

    fn concat(&mut self, c: &Concat, x: &Values, shape: Shape) -> Values {
        let parts: Vec<Values> = c.branches.iter().map(|branch| self.list(branch, x)).collect();
        let mut data = vec![];
        for pixel in 0..x.examples * shape.pixels() {
            for part in &parts {
                let channels = part.shape.channels();
                data.extend_from_slice(&part.data[pixel * channels..][..channels]);
            }
        }
        Values { examples: x.examples, shape, data }
    }
}

/// Calls with (number of tap, number of input pixel) of each window's pixels inside the image.
fn for_each_window(w: &Window, shape: Shape, mut f: impl FnMut(&[(usize, usize)])) {
    let Shape::Image { height, width, .. } = shape else { panic!("windows slide over images") };
    let mut pixels = vec![];
    for oy in 0..w.out_h {
        for ox in 0..w.out_w {
            pixels.clear();
            for ky in 0..w.kernel_h {
                for kx in 0..w.kernel_w {
                    let y = (oy * w.stride_h + ky).wrapping_sub(w.pad_top);
                    let x = (ox * w.stride_w + kx).wrapping_sub(w.pad_left);
                    if y < height && x < width {
                        pixels.push((ky * w.kernel_w + kx, y * width + x));
                    }
                }
            }
            f(&pixels);
        }
    }
}

fn pool(window: &Window, x: &Values, shape: Shape, mut f: impl FnMut(&[f64]) -> f64) -> Values {
    let channels = x.shape.channels();
    let mut data = vec![];
    for image in x.data.chunks_exact(x.shape.len()) {
        for_each_window(window, x.shape, |pixels| {
            for c in 0..channels {
                let seen: Vec<f64> = pixels.iter().map(|(_, p)| image[p * channels + c]).collect();
                data.push(f(&seen));
            }
        });
    }
    Values { examples: x.examples, shape, data }
}

fn global_average(x: &Values, shape: Shape) -> Values {
    let (channels, pixels) = (x.shape.channels(), x.shape.pixels() as f64);
    let mut data = vec![];
    for image in x.data.chunks_exact(x.shape.len()) {
        for c in 0..channels {
            data.push(image.iter().skip(c).step_by(channels).sum::<f64>() / pixels);
        }
    }
    Values { examples: x.examples, shape, data }
}

fn layer_norm(x: &Values, gamma: &[f64], beta: &[f64], epsilon: f64) -> Values {
    let mut y = x.clone();
    for pixel in y.data.chunks_exact_mut(gamma.len()) {
        let count = pixel.len() as f64;
        let mean = pixel.iter().sum::<f64>() / count;
        let variance = pixel.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
        for (c, v) in pixel.iter_mut().enumerate() {
            *v = (*v - mean) / (variance + epsilon).sqrt() * gamma[c] + beta[c];
        }
    }
    y
}

fn activate(f: Activation, mut x: Values) -> Values {
    let channels = x.shape.channels();
    let each: fn(f64) -> f64 = match f {
        Activation::Linear => |v| v,
        Activation::Relu => |v| v.max(0.0),
        Activation::LeakyRelu => |v| if v > 0.0 { v } else { 0.2 * v },
        Activation::Gelu => |v| 0.5 * v * (1.0 + libm::erf(v / std::f64::consts::SQRT_2)),
        Activation::Sigmoid => |v| 1.0 / (1.0 + libm::exp(-v)),
        Activation::Tanh => libm::tanh,
        Activation::Softmax => {
            for pixel in x.data.chunks_exact_mut(channels) {
                let sum: f64 = pixel.iter().map(|v| libm::exp(*v)).sum();
                pixel.iter_mut().for_each(|v| *v = libm::exp(*v) / sum);
            }
            return x;
        }
    };
    x.data.iter_mut().for_each(|v| *v = each(*v));
    x
}
