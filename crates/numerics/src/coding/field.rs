//! The field of integers modulo the prime 2⁶¹ − 1.
//!
//! Owns its arithmetic and its rows' kernels. Sums have no order here: whatever is added first,
//! the result is the same. Never rounds.

use super::scalar::{Element, Scalar};
use serde::{Deserialize, Serialize};

/// The prime 2⁶¹ − 1.
pub const PRIME: u64 = (1 << 61) - 1;

/// Products of two residues that fit into 128 bits when they are added.
const LAZY_MAX: usize = 32;

/// Sums that are kept wide while rows are added to them.
const COLUMNS_AT_ONCE: usize = 128;

/// A member of the field, below [`PRIME`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
#[repr(transparent)]
pub struct Residue(u64);

impl From<Residue> for u64 {
    fn from(residue: Residue) -> u64 {
        residue.0
    }
}

impl TryFrom<u64> for Residue {
    type Error = &'static str;

    fn try_from(bits: u64) -> Result<Self, Self::Error> {
        Self::from_bits(bits).ok_or("a residue is below 2^61 - 1")
    }
}

impl Residue {
    /// The residue of a whole number; those within ±2⁶⁰ come back by [`Residue::to_i64`].
    pub fn from_i64(value: i64) -> Self {
        Self(value.rem_euclid(PRIME as i64) as u64)
    }

    /// The number nearest to 0 with this residue.
    pub fn to_i64(self) -> i64 {
        if self.0 > PRIME / 2 { self.0 as i64 - PRIME as i64 } else { self.0 as i64 }
    }

    /// Its bits, as they travel.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From bits that have travelled; `None` unless they are below the prime.
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits < PRIME).then_some(Self(bits))
    }
}

/// The residue of any number of 128 bits: 2⁶¹ is 1 here, so groups of 61 bits are added.
fn reduce(wide: u128) -> Residue {
    let mask = u128::from(PRIME);
    let folded = (wide & mask) + ((wide >> 61) & mask) + (wide >> 122);
    let folded = (folded & mask) + (folded >> 61);
    let low = folded as u64;
    Residue(if low >= PRIME { low - PRIME } else { low })
}

impl Scalar for Residue {
    const ZERO: Self = Self(0);
    const ONE: Self = Self(1);

    fn plus(self, other: Self) -> Self {
        let sum = self.0 + other.0;
        Self(if sum >= PRIME { sum - PRIME } else { sum })
    }

    fn minus(self, other: Self) -> Self {
        Self(if self.0 >= other.0 { self.0 - other.0 } else { self.0 + PRIME - other.0 })
    }

    fn times(self, other: Self) -> Self {
        reduce(u128::from(self.0) * u128::from(other.0))
    }

    /// By Fermat: the power of the prime minus two.
    fn inverse(self) -> Option<Self> {
        let (mut power, mut left, mut result) = (self, PRIME - 2, Self::ONE);
        while left > 0 {
            if left & 1 == 1 {
                result = result.times(power);
            }
            power = power.times(power);
            left >>= 1;
        }
        (self != Self::ZERO).then_some(result)
    }

    fn size(self) -> f64 {
        f64::from(u8::from(self != Self::ZERO))
    }
}

impl Element for Residue {
    type Scalar = Self;

    fn widen(self) -> Self {
        self
    }

    fn narrow(scalar: Self) -> Self {
        scalar
    }

    fn dot(a: &[Self], b: &[Self]) -> Self {
        assert_eq!(a.len(), b.len(), "rows of one length");
        a.chunks(LAZY_MAX).zip(b.chunks(LAZY_MAX)).fold(Self::ZERO, |sum, (a, b)| {
            let pairs = a.iter().zip(b);
            let wide: u128 = pairs.map(|(a, b)| u128::from(a.0) * u128::from(b.0)).sum();
            sum.plus(reduce(wide))
        })
    }

    fn add_scaled(sums: &mut [Self], rows: &[Self], scales: &[Self]) {
        let width = sums.len();
        assert_eq!(rows.len(), width * scales.len(), "a scale for every row");
        if width == 0 {
            return;
        }
        let mut wide = [0u128; COLUMNS_AT_ONCE];
        for from in (0..width).step_by(COLUMNS_AT_ONCE) {
            let sums = &mut sums[from..width.min(from + COLUMNS_AT_ONCE)];
            let some = rows.chunks(LAZY_MAX * width).zip(scales.chunks(LAZY_MAX));
            for (rows, scales) in some {
                wide.iter_mut().zip(sums.iter()).for_each(|(wide, sum)| *wide = sum.0.into());
                for (row, scale) in rows.chunks_exact(width).zip(scales) {
                    let scale = u128::from(scale.0);
                    for (wide, value) in wide.iter_mut().zip(&row[from..from + sums.len()]) {
                        *wide += u128::from(value.0) * scale;
                    }
                }
                sums.iter_mut().zip(&wide).for_each(|(sum, wide)| *sum = reduce(*wide));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow(value: i128) -> i128 {
        value.rem_euclid(i128::from(PRIME))
    }

    proptest! {
        #[test]
        fn arithmetic_is_that_of_whole_numbers(a in 0..PRIME, b in 0..PRIME) {
            let (x, y) = (Residue(a), Residue(b));
            let (a, b) = (i128::from(a), i128::from(b));
            prop_assert_eq!(i128::from(x.plus(y).0), slow(a + b));
            prop_assert_eq!(i128::from(x.minus(y).0), slow(a - b));
            prop_assert_eq!(i128::from(x.times(y).0), slow(a * b));
            if let Some(inverse) = x.inverse() {
                prop_assert_eq!(inverse.times(x), Residue(1));
            }
        }

        #[test]
        fn whole_numbers_come_back(value in -(1i64 << 60) + 1..1 << 60) {
            prop_assert_eq!(Residue::from_i64(value).to_i64(), value);
        }

        #[test]
        fn rows_are_multiplied_as_whole_numbers(
            pairs in prop::collection::vec((0..PRIME, 0..PRIME), 0..100), width in 1usize..300,
        ) {
            let a: Vec<_> = pairs.iter().map(|p| Residue(p.0)).collect();
            let b: Vec<_> = pairs.iter().map(|p| Residue(p.1)).collect();
            let sum = pairs.iter().fold(0, |s, p| slow(s + slow(i128::from(p.0) * i128::from(p.1))));
            prop_assert_eq!(i128::from(Residue::dot(&a, &b).0), sum);
            let mut sums = vec![Residue(PRIME - 1); width];
            let rows: Vec<_> = a.iter().flat_map(|a| vec![*a; width]).collect();
            Residue::add_scaled(&mut sums, &rows, &b);
            prop_assert!(sums.iter().all(|s| i128::from(s.0) == slow(sum - 1)));
        }
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(reduce(u128::MAX).0 as u128, u128::MAX % u128::from(PRIME));
        assert_eq!(Residue(0).inverse(), None);
        let top = vec![Residue(PRIME - 1); LAZY_MAX * 3 + 1];
        assert_eq!(Residue::dot(&top, &top), Residue::from_i64(top.len() as i64));
        assert_eq!(Residue::from_bits(PRIME), None);
        assert_eq!(Residue::from_bits(PRIME - 1), Some(Residue::from_i64(-1)));
    }
}
