//! A worker: computes the shards it holds leases for.
//!
//! Owns nothing that outlives it: parameters come from the servers, examples from the data, leases
//! from the coordinator, and every result leaves at once. Never sees the coordinator's code, only
//! the protocol.
//!
//! # Layout
//! - [`board`]: the parameters of two steps, filled by many links
//! - [`ahead`]: examples read ahead of use
//! - [`duty`]: what it has to do and does next; pure
//! - [`step`]: one step: wait, compute, push
//! - [`evaluate`]: scores on held-out examples
//! - [`run`]: links, and the order of things

pub mod ahead;
pub mod board;
pub mod duty;
pub mod evaluate;
pub mod run;
pub mod step;
