//! A worker: computes the shards it holds leases for.
//!
//! Owns nothing that outlives it: parameters come from the servers, examples from the data, leases
//! from the coordinator, and every result leaves at once. Never sees the coordinator's code, only
//! the protocol.
//!
//! # Layout
//! - [`duty`]: what it has to do and does next; pure
//! - [`board`]: the parameters of two steps, filled by many links
//! - [`ahead`]: examples read ahead of use
//! - [`step`]: one step: compute, push; [`evaluate`]: scores on held-out examples
//! - [`bench`]: data and engine, which it keeps for life
//! - [`links`], [`session`]: joined once: its links and threads, and the work until it ends
//! - [`mail`]: what the threads of a session tell its main thread
//! - [`run`]: one session after another
//! - [`features`]: its data, as what a saved network makes of it where the recipe says so
//! - [`coded`]: a worker of a coded run, from its block to its sessions

pub mod ahead;
pub mod bench;
pub mod board;
pub mod coded;
pub mod duty;
pub mod evaluate;
pub mod features;
pub mod links;
pub mod mail;
pub mod run;
pub mod session;
pub mod step;
