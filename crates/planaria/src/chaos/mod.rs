//! Breaking a live run on purpose.
//!
//! Owns which fault comes next (pure, from a seed), which processes are the run's, and that every
//! process which was stopped goes on again. Never touches a process of anything else.
//!
//! # Layout
//! - [`words`]: times and shares as options say them
//! - [`plan`]: the faults that follow from a seed
//! - [`processes`]: the run's processes, and signals to them
//! - [`grip`]: processes that are stopped for a while

pub mod grip;
pub mod plan;
pub mod processes;
pub mod words;

pub use plan::Victims;
pub use words::{Share, Span, Target};
