//! From a batch normalisation's sums to what its passes need. In f64, channel by channel.

use super::workspace::NormState;
use crate::engines::cpu::program::Compiled;
use crate::statistics::Norm;

/// Mean and deviation of the shard from its sums; writes the statistics (count, mean, M2).
pub fn forward(norm: &Norm, state: &mut NormState, parameters: &[f32], stats: &mut [f32]) {
    let channels = norm.channels();
    let count = state.count;
    for c in 0..channels {
        let from_origin = state.sum[c] / count;
        let mean = f64::from(state.origin[c]) + from_origin;
        let variance = (state.square[c] / count - from_origin * from_origin).max(0.0);
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
pub fn backward(
    norm: &Norm,
    state: &mut NormState,
    parameters: &[f32],
    (dgamma, dbeta): (&mut [f32], &mut [f32]),
) {
    for c in 0..norm.channels() {
        let inverse = f64::from(state.inverse[c]);
        let mean = f64::from(state.mean[c]);
        let slope = state.square[c] * inverse;
        dgamma[c] = slope as f32;
        dbeta[c] = state.sum[c] as f32;
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
