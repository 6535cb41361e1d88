//! Floats to fixed point and back.
//!
//! Rounds to the nearest whole number, halves away from zero, once in each direction. Refuses what
//! is not finite or too large, naming its column.

use crate::coding::{Error, field::Residue};
use serde::{Deserialize, Serialize};

/// Weights are multiples of 2 to the minus this.
pub const WEIGHT_BITS: u32 = 40;
/// Slopes are multiples of 2 to the minus this.
pub const SLOPE_BITS: u32 = 36;
/// Whole numbers that come back from the field are smaller.
pub(super) const RANGE: u64 = 1 << 60;
/// Largest data after scaling: every whole number below is a float.
const DATA_MAX: f64 = 9_007_199_254_740_992.0;

/// What data are multiplied by to become whole numbers: 1 for counts and one-hot columns. What is
/// left after the point is rounded away; [`DataScale::rounding`] says how much that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DataScale(pub u32);

impl DataScale {
    /// Rows of `width` columns in fixed point.
    pub fn to_fixed(self, width: usize, values: &[f64]) -> Result<Vec<Residue>, Error> {
        to_fixed("the data", f64::from(self.0), DATA_MAX, values, |i| i % width.max(1))
    }

    /// The largest difference that rounding to this scale makes to a value.
    pub fn rounding(self, values: &[f64]) -> f64 {
        let scale = f64::from(self.0);
        let off = |v: &f64| (libm::round(v * scale) / scale - v).abs();
        values.iter().map(off).fold(0.0, f64::max)
    }
}

/// Weights (a run of `width` for each column of weights) in fixed point.
pub fn weights_to_fixed(width: usize, weights: &[f64]) -> Result<Vec<Residue>, Error> {
    let scale = (1u64 << WEIGHT_BITS) as f64;
    to_fixed("the weights", scale, RANGE as f64, weights, |i| i % width.max(1))
}

/// Slopes in fixed point; the column named in an error is that of the weights, of `columns`.
pub fn slopes_to_fixed(columns: usize, slopes: &[f64]) -> Result<Vec<Residue>, Error> {
    let scale = (1u64 << SLOPE_BITS) as f64;
    to_fixed("the slopes", scale, RANGE as f64, slopes, |i| i % columns.max(1))
}

/// Decoded products Xw as floats.
pub fn products_to_f64(scale: DataScale, products: &[Residue], out: &mut [f64]) {
    to_f64(f64::from(scale.0) * (1u64 << WEIGHT_BITS) as f64, products, out);
}

/// Sums Xᵀg as floats.
pub fn gradients_to_f64(scale: DataScale, sums: &[Residue], out: &mut [f64]) {
    to_f64(f64::from(scale.0) * (1u64 << SLOPE_BITS) as f64, sums, out);
}

fn to_fixed(
    what: &'static str,
    scale: f64,
    below: f64,
    values: &[f64],
    column: impl Fn(usize) -> usize,
) -> Result<Vec<Residue>, Error> {
    let fixed = values.iter().enumerate().map(|(i, value)| {
        let whole = libm::round(value * scale);
        if whole.abs() < below {
            Ok(Residue::from_i64(whole as i64))
        } else {
            Err(Error::Value { what, column: column(i), value: *value, scale })
        }
    });
    fixed.collect()
}

fn to_f64(scale: f64, values: &[Residue], out: &mut [f64]) {
    assert_eq!(values.len(), out.len(), "room for every value");
    for (out, value) in out.iter_mut().zip(values) {
        *out = value.to_i64() as f64 / scale;
    }
}
