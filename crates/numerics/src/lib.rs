//! Maths on slices: random numbers, optimizers, aggregation, schedules.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no hidden randomness,
//! and the same bits on every processor.
//!
//! # Layout
//! - [`random`]: the counter-based generator that everything random draws from
//! - [`aggregate`]: shards of a batch, blocks of parameters, norms by blocks
//! - [`checksum`]: a cheap sum of values, which shows damage
//! - [`coding`]: products of coded data that machines may leave and join in the middle of
//! - [`tree`]: shards' sums in their fixed tree, whole or from segments
//! - [`digest`]: an order-free digest of example ids, for exactly-once accounting
//! - [`exact_sum`]: a sum of floats that does not depend on the order of its terms
//! - [`optimizer`]: how parameters follow gradients
//! - [`regression`]: how numbers to predict are scaled, and how far predictions are off
//! - [`schedule`]: the learning rate of each step
//! - `widest`: the same loops compiled for wider vectors

#[macro_use]
mod widest;

pub mod aggregate;
pub mod checksum;
pub mod coding;
pub mod digest;
pub mod exact_sum;
pub mod optimizer;
pub mod random;
pub mod regression;
pub mod schedule;
pub mod tree;
