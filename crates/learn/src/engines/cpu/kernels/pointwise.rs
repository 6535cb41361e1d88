//! Element by element: activations, sums, dropout, layer normalisation.
//!
//! Plain loops over slices; transcendental functions come from `libm`, whose bits do not depend on
//! the processor.

use crate::loss::{sigmoid, softmax};
use planaria_numerics::random::Stream;
use planaria_recipe::model::Activation;

/// Slope of `leaky_relu` below zero.
const LEAK: f32 = 0.2;

/// y = f(x); `channels` is what softmax runs over.
pub fn activate(f: Activation, channels: usize, x: &[f32], y: &mut [f32]) {
    let each = |y: &mut [f32], f: fn(f32) -> f32| {
        for (y, x) in y.iter_mut().zip(x) {
            *y = f(*x);
        }
    };
    match f {
        Activation::Linear => y.copy_from_slice(x),
        Activation::Relu => each(y, |x| if x > 0.0 { x } else { 0.0 }),
        Activation::LeakyRelu => each(y, |x| if x > 0.0 { x } else { LEAK * x }),
        Activation::Gelu => each(y, |x| x * normal_cdf(x)),
        Activation::Sigmoid => each(y, sigmoid),
        Activation::Tanh => each(y, libm::tanhf),
        Activation::Softmax => {
            for (y, x) in y.chunks_exact_mut(channels).zip(x.chunks_exact(channels)) {
                softmax(x, y);
            }
        }
    }
}

/// dx = f'(x) · g, given x and y = f(x).
pub fn activate_gradient(
    f: Activation,
    channels: usize,
    x: &[f32],
    y: &[f32],
    g: &[f32],
    dx: &mut [f32],
) {
    match f {
        Activation::Linear => dx.copy_from_slice(g),
        Activation::Relu => from_output(y, g, dx, |y, g| if y > 0.0 { g } else { 0.0 }),
        Activation::LeakyRelu => from_output(y, g, dx, |y, g| if y > 0.0 { g } else { LEAK * g }),
        Activation::Sigmoid => from_output(y, g, dx, |y, g| g * (y * (1.0 - y))),
        Activation::Tanh => from_output(y, g, dx, |y, g| g * (1.0 - y * y)),
        Activation::Gelu => from_output(x, g, dx, |x, g| {
            let density = libm::expf(-0.5 * x * x) * 0.398_942_3;
            g * (normal_cdf(x) + x * density)
        }),
        Activation::Softmax => {
            let chunks = y.chunks_exact(channels).zip(g.chunks_exact(channels));
            for (dx, (y, g)) in dx.chunks_exact_mut(channels).zip(chunks) {
                let dot = y.iter().zip(g).fold(0f32, |sum, (y, g)| y.mul_add(*g, sum));
                from_output(y, g, dx, |y, g| y * (g - dot));
            }
        }
    }
}

fn from_output(y: &[f32], g: &[f32], dx: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for ((dx, y), g) in dx.iter_mut().zip(y).zip(g) {
        *dx = f(*y, *g);
    }
}

fn normal_cdf(x: f32) -> f32 {
    0.5 * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// Cuts the gradient where y is not positive, in place.
pub fn mask(g: &mut [f32], y: &[f32]) {
    for (g, y) in g.iter_mut().zip(y) {
        *g = if *y > 0.0 { *g } else { 0.0 };
    }
}

/// y = relu?(a · scale + b)
pub fn add_scaled(a: &[f32], scale: f32, b: &[f32], relu: bool, y: &mut [f32]) {
    for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
        let v = a * scale + b;
        *y = if relu && v <= 0.0 { 0.0 } else { v };
    }
}

/// to = from · scale, or to += from · scale.
pub fn scale_into(from: &[f32], scale: f32, add: bool, to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = if add { *to + from * scale } else { from * scale };
    }
}

/// Zeroes a share `rate` of the values and scales the others up; the same stream and position give
/// the same mask, so it serves the backward pass too. `position` counts values in the whole shard.
pub fn dropout(stream: &Stream, position: usize, rate: f32, x: &[f32], y: &mut [f32]) {
    let below = (f64::from(rate) * 4_294_967_296.0) as u64;
    let scale = 1.0 / (1.0 - rate);
    let mut block = [0; 4];
    for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
        let at = position + i;
        if i == 0 || at.is_multiple_of(4) {
            block = stream.block(at as u64 / 4);
        }
        *y = if u64::from(block[at % 4]) < below { 0.0 } else { x * scale };
    }
}

/// Layer normalisation of each pixel over its channels: y = (x − mean)/σ · gamma + beta.
pub fn layer_norm(x: &[f32], gamma: &[f32], beta: &[f32], epsilon: f32, y: &mut [f32]) {
    let channels = gamma.len();
    for (x, y) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
        let (mean, inverse) = moments(x, epsilon);
        for c in 0..channels {
            y[c] = ((x[c] - mean) * inverse).mul_add(gamma[c], beta[c]);
        }
    }
}

/// Gradient of [`layer_norm`]; adds to `dgamma` and `dbeta`, writes `dx`.
pub fn layer_norm_gradient(
    x: &[f32],
    gamma: &[f32],
    epsilon: f32,
    g: &[f32],
    dx: &mut [f32],
    (dgamma, dbeta): (&mut [f32], &mut [f32]),
) {
    let channels = gamma.len();
    let pixels = x.chunks_exact(channels).zip(g.chunks_exact(channels));
    for (dx, (x, g)) in dx.chunks_exact_mut(channels).zip(pixels) {
        let (mean, inverse) = moments(x, epsilon);
        let (mut sum, mut product) = (0f64, 0f64);
        for c in 0..channels {
            let normal = (x[c] - mean) * inverse;
            dgamma[c] += g[c] * normal;
            dbeta[c] += g[c];
            let d = f64::from(g[c] * gamma[c]);
            sum += d;
            product += d * f64::from(normal);
        }
        let (sum, product) = ((sum / channels as f64) as f32, (product / channels as f64) as f32);
        for c in 0..channels {
            let normal = (x[c] - mean) * inverse;
            dx[c] = inverse * (g[c] * gamma[c] - sum - normal * product);
        }
    }
}

fn moments(x: &[f32], epsilon: f32) -> (f32, f32) {
    let n = x.len() as f64;
    let mean = x.iter().fold(0f64, |s, v| s + f64::from(*v)) / n;
    let variance = x.iter().fold(0f64, |s, v| {
        let d = f64::from(*v) - mean;
        s + d * d
    }) / n;
    (mean as f32, (1.0 / (variance + f64::from(epsilon)).sqrt()) as f32)
}
