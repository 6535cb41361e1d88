//! Recipe file to checked plan.
//!
//! Owns the recipe's vocabulary, where every mistake in a file is found and named, and shapes.
//! Never reads data, opens sockets, prints, or asks the clock.
//!
//! # Layout
//! - [`sections`], [`model`], [`train`]: the vocabulary as plain types
//! - [`shape`]: what each layer makes of its input

pub mod model;
pub mod sections;
pub mod shape;
pub mod train;

pub use model::{Layer, Model, Preset};
pub use sections::Recipe;
pub use shape::Shape;
