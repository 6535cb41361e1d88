//! Tables as examples for a network: each part encoded once, as vectors in memory or on disk.
//!
//! Whatever rows a part holds, its examples count from 0 in the part's order.

use super::set::{Rows, TableSet, open as open_tables, open_within};
use super::{Encoder, Table};
use crate::budget::Memory;
use crate::error::Error;
use crate::facts::{Facts, Mark};
use crate::files;
use crate::part::Part;
use crate::records::{Records, Spool, float_bytes, floats};
use crate::scale::Scale;
use crate::source::{DataFile, Source, Target, Targets};
use planaria_recipe::sections::{Data, Format};
use planaria_recipe::shape::Shape;
use planaria_recipe::table as recipe;
use std::path::Path;
use std::sync::Arc;

/// The encoded rows of one part.
#[derive(Debug)]
struct Vectors {
    width: usize,
    inputs: Records,
    /// Classes as u32, or numbers as f32.
    targets: Records,
    target: Target,
    files: Vec<DataFile>,
}

/// A recipe's tables, encoded.
pub(crate) struct Encoded {
    pub train: Part,
    pub validation: Option<Part>,
    pub test: Option<Part>,
    pub facts: Facts,
    pub marks: Vec<Mark>,
    pub encoder: Encoder,
}

/// Opens a recipe's tables, and encodes them where their facts are as wanted.
pub(crate) fn open(
    data: &Data,
    seed: u64,
    memory: &Memory,
    is_wanted: impl FnOnce(&Facts) -> bool,
) -> Result<Option<Encoded>, Error> {
    let set = open_within(data, seed, memory)?;
    let encoder = set.learn()?;
    let facts = facts(&set, &encoder);
    if !is_wanted(&facts) {
        return Ok(None);
    }
    let part = |rows: &Rows, key: &'static str| {
        let vectors =
            Vectors::encode(&encoder, rows, facts.target, memory).map_err(|e| e.at(key))?;
        Ok::<_, Error>(Part::whole(Arc::new(vectors)))
    };
    let train = part(&set.train, "data.train")?;
    let validation =
        set.validation.as_ref().map(|rows| part(rows, "data.validation")).transpose()?;
    let test = set.test.as_ref().map(|rows| part(rows, "data.test")).transpose()?;
    Ok(Some(Encoded { train, validation, test, facts, marks: set.marks, encoder }))
}

/// All rows of another file, encoded as training rows were, such as for judging a saved model.
pub(super) fn encoded(
    path: &Path,
    format: Format,
    section: &recipe::Table,
    encoder: &Encoder,
) -> Result<Part, Error> {
    files::check(path)?;
    if !files::exists(path) {
        return Err(crate::sources::absent(path));
    }
    let table = Table::open(path, format, section)?;
    let rows = Rows::whole(Arc::new(table));
    let vectors = Vectors::encode(encoder, &rows, target(encoder), &Memory::of_process())?;
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
        numeric_classes: encoder.numeric_classes(set.train.len()),
    }
}

fn target(encoder: &Encoder) -> Target {
    match encoder.classes() {
        Some(names) => Target::Class { classes: names.len() },
        None => Target::Values { width: 1 },
    }
}

impl Vectors {
    fn encode(
        encoder: &Encoder,
        rows: &Rows,
        target: Target,
        memory: &Memory,
    ) -> Result<Self, Error> {
        let (table, width) = (rows.table(), encoder.width());
        let path = &table.file().path;
        let (mut inputs, mut targets) = (Spool::new(path, memory), Spool::new(path, memory));
        let labels = encoder.label_coder(table)?;
        let scale = encoder.target_scale().unwrap_or_default();
        let mut bytes = Vec::new();
        encoder.each_dense::<f32>(rows, |id, row, features| {
            float_bytes(features, &mut bytes);
            inputs.push(&bytes)?;
            targets.push(&match target {
                Target::Class { .. } => labels.class(id, row)?.to_le_bytes(),
                Target::Values { .. } => (scale.scaled(row.label_number()) as f32).to_le_bytes(),
            })
        })?;
        Ok(Self {
            width,
            inputs: Records::new(4 * width).with(inputs.finish()?, rows.len()),
            targets: Records::new(4).with(targets.finish()?, rows.len()),
            target,
            files: vec![table.file().clone()],
        })
    }
}

impl Source for Vectors {
    fn len(&self) -> u64 {
        self.inputs.len()
    }

    fn shape(&self) -> Shape {
        Shape::Vector(self.width)
    }

    fn target(&self) -> Target {
        self.target
    }

    fn read(
        &self,
        ids: &[u64],
        scale: &Scale,
        room: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.inputs.each(ids, room, |i, record| {
            let out = &mut out[i * self.width..(i + 1) * self.width];
            floats(record, out);
            scale.floats(out);
        })
    }

    fn targets(&self, ids: &[u64], room: &mut Vec<u8>, out: &mut Targets) -> Result<(), Error> {
        self.targets.each(ids, room, |_, record| {
            let value = *record.first_chunk().expect("a target has four bytes");
            match out {
                Targets::Classes(classes) => classes.push(u32::from_le_bytes(value)),
                Targets::Values(values) => values.push(f32::from_le_bytes(value)),
            }
        })
    }

    fn files(&self) -> &[DataFile] {
        &self.files
    }
}
