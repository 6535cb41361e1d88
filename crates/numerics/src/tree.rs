//! The fixed tree in which shards' gradients become one, in an order that depends on shard numbers
//! alone.
//!
//! A tree over some shards is its largest full subtree and the rest: a node at level k covers
//! shards `first..min(first + 2^k, shards)`, where `first` is a multiple of 2^k. A process that holds all
//! shards of a node may add them up alone ([`segment_sum`]), and one that gets such sums finishes
//! the tree ([`tree_sum_segments`]): the bits are those of [`tree_sum`]. Never asks who holds what.

use crate::aggregate::squares;
use std::ops::Range;

/// A run of shards that is a node of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// Its first shard.
    pub first: usize,
    /// Number of shards.
    pub count: usize,
}

impl Segment {
    pub fn range(self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// The two nodes below one of at least 2 shards.
    fn split(self) -> (Self, Self) {
        let left = self.count.next_power_of_two() / 2;
        let right = Self { first: self.first + left, count: self.count - left };
        (Self { first: self.first, count: left }, right)
    }
}

/// Whether `segment` is a node of the tree over `shards` shards.
pub fn is_segment(shards: usize, segment: Segment) -> bool {
    let Some(end) = segment.first.checked_add(segment.count) else { return false };
    if segment.count == 0 || end > shards {
        return false;
    }
    let full = segment.count.next_power_of_two();
    segment.first.is_multiple_of(full) && (segment.count == full || end == shards)
}

/// The fewest nodes of the tree over `shards` shards that cover exactly `run`, ascending.
pub fn segments(shards: usize, run: Range<usize>) -> Vec<Segment> {
    each_segment(shards, run).collect()
}

/// [`segments`], one by one.
pub fn each_segment(shards: usize, run: Range<usize>) -> impl Iterator<Item = Segment> {
    assert!(run.end <= shards, "a run is of the shards there are");
    let mut first = run.start;
    std::iter::from_fn(move || {
        if first >= run.end {
            return None;
        }
        // Nodes that begin here contain each other: take the largest that does not go too far.
        let (mut end, mut size) = (first + 1, 1);
        while end < run.end && first.is_multiple_of(2 * size) {
            size *= 2;
            let larger = (first + size).min(shards);
            if larger > run.end {
                break;
            }
            end = larger;
        }
        let segment = Segment { first, count: end - first };
        first = end;
        Some(segment)
    })
}

/// Folds `items` in the tree over their numbers: neighbours first, then pairs of pairs.
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
    let known = |node: Segment| (node.count == 1).then(|| shard(node.first));
    sum_scaled(shards, &known, scale, out, scratch)
}

/// [`tree_sum`] from what others have summed: `values(i)` is the sum over the shards of
/// `segments[i]`, in the tree's order, and the segments are all shards in order.
pub fn tree_sum_segments<'a>(
    shards: usize,
    segments: &[Segment],
    values: impl Fn(usize) -> &'a [f32],
    scale: f32,
    out: &mut [f32],
    scratch: &mut Vec<f32>,
) -> f64 {
    let known = |node: Segment| {
        let at = segments.binary_search_by_key(&node.first, |s| s.first).ok()?;
        (segments[at].count == node.count).then(|| values(at))
    };
    sum_scaled(shards, &known, scale, out, scratch)
}

/// out = the sum of `shard(v)` over the shards v of one node, as it is within [`tree_sum`].
pub fn segment_sum<'a>(
    shards: usize,
    segment: Segment,
    shard: impl Fn(usize) -> &'a [f32],
    out: &mut [f32],
    scratch: &mut Vec<f32>,
) {
    out.copy_from_slice(shard(segment.first));
    segment_sum_in_place(shards, segment, shard, out, scratch);
}

/// [`segment_sum`] where `out` holds the first shard's values already; `shard` is asked for the
/// others alone.
pub fn segment_sum_in_place<'a>(
    shards: usize,
    segment: Segment,
    shard: impl Fn(usize) -> &'a [f32],
    out: &mut [f32],
    scratch: &mut Vec<f32>,
) {
    assert!(is_segment(shards, segment), "{segment:?} is a node of the tree over {shards} shards");
    grow(scratch, tree_scratch(out.len(), segment.count));
    let known = |node: Segment| (node.count == 1).then(|| shard(node.first));
    add_others(segment, &known, out, scratch);
}

/// Length of the scratch of a sum over `shards` shards of `len` values.
pub fn tree_scratch(len: usize, shards: usize) -> usize {
    len * shards.next_power_of_two().ilog2() as usize
}

fn grow(scratch: &mut Vec<f32>, len: usize) {
    if scratch.len() < len {
        scratch.resize(len, 0.0);
    }
}

/// The whole tree, from the nodes whose sum is known.
fn sum_scaled<'a>(
    shards: usize,
    known: &impl Fn(Segment) -> Option<&'a [f32]>,
    scale: f32,
    out: &mut [f32],
    scratch: &mut Vec<f32>,
) -> f64 {
    grow(scratch, tree_scratch(out.len(), shards));
    let root = Segment { first: 0, count: shards };
    if let Some(sum) = known(root) {
        copy_scaled(sum, scale, out);
    } else {
        let (left, right) = halves(root);
        if let (Some(a), Some(b)) = (known(left), known(right)) {
            sum_of_two(a, b, scale, out);
        } else {
            sum_node(left, known, out, scratch);
            add_node(right, known, scale, out, scratch);
        }
    }
    squares(out)
}

