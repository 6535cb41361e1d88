//! What the coordinator and the workers of a coded run say to each other, and numbers as they
//! travel.
//!
//! Products and entries go from worker to worker ([`ToPeer`]); the coordinator says who sends what
//! to whom, and hears what has come. Bulk is values of the run's precision, little-endian, unless a
//! comment says otherwise. A slot, a place and a group are those of `planaria_numerics::coding`.

use planaria_numerics::coding::exact::Residue;
use planaria_numerics::digest::Digest;
use planaria_numerics::exact_sum::ExactSum;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// From the coordinator to a worker.
///
/// A *round* is one attempt at a step: its number grows from one to the next, also over
/// coordinators, and what is said of an older one is passed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Hold the rows of this slot, from the cache or the source, say `Rows`, and then
    /// that it is ready.
    Seat { slot: u16 },
    /// The weights of a round; what was under way of another is over. The bulk is the weights.
    Weights { round: u64 },
    /// The weights after `step` steps, to be scored with. The bulk is f64.
    Model {
        /// Steps done.
        step: u64,
    },
    /// Product 1: multiply these rows by the weights, and send them to the member that decodes the group
    /// ([`ToPeer::Product`]). What was multiplied in this round is only sent.
    Multiply {
        round: u64,
        /// Group of the plan.
        group: u32,
        places: Range<u64>,
        to: Peer,
    },
    /// When the products of a group are there, decode it, apply the slopes, and send entries to the
    /// workers that add them up. Takes the place of an earlier one of the same group, unless that
    /// has been carried out.
    Decode {
        round: u64,
        /// Group of the plan.
        group: u32,
        places: Range<u64>,
        /// Which order this is.
        attempt: u64,
        /// Whose products are needed.
        inputs: Vec<u16>,
        /// Whose entries are made.
        outputs: Vec<u16>,
        shares: Vec<Share>,
    },
    /// Send entries of a group that is decoded, or will be, to more who add them up.
    Share {
        round: u64,
        /// Group of the plan.
        group: u32,
        shares: Vec<Share>,
    },
    /// When the entries of these debts have come, send the sum of them all (`Sum`).
    Deliver { round: u64, ticket: u64, debts: Vec<u64> },
}

/// A worker as others reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub slot: u16,
    /// Where it listens.
    pub address: String,
}

/// Entries that a worker gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Whose entries, of the outputs of the group.
    pub of: u16,
    /// Times what, as its bits ([`Coefficient`]).
    pub coefficient: u64,
    pub to: Peer,
    /// The debt that they settle.
    pub debt: u64,
}

/// From a worker to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToPeer {
    /// A sub-block of product 1, the bulk.
    Product {
        round: u64,
        /// Group of the plan.
        group: u32,
        slot: u16,
    },
    /// Entries of product 2, the bulk: multiply the rows by them, and add up.
    Entries {
        round: u64,
        /// The debt that they settle.
        debt: u64,
        places: Range<u64>,
    },
}

impl ToPeer {
    /// The round that it is of.
    pub fn round(&self) -> u64 {
        match self {
            Self::Product { round, .. } | Self::Entries { round, .. } => *round,
        }
    }
}

/// So many messages of a link have been taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received(pub u64);

/// From a worker to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// It has joined. These slots' rows are in the machine's cache.
    Offer {
        slots: Vec<u16>,
        /// Where other workers reach this one.
        address: String,
    },
    /// The rows of its slot are there. In exact arithmetic the bulk is JSON of the bounds of the
    /// data's columns.
    Rows {
        slot: u16,
        /// Whether the rows came from the cache.
        cached: bool,
        /// Bytes of rows, bounds and labels that came from the source for it.
        downloaded: u64,
    },
    /// A sub-block of product 1 is on its way.
    Multiplied {
        round: u64,
        /// Group of the plan.
        group: u32,
    },
    /// A sub-block of product 1 has come to the member that decodes its group.
    Arrived {
        round: u64,
        /// Group of the plan.
        group: u32,
        /// The slot that it comes from.
        slot: u16,
    },
    /// A group was decoded, and its entries are on their way.
    Decoded {
        round: u64,
        /// Group of the plan.
        group: u32,
        /// Which order it answers.
        attempt: u64,
        /// What was counted of its rows.
        counted: Tallied,
        /// What was done since this was last told.
        done: Effort,
    },
    /// A sum of product 2, the bulk.
    Sum {
        round: u64,
        ticket: u64,
        /// What was done since this was last told.
        done: Effort,
    },
}

