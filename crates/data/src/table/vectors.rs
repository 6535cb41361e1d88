//! Tables as examples for a network: each part encoded once, as vectors in memory.
//!
//! Whatever rows a part holds, its examples count from 0 in the part's order.

use super::matrix::Dense;
use super::set::{Rows, TableSet, open as open_tables};
use super::{Encoder, Labels, Table};
use crate::dataset::{DataSet, Facts};
use crate::error::Error;
use crate::part::Part;
use crate::scale::Scale;
use crate::source::{DataFile, Source, Target};
use planaria_recipe::sections::{Data, Format};
use planaria_recipe::shape::Shape;
use planaria_recipe::table as recipe;
use std::path::Path;
use std::sync::Arc;

/// The encoded rows of one part.
#[derive(Debug)]
struct Vectors {
    matrix: Dense<f32>,
    classes: Vec<u32>,
    numbers: Vec<f32>,
    target: Target,
    files: Vec<DataFile>,
}

/// Opens a recipe's tables, encoded.
pub(crate) fn open(data: &Data, seed: u64) -> Result<DataSet, Error> {
    let set = open_tables(data, seed)?;
    let encoder = set.learn()?;
    let facts = facts(&set, &encoder);
    let part = |rows: &Rows, key: &'static str| {
        let vectors = Vectors::encode(&encoder, rows, facts.target).map_err(|e| e.at(key))?;
        Ok::<_, Error>(Part::whole(Arc::new(vectors)))
    };
    let train = part(&set.train, "data.train")?;
    let validation =
        set.validation.as_ref().map(|rows| part(rows, "data.validation")).transpose()?;
    let test = set.test.as_ref().map(|rows| part(rows, "data.test")).transpose()?;
    let encoder = Some(Arc::new(encoder));
    Ok(DataSet { train, validation, test, facts, marks: set.marks, encoder, is_extracted: false })
}

/// All rows of another file, encoded as training rows were, such as for judging a saved model.
pub(super) fn encoded(
    path: &Path,
    format: Format,
    section: &recipe::Table,
    encoder: &Encoder,
) -> Result<Part, Error> {
    if !path.exists() {
        return Err(crate::sources::absent(path));
    }
    let table = Table::open(path, format, section)?;
    let rows = Rows::whole(Arc::new(table));
    let vectors = Vectors::encode(encoder, &rows, target(encoder))?;
    Ok(Part::whole(Arc::new(vectors)))
}

/// Looks at a recipe's tables. How many features there are takes reading them.
pub(crate) fn peek(data: &Data, seed: u64) -> Result<Facts, Error> {
    let set = open_tables(data, seed)?;
    Ok(facts(&set, &set.learn()?))
}

fn facts(set: &TableSet, encoder: &Encoder) -> Facts {
    let target = target(encoder);
    let mut files = Vec::new();
    for rows in [Some(&set.train), set.validation.as_ref(), set.test.as_ref()].into_iter().flatten()
    {
        let file = DataFile { mark: None, ..rows.table().file().clone() };
        if !files.contains(&file) {
            files.push(file);
        }
    }
    let count = |rows: &Option<Rows>| rows.as_ref().map_or(0, Rows::len);
    Facts {
        input: Shape::Vector(encoder.width()),
        target,
        train: set.train.len(),
        validation: count(&set.validation),
        test: count(&set.test),
        files,
    }
}

fn target(encoder: &Encoder) -> Target {
    match encoder.classes() {
        Some(names) => Target::Class { classes: names.len() },
        None => Target::Values { width: 1 },
    }
}

impl Vectors {
    fn encode(encoder: &Encoder, rows: &Rows, target: Target) -> Result<Self, Error> {
        let matrix = encoder.encode_dense(rows)?;
        let (classes, numbers) = match encoder.labels(rows)? {
            Labels::Classes(list) => (list, Vec::new()),
            Labels::Numbers(list) => (Vec::new(), list.iter().map(|x| *x as f32).collect()),
        };
        let files = vec![rows.table().file().clone()];
        Ok(Self { matrix, classes, numbers, target, files })
    }
}

impl Source for Vectors {
    fn len(&self) -> u64 {
        self.matrix.height() as u64
    }

    fn shape(&self) -> Shape {
        Shape::Vector(self.matrix.width)
    }

    fn target(&self) -> Target {
        self.target
    }

    fn class(&self, id: u64) -> u32 {
        self.classes.get(id as usize).copied().unwrap_or(0)
    }

    fn values(&self, id: u64) -> &[f32] {
        self.numbers.get(id as usize).map_or(&[], std::slice::from_ref)
    }

    fn read(&self, id: u64, scale: &Scale, out: &mut [f32]) -> Result<(), Error> {
        scale.floats(self.matrix.row(id as usize), out);
        Ok(())
    }

    fn files(&self) -> &[DataFile] {
        &self.files
    }
}
