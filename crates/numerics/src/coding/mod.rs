//! Coded elastic computing: products Xw and Xᵀg of coded data, on machines that come and go.
//!
//! Rows of the data are cut into as many blocks as the *threshold* says. Each machine stores one
//! combination of the blocks, so it stores 1/threshold of the data; any threshold's many machines
//! can make up for all others. All that are there share the work without computing anything twice,
//! and the products come out as on one machine. docs/design/coded.md tells the scheme.
//!
//! Owns the arithmetic and who computes what. Everything is a function of its arguments, or a
//! value that is changed by being told what happened; nothing here waits, sends, or knows time.
//!
//! # Layout
//! In the order of a run:
//! - [`generator`]: which combination each slot stores; [`table`]: the codes that were searched for;
//!   [`quality`]: whether one is good enough, checked before a run starts
//! - [`blocks`]: rows in blocks, and encoding them
//! - [`plan`]: who computes which rows; [`ring`]: in which order machines stand; [`speeds`]: for
//!   machines of different speeds; [`handover`]: what changes between plans; [`cost`]: what a plan
//!   costs
//! - [`product`]: a machine's share of both products, and the order of additions
//! - [`gathering`]: product 1 as it comes in, and losses in the middle of it
//! - [`group`]: decoding product 1 and transforming slopes into entries for product 2
//! - [`slope`]: the losses' slopes, between the two products
//! - [`owed`]: product 2 as work that is owed, and losses in the middle of it
//! - [`exact`]: the same in fixed point over a prime field: the same bits for any membership
//! - [`repetition`]: redundancy for work that is not linear
//! - [`scalar`], `field`, [`matrix`]: the numbers underneath
//!
//! # One iteration
//! - The coordinator has who is there and the plan before: [`ring::arrange`] gives the next plan, or
//!   [`Paused`]. It keeps a [`gathering::Gathering`].
//! - A worker has the rows of its [`Slot`], the plan and the weights: [`plan::Plan::share`] says which
//!   sub-blocks it computes, [`product::rows_times`] computes one. It goes to the decoder of that
//!   group, which may be any worker.
//! - The decoder of a group, when all has come: [`group::Decoder::decode`], [`slope::Task::slopes`],
//!   [`group::Decoder::transform`], and each member gets its entries back.
//! - A worker multiplies its rows by its entries ([`product::add_rows_scaled`]) and adds up; the sums
//!   of all workers are the gradient ([`product::total`]).
//! - A machine is lost: [`gathering::Gathering::repair`] in product 1, [`owed::Owed::hand_on`] in
//!   product 2. A machine joins: [`handover::seat`], and the next plan has it.
//!
//! A sub-block follows from the weights, the slot and the places; an entry from the slopes, the group
//! and its members: who sends it again sends the same.
//!
//! ```
//! use planaria_numerics::coding::{
//!     Precision, Slot, blocks::{Blocks, Encoder, Rows}, generator::Generator,
//!     group::decoder_within, product, ring,
//! };
//!
//! // Four rows of two columns, so that any two of three machines suffice.
//! let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
//! let weights = [10.0, 1.0];
//! let code = Generator::stored(2, 3)?;
//! let blocks = Blocks::new(4, 2)?;
//! let stored = |slot| {
//!     let mut encoder = Encoder::new(&code, slot, blocks, 2, 0..blocks.height())?;
//!     encoder.push(0, &Rows::Dense { width: 2, values: &data })?;
//!     encoder.finish()
//! };
//!
//! // The second machine is away.
//! let here = [Slot(0), Slot(2)].into();
//! let plan = ring::arrange(&code, Precision::F64, 0..blocks.height(), &here, None)?;
//! let plan = plan.ready().expect("two are enough");
//! for group in plan.groups() {
//!     let mut shares = vec![];
//!     for slot in &group.members {
//!         let rows = &stored(*slot)?[group.places.start * 2..group.places.end * 2];
//!         let mut share = vec![0.0; group.places.len()];
//!         product::rows_times(2, rows, &weights, &mut share);
//!         shares.push(share);
//!     }
//!     let (decoder, _) = decoder_within(&code, &group.members, Precision::F64)?;
//!     let views: Vec<&[f64]> = shares.iter().map(Vec::as_slice).collect();
//!     let mut products = vec![0.0; 2 * group.places.len()];
//!     decoder.decode(&views, &mut products);
//!     // Block by block: row 0 or 1 first, then row 2 or 3.
//!     let row = group.places.start;
//!     assert!((products[0] - [12.0, 34.0][row]).abs() < 1e-12);
//!     assert!((products[1] - [56.0, 78.0][row]).abs() < 1e-12);
//! }
//! # Ok::<(), planaria_numerics::coding::Error>(())
//! ```

pub mod blocks;
pub mod cost;
mod error;
pub mod exact;
mod field;
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
    /// What is made of what is ready.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Standing<U> {
        match self {
            Standing::Ready(value) => Standing::Ready(f(value)),
            Standing::Paused(paused) => Standing::Paused(paused),
        }
    }

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
    F32,
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
