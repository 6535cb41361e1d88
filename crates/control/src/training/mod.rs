//! From a checked recipe to a trained model.
//!
//! Owns doing what the run's course asks for: steps, validation, checkpoints, the end. Never
//! decides which of them comes next, and never knows how files look inside or how text is laid out.
//!
//! # Layout
//! - [`run_loop`]: a run in one process; [`ending`]: what is written when a session ends
//! - [`identity`]: what must be the same for a run to go on; [`ledger`]: which steps were committed
//! - [`learner`]: what is trained: a network or a [`linear`] model
//! - [`recorder`]: events to metrics and lines on the screen; [`evaluation`]: a network over a part of
//!   the data

pub mod ending;
pub mod evaluation;
pub mod identity;
pub mod learner;
pub mod ledger;
pub mod linear;
pub mod recorder;
pub mod run_loop;
