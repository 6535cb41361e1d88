//! Tables: CSV and LIBSVM files, and their rows as matrices of features.
//!
//! In the order data flows:
//! - `text`, `csv`, `libsvm`: bytes to records, one at a time; faults name line and column
//! - `columns`: what the recipe uses each column for
//! - `read`: records to columns in memory ([`Table`])
//! - `set`: [`open`] reads the files of a recipe and cuts them into parts ([`TableSet`], [`Rows`])
//! - `encoder`, `bins`, `labels`: [`Encoder`] learns from training rows alone, encodes any rows
//! - `matrix`: what comes out
//! - `vectors`: the same as examples for a network
//!
//! ```no_run
//! # fn f(data: &planaria_recipe::sections::Data) -> Result<(), planaria_data::Error> {
//! use planaria_data::table;
//! let set = table::open(data, 7)?;
//! let encoder = set.learn()?;
//! let train = encoder.encode::<f64>(&set.train)?;
//! assert_eq!(train.matrix.width(), encoder.features().len());
//! # Ok(()) }
//! ```
//!
//! Never standardises, bins or names anything by rows that are held out.

mod bins;
mod columns;
mod csv;
mod encoder;
mod labels;
mod libsvm;
mod matrix;
mod read;
mod set;
mod text;
pub(crate) mod vectors;

pub use encoder::{Encoded, Encoder, Feature};
pub use labels::Labels;
pub use matrix::{Csr, Dense, Matrix, Value};
pub use set::{Rows, TableSet, is_table, open};

use crate::error::Error;
use crate::files;
use crate::part::Part;
use crate::source::DataFile;
use planaria_recipe::sections::Format;
use planaria_recipe::table as recipe;
use read::{Column, LabelColumn};
use std::path::{Path, PathBuf};

/// The rows of one file, as they are written there.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    body: Body,
    labels: LabelColumn,
    file: DataFile,
}

#[derive(Debug)]
enum Body {
    Columns(Vec<Column>),
    Sparse(Csr<f64>),
}

impl Table {
    /// Reads a file; `Format::Auto` goes by its name and takes CSV where that tells nothing.
    pub fn open(path: &Path, format: Format, section: &recipe::Table) -> Result<Self, Error> {
        let (body, labels, mark) = match format {
            Format::Libsvm => sparse(path, section)?,
            Format::Auto if set::named_libsvm(path) => sparse(path, section)?,
            _ => {
                let content = read::read(path, section)?;
                (Body::Columns(content.columns), content.labels, content.mark)
            }
        };
        let file = files::data_file(path, Some(mark))?;
        Ok(Self { path: path.into(), body, labels, file })
    }

    /// Rows.
    pub fn len(&self) -> u64 {
        match &self.labels {
            LabelColumn::Classes(words) => words.codes.len() as u64,
            LabelColumn::Numbers(list) => list.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file that was read.
    pub fn file(&self) -> &DataFile {
        &self.file
    }
}

/// All rows of a file as examples, encoded as training rows were, such as for judging a saved model.
pub fn open_encoded(
    path: &Path,
    format: Format,
    section: &recipe::Table,
    encoder: &Encoder,
) -> Result<Part, Error> {
    vectors::encoded(path, format, section, encoder)
}

fn sparse(path: &Path, section: &recipe::Table) -> Result<(Body, LabelColumn, u128), Error> {
    let content = libsvm::read(path, section.target)?;
    Ok((Body::Sparse(content.rows), content.labels, content.mark))
}
