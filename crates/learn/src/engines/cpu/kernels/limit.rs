//! The limit of the core: fused multiply-adds on registers alone. Benchmarks compare kernels with it.

use super::simd::{LANES, Simd, kernel};

/// Vectors that are multiplied and added side by side: enough to hide the latency, few enough for
/// the registers.
const fn chains<S: Simd>() -> usize {
    if S::WIDE { 12 } else { 6 }
}

kernel! {
    /// Runs `rounds` of fused multiply-adds v ← v · factor + factor; returns their number of operations, and a value that
    /// depends on all of them.
    ///
    /// # Safety
    /// The processor has the instruction set.
    pub fn multiply_adds(rounds: usize, factor: f32) -> (f64, f32) = multiply_adds_body
}

#[inline(always)]
unsafe fn multiply_adds_body<S: Simd>(rounds: usize, factor: f32) -> (f64, f32) {
    // SAFETY: registers, and one array of lanes.
    unsafe {
        let sum = if S::WIDE { run::<S, 12>(rounds, factor) } else { run::<S, 6>(rounds, factor) };
        let mut lanes = [0f32; LANES];
        S::store(lanes.as_mut_ptr(), sum);
        ((2 * LANES * chains::<S>() * rounds) as f64, lanes.iter().sum())
    }
}

#[inline(always)]
unsafe fn run<S: Simd, const N: usize>(rounds: usize, factor: f32) -> S::V {
    // SAFETY: registers alone.
    unsafe {
        let factor = S::splat(factor);
        // Chains that start apart cannot be taken for one.
        let mut values = [S::zero(); N];
        for (i, v) in values.iter_mut().enumerate() {
            *v = S::splat(i as f32);
        }
        for _ in 0..rounds {
            for v in values.iter_mut() {
                *v = S::fma(*v, factor, factor);
            }
        }
        let mut sum = S::zero();
        for v in values {
            sum = S::add(sum, v);
        }
        sum
    }
}
