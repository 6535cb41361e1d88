//! How commands find a live run, and what they ask of it.
//!
//! # Layout
//! - [`control`]: where its coordinator is, as a file in the run's folder
//! - [`console`]: the link to it
//! - [`stop`], [`scale`]: what is asked

pub mod console;
pub mod control;
pub mod scale;
pub mod stop;
