//! From a checked recipe to a trained network.
//!
//! Owns the order of things in a run: steps, validation, checkpoints, the end. Never knows how
//! files look inside or how text is laid out.
//!
//! # Layout
//! - [`state`]: how far a run has come
//! - [`schedule`]: the learning rate of a step
//! - [`watch`]: the best epoch, and when to stop
//! - [`interrupt`]: Ctrl-C

pub mod interrupt;
pub mod schedule;
pub mod state;
pub mod watch;
