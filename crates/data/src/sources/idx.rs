//! MNIST's idx files, plain or packed: an images file, and beside it a labels file of the same
//! prefix.
//!
//! Inputs are n×d (vectors), n×h×w or n×h×w×c (images, channels innermost). Unsigned bytes stay
//! bytes; the other value types of idx (signed bytes, 16- and 32-bit integers, 32- and 64-bit floats)
//! become 32-bit floats. Labels that are integers are classes and have one dimension; labels that are
//! floats are target numbers and have one or two. Records count from 0, as example ids do.

mod file;
mod names;

use crate::error::Error;
use crate::files;
use crate::memory::prefetch;
use crate::scale::Scale;
use crate::source::{DataFile, Source, Target};
use file::{File, Header, Values};
use planaria_recipe::shape::Shape;
use std::ops::Range;
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

/// Examples of a pair of idx files, in memory.
#[derive(Debug)]
pub struct Idx {
    summary: Summary,
    inputs: Values,
    classes: Vec<u32>,
    values: Vec<f32>,
    files: Vec<DataFile>,
}

impl Idx {
    /// Reads both files.
    pub fn open(pair: &Pair) -> Result<Self, Error> {
        let labels = Labels::read(pair)?;
        let File { header, values: inputs, mark } = file::read(&pair.images)?;
        let summary = summarise(pair, &header, &labels)?;
        let files = data_files(pair, [Some(mark), Some(labels.mark)])?;
        let Labels { classes, values, .. } = labels;
        Ok(Self { summary, inputs, classes, values, files })
    }

    fn row(&self, id: u64) -> Range<usize> {
        let (id, len) = (id as usize, self.summary.shape.len());
        id * len..(id + 1) * len
    }

    fn width(&self) -> usize {
        match self.summary.target {
            Target::Class { .. } => 0,
            Target::Values { width } => width,
        }
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

    fn class(&self, id: u64) -> u32 {
        self.classes.get(id as usize).copied().unwrap_or(0)
    }

    fn values(&self, id: u64) -> &[f32] {
        let width = self.width();
        &self.values[id as usize * width..(id as usize + 1) * width]
    }

    fn prefetch(&self, id: u64) {
        let row = self.row(id);
        match &self.inputs {
            Values::Bytes(bytes) => prefetch(&bytes[row]),
            Values::Floats { values, .. } => prefetch(&values[row]),
        }
    }

    fn read(&self, id: u64, scale: &Scale, out: &mut [f32]) -> Result<(), Error> {
        let row = self.row(id);
        match &self.inputs {
            Values::Bytes(bytes) => scale.bytes(&bytes[row], out),
            Values::Floats { values, .. } => scale.floats(&values[row], out),
        }
        Ok(())
    }

    fn files(&self) -> &[DataFile] {
        &self.files
    }
}

/// What a pair holds: reads the labels, but only the header of the inputs.
pub fn peek(pair: &Pair) -> Result<(Summary, Vec<DataFile>), Error> {
    let labels = Labels::read(pair)?;
    let header = file::header(&pair.images)?;
    file::check_length(&pair.images, &header)?;
    Ok((summarise(pair, &header, &labels)?, data_files(pair, [None; 2])?))
}

/// Whether a file begins as idx files do.
pub fn looks_like(path: &Path) -> bool {
    file::header(path).is_ok()
}

/// The labels file's content.
struct Labels {
    header: Header,
    classes: Vec<u32>,
    values: Vec<f32>,
    mark: u128,
}

impl Labels {
    fn read(pair: &Pair) -> Result<Self, Error> {
        let path = &pair.labels;
        let File { header, values: content, mark } = file::read(path)?;
        let mut labels = Self { header, classes: Vec::new(), values: Vec::new(), mark };
        let dimensions = labels.header.dimensions.len();
        match content {
            Values::Floats { values, integers: false } if dimensions <= 2 => labels.values = values,
            _ if dimensions != 1 => {
                let message = format!("labels have {dimensions} dimensions, where one is expected");
                return Err(Error::corrupt(path, message));
            }
            Values::Bytes(bytes) => labels.classes = bytes.into_iter().map(u32::from).collect(),
            Values::Floats { values, .. } => labels.classes = classes(path, &values)?,
        }
        Ok(labels)
    }

    fn target(&self) -> Target {
        match self.classes.iter().max() {
            Some(&largest) => Target::Class { classes: (largest as usize + 1).max(2) },
            None => Target::Values { width: self.header.record_len() },
        }
    }
}

/// Integers as classes.
fn classes(path: &Path, values: &[f32]) -> Result<Vec<u32>, Error> {
    // Beyond 2²⁴ a float no longer tells neighbours apart; no classifier has as many classes.
    let class = |(record, &value): (usize, &f32)| match value {
        0.0..16_777_216.0 => Ok(value as u32),
        _ => Err(Error::corrupt(
            path,
            format!("record {record} has label {value}, which is no class"),
        )),
    };
    values.iter().enumerate().map(class).collect()
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
    let (inputs, targets) = (header.records(), labels.header.records());
    if inputs != targets {
        let labels = pair.labels.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let message = format!("it has {inputs} examples, but `{labels}` has {targets} labels");
        return Err(Error::corrupt(&pair.images, message));
    }
    Ok(Summary { len: inputs, shape, target: labels.target() })
}

fn image(height: u32, width: u32, channels: u32) -> Shape {
    Shape::Image { height: height as usize, width: width as usize, channels: channels as usize }
}

fn data_files(pair: &Pair, marks: [Option<u128>; 2]) -> Result<Vec<DataFile>, Error> {
    let [images, labels] = marks;
    Ok(vec![files::data_file(&pair.images, images)?, files::data_file(&pair.labels, labels)?])
}
