//! Quantile bins: edges between which about as many training values lie.
//!
//! Equal values are never parted. A value with more rows than a bin should have takes a bin of its
//! own, and the others are shared out again, so that as many bins as were asked for come about
//! wherever there are as many different values.

/// Edges of at most `count` bins of `values`, ascending; bin i holds what is from edge i − 1 to below
/// edge i. Sorts `values`, which are finite.
pub(super) fn edges(values: &mut [f64], count: usize) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    // Runs of equal values: where each ends.
    let ends: Vec<usize> =
        (1..=values.len()).filter(|&i| i == values.len() || values[i] != values[i - 1]).collect();
    let mut edges = Vec::new();
    let (mut next, mut start) = (0, 0);
    for left in (2..=count.min(ends.len())).rev() {
        // The rows that are left, shared among the bins that are left.
        let wanted = (values.len() - start) as f64 / left as f64;
        // Each later bin needs a value of its own.
        let last = ends.len() - left;
        let over = |run: &usize| (ends[*run] - start) as f64 >= wanted;
        let mut run = (next..last).find(over).unwrap_or(last);
        let far = |run: usize| ((ends[run] - start) as f64 - wanted).abs();
        if run > next && far(run - 1) <= far(run) {
            run -= 1;
        }
        start = ends[run];
        next = run + 1;
        edges.push(between(values[start - 1], values[start]));
    }
    edges
}

/// Which bin a value falls in.
pub(super) fn bin(edges: &[f64], value: f64) -> usize {
    edges.partition_point(|edge| *edge <= value)
}

/// The middle of a < b; b itself where no number lies between.
fn between(a: f64, b: f64) -> f64 {
    let middle = a / 2.0 + b / 2.0;
    if middle > a && middle <= b { middle } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn sizes(values: &[f64], count: usize) -> Vec<usize> {
        let edges = edges(&mut values.to_vec(), count);
        let mut sizes = vec![0; edges.len() + 1];
        values.iter().for_each(|v| sizes[bin(&edges, *v)] += 1);
        sizes
    }

    proptest! {
        #[test]
        fn different_values_are_shared_evenly(
            values in prop::collection::btree_set(-1000i32..1000, 1..300),
            count in 2usize..20,
        ) {
            let list: Vec<f64> = values.iter().map(|v| f64::from(*v) * 0.1).collect();
            let sizes = sizes(&list, count);
            prop_assert_eq!(sizes.len(), count.min(list.len()));
            let (low, high) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assert!(high - low <= 1, "{sizes:?}");
        }

        #[test]
        fn equal_values_stay_together_and_no_bin_is_empty(
            values in prop::collection::vec(-6i32..6, 1..300),
            count in 2usize..20,
        ) {
            let list: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
            let sizes = sizes(&list, count);
            let different = values.iter().collect::<BTreeSet<_>>().len();
            prop_assert_eq!(sizes.len(), count.min(different));
            prop_assert!(sizes.iter().all(|n| *n > 0), "{sizes:?}");
        }

        #[test]
        fn edges_ascend_for_any_numbers(values in prop::collection::vec(any::<f64>(), 0..50)) {
            let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
            let edges = edges(&mut values, 7);
            prop_assert!(edges.windows(2).all(|w| w[0] < w[1]), "{edges:?}");
        }
    }

    #[test]
    fn a_heavy_value_takes_one_bin() {
        let mut values = vec![0.0; 60];
        values.extend((1..=40).map(f64::from));
        assert_eq!(sizes(&values, 5), [60, 10, 10, 10, 10]);
        assert_eq!(edges(&mut values, 5), [0.5, 10.5, 20.5, 30.5]);
        assert_eq!(edges(&mut [3.0, 3.0], 5), [0.0; 0]);
        assert_eq!(edges(&mut [], 5), [0.0; 0]);
    }
}
