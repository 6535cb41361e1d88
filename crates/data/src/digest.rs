//! An order-free digest of example ids, for exactly-once accounting: whoever read what, in whatever
//! order, the sums over an epoch must equal the part's.

/// Count and 128-bit sum of the mixed ids; equal for the same ids read the same number of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest {
    /// Ids added.
    pub count: u64,
    /// Sum modulo 2¹²⁸ of each id's mix.
    pub sum: u128,
}

impl Digest {
    /// Adds one id.
    pub fn add(&mut self, id: u64) {
        self.count = self.count.wrapping_add(1);
        self.sum = self.sum.wrapping_add(mix(id));
    }

    /// The digest of both sets of ids together.
    pub fn combine(self, other: Self) -> Self {
        Self { count: self.count.wrapping_add(other.count), sum: self.sum.wrapping_add(other.sum) }
    }
}

impl Extend<u64> for Digest {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, ids: I) {
        ids.into_iter().for_each(|id| self.add(id));
    }
}

impl FromIterator<u64> for Digest {
    fn from_iter<I: IntoIterator<Item = u64>>(ids: I) -> Self {
        let mut digest = Self::default();
        digest.extend(ids);
        digest
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{:032x}", self.count, self.sum)
    }
}

/// 128 bits from an id: two finalisers of SplitMix64 (Steele, Lea and Flood 2014) with different
/// starts. It guards against faults, not against an attacker.
fn mix(id: u64) -> u128 {
    let half = |start: u64| {
        let x = id.wrapping_add(start);
        let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    u128::from(half(0x9E37_79B9_7F4A_7C15)) << 64 | u128::from(half(0xD1B5_4A32_D192_ED03))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_and_grouping_do_not_matter(mut ids: Vec<u64>, cut: prop::sample::Index) {
            let whole: Digest = ids.iter().copied().collect();
            ids.reverse();
            let (a, b) = ids.split_at(cut.index(ids.len() + 1).min(ids.len()));
            let parts = a.iter().copied().collect::<Digest>().combine(b.iter().copied().collect());
            prop_assert_eq!(whole, parts);
        }
    }

    #[test]
    fn a_lost_doubled_or_swapped_id_shows() {
        let whole: Digest = (0..1000).collect();
        let lost: Digest = (0..1000).filter(|i| *i != 17).collect();
        let doubled: Digest = (0..1000).chain([17]).collect();
        let swapped: Digest = (0..1000).map(|i| if i == 17 { 18 } else { i }).collect();
        for other in [lost, doubled, swapped] {
            assert_ne!(whole, other);
        }
        assert_eq!(whole, (0..1000).rev().collect());
    }

    #[test]
    fn it_never_changes() {
        // Workers of different builds compare digests.
        assert_eq!((0..3).collect::<Digest>().to_string(), "3:0a830c0420b7813fe2e04bd2bcb74237");
    }
}
