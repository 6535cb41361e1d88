//! What every source of examples offers, whatever its format.
//!
//! An *example id* is the example's index in its source, from 0. A source never shuffles, splits or
//! augments.

use crate::error::Error;
use crate::scale::Scale;
use planaria_recipe::shape::Shape;
use std::path::PathBuf;

/// Examples that can be read by id, from any thread.
pub trait Source: Send + Sync + std::fmt::Debug {
    /// How many examples there are; ids are 0..len.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shape of one example.
    fn shape(&self) -> Shape;

    /// What is learned of each example.
    fn target(&self) -> Target;

    /// Largest class + 1, at least 2; none for targets that are numbers.
    fn classes(&self) -> Option<usize> {
        match self.target() {
            Target::Class { classes } => Some(classes),
            Target::Values { .. } => None,
        }
    }

    /// Class of an example; 0 where targets are numbers.
    fn class(&self, id: u64) -> u32;

    /// Target numbers of an example; empty where targets are classes.
    fn values(&self, id: u64) -> &[f32];

    /// A hint that an example will be read soon; it may do nothing.
    fn prefetch(&self, _id: u64) {}

    /// Writes the scaled values of an example, channels innermost; `out` holds `shape().len()`.
    fn read(&self, id: u64, scale: &Scale, out: &mut [f32]) -> Result<(), Error>;

    /// The files behind the source; none for drawn examples.
    fn files(&self) -> &[DataFile];
}

/// What is learned of each example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One of so many classes.
    Class {
        /// Largest class + 1, at least 2.
        classes: usize,
    },
    Values {
        /// How many for each example.
        width: usize,
    },
}

/// A file that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its size as stored.
    pub bytes: u64,
    /// A mark of its unpacked content, once that was read.
    pub mark: Option<u128>,
}