/// out = sum of a node
fn sum_node<'a>(
    node: Segment,
    known: &impl Fn(Segment) -> Option<&'a [f32]>,
    out: &mut [f32],
    scratch: &mut [f32],
) {
    if let Some(sum) = known(node) {
        out.copy_from_slice(sum);
        return;
    }
    let (left, right) = halves(node);
    if let (Some(a), Some(b)) = (known(left), known(right)) {
        add(a, b, out);
    } else {
        sum_node(left, known, out, scratch);
        add_node(right, known, 1.0, out, scratch);
    }
}

/// out = sum of a node, where out holds its first shard's values
fn add_others<'a>(
    node: Segment,
    known: &impl Fn(Segment) -> Option<&'a [f32]>,
    out: &mut [f32],
    scratch: &mut [f32],
) {
    if node.count > 1 {
        let (left, right) = node.split();
        add_others(left, known, out, scratch);
        add_node(right, known, 1.0, out, scratch);
    }
}

/// out = (out + sum of a node) · scale
fn add_node<'a>(
    node: Segment,
    known: &impl Fn(Segment) -> Option<&'a [f32]>,
    scale: f32,
    out: &mut [f32],
    scratch: &mut [f32],
) {
    if let Some(sum) = known(node) {
        add_scaled(sum, scale, out);
    } else {
        let (sum, scratch) = scratch.split_at_mut(out.len());
        sum_node(node, known, sum, scratch);
        add_scaled(sum, scale, out);
    }
}

fn halves(node: Segment) -> (Segment, Segment) {
    assert!(node.count > 1, "the segments cover all shards, each a node of the tree");
    node.split()
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
    /// out = (a + b) · scale
    fn sum_of_two(a: &[f32], b: &[f32], scale: f32, out: &mut [f32]) {
        for ((o, a), b) in out.iter_mut().zip(a).zip(b) {
            *o = (a + b) * scale;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};
    use proptest::prelude::*;

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
    fn nodes_of_a_tree_over_seven() {
        let nodes: Vec<Range<usize>> = (0..7)
            .flat_map(|first| (1..=7).map(move |count| Segment { first, count }))
            .filter(|s| is_segment(7, *s))
            .map(Segment::range)
            .collect();
        let wanted = [0..1, 0..2, 0..4, 0..7, 1..2, 2..3, 2..4, 3..4, 4..5, 4..6, 4..7, 5..6, 6..7];
        assert_eq!(nodes, wanted);
        assert!(!is_segment(7, Segment { first: usize::MAX, count: 2 }));
        assert!(!is_segment(7, Segment { first: 3, count: 0 }));
    }

    #[test]
    fn the_fewest_segments_cover_a_run() {
        let counts = |shards, run: Range<usize>| -> Vec<usize> {
            segments(shards, run).into_iter().map(|s| s.count).collect()
        };
        assert_eq!(counts(8, 0..8), [8]);
        assert_eq!(counts(8, 1..8), [1, 2, 4]);
        assert_eq!(counts(8, 3..7), [1, 2, 1]);
        assert_eq!(counts(5, 0..5), [5]);
        assert_eq!(counts(7, 2..7), [2, 3]);
        assert_eq!(counts(7, 3..3), [0; 0]);
    }

    #[test]
    #[should_panic(expected = "the segments cover all shards")]
    fn a_gap_is_not_summed_over() {
        let half = [Segment { first: 0, count: 2 }];
        tree_sum_segments(4, &half, |_| &[1.0], 1.0, &mut [0.0], &mut vec![]);
    }

    proptest! {
        /// Whatever workers the shards are dealt to, sums over their segments end in the bits of
        /// the whole tree.
        #[test]
        fn any_tiling_has_the_bits_of_the_whole(
            shards in 1usize..=40,
            cuts in prop::collection::vec(0usize..=40, 0..12),
            seed in any::<u64>(),
        ) {
            const LEN: usize = 11;
            let mut draws = Stream::new(seed, Purpose::Test, 0, 0);
            let values: Vec<Vec<f32>> = (0..shards)
                .map(|_| (0..LEN).map(|_| draws.normal() * 10.0).collect())
                .collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(shards)).collect();
            cuts.extend([0, shards]);
            cuts.sort_unstable();
            let tiling: Vec<Segment> =
                cuts.windows(2).flat_map(|w| segments(shards, w[0]..w[1])).collect();
            let mut next = 0;
            for segment in &tiling {
                prop_assert!(is_segment(shards, *segment));
                prop_assert_eq!(segment.first, next);
                next += segment.count;
            }
            prop_assert_eq!(next, shards);

            let (scale, mut scratch) = (1.0 / 37.0, vec![]);
            let sums: Vec<Vec<f32>> = tiling
                .iter()
                .map(|s| {
                    let mut out = vec![f32::NAN; LEN];
                    segment_sum(shards, *s, |v| &values[v], &mut out, &mut scratch);
                    out
                })
                .collect();
            let (mut whole, mut finished) = ([0.0; LEN], [f32::NAN; LEN]);
            let squares = tree_sum(shards, |v| &values[v], scale, &mut whole, &mut scratch);
            let same = tree_sum_segments(
                shards, &tiling, |i| &sums[i], scale, &mut finished, &mut scratch,
            );
            prop_assert_eq!(whole.map(f32::to_bits), finished.map(f32::to_bits));
            prop_assert_eq!(squares.to_bits(), same.to_bits());

            // Fewest: no two neighbours of one run are together a node.
            for w in cuts.windows(2) {
                for pair in segments(shards, w[0]..w[1]).windows(2) {
                    let count = pair[0].count + pair[1].count;
                    let both = Segment { first: pair[0].first, count };
                    prop_assert!(!is_segment(shards, both));
                }
            }
        }
    }
}
