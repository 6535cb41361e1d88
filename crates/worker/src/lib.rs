//! A worker: computes what the run's method asks of it.
//!
//! Owns nothing that outlives it: parameters come from the servers, examples from the data, orders
//! from the coordinator, and every result leaves at once. Never sees the coordinator's code, only
//! the protocol.
//!
//! # Layout
//! - [`session`]: what is the same for every method, from joining to the end: a value, and the
//!   process around it
//! - [`methods`]: what differs; one folder each
//! - [`gradient`]: what methods share that train a network with parameters on servers
//! - [`data`]: the run's data; [`features`]: as what a saved network makes of it, where the recipe
//!   says so

pub mod data;
pub mod features;
pub mod gradient;
pub mod methods;
pub mod session;
