//! The numbers that codes are made of: a code's coefficients ([`Scalar`]) and the data's values
//! ([`Element`]).
//!
//! Owns which arithmetic a precision has. The kernels on rows are in [`super::product`] and
//! `field`.

use std::fmt::Debug;

/// A coefficient of a code: a member of a field.
pub trait Scalar: Copy + PartialEq + Debug + Send + Sync + 'static {
    const ZERO: Self;
    const ONE: Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// One divided by it; `None` for zero.
    fn inverse(self) -> Option<Self>;
    /// How good a pivot it is: 0 for zero.
    fn size(self) -> f64;
}

impl Scalar for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn minus(self, other: Self) -> Self {
        self - other
    }

    fn times(self, other: Self) -> Self {
        self * other
    }

    fn inverse(self) -> Option<Self> {
        (self != 0.0).then(|| 1.0 / self)
    }

    fn size(self) -> f64 {
        self.abs()
    }
}

/// A value of the data, of weights, products and slopes. Its default is zero.
pub trait Element: Copy + Default + PartialEq + Debug + Send + Sync + 'static {
    /// What its code's coefficients are.
    type Scalar: Scalar;
    /// As a coefficient; loses nothing.
    fn widen(self) -> Self::Scalar;
    /// The nearest value.
    fn narrow(scalar: Self::Scalar) -> Self;
    /// Dot product of two rows of the same length, in an order that their length alone decides.
    fn dot(a: &[Self], b: &[Self]) -> Self;
    /// `sums += Σ scales[r]·rows[r]`, for each sum one chain over the rows, ascending.
    fn add_scaled(sums: &mut [Self], rows: &[Self], scales: &[Self]);
}
