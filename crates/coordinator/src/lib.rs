//! What a run does next, and why; and its parameters.
//!
//! Owns the decisions of a run and the processes that carry them out: the coordinator and the
//! servers. Never computes a gradient, never prints, and never asks the clock.
//!
//! # Layout
//! - [`run`]: the decisions that every run has in common, as pure functions of what has happened;
//!   [`methods`]: what differs from one training method to the next
//! - [`serve`]: the coordinator: a value that says what to do, and the loop that does it
//! - [`record`], [`kept`]: what the next coordinator goes on from
//! - [`parameters`]: a server

pub mod kept;
pub mod methods;
pub mod parameters;
pub mod record;
pub mod run;
pub mod serve;
