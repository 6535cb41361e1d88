//! What the coordinator and the workers of a coded run say to each other, and numbers as they
//! travel.
//!
//! These words are wrapped in [`ToWorker::Coded`](crate::message::ToWorker) and
//! [`FromWorker::Coded`](crate::message::FromWorker): life signs, scores and the end are those of
//! every worker. Bulk is values of the run's precision, little-endian, unless a comment says
//! otherwise. A slot, a place and a group are those of `planaria_numerics::coding`.

use planaria_numerics::coding::exact::Residue;
use planaria_numerics::digest::Digest;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// From the coordinator to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToCoded {
    /// Hold the rows of this slot, from the cache or encoded anew, and say `Ready`.
    Seat {
        /// The slot.
        slot: u16,
    },
    /// The weights of a step; what was under way of another is over. The bulk is the weights.
    Weights {
        /// The step.
        step: u64,
    },
    /// The weights after `step` steps, to be scored with. The bulk is f64.
    Model {
        /// Steps done.
        step: u64,
    },
    /// Product 1: multiply these rows by the weights, and send `Product`.
    Multiply {
        /// The step.
        step: u64,
        /// Group of the plan.
        group: u32,
        /// Its places.
        places: Range<u64>,
    },
    /// Decode a group, apply the slopes, and send the entries of its members (`Decoded`). The bulk
    /// is the products, member by member.
    Decode {
        /// The step.
        step: u64,
        /// Group of the plan.
        group: u32,
        /// Its places.
        places: Range<u64>,
        /// Slots of its members, in order.
        members: Vec<u16>,
    },
    /// Product 2: multiply these rows by their entries, the bulk, and add them to a sum.
    Add {
        /// The step.
        step: u64,
        /// Which sum.
        ticket: u64,
        /// The rows.
        places: Range<u64>,
    },
    /// Nothing more comes for this sum: send it (`Sum`).
    Deliver {
        /// The step.
        step: u64,
        /// Which sum.
        ticket: u64,
    },
}

/// From a worker to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromCoded {
    /// The data is open. These slots' rows are in the machine's cache.
    Offer {
        /// The slots.
        slots: Vec<u16>,
    },
    /// The rows of its slot are there. In exact arithmetic the bulk is JSON of the bounds of the
    /// data's columns.
    Ready {
        /// The slot.
        slot: u16,
        /// Engine and instruction set.
        engine: String,
        /// Threads that compute.
        threads: u32,
        /// Whether the rows came from the cache.
        cached: bool,
    },
    /// A sub-block of product 1, the bulk.
    Product {
        /// The step.
        step: u64,
        /// Group of the plan.
        group: u32,
    },
    /// A group was decoded. The bulk is the entries, member by member.
    Decoded {
        /// The step.
        step: u64,
        /// Group of the plan.
        group: u32,
        /// What was counted of its rows.
        counted: Tallied,
    },
    /// A sum of product 2, the bulk.
    Sum {
        /// The step.
        step: u64,
        /// Which.
        ticket: u64,
        /// Rows that were multiplied since the last sum, in both products.
        rows: u64,
        /// Seconds of computing since the last sum.
        busy_seconds: f64,
        /// Seconds of waiting since then.
        waiting_seconds: f64,
    },
}

/// What is counted where a group is decoded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tallied {
    /// Sum of the loss over the rows.
    pub loss_sum: f64,
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
    /// The numbers that some bytes are; nothing where they are none.
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
