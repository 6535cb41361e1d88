//! One process of ours on each machine of a pool, and the controller's end of the talk with it.
//!
//! # Layout
//! - [`words`]: what is said

pub mod words;
