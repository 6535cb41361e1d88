//! A sum of floats that does not depend on the order of its terms: figures are the same whichever
//! process added what.
//!
//! Nothing is rounded while terms are added: the sum is kept as a few floats of which none reaches
//! into another's bits (Shewchuk, *Adaptive Precision Floating-Point Arithmetic*, 1997). It is
//! rounded once, when it is asked for. Sums travel between processes whole.

use serde::{Deserialize, Serialize};

/// Floats that a sum may travel as: the exponents of f64 leave room for 40 that do not overlap.
const PARTS_MAX: usize = 64;

/// A sum, as floats that do not overlap, the largest last; or one alone that is not finite.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub struct ExactSum {
    parts: Vec<f64>,
}

impl ExactSum {
    /// Adds one term.
    pub fn add(&mut self, term: f64) {
        let mut carry = term;
        let mut kept = 0;
        for at in 0..self.parts.len() {
            let part = self.parts[at];
            let (large, small) =
                if carry.abs() < part.abs() { (part, carry) } else { (carry, part) };
            carry = large + small;
            let rest = small - (carry - large);
            if rest != 0.0 {
                self.parts[kept] = rest;
                kept += 1;
            }
        }
        // What has left the range of f64, or was no number, stays so whatever is added.
        self.parts.truncate(if carry.is_finite() { kept } else { 0 });
        if carry != 0.0 {
            self.parts.push(carry);
        }
    }

    /// Adds all terms of another sum.
    pub fn combine(&mut self, other: &Self) {
        other.parts.iter().for_each(|part| self.add(*part));
    }

    /// The float nearest to the sum; infinite or not a number where it has left the range.
    pub fn value(&self) -> f64 {
        let Some((last, mut below)) = self.parts.split_last() else { return 0.0 };
        let (mut sum, mut rest) = (*last, 0.0);
        while let Some((next, lower)) = below.split_last() {
            below = lower;
            let rounded = sum + next;
            rest = next - (rounded - sum);
            sum = rounded;
            if rest != 0.0 {
                break;
            }
        }
        // Halfway between two floats, what lies below decides.
        let same_side = below.last().is_some_and(|next| (*next > 0.0) == (rest > 0.0));
        if rest != 0.0 && same_side {
            let twice = rest * 2.0;
            let other = sum + twice;
            if other - sum == twice {
                sum = other;
            }
        }
        sum
    }
}

impl FromIterator<f64> for ExactSum {
    fn from_iter<I: IntoIterator<Item = f64>>(terms: I) -> Self {
        let mut sum = Self::default();
        terms.into_iter().for_each(|term| sum.add(term));
        sum
    }
}

impl TryFrom<Vec<f64>> for ExactSum {
    type Error = String;

    /// Of floats that may come from anywhere: whatever they are, the result is a sum.
    fn try_from(parts: Vec<f64>) -> Result<Self, String> {
        match parts.len() {
            0..=PARTS_MAX => Ok(parts.into_iter().collect()),
            count => Err(format!("a sum came in {count} parts, of {PARTS_MAX} at most")),
        }
    }
}

impl From<ExactSum> for Vec<f64> {
    fn from(sum: ExactSum) -> Self {
        sum.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(terms: &[f64]) -> f64 {
        terms.iter().copied().collect::<ExactSum>().value()
    }

    #[test]
    fn a_sum_is_rounded_once() {
        let check = |terms: &[f64], expect: f64| assert_eq!(value(terms), expect, "{terms:?}");
        check(&[], 0.0);
        check(&[0.1; 10], 1.0);
        check(&[1e100, 1.0, -1e100], 1.0);
        let half = f64::EPSILON / 2.0;
        check(&[1.0, half, half * half], 1.0 + f64::EPSILON);
        check(&[1.0, half, -half * half], 1.0);
        check(&[1.0, -1.0, 5e-324], 5e-324);
        check(&[f64::INFINITY, 1.0], f64::INFINITY);
        check(&[f64::MAX, f64::MAX, 1.0], f64::INFINITY);
        assert!(value(&[1.0, f64::NAN, 2.0]).is_nan());
        assert!(value(&[f64::INFINITY, 2.0, f64::NEG_INFINITY]).is_nan());
    }

    proptest! {
        #[test]
        fn order_and_grouping_do_not_matter(
            mut terms in prop::collection::vec(-1e200f64..1e200, 0..60),
            scales in prop::collection::vec(-300i32..1, 60),
            cut: prop::sample::Index,
        ) {
            for (term, scale) in terms.iter_mut().zip(&scales) {
                *term *= libm::pow(10.0, f64::from(*scale));
            }
            let whole = value(&terms);
            terms.reverse();
            let (a, b) = terms.split_at(cut.index(terms.len() + 1));
            let mut sum: ExactSum = a.iter().copied().collect();
            let other: ExactSum = b.iter().copied().collect();
            let travelled: Vec<f64> = other.into();
            sum.combine(&ExactSum::try_from(travelled).unwrap());
            prop_assert_eq!(sum.value().to_bits(), whole.to_bits());
        }

        #[test]
        fn whatever_comes_is_a_sum(parts: Vec<f64>) {
            let sum = ExactSum::try_from(parts.clone());
            prop_assert_eq!(sum.is_ok(), parts.len() <= PARTS_MAX);
            let _ = sum.map(|sum| sum.value());
        }
    }
}
