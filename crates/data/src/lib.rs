//! Data: where examples come from, which are held out, in which order and how changed they are
//! learned from.
//!
//! # Layout
//!
//! In the order data flows:
//! - [`dataset`]: the recipe's `data` section opened ([`open`]) or looked at ([`peek`]).
//! - [`sources`]: one file per kind of data (`digits`, `idx`, `cifar10`), behind [`source::Source`];
//!   a new format goes here. `files` finds, opens and unpacks, through a store; `records` holds what
//!   was found, in memory as far as `budget` allows, and reads it by id.
//! - [`table`]: CSV and LIBSVM files, their columns encoded as the recipe says, as matrices or as
//!   examples.
//! - [`part`]: the train, validation and test parts, by the seed.
//! - [`order`]: the order of an epoch, its batches and their shards.
//! - [`scale`] and [`augment`]: what happens to the values of an example.
//! - [`batch`]: [`Loader`] fills a [`Batch`] for any places of any epoch.
//! - [`features`]: all of it as what a saved network makes of it.
//! - [`reader`]: [`Reader`] fills them ahead of use, on its own thread.
//! - `content`: marks of files, by which a resumed run knows its data again.
//!
//! ```
//! use planaria_data::{Loader, Reader, Schedule, open};
//! use planaria_recipe::sections::{Augment, Data, Format, Normalize, Part};
//!
//! let data = Data {
//!     train: "digits".into(),
//!     test: None,
//!     validation: Some(Part::Share(0.1)),
//!     format: Format::Auto,
//!     table: None,
//!     examples: Some(500),
//!     normalize: Normalize::default(),
//!     augment: Augment::default(),
//! };
//! let set = open(&data, 7)?;
//! let loader = Loader::training(set.train, 7, &data.normalize, &data.augment)?;
//! let mut reader = Reader::start(loader, Schedule { batch: 100, epochs: 0..1, step: 0 })?;
//! while let Some(batch) = reader.next() {
//!     let batch = batch?;
//!     assert_eq!(batch.inputs.len(), batch.len() * 28 * 28);
//!     reader.recycle(batch);
//! }
//! # Ok::<(), planaria_data::Error>(())
//! ```
//!
//! Everything random is a function of the seed and of names (epoch, example id), never of what was
//! drawn before, who asks or on which machine. This crate never prints and never panics over a bad
//! file: an [`Error`] names the file and the record.

pub mod augment;
pub mod batch;
mod budget;
mod content;
pub mod dataset;
pub mod error;
pub mod facts;
pub mod features;
mod files;
mod memory;
pub mod order;
pub mod part;
pub mod reader;
mod records;
pub mod scale;
pub mod source;
pub mod sources;
pub mod table;

pub use batch::{Batch, Loader};
pub use budget::Memory;
pub use dataset::{DataSet, Facts, Mark, missing, open, open_if, open_part, open_within, peek};
pub use error::{Error, Kind, Mistake};
pub use part::Part;
pub use reader::{Reader, Schedule, reading_bytes};
pub use source::{DataFile, Source, Target, Targets};
pub use sources::Role;
