//! Recipe file to checked plan.
//!
//! Owns the recipe's vocabulary, where every mistake in a file is found and named, and shapes.
//! Reads the recipe file and nothing else: never data, sockets or the clock; never prints.
//!
//! # Layout
//! The way of a recipe, each step in a file of its own:
//! - `yaml`: bounded text to a tree of positioned nodes (`node`)
//! - `sets`: `--set` overrides, written into the tree
//! - `check`, `choice`, `suggest`: the tree against the schema of the types
//! - `rules`: what values must mean together
//! - `network`: shapes and outputs against the data, with [`presets`] written out
//! - [`plan`]: what would be done, in numbers
//!
//! Around it:
//! - [`sections`], [`pool`], [`setup`], [`model`], [`train`], [`table`], [`script`]: the vocabulary as plain types, the single source
//! - [`shape`]: what each layer makes of its input
//! - [`Source`]: a file through all steps; [`Diagnostics`]: its mistakes
//! - [`json`]: parts of a recipe for other files
//! - [`schema`]: the vocabulary for editors; [`to_yaml`]: a resolved recipe as a file
//!
//! ```
//! use planaria_recipe::{DataFacts, Shape, Source};
//! let text = "{name: tiny, data: {train: digits}, model: {preset: mlp}}";
//! let source = Source::parse("tiny.yaml", text.as_bytes(), &["train.epochs=3".into()])?;
//! let input = Shape::Image { height: 28, width: 28, channels: 1 };
//! let plan = source.plan(&DataFacts { input, classes: Some(10), examples: 9_000 })?;
//! assert_eq!((plan.recipe.train.epochs, plan.parameters), (3, 109_386));
//! # Ok::<(), planaria_recipe::Diagnostics>(())
//! ```

mod check;
mod choice;
mod diagnostic;
mod emit;
mod file;
pub mod json;
mod kind;
pub mod model;
mod network;
mod node;
pub mod plan;
pub mod pool;
pub mod presets;
mod rules;
mod schema;
pub mod script;
pub mod sections;
mod sets;
pub mod setup;
pub mod shape;
mod source;
mod suggest;
pub mod table;
mod text;
pub mod train;
pub mod words;
mod yaml;

pub use diagnostic::{Diagnostic, Diagnostics, Finding};
pub use emit::to_yaml;
pub use file::{from_stdin, is_stdin};
pub use json::Json;
pub use kind::{AnySource, JobKind};
pub use model::{Layer, Model, Preset};
pub use plan::Plan;
pub use schema::schema;
pub use script::Job;
pub use sections::Recipe;
pub use shape::DataFacts;
pub use shape::Shape;
pub use source::{JobSource, Root, Sound, Source, planned};
pub use suggest::nearest;
