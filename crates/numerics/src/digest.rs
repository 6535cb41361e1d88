//! An order-free digest of example ids, for exactly-once accounting: whichever process read what, in
//! any order, the sums over an epoch must equal the part's.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Count and 128-bit sum of the mixed ids; equal for the same ids read the same number of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest {
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

impl std::str::FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a digest");
        let (count, sum) = text.split_once(':').ok_or_else(wrong)?;
        let count = count.parse().map_err(|_| wrong())?;
        let sum = u128::from_str_radix(sum, 16).map_err(|_| wrong())?;
        Ok(Self { count, sum })
    }
}

/// Text for people's formats, which have no numbers of 128 bits; two numbers elsewhere.
impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        (self.count, self.sum).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            return text.parse().map_err(serde::de::Error::custom);
        }
        let (count, sum) = <(u64, u128)>::deserialize(deserializer)?;
        Ok(Self { count, sum })
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
        let digest: Digest = (0..3).collect();
        assert_eq!(digest.to_string(), "3:0a830c0420b7813fe2e04bd2bcb74237");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!("3:xyz".parse::<Digest>().is_err());
    }
}
