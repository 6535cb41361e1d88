//! Tables: CSV and LIBSVM files, and their rows as matrices of features.
//!
//! In the order data flows:
//! - `text`, `csv`, `libsvm`: bytes to records, one at a time; faults name line and column
//! - `columns`: what the recipe uses each column for
//! - `read`: records to rows of one size ([`Table`]), in memory or on disk; `row` is one of them
//! - `set`: [`open`] reads the files of a recipe and cuts them into parts ([`TableSet`], [`Rows`])
//! - `encoder`, `bins`, `labels`: [`Encoder`] learns from training rows alone, encodes any rows
//! - `matrix`: what comes out
//! - `vectors`: the same as examples for a network
//! - [`profile`]: what a table looks like, before there is a recipe for it
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
pub mod profile;
mod read;
mod row;
mod set;
mod text;
pub(crate) mod vectors;

pub use encoder::{Encoded, Encoder, Feature};
pub use labels::Labels;
pub use matrix::{Csr, Dense, Matrix, Value};
pub use set::{Rows, TableSet, is_table, open};

use crate::budget::Memory;
use crate::error::Error;
use crate::part::{Ids, Part};
use crate::records::{Blob, Records};
use crate::source::DataFile;
use planaria_recipe::sections::Format;
use planaria_recipe::table as recipe;
use read::{Column, LabelColumn};
use row::Row;
use std::path::{Path, PathBuf};

/// Rows that are read at a time.
const ROWS_AT_ONCE: u64 = 1024;

/// The rows of one file, as they are written there.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    body: Body,
    labels: LabelColumn,
    rows: Records,
    file: DataFile,
    memory: Memory,
}

#[derive(Debug)]
enum Body {
    Columns(Vec<Column>),
    /// The entries of all rows, one after the other.
    Sparse(Blob),
}

impl Table {
    /// Reads a file once; `Format::Auto` goes by its name and takes CSV where that tells nothing.
    pub fn open(path: &Path, format: Format, section: &recipe::Table) -> Result<Self, Error> {
        Self::open_within(path, format, section, &Memory::of_process())
    }

    /// The same, with this budget.
    pub fn open_within(
        path: &Path,
        format: Format,
        section: &recipe::Table,
        memory: &Memory,
    ) -> Result<Self, Error> {
        match format {
            Format::Libsvm => libsvm::read(path, section.target, memory),
            Format::Auto if set::named_libsvm(path) => libsvm::read(path, section.target, memory),
            _ => read::read(path, section, memory),
        }
    }

    /// Rows.
    pub fn len(&self) -> u64 {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file that was read.
    pub fn file(&self) -> &DataFile {
        &self.file
    }

    /// Hands out rows, in the order of `ids`.
    fn each(
        &self,
        ids: &Ids,
        mut take: impl FnMut(u64, Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut some, mut room, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        let mut failed = Ok(());
        for first in (0..ids.len()).step_by(ROWS_AT_ONCE as usize) {
            some.clear();
            some.extend((first..(first + ROWS_AT_ONCE).min(ids.len())).map(|place| ids.at(place)));
            self.rows.each(&some, &mut room, |i, record| {
                if failed.is_ok() {
                    failed = Row::new(record, &self.body, &mut entries)
                        .and_then(|row| take(some[i], row));
                }
            })?;
            std::mem::replace(&mut failed, Ok(()))?;
        }
        Ok(())
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
