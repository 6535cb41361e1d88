//! How a batch is cut into shards and parameters into blocks, and the norms of gradients.
//!
//! Owns the cuts, which are part of the arithmetic. Never adds shards up: that is [`crate::tree`].

use std::ops::Range;

/// Parameters per block. Ownership of parameters falls on block boundaries, and norms are summed
/// block by block, so that neither depends on how many own them.
pub const BLOCK: usize = 4096;

/// Positions of an `n`-example batch that are in shard `v` of `shards`.
pub fn shard_range(n: usize, shards: usize, v: usize) -> Range<usize> {
    v * n / shards..(v + 1) * n / shards
}

/// The blocks of `len` parameters.
pub fn blocks(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(BLOCK).map(move |from| from..(from + BLOCK).min(len))
}

widest! {
    /// Sum of squares in f64: eight interleaved chains, added up in order.
    pub fn squares(values: &[f32]) -> f64 {
        let mut chains = [0f64; 8];
        let chunks = values.chunks_exact(8);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (sum, v) in chains.iter_mut().zip(chunk) {
                *sum += f64::from(*v) * f64::from(*v);
            }
        }
        for (sum, v) in chains.iter_mut().zip(rest) {
            *sum += f64::from(*v) * f64::from(*v);
        }
        chains.iter().sum()
    }
}

/// Factor that brings a gradient of norm `norm` to at most `limit`.
pub fn clip_factor(norm: f64, limit: f32) -> f32 {
    let limit = f64::from(limit);
    if norm > limit { (limit / norm) as f32 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_a_batch_once() {
        for (n, shards) in [(100, 8), (7, 8), (0, 3), (128, 1), (5, 5), (1000, 7)] {
            let mut next = 0;
            for v in 0..shards {
                let r = shard_range(n, shards, v);
                assert_eq!(r.start, next);
                assert!(r.len() <= n.div_ceil(shards));
                next = r.end;
            }
            assert_eq!(next, n);
        }
    }

    #[test]
    fn clipping_leaves_small_gradients_alone() {
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert_eq!(clip_factor(4.0, 1.0), 0.25);
    }
}
