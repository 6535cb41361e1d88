//! Shards' gradients become one, in an order that depends on shard numbers alone.

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

/// Folds `items` in the fixed binary tree over their numbers: neighbours first, then pairs of
/// pairs. An aligned run of shards is a subtree, so whoever holds one may fold it alone.
pub fn tree_fold<T>(items: &mut [T], mut merge: impl FnMut(&mut T, &mut T)) {
    let mut step = 1;
    while step < items.len() {
        for i in (0..items.len() - step).step_by(2 * step) {
            let (left, right) = items.split_at_mut(i + step);
            merge(&mut left[i], &mut right[0]);
        }
        step *= 2;
    }
}

/// out = the tree sum of `shard(v)` over all shards, times `scale`. `scratch` is reused between
/// calls. Returns the sum of [`squares`] of the result.
pub fn tree_sum<'a>(
    shards: usize,
    shard: impl Fn(usize) -> &'a [f32],
    scale: f32,
    out: &mut [f32],
    scratch: &mut Vec<f32>,
) -> f64 {
    scratch.resize(tree_scratch(out.len(), shards), 0.0);
    match shards {
        1 => copy_scaled(shard(0), scale, out),
        _ => {
            let (left, right) = split_tree(shards);
            sum_subtree(0, left, &shard, out, scratch);
            let (rest, scratch) = scratch.split_at_mut(out.len());
            sum_subtree(left, right, &shard, rest, scratch);
            add_scaled(rest, scale, out);
        }
    }
    squares(out)
}

/// Length of [`tree_sum`]'s scratch.
pub fn tree_scratch(len: usize, shards: usize) -> usize {
    len * shards.next_power_of_two().ilog2() as usize
}

/// A tree of `count` ≥ 2 is its largest aligned subtree and the rest.
fn split_tree(count: usize) -> (usize, usize) {
    let left = count.next_power_of_two() / 2;
    (left, count - left)
}

fn sum_subtree<'a>(
    first: usize,
    count: usize,
    shard: &impl Fn(usize) -> &'a [f32],
    out: &mut [f32],
    scratch: &mut [f32],
) {
    match count {
        1 => out.copy_from_slice(shard(first)),
        2 => add(shard(first), shard(first + 1), out),
        _ => {
            let (left, right) = split_tree(count);
            sum_subtree(first, left, shard, out, scratch);
            let (rest, scratch) = scratch.split_at_mut(out.len());
            sum_subtree(first + left, right, shard, rest, scratch);
            add_scaled(rest, 1.0, out);
        }
    }
}

widest! {
    /// out = a + b
    fn add(a: &[f32], b: &[f32], out: &mut [f32]) {
        for ((o, a), b) in out.iter_mut().zip(a).zip(b) {
            *o = a + b;
        }
    }
}

widest! {
    /// out = (out + a) · scale
    fn add_scaled(a: &[f32], scale: f32, out: &mut [f32]) {
        for (o, a) in out.iter_mut().zip(a) {
            *o = (*o + a) * scale;
        }
    }
}

widest! {
    /// out = a · scale
    fn copy_scaled(a: &[f32], scale: f32, out: &mut [f32]) {
        for (o, a) in out.iter_mut().zip(a) {
            *o = a * scale;
        }
    }
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
    fn tree_sum_and_tree_fold_add_in_the_same_order() {
        for shards in 1..=17 {
            // Values whose sum depends on the order.
            let values: Vec<[f32; 1]> =
                (0..shards).map(|v| [1.0 + 1.0e-7 * (v as f32 + 1.0) * 3.3]).collect();
            let mut folded: Vec<f32> = values.iter().map(|v| v[0]).collect();
            tree_fold(&mut folded, |a, b| *a += *b);
            let mut out = [0.0];
            tree_sum(shards, |v| &values[v], 1.0, &mut out, &mut vec![]);
            assert_eq!(out[0].to_bits(), folded[0].to_bits(), "{shards} shards");
        }
    }

    #[test]
    fn an_aligned_run_is_a_subtree() {
        let values: Vec<f32> = (0..8).map(|v| 0.1 * v as f32 + 1.0e-6).collect();
        let mut whole = values.clone();
        tree_fold(&mut whole, |a, b| *a += *b);
        let mut left = values[..4].to_vec();
        let mut right = values[4..].to_vec();
        tree_fold(&mut left, |a, b| *a += *b);
        tree_fold(&mut right, |a, b| *a += *b);
        assert_eq!(whole[0].to_bits(), (left[0] + right[0]).to_bits());
    }

    #[test]
    fn clipping_leaves_small_gradients_alone() {
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert_eq!(clip_factor(4.0, 1.0), 0.25);
    }
}
