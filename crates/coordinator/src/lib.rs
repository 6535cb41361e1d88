//! What a run does next, and why.
//!
//! Owns the decisions of a run: its course, which epoch is best, when it ends. Never computes on a
//! tensor, never prints, and never asks the clock.
//!
//! # Layout
//! - [`decide`]: the decisions, as pure functions of what has happened

pub mod decide;
