//! What all examples of a data set have in common, and by what the set is known again.

use crate::source::{DataFile, Target};
use planaria_recipe::shape::Shape;

/// What is known of the data without reading the inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Shape of one example.
    pub input: Shape,
    /// What is learned of each example; classes are counted over all parts.
    pub target: Target,
    /// Examples to learn from.
    pub train: u64,
    /// Examples for validation.
    pub validation: u64,
    /// Examples for test.
    pub test: u64,
    /// The files that are read.
    pub files: Vec<DataFile>,
    /// How many different numbers the labels are, where they count as classes although they look like
    /// numbers to predict.
    pub numeric_classes: Option<usize>,
}

/// What tells whether data is the same as before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// A file, or `digits`.
    pub name: String,
    /// Its content; for digits, how they are drawn.
    pub content: String,
}

impl Facts {
    /// Largest class + 1, at least 2; none for targets that are numbers.
    pub fn classes(&self) -> Option<usize> {
        match self.target {
            Target::Class { classes } => Some(classes),
            Target::Values { .. } => None,
        }
    }
}
