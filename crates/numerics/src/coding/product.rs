//! A machine's share of the two products, in f32 and f64.
//!
//! # The order of additions
//! - **Product 1**, a row times a column of weights, is a fixed number of interleaved chains over
//!   the columns of the data ([`CHAINS_F32`], [`CHAINS_F64`]; value i belongs to chain i modulo
//!   their number), added up two by two. It depends on the row alone, never on which rows are
//!   computed together.
//! - **Product 2**, a sum over rows, is for each column one chain over a machine's rows,
//!   ascending; machines' sums are added in f64 in the order of their slots ([`total`]). Which rows
//!   a machine has depends on who is there, so in f32 and f64 the last bits of product 2 do too;
//!   they differ as much as when rows are added in another order. In exact arithmetic sums have
//!   no order.
//!
//! Multiplies and adds are never fused. No threads and no allocation but in [`total`].

use super::scalar::{Element, Scalar};

/// Chains of a dot product in f32.
pub const CHAINS_F32: usize = 32;
/// Chains of a dot product in f64.
pub const CHAINS_F64: usize = 16;

/// Product 1: rows (each `width` values) times weights (one run of `width` for each column of
/// weights). `out` has for each row a value per column of weights.
pub fn rows_times<E: Element>(width: usize, rows: &[E], weights: &[E], out: &mut [E]) {
    let columns = weights.len() / width;
    assert_eq!(weights.len(), width * columns, "whole columns of weights");
    assert_eq!(out.len() * width, rows.len() * columns, "room for every row");
    for (row, out) in rows.chunks_exact(width).zip(out.chunks_exact_mut(columns)) {
        for (out, column) in out.iter_mut().zip(weights.chunks_exact(width)) {
            *out = E::dot(row, column);
        }
    }
}

/// Product 2: adds to `sums` (laid out as weights are) the rows times their entries (for each row
/// a value per column of weights).
pub fn add_rows_scaled<E: Element>(width: usize, rows: &[E], entries: &[E], sums: &mut [E]) {
    let columns = sums.len() / width;
    assert_eq!(sums.len(), width * columns, "whole columns of sums");
    assert_eq!(entries.len() * width, rows.len() * columns, "an entry for every row");
    if columns == 1 {
        return E::add_scaled(sums, rows, entries);
    }
    // Some rows at a time stay in the cache for all columns.
    let mut scales = [E::default(); ROWS_AT_ONCE];
    let chunks = entries.chunks(ROWS_AT_ONCE * columns);
    for (rows, entries) in rows.chunks(ROWS_AT_ONCE * width).zip(chunks) {
        let count = entries.len() / columns;
        for (column, sums) in sums.chunks_exact_mut(width).enumerate() {
            for (scale, row) in scales.iter_mut().zip(entries.chunks_exact(columns)) {
                *scale = row[column];
            }
            E::add_scaled(sums, rows, &scales[..count]);
        }
    }
}

/// Machines' sums of product 2 added up in the order given (that of their slots).
pub fn total<E: Element>(parts: &[&[E]], out: &mut [E]) {
    let mut wide = vec![E::Scalar::ZERO; out.len()];
    for part in parts {
        assert_eq!(part.len(), out.len(), "sums of one length");
        for (sum, value) in wide.iter_mut().zip(*part) {
            *sum = sum.plus(value.widen());
        }
    }
    for (out, sum) in out.iter_mut().zip(wide) {
        *out = E::narrow(sum);
    }
}

/// Entries times a coefficient, for a machine that makes up for another.
pub fn scale_entries<E: Element>(coefficient: E::Scalar, entries: &mut [E]) {
    for entry in entries {
        *entry = E::narrow(entry.widen().times(coefficient));
    }
}

const ROWS_AT_ONCE: usize = 64;

