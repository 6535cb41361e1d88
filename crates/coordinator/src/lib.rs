//! What a run does next, and why; and its parameters.
//!
//! Owns the decisions of a run and the processes that carry them out: the coordinator and the
//! servers. Never computes a gradient, never prints, and never asks the clock.
//!
//! # Layout
//! - [`decide`]: the decisions, as pure functions of what has happened
//! - [`coded`]: those of a coded run
//! - [`serve`]: the coordinator, a thin shell around them
//! - [`narrate`]: events as lines of a log
//! - [`record`]: what the next coordinator goes on from
//! - [`parameters`]: a server

pub mod coded;
pub mod decide;
pub mod narrate;
pub mod parameters;
pub mod record;
pub mod serve;
