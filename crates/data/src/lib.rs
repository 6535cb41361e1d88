//! Placeholder.
pub mod error;
pub mod scale;
pub mod source;
pub mod sources;
