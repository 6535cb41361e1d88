//! From a batch normalisation's sums to what its passes need. In f64, channel by channel.

use super::workspace::NormState;
use crate::program::{Compiled, Norm};

/// Mean and deviation of the shard from its sums; writes the statistics (count, mean, M2).
pub fn forward(norm: &Norm, state: &mut NormState, parameters: &[f32], stats: &mut [f32]) {
    let channels = norm.channels();
    let count = state.count;
    for c in 0..channels {
        let mean = state.sum[c] / count;
        let variance = (state.square[c] / count - mean * mean).max(0.0);
        let inverse = 1.0 / (variance + f64::from(norm.plan.epsilon)).sqrt();
        state.mean[c] = mean as f32;
        state.inverse[c] = inverse as f32;
        set_affine(norm, state, parameters, c, mean, inverse);
        stats[norm.stats + c] = count as f32;
        stats[norm.stats + channels + c] = mean as f32;
        stats[norm.stats + 2 * channels + c] = (variance * count) as f32;
    }
    state.clear();
}

/// Parameter gradients, and the coefficients of dz = a·g + b·z + c.
pub fn backward(norm: &Norm, state: &mut NormState, parameters: &[f32], gradients: &mut [f32]) {
    for c in 0..norm.channels() {
        let inverse = f64::from(state.inverse[c]);
        let mean = f64::from(state.mean[c]);
        let slope = state.square[c] * inverse;
        gradients[norm.plan.gamma.start + c] = slope as f32;
        gradients[norm.plan.beta.start + c] = state.sum[c] as f32;
        let k = f64::from(parameters[norm.plan.gamma.start + c]) * inverse;
        let (m1, m2) = (state.sum[c] / state.count, slope / state.count);
        state.a[c] = k as f32;
        state.b[c] = (-k * inverse * m2) as f32;
        state.c[c] = (k * (mean * inverse * m2 - m1)) as f32;
    }
    state.clear();
}

/// Scale and shift from the running averages, for inference.
pub fn from_running(
    compiled: &Compiled,
    norms: &mut [NormState],
    parameters: &[f32],
    state: &[f32],
) {
    for (norm, n) in compiled.norms.iter().zip(norms) {
        for c in 0..norm.channels() {
            let (mean, inverse) = running(norm, state, c);
            set_affine(norm, n, parameters, c, mean, inverse);
        }
    }
}

/// Running mean and 1/σ of a channel.
pub fn running(norm: &Norm, state: &[f32], c: usize) -> (f64, f64) {
    let mean = f64::from(state[norm.plan.mean.start + c]);
    let variance = f64::from(state[norm.plan.variance.start + c]);
    (mean, 1.0 / (variance + f64::from(norm.plan.epsilon)).sqrt())
}

fn set_affine(
    norm: &Norm,
    state: &mut NormState,
    parameters: &[f32],
    c: usize,
    mean: f64,
    inverse: f64,
) {
    let scale = f64::from(parameters[norm.plan.gamma.start + c]) * inverse;
    state.scale[c] = scale as f32;
    state.shift[c] = (f64::from(parameters[norm.plan.beta.start + c]) - mean * scale) as f32;
}

/// Merges statistics b into a (Chan, Golub and LeVeque 1979), channel by channel.
pub fn merge_stats(compiled: &Compiled, a: &mut [f32], b: &[f32]) {
    for norm in &compiled.norms {
        let channels = norm.channels();
        for c in norm.stats..norm.stats + channels {
            let (na, nb) = (f64::from(a[c]), f64::from(b[c]));
            if nb == 0.0 {
                continue;
            }
            let (mean, m2) = (c + channels, c + 2 * channels);
            let n = na + nb;
            let delta = f64::from(b[mean]) - f64::from(a[mean]);
            a[c] = n as f32;
            a[mean] = (f64::from(a[mean]) + delta * nb / n) as f32;
            a[m2] = (f64::from(a[m2]) + f64::from(b[m2]) + delta * delta * na * nb / n) as f32;
        }
    }
}

/// Moves the running averages towards the step's statistics. The variance is the unbiased one.
pub fn update_running(compiled: &Compiled, stats: &[f32], state: &mut [f32]) {
    for norm in &compiled.norms {
        let (channels, keep) = (norm.channels(), f64::from(norm.plan.momentum));
        for c in 0..channels {
            let count = f64::from(stats[norm.stats + c]);
            if count == 0.0 {
                continue;
            }
            let mean = f64::from(stats[norm.stats + channels + c]);
            let m2 = f64::from(stats[norm.stats + 2 * channels + c]);
            let variance = m2 / (count - 1.0).max(1.0);
            let mut moved = |at: usize, to: f64| {
                state[at] = (keep * f64::from(state[at]) + (1.0 - keep) * to) as f32;
            };
            moved(norm.plan.mean.start + c, mean);
            moved(norm.plan.variance.start + c, variance);
        }
    }
}
