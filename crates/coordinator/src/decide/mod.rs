//! Decisions without a world: what happened goes in, what to do comes out, with its reason.
//!
//! Never touches files, sockets or clocks; whoever asks acts.
//!
//! # Layout
//! - [`course`]: train, validate, save, end
//! - [`watch`]: the best epoch, and when to stop

pub mod course;
pub mod watch;
