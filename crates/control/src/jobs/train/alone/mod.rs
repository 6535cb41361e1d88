//! A run in one process: steps, validation, checkpoints, the end.
//!
//! Owns doing what the run's course asks for. Never decides which of them comes next, and never knows
//! how files look inside or how text is laid out.
//!
//! # Layout
//! - [`run_loop`]: the session; [`ledger`]: which steps were committed
//! - [`learner`]: what is trained: a network or a [`linear`] model
//! - [`evaluation`]: a network over a part of the data

pub mod evaluation;
pub mod learner;
pub mod ledger;
pub mod linear;
pub mod run_loop;
