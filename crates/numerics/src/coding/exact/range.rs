//! Bounds on products, so that none can leave the field's range unseen.
//!
//! For each column of the data the largest value and the sum of sizes are known from the start;
//! with the weights, or the slopes, of an iteration they bound every product. Counts in whole
//! numbers of 128 bits, which cannot overflow here.

use super::fixed::RANGE;
use crate::coding::{Error, blocks::Rows, field::Residue};
use serde::{Deserialize, Serialize};

/// Largest size and sum of sizes of each column of the data, in fixed point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    largest: Vec<u64>,
    sums: Vec<u128>,
}

impl Columns {
    /// Nothing seen yet.
    pub fn new(width: usize) -> Self {
        Self { largest: vec![0; width], sums: vec![0; width] }
    }

    /// Some rows of the data, in any order.
    pub fn push(&mut self, rows: &Rows<'_, Residue>) -> Result<(), Error> {
        rows.check(self.largest.len())?;
        for row in 0..rows.count() {
            rows.for_each(row, |column, value| {
                let size = value.to_i64().unsigned_abs();
                self.largest[column] = self.largest[column].max(size);
                self.sums[column] += u128::from(size);
            });
        }
        Ok(())
    }

    /// Columns of other rows, added to these.
    pub fn merge(&mut self, other: &Columns) {
        for (a, b) in self.largest.iter_mut().zip(&other.largest) {
            *a = (*a).max(*b);
        }
        for (a, b) in self.sums.iter_mut().zip(&other.sums) {
            *a += b;
        }
    }

    /// An error if Xw could leave the range: names the column that brings in most.
    pub fn check_weights(&self, weights: &[Residue]) -> Result<(), Error> {
        for weights in weights.chunks_exact(self.largest.len().max(1)) {
            let part = |(largest, weight): (&u64, &Residue)| {
                u128::from(*largest) * u128::from(weight.to_i64().unsigned_abs())
            };
            let parts: Vec<u128> = self.largest.iter().zip(weights).map(part).collect();
            let bound = parts.iter().fold(0u128, |sum, part| sum.saturating_add(*part));
            if bound >= u128::from(RANGE) {
                let most = parts.iter().enumerate().max_by_key(|(_, part)| **part);
                return Err(refusal("Xw", most.map_or(0, |(column, _)| column), bound));
            }
        }
        Ok(())
    }

    /// An error if Xᵀg could leave the range in some column, which it names. `slopes` has for every
    /// row of the data a value per column of weights, of `columns`.
    pub fn check_slopes(&self, columns: usize, slopes: &[Residue]) -> Result<(), Error> {
        for c in 0..columns {
            let mut largest = 0;
            let mut sum = 0u128;
            for slope in slopes.iter().skip(c).step_by(columns) {
                let size = slope.to_i64().unsigned_abs();
                largest = largest.max(size);
                sum += u128::from(size);
            }
            self.check_sizes(largest, sum)?;
        }
        Ok(())
    }

    /// The same from the largest size of a slope and the sum of their sizes, for those who never
    /// see all slopes at once.
    pub fn check_sizes(&self, largest: u64, sum: u128) -> Result<(), Error> {
        let bounds = self.largest.iter().zip(&self.sums).map(|(x_largest, x_sum)| {
            let by_data = x_sum.saturating_mul(u128::from(largest));
            let by_slopes = sum.saturating_mul(u128::from(*x_largest));
            by_data.min(by_slopes)
        });
        match bounds.enumerate().max_by_key(|(_, bound)| *bound) {
            Some((column, bound)) if bound >= u128::from(RANGE) => {
                Err(refusal("Xᵀg", column, bound))
            }
            _ => Ok(()),
        }
    }
}

fn refusal(product: &'static str, column: usize, bound: u128) -> Error {
    Error::Range { product, column, bits: libm::log2(bound as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(values: &[i64]) -> Vec<Residue> {
        values.iter().map(|v| Residue::from_i64(*v)).collect()
    }

    #[test]
    fn a_product_that_could_leave_the_range_names_its_column() {
        let values = fixed(&[1, -5, 0, 3, 4, 0]);
        let mut columns = Columns::new(3);
        columns.push(&Rows::Dense { width: 3, values: &values }).expect("three columns");

        assert_eq!(columns.check_weights(&fixed(&[1 << 58, -(1 << 55), i64::MAX >> 4])), Ok(()));
        let error =
            columns.check_weights(&fixed(&[1 << 57, -(1 << 58), 0])).expect_err("too large");
        assert!(matches!(error, Error::Range { product: "Xw", column: 1, .. }), "{error}");

        // Column 1 has 9 in all: one large slope alone is bounded by the largest value, 5.
        assert_eq!(columns.check_slopes(1, &fixed(&[1 << 57, 0])), Ok(()));
        let error = columns.check_slopes(1, &fixed(&[1 << 57, 1 << 57])).expect_err("too large");
        assert!(matches!(error, Error::Range { product: "Xᵀg", column: 1, .. }), "{error}");
        assert!(error.to_string().contains("column 1"), "{error}");
        // A second column of weights is checked too.
        let slopes = fixed(&[0, 1 << 58, 0, 1 << 58]);
        assert!(columns.check_slopes(2, &slopes).is_err());
    }

    #[test]
    fn bounds_of_parts_add_up() {
        let values = fixed(&[1, 2, 3, -4]);
        let rows = |part: std::ops::Range<usize>| Rows::Dense { width: 2, values: &values[part] };
        let mut whole = Columns::new(2);
        whole.push(&Rows::Dense { width: 2, values: &values }).expect("two columns");
        let (mut a, mut b) = (Columns::new(2), Columns::new(2));
        a.push(&rows(0..2)).expect("two columns");
        b.push(&rows(2..4)).expect("two columns");
        a.merge(&b);
        assert_eq!(a, whole);
    }
}
