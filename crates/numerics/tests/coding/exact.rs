//! Exact arithmetic against whole numbers of 128 bits, and its limits.

use crate::{
    cluster::{Cluster, Losses, Tally},
    numbers::{Numbers, SCALE, stream},
};
use planaria_numerics::coding::{
    Error, Slot,
    blocks::Rows,
    exact::{Columns, DataScale, Residue, WEIGHT_BITS, slopes_to_fixed, weights_to_fixed},
    ring,
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn products_are_whole_numbers_on_any_machines(
        machines in 1usize..=32, part in 0.0f64..1.0, rows in 1usize..120, seed in 0usize..10_000,
    ) {
        let threshold = 1 + ((machines - 1) as f64 * part) as usize;
        let width = 5;
        let mut draws = stream(seed, 9);
        let mut whole = |count: usize, bits: u32| -> Vec<i64> {
            (0..count).map(|_| draws.below(2 << bits) as i64 - (1 << bits)).collect()
        };
        // As large as they may be: five products of 2⁵⁷, at most 120 of 2⁵².
        let (x, w, g) = (whole(rows * width, 17), whole(width, 39), whole(rows, 35));
        let field = |v: &[i64]| -> Vec<Residue> { v.iter().map(|v| Residue::from_i64(*v)).collect() };
        let mut columns = Columns::new(width);
        columns.push(&Rows::Dense { width, values: &field(&x) }).expect("five columns");
        columns.check_weights(&field(&w)).expect("in range");
        columns.check_slopes(1, &field(&g)).expect("in range");

        let cluster = Cluster::new(threshold, machines, width, &field(&x));
        let alive = (0..machines as u16).map(Slot).collect();
        let places = 0..cluster.blocks.height();
        let plan = ring::arrange(&cluster.generator, Residue::PRECISION, places, &alive, None);
        let plan = plan.expect("good").ready().expect("enough");
        let mut losses = Losses { alive, draws: stream(seed, 10), one_in: 5, left: 10 };
        let mut tally = Tally::default();
        let gathered = cluster.first(&plan, &field(&w), &mut losses, &mut tally);
        let sums = cluster.second(&gathered, &field(&g), &mut losses, &mut tally);

        let wide = |v: i64| i128::from(v);
        for (row, z) in x.chunks_exact(width).zip(&gathered.products) {
            let plain: i128 = row.iter().zip(&w).map(|(x, w)| wide(*x) * wide(*w)).sum();
            prop_assert_eq!(plain, wide(z.to_i64()));
        }
        for (column, sum) in sums.iter().enumerate() {
            let plain: i128 =
                x.chunks_exact(width).zip(&g).map(|(row, g)| wide(row[column]) * wide(*g)).sum();
            prop_assert_eq!(plain, wide(sum.to_i64()));
        }
    }

    #[test]
    fn what_is_allowed_never_wraps(
        x in prop::collection::vec(-(1i64 << 52)..1 << 52, 6),
        w in prop::collection::vec(-(1i64 << 59)..1 << 59, 2),
        shift in 0u32..56,
    ) {
        let w: Vec<i64> = w.iter().map(|w| w >> shift).collect();
        let field = |v: &[i64]| -> Vec<Residue> { v.iter().map(|v| Residue::from_i64(*v)).collect() };
        let mut columns = Columns::new(2);
        columns.push(&Rows::Dense { width: 2, values: &field(&x) }).expect("two columns");
        if columns.check_weights(&field(&w)).is_ok() {
            for row in x.chunks_exact(2) {
                let plain = i128::from(row[0]) * i128::from(w[0]) + i128::from(row[1]) * i128::from(w[1]);
                prop_assert!(plain.abs() < 1 << 60);
            }
        }
    }
}

#[test]
fn values_that_fixed_point_cannot_hold_name_their_column() {
    let error = |result: Result<Vec<Residue>, Error>| result.expect_err("too large").to_string();
    let text = error(weights_to_fixed(3, &[0.0, 0.0, 0.0, 0.0, f64::NAN, 0.0]));
    assert!(text.contains("column 1 of the weights is NaN"), "{text}");
    let text = error(weights_to_fixed(3, &[0.0, 0.0, 2e6]));
    assert!(text.contains("column 2 of the weights"), "{text}");
    let text = error(slopes_to_fixed(1, &[f64::INFINITY]));
    assert!(text.contains("column 0 of the slopes"), "{text}");
    let text = error(DataScale(1000).to_fixed(2, &[1.0, 1e13]));
    assert!(text.contains("column 1 of the data"), "{text}");
}

#[test]
fn fixed_point_rounds_to_the_nearest() {
    let step = 1.0 / (1u64 << WEIGHT_BITS) as f64;
    let fixed = weights_to_fixed(4, &[step, -step, 1.4 * step, -1.6 * step]).expect("small");
    let whole: Vec<i64> = fixed.iter().map(|r| r.to_i64()).collect();
    assert_eq!(whole, [1, -1, 1, -2]);
    assert_eq!(SCALE.rounding(&[0.5, 1.0 / 256.0]), 0.0);
    assert!((DataScale(10).rounding(&[0.23]) - 0.03).abs() < 1e-12);
}
