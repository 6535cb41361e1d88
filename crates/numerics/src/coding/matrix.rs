//! Small square matrices: inverses over any field, norms and conditions over the reals.
//!
//! Owns the arithmetic that a code is judged and undone by. Never sees data: its matrices are at
//! most as large as a code's threshold.

use super::scalar::Scalar;

/// Steps of the power method. The norms here only judge codes; a few hundredths do not matter.
const POWER_STEPS: usize = 24;

/// Inverse of the `n`×`n` matrix `a` (row by row), by elimination with the largest pivot of each
/// column. `None` when there is no pivot.
pub fn invert<S: Scalar>(n: usize, a: &[S]) -> Option<Vec<S>> {
    let mut a = a.to_vec();
    let mut inverse = vec![S::ZERO; n * n];
    for i in 0..n {
        inverse[i * n + i] = S::ONE;
    }
    for column in 0..n {
        let pivot = largest(&a, n, column)?;
        swap_rows(&mut a, n, column, pivot);
        swap_rows(&mut inverse, n, column, pivot);
        let scale = a[column * n + column].inverse()?;
        for k in 0..n {
            a[column * n + k] = a[column * n + k].times(scale);
            inverse[column * n + k] = inverse[column * n + k].times(scale);
        }
        for row in (0..n).filter(|row| *row != column) {
            let factor = a[row * n + column];
            if factor != S::ZERO {
                subtract_row(&mut a, n, row, column, factor);
                subtract_row(&mut inverse, n, row, column, factor);
            }
        }
    }
    Some(inverse)
}

/// Condition of the `n`×`n` matrix `a` with inverse `inverse`: the product of their norms.
pub fn condition(n: usize, a: &[f64], inverse: &[f64]) -> f64 {
    norm(n, a) * norm(n, inverse)
}

/// Largest singular value of the `n`×`n` matrix `a`, by the power method from its largest row.
pub fn norm(n: usize, a: &[f64]) -> f64 {
    let squares = |row: &[f64]| row.iter().map(|v| v * v).sum::<f64>();
    let largest = a.chunks_exact(n.max(1)).max_by(|x, y| squares(x).total_cmp(&squares(y)));
    let Some(mut x) = largest.map(<[f64]>::to_vec) else { return 0.0 };
    let mut y = vec![0.0; n];
    let mut length = squares(&x).sqrt();
    for _ in 0..POWER_STEPS {
        if length == 0.0 || !length.is_finite() {
            return length;
        }
        x.iter_mut().for_each(|v| *v /= length);
        for (y, row) in y.iter_mut().zip(a.chunks_exact(n)) {
            *y = row.iter().zip(&x).map(|(a, x)| a * x).sum();
        }
        x.fill(0.0);
        for (y, row) in y.iter().zip(a.chunks_exact(n)) {
            x.iter_mut().zip(row).for_each(|(x, a)| *x += a * y);
        }
        length = squares(&x).sqrt();
    }
    length.sqrt()
}

fn largest<S: Scalar>(a: &[S], n: usize, column: usize) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for row in column..n {
        let size = a[row * n + column].size();
        if size > best.map_or(0.0, |(_, size)| size) {
            best = Some((row, size));
        }
    }
    best.map(|(row, _)| row)
}

fn swap_rows<S: Scalar>(a: &mut [S], n: usize, one: usize, other: usize) {
    if one != other {
        for k in 0..n {
            a.swap(one * n + k, other * n + k);
        }
    }
}

fn subtract_row<S: Scalar>(a: &mut [S], n: usize, row: usize, from: usize, factor: S) {
    for k in 0..n {
        a[row * n + k] = a[row * n + k].minus(factor.times(a[from * n + k]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    #[test]
    fn an_inverse_undoes_its_matrix() {
        for n in 1..=32 {
            let mut draws = Stream::new(5, Purpose::Test, n as u64, 0);
            let a: Vec<f64> = (0..n * n).map(|_| f64::from(draws.normal())).collect();
            let inverse = invert(n, &a).expect("random matrices are invertible");
            for i in 0..n {
                for j in 0..n {
                    let sum: f64 = (0..n).map(|k| a[i * n + k] * inverse[k * n + j]).sum();
                    let expect = f64::from(u8::from(i == j));
                    assert!((sum - expect).abs() < 1e-9, "{n}: ({i}, {j}) is {sum}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_inverse_is_said_so() {
        assert_eq!(invert(2, &[1.0, 2.0, 2.0, 4.0]), None);
        assert_eq!(invert(2, &[0.0, 0.0, 0.0, 1.0]), None);
    }

    #[test]
    fn norms_of_known_matrices() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-6 * b, "{a}, expected {b}");
        close(norm(3, &[3.0, 0.0, 0.0, 0.0, -7.0, 0.0, 0.0, 0.0, 1.0]), 7.0);
        close(norm(2, &[1.0, 1.0, 0.0, 1.0]), (1.0 + 5f64.sqrt()) / 2.0);
        close(condition(2, &[1.0, 0.0, 0.0, 1e-3], &[1.0, 0.0, 0.0, 1e3]), 1e3);
        assert_eq!(norm(0, &[]), 0.0);
        assert_eq!(norm(2, &[0.0; 4]), 0.0);
    }
}