/// What a worker has done in a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Effort {
    /// Rows that were multiplied, in both products.
    pub rows: u64,
    /// Bytes that were sent to other workers.
    pub sent_bytes: u64,
    /// Seconds of computing.
    pub busy_seconds: f64,
    /// Of these, of decoding and transforming.
    pub decode_seconds: f64,
    pub waiting_seconds: f64,
}

/// What is counted where a group is decoded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tallied {
    /// Sum of the loss over the rows.
    pub loss_sum: ExactSum,
    /// Rows whose class was right.
    pub correct: u64,
    /// The examples that these rows are.
    pub read: Digest,
    /// For each column of weights the largest slope in fixed point, and the sum of their sizes.
    pub sizes: Vec<(u64, u128)>,
}

/// Numbers that travel.
pub trait Travel: Sized {
    /// Length of one, in bytes.
    const BYTES: usize;
    /// The bytes of some, after those that are there.
    fn put(values: &[Self], into: &mut Vec<u8>);
    /// Reads the numbers; `None` where the bytes are invalid.
    fn take(bytes: &[u8]) -> Option<Vec<Self>>;
    /// How large it is in fixed point; 0 for floats, which have no range to leave.
    fn size_fixed(&self) -> u64;
    /// The bytes of some.
    fn bytes(values: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(values.len() * Self::BYTES);
        Self::put(values, &mut bytes);
        bytes
    }
}

/// Coefficients of a code as they travel: 64 bits.
pub trait Coefficient: Sized {
    /// As bits, for [`Self::from_wire`].
    fn to_wire(self) -> u64;
    /// The coefficient with these bits; `None` where they are invalid.
    fn from_wire(bits: u64) -> Option<Self>;
}

impl Coefficient for f64 {
    fn to_wire(self) -> u64 {
        self.to_bits()
    }

    fn from_wire(bits: u64) -> Option<Self> {
        Some(Self::from_bits(bits)).filter(|value| value.is_finite())
    }
}

impl Coefficient for Residue {
    fn to_wire(self) -> u64 {
        self.to_bits()
    }

    fn from_wire(bits: u64) -> Option<Self> {
        Self::from_bits(bits)
    }
}

macro_rules! travel {
    ($number:ty, $bits:expr, $back:expr, $size:expr) => {
        impl Travel for $number {
            const BYTES: usize = size_of::<$number>();

            fn put(values: &[Self], into: &mut Vec<u8>) {
                into.extend(values.iter().flat_map($bits));
            }

            fn size_fixed(&self) -> u64 {
                $size(self)
            }

            fn take(bytes: &[u8]) -> Option<Vec<Self>> {
                let (values, rest) = bytes.as_chunks();
                rest.is_empty().then(|| values.iter().map($back).collect::<Option<Vec<Self>>>())?
            }
        }
    };
}

travel!(f32, |v| v.to_le_bytes(), |b| Some(f32::from_le_bytes(*b)), |_| 0);
travel!(f64, |v| v.to_le_bytes(), |b| Some(f64::from_le_bytes(*b)), |_| 0);
travel!(
    Residue,
    |v| v.to_bits().to_le_bytes(),
    |b| Residue::from_bits(u64::from_le_bytes(*b)),
    |v: &Residue| v.to_i64().unsigned_abs()
);

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Travel + PartialEq + std::fmt::Debug>(values: &[T]) {
        let bytes = T::bytes(values);
        assert_eq!(bytes.len(), values.len() * T::BYTES);
        assert_eq!(T::take(&bytes).as_deref(), Some(values));
        assert_eq!(T::take(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn numbers_come_back() {
        check(&[1.5f32, -0.0, f32::MAX]);
        check(&[1.5f64, -0.0, f64::MIN_POSITIVE]);
        check(&[Residue::from_i64(-1), Residue::from_i64(5)]);
        assert_eq!(Residue::take(&[0xff; 8]), None, "no residue");
    }
}
