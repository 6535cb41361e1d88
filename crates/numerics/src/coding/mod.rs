//! Coded elastic computing: products Xw and Xᵀg of coded data, on machines that come and go.

pub mod blocks;
pub mod cost;
mod error;
pub mod exact;
pub mod gathering;
pub mod generator;
pub mod group;
pub mod handover;
pub mod matrix;
pub mod owed;
pub mod plan;
pub mod product;
pub mod quality;
pub mod repetition;
pub mod ring;
pub mod scalar;
pub mod slope;
pub mod speeds;
pub mod table;

pub use error::Error;

use serde::{Deserialize, Serialize};
use std::fmt;

/// Most machines that a code may have.
pub const MACHINES_MAX: usize = 32;

/// A machine's place in a code: its row of the generator, and so what it stores. The first ones,
/// as many as the threshold, are systematic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u16);

impl Slot {
    /// As an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Fewer machines than the threshold: nothing can be computed exactly, so nothing is, until others
/// come. Not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Machines there are.
    pub have: usize,
    /// The threshold.
    pub need: usize,
}

impl Paused {
    /// Paused, unless `have` is enough.
    pub fn unless_enough(have: usize, need: usize) -> Option<Self> {
        (have < need).then_some(Self { have, need })
    }
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "paused, have {}, need {}", self.have, self.need)
    }
}

/// Something for the machines there are, or the reason why there is none yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing<T> {
    /// There are enough machines.
    Ready(T),
    /// There are not.
    Paused(Paused),
}

impl<T> Standing<T> {
    /// What is ready, if it is.
    pub fn ready(self) -> Option<T> {
        match self {
            Standing::Ready(value) => Some(value),
            Standing::Paused(_) => None,
        }
    }
}

/// In which numbers coded products are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Whole numbers modulo 2⁶¹ − 1: the same bits for any membership.
    Exact,
}

impl Precision {
    /// Worst condition of a group that may be decoded. What is decoded is off by about the
    /// condition times the rounding of one number: at the limit 6·10⁻⁴ of the largest product in
    /// f32, 10⁻⁸ in f64.
    pub fn condition_max(self) -> f64 {
        match self {
            Precision::F32 => 1e4,
            Precision::F64 => 1e8,
            Precision::Exact => f64::INFINITY,
        }
    }

    /// What to use where the limit is passed.
    fn remedy(self) -> &'static str {
        match self {
            Precision::F32 => "precision `f64`, a lower threshold",
            Precision::F64 | Precision::Exact => "precision `exact`, a lower threshold",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::F64 => "f64",
            Precision::Exact => "exact",
        })
    }
}
