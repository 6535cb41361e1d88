//! The user's own script on the machines of a pool.
//!
//! # Layout
//! - [`python`]: whether a script is Python, and what it imports, before anything is created
//! - [`lines`]: what a process writes, as lines; [`figures`]: the metrics in them
//! - [`show`]: the lines of all processes on one screen

pub mod figures;
pub mod lines;
pub mod python;
pub mod show;
