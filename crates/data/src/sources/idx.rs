//! MNIST's idx files, plain or packed: an images file, and beside it a labels file of the same
//! prefix.
//!
//! Inputs are n×d (vectors), n×h×w or n×h×w×c (images, channels innermost). Unsigned bytes are
//! scaled as bytes; the other value types of idx (signed bytes, 16- and 32-bit integers, 32- and
//! 64-bit floats) become 32-bit floats as they are read. Labels that are integers are classes and have one dimension; labels that are
//! floats are target numbers and have one or two. Records count from 0, as example ids do.

mod file;
mod names;

use crate::budget::Memory;
use crate::error::Error;
use crate::files;
use crate::scale::Scale;
use crate::source::{DataFile, Source, Target, Targets};
use file::{File, Header, Kind};
use planaria_recipe::shape::Shape;
use std::path::{Path, PathBuf};

pub use names::{is_name, locate};

/// Where a set's two files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub images: PathBuf,
    /// The classes or target numbers.
    pub labels: PathBuf,
}

/// What a pair holds, without its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub len: u64,
    /// Shape of one.
    pub shape: Shape,
    /// What is learned of each.
    pub target: Target,
}

/// Examples of a pair of idx files.
#[derive(Debug)]
pub struct Idx {
    summary: Summary,
    inputs: File,
    labels: File,
    files: Vec<DataFile>,
}

impl Idx {
    /// Reads both files once.
    pub fn open(pair: &Pair, memory: &Memory) -> Result<Self, Error> {
        let labels = Labels::read(pair, memory)?;
        let inputs = file::read(&pair.images, memory, None)?;
        let summary = summarise(pair, &inputs.header, &labels)?;
        let files = vec![inputs.file.clone(), labels.file.file.clone()];
        Ok(Self { summary, inputs, labels: labels.file, files })
    }
}

impl Source for Idx {
    fn len(&self) -> u64 {
        self.summary.len
    }

    fn shape(&self) -> Shape {
        self.summary.shape
    }

    fn target(&self) -> Target {
        self.summary.target
    }

    fn read(
        &self,
        ids: &[u64],
        scale: &Scale,
        room: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let len = self.summary.shape.len();
        let kind = self.inputs.header.kind;
        self.inputs.records.each(ids, room, |i, record| {
            let out = &mut out[i * len..(i + 1) * len];
            if kind == Kind::U8 {
                return scale.bytes(record, out);
            }
            kind.convert(record, out);
            scale.floats(out);
        })
    }

    fn targets(&self, ids: &[u64], room: &mut Vec<u8>, out: &mut Targets) -> Result<(), Error> {
        let kind = self.labels.header.kind;
        match out {
            Targets::Classes(classes) => self.labels.records.each(ids, room, |_, record| {
                let mut class = [0.0];
                kind.convert(record, &mut class);
                classes.push(class[0] as u32);
            }),
            Targets::Values(values) => self.labels.records.each(ids, room, |_, record| {
                let start = values.len();
                values.resize(start + self.labels.header.record_len(), 0.0);
                kind.convert(record, &mut values[start..]);
            }),
        }
    }

    fn files(&self) -> &[DataFile] {
        &self.files
    }
}

/// What a pair holds: reads the labels, but only the header of the inputs.
pub fn peek(pair: &Pair) -> Result<(Summary, Vec<DataFile>), Error> {
    let labels = Labels::read(pair, &Memory::of_process())?;
    let header = file::header(&pair.images)?;
    file::check_length(&pair.images, &header)?;
    let files = vec![files::data_file(&pair.images)?, files::data_file(&pair.labels)?];
    Ok((summarise(pair, &header, &labels)?, files))
}

/// Whether a file begins as idx files do.
pub fn looks_like(path: &Path) -> bool {
    file::header(path).is_ok()
}

/// The labels file.
struct Labels {
    file: File,
    target: Target,
}

impl Labels {
    fn read(pair: &Pair, memory: &Memory) -> Result<Self, Error> {
        let path = &pair.labels;
        let mut largest = 0;
        let mut look = |header: &Header, first: usize, values: &[f32]| {
            let dimensions = header.dimensions.len();
            if header.kind.is_float() && dimensions <= 2 {
                return Ok(());
            }
            if dimensions != 1 {
                let message = format!("labels have {dimensions} dimensions, where one is expected");
                return Err(Error::corrupt(path, message));
            }
            for (i, value) in values.iter().enumerate() {
                largest = largest.max(class(path, first + i, *value)?);
            }
            Ok(())
        };
        let file = file::read(path, memory, Some(&mut look))?;
        let target = match file.header.kind.is_float() {
            true => Target::Values { width: file.header.record_len() },
            false => Target::Class { classes: (largest + 1).max(2) },
        };
        Ok(Self { file, target })
    }
}

/// An integer as a class.
fn class(path: &Path, record: usize, value: f32) -> Result<usize, Error> {
    // Beyond 2²⁴ a float no longer tells neighbours apart; no classifier has as many classes.
    match value {
        0.0..16_777_216.0 => Ok(value as usize),
        _ => Err(Error::corrupt(
            path,
            format!("record {record} has label {value}, which is no class"),
        )),
    }
}

fn summarise(pair: &Pair, header: &Header, labels: &Labels) -> Result<Summary, Error> {
    let shape = match header.dimensions[1..] {
        [] => Shape::Vector(1),
        [n] => Shape::Vector(n as usize),
        [height, width] => image(height, width, 1),
        [height, width, channels] => image(height, width, channels),
        _ => {
            let message = format!(
                "inputs have {} dimensions, where at most four are expected",
                header.dimensions.len()
            );
            return Err(Error::corrupt(&pair.images, message));
        }
    };
    let (inputs, targets) = (header.records(), labels.file.header.records());
    if inputs != targets {
        let labels = pair.labels.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let message = format!("it has {inputs} examples, but `{labels}` has {targets} labels");
        return Err(Error::corrupt(&pair.images, message));
    }
    Ok(Summary { len: inputs, shape, target: labels.target })
}

fn image(height: u32, width: u32, channels: u32) -> Shape {
    Shape::Image { height: height as usize, width: width as usize, channels: channels as usize }
}
