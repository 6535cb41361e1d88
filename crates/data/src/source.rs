//! What every source of examples offers, whatever its format.
//!
//! An *example id* is the example's index in its source, from 0. A source never shuffles, splits or
//! augments. It need not hold its examples in memory: it finds them once, when it is opened, and
//! reads those that are asked for.

use crate::error::Error;
use crate::scale::Scale;
use planaria_recipe::shape::Shape;
use std::path::PathBuf;

/// Examples that can be read by id, from any thread.
pub trait Source: Send + Sync + std::fmt::Debug {
    /// How many examples there are; ids are 0..len.
    fn len(&self) -> u64;

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

    /// Writes the scaled values of examples, one after the other, channels innermost; `out` holds
    /// `shape().len()` for each. `room` is scratch space that is kept between calls.
    fn read(
        &self,
        ids: &[u64],
        scale: &Scale,
        room: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<(), Error>;

    /// Appends what should be answered for examples; `out` is of the kind that `target` says.
    fn targets(&self, ids: &[u64], room: &mut Vec<u8>, out: &mut Targets) -> Result<(), Error>;

    /// The files behind the source; none for drawn examples.
    fn files(&self) -> &[DataFile];
}

/// What should be answered for some examples.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// The class of each example.
    Classes(Vec<u32>),
    /// So many numbers for each example.
    Values(Vec<f32>),
}

impl Default for Targets {
    fn default() -> Self {
        Self::Classes(Vec::new())
    }
}

impl Targets {
    /// Empty, of the kind that a source has; memory is kept if the kind stays.
    pub fn clear(&mut self, target: Target) {
        match (target, &mut *self) {
            (Target::Class { .. }, Self::Classes(classes)) => classes.clear(),
            (Target::Values { .. }, Self::Values(values)) => values.clear(),
            (Target::Class { .. }, _) => *self = Self::Classes(Vec::new()),
            (Target::Values { .. }, _) => *self = Self::Values(Vec::new()),
        }
    }
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
    pub path: PathBuf,
    /// Its size as stored.
    pub bytes: u64,
    /// A mark of its unpacked content, once that was read.
    pub mark: Option<u128>,
}
