//! Exact arithmetic: fixed point in the field of integers modulo 2⁶¹ − 1.
//!
//! Data are whole numbers after a stated scale, weights multiples of 2⁻⁴⁰, slopes of 2⁻³⁶. Coded
//! products and their decoding are exact in the field, so what comes out does not depend on who
//! computed it, bit for bit, as long as no product leaves ±2⁶⁰; a bound on every product is
//! checked before it is computed ([`Columns`]). Never wraps silently.
//!
//! # Layout
//! - `fixed`: to fixed point and back
//! - `range`: bounds on products

mod fixed;
mod range;

pub use super::field::{PRIME, Residue};
pub use fixed::{
    DataScale, SLOPE_BITS, WEIGHT_BITS, gradients_to_f64, products_to_f64, slopes_to_fixed,
    weights_to_fixed,
};
pub use range::Columns;
