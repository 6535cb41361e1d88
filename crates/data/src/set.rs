//! Opened data, and what can be told of it without opening.

use crate::part::Part;
use crate::source::{DataFile, Mark, Target};
use crate::table::Encoder;
use planaria_recipe::shape::Shape;
use std::sync::Arc;

/// The opened data of a recipe.
#[derive(Debug, Clone)]
pub struct DataSet {
    /// To learn from.
    pub train: Part,
    /// To judge each epoch by.
    pub validation: Option<Part>,
    /// To judge the result by.
    pub test: Option<Part>,
    /// What all of it has in common.
    pub facts: Facts,
    /// By which it is known again; the seed and counts are the recipe's.
    pub marks: Vec<Mark>,
    /// How a table's rows became examples, where they come from one.
    pub encoder: Option<Arc<Encoder>>,
    /// Whether examples are features that something made of the data's own.
    pub is_extracted: bool,
}

impl DataSet {
    /// Names of the classes in the order of their numbers; none where targets are numbers. Classes
    /// that a format has no names for are called by their numbers.
    pub fn class_names(&self) -> Vec<String> {
        let named = self.encoder.as_ref().and_then(|encoder| encoder.classes());
        match named {
            Some(names) => names.to_vec(),
            None => (0..self.facts.classes().unwrap_or(0)).map(|n| n.to_string()).collect(),
        }
    }

    /// Names of an example's values: a table's features, or numbers from 0.
    pub fn feature_names(&self) -> Vec<String> {
        match &self.encoder {
            Some(encoder) if !self.is_extracted => {
                encoder.features().into_iter().map(|f| f.name).collect()
            }
            _ => (0..self.facts.input.len()).map(|n| n.to_string()).collect(),
        }
    }
}

/// What can be told of the data without reading the inputs.
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
