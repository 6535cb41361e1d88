//! From a checked recipe to a trained network.
//!
//! Owns the order of things in a run: steps, validation, checkpoints, the end. Never knows how
//! files look inside or how text is laid out.
//!
//! # Layout
//! - [`run_loop`]: steps, epochs and checkpoints; [`ending`]: what is written when a session ends
//! - [`recorder`]: figures to metrics, TensorBoard and the progress line
//! - [`evaluation`]: a network over a part of the data
//! - [`state`]: how far a run has come
//! - [`watch`]: the best epoch, and when to stop
//! - [`interrupt`]: what Ctrl-C asks for

pub mod ending;
pub mod evaluation;
pub mod interrupt;
pub mod recorder;
pub mod run_loop;
pub mod state;
pub mod watch;