/// Dot product and scaled sum of rows for one kind of float.
macro_rules! float {
    ($float:ty, $chains:expr, $dot:ident, $add:ident) => {
        widest! {
            fn $dot(a: &[$float], b: &[$float]) -> $float {
                let mut chains = [0.0; $chains];
                let (x, y) = (a.chunks_exact($chains), b.chunks_exact($chains));
                let rest = x.remainder().iter().zip(y.remainder());
                for (x, y) in x.zip(y) {
                    for ((sum, x), y) in chains.iter_mut().zip(x).zip(y) {
                        *sum += x * y;
                    }
                }
                for (sum, (x, y)) in chains.iter_mut().zip(rest) {
                    *sum += x * y;
                }
                let mut half = $chains / 2;
                while half > 0 {
                    for i in 0..half {
                        chains[i] += chains[i + half];
                    }
                    half /= 2;
                }
                chains[0]
            }
        }

        widest! {
            fn $add(sums: &mut [$float], rows: &[$float], scales: &[$float]) {
                let width = sums.len();
                let (rows_by_four, rest) = rows.split_at(scales.len() / 4 * 4 * width);
                // Four rows in one pass over the sums: the same chains, fewer loads and stores.
                for (rows, s) in rows_by_four.chunks_exact(4 * width).zip(scales.chunks_exact(4)) {
                    let (a, rows) = rows.split_at(width);
                    let (b, rows) = rows.split_at(width);
                    let (c, d) = rows.split_at(width);
                    for ((((sum, a), b), c), d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                        *sum = (((*sum + s[0] * a) + s[1] * b) + s[2] * c) + s[3] * d;
                    }
                }
                let scales = &scales[scales.len() / 4 * 4..];
                for (row, scale) in rest.chunks_exact(width).zip(scales) {
                    for (sum, value) in sums.iter_mut().zip(row) {
                        *sum += scale * value;
                    }
                }
            }
        }

        impl Element for $float {
            type Scalar = f64;

            fn widen(self) -> f64 {
                self.into()
            }

            fn narrow(scalar: f64) -> Self {
                scalar as $float
            }

            fn dot(a: &[Self], b: &[Self]) -> Self {
                assert_eq!(a.len(), b.len(), "rows of one length");
                $dot(a, b)
            }

            fn add_scaled(sums: &mut [Self], rows: &[Self], scales: &[Self]) {
                assert_eq!(rows.len(), sums.len() * scales.len(), "a scale for every row");
                if !sums.is_empty() {
                    $add(sums, rows, scales);
                }
            }
        }
    };
}

float!(f32, CHAINS_F32, dot_f32, add_f32);
float!(f64, CHAINS_F64, dot_f64, add_f64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    fn draws(name: usize, count: usize) -> Vec<f64> {
        let mut stream = Stream::new(11, Purpose::Test, name as u64, 0);
        (0..count).map(|_| f64::from(stream.normal())).collect()
    }

    #[test]
    fn kernels_agree_with_plain_sums() {
        for (width, rows, columns) in
            [(1, 1, 1), (3, 5, 1), (16, 4, 2), (37, 131, 3), (64, 7, 1), (100, 70, 10)]
        {
            let (x, w) = (draws(1, width * rows), draws(2, width * columns));
            let g = draws(3, rows * columns);
            let (mut z, mut sums) = (vec![0.0; rows * columns], vec![0.5; width * columns]);
            rows_times(width, &x, &w, &mut z);
            add_rows_scaled(width, &x, &g, &mut sums);
            for c in 0..columns {
                for r in 0..rows {
                    let plain: f64 = (0..width).map(|i| x[r * width + i] * w[c * width + i]).sum();
                    assert!((z[r * columns + c] - plain).abs() < 1e-12);
                }
                for i in 0..width {
                    // One chain over the rows: the very bits.
                    let chain =
                        (0..rows).fold(0.5, |s, r| s + g[r * columns + c] * x[r * width + i]);
                    assert_eq!(sums[c * width + i], chain);
                }
            }
        }
    }

    #[test]
    fn a_row_is_summed_the_same_however_rows_are_cut() {
        let (width, rows) = (53, 40);
        let x: Vec<f32> = draws(4, width * rows).iter().map(|v| *v as f32).collect();
        let w: Vec<f32> = draws(5, width).iter().map(|v| *v as f32).collect();
        let mut whole = vec![0f32; rows];
        rows_times(width, &x, &w, &mut whole);
        for cut in 0..=rows {
            let mut parts = vec![0f32; rows];
            rows_times(width, &x[..cut * width], &w, &mut parts[..cut]);
            rows_times(width, &x[cut * width..], &w, &mut parts[cut..]);
            assert_eq!(parts, whole);
        }
    }
}
