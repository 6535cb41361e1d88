//! Where machines come from: one file or folder for each kind.
//!
//! # Layout
//! - [`docker`]: containers on one engine

pub mod docker;
