//! What was learned from training rows, and rows encoded with it.
//!
//! [`Encoder::learn`] looks at the rows it is given and at no others; an encoder can be stored and
//! used on any table with the same columns. A category that no training row had is all zeros, a
//! LIBSVM feature that none had is left out: no weight was learned for either. A column that is the
//! same in every training row standardises to 0.

use super::bins::{bin, edges};
use super::columns::Use;
use super::labels::{self, Labels, Target};
use super::matrix::{Csr, Dense, Matrix, Value};
use super::read::{Cells, Column, NO_WORD, Words, check_room};
use super::row::Row;
use super::text::{shown, sort};
use super::{Body, Rows, Table};
use crate::error::Error;
use planaria_numerics::regression::TargetScale;
use planaria_recipe::table::{self as recipe, BinEncoding, Missing};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Version of an encoder's stored form.
const VERSION: u32 = 1;
/// Up to this share of values that are not zero, [`Encoder::encode`] stores those alone.
const SPARSE_SHARE: f64 = 0.25;

/// How rows become features and labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Encoder {
    version: u32,
    inputs: Inputs,
    target: Target,
}

/// How the inputs of a row are encoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Inputs {
    /// Column by column.
    Columns(Vec<EncodedColumn>),
    /// So many features as they are.
    Sparse(usize),
}

/// A column and what is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct EncodedColumn {
    name: String,
    /// What stands for missing values.
    fill: Option<f64>,
    code: Code,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Code {
    /// One feature for each category.
    OneHot(Vec<String>),
    /// One feature for each bin.
    Bins(Vec<f64>),
    /// The bin's number.
    Ordinal(Vec<f64>),
    /// (value − mean) / std.
    Standard {
        mean: f64,
        std: f64,
    },
    Plain,
}

/// A feature: a column of the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Such as `SEX=2`, `AGE>=29.5 and <34.5` or `AGE`.
    pub name: String,
    /// Whether it is 0 or 1 in every row.
    pub binary: bool,
}

/// Rows as numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded<T> {
    /// One row for each example.
    pub matrix: Matrix<T>,
    /// What is learned of each.
    pub labels: Labels,
}

impl Encoder {
    /// Learns categories, bins, means and classes from training rows, and from nothing else.
    pub fn learn(rows: &Rows, section: &recipe::Table) -> Result<Self, Error> {
        if rows.ids.is_empty() {
            return Err(Error::setting("there are no training rows to learn an encoding from"));
        }
        let table = rows.table.as_ref();
        let inputs = match &table.body {
            Body::Columns(columns) => Inputs::Columns(learn_columns(rows, columns, section)?),
            Body::Sparse(_) => {
                let mut width = 0;
                table.each(&rows.ids, |_, row| {
                    width = width.max(row.entries().last().map_or(0, |(c, _)| c as usize + 1));
                    Ok(())
                })?;
                Inputs::Sparse(width)
            }
        };
        let encoder = Self { version: VERSION, inputs, target: Target::learn(rows, section)? };
        match encoder.width() {
            0 => Err(Error::corrupt(&table.path, "its training rows hold no feature")),
            _ => Ok(encoder),
        }
    }

    /// How many features a row becomes.
    pub fn width(&self) -> usize {
        match &self.inputs {
            Inputs::Columns(columns) => columns.iter().map(EncodedColumn::width).sum(),
            Inputs::Sparse(width) => *width,
        }
    }

    /// The features in the order of the matrix's columns.
    pub fn features(&self) -> Vec<Feature> {
        match &self.inputs {
            Inputs::Columns(columns) => columns.iter().flat_map(EncodedColumn::features).collect(),
            Inputs::Sparse(width) => (1..=*width)
                .map(|i| Feature { name: format!("feature {i}"), binary: false })
                .collect(),
        }
    }

    /// Names of the classes, in the order of their numbers; nothing where labels are numbers.
    pub fn classes(&self) -> Option<&[String]> {
        match &self.target {
            Target::Classes { names, .. } => Some(names),
            Target::Numbers | Target::Standard(_) => None,
        }
    }

    /// How numbers to predict are scaled to be learned; nothing where labels are classes.
    pub fn target_scale(&self) -> Option<TargetScale> {
        self.target.scale()
    }

    /// How many classes there are, where they look like numbers to predict; so many rows were learned
    /// from.
    pub(super) fn numeric_classes(&self, rows: u64) -> Option<usize> {
        self.target.numeric_classes(rows)
    }

    /// Encodes rows in the layout that takes less room.
    pub fn encode<T: Value>(&self, rows: &Rows) -> Result<Encoded<T>, Error> {
        let sparse = match &self.inputs {
            Inputs::Columns(columns) => columns.len() as f64 <= SPARSE_SHARE * self.width() as f64,
            Inputs::Sparse(_) => true,
        };
        let matrix = match sparse {
            true => Matrix::Csr(self.encode_csr(rows)?),
            false => Matrix::Dense(self.encode_dense(rows)?),
        };
        Ok(Encoded { matrix, labels: self.labels(rows)? })
    }

    /// The features of rows, all of them stored.
    pub fn encode_dense<T: Value>(&self, rows: &Rows) -> Result<Dense<T>, Error> {
        let (width, height) = (self.width(), rows.ids.len());
        check_room(&rows.table.path, bytes::<T>(width as u64, height))?;
        let mut values = vec![T::ZERO; width * height as usize];
        let mut places = values.chunks_exact_mut(width.max(1));
        self.each_dense(rows, |_, _, row| {
            if let Some(place) = places.next() {
                place.copy_from_slice(row);
            }
            Ok(())
        })?;
        Ok(Dense { width, values })
    }

    /// Hands out rows one at a time, with all of their features.
    pub(super) fn each_dense<T: Value>(
        &self,
        rows: &Rows,
        mut take: impl FnMut(u64, Row<'_>, &[T]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let coder = self.rows_of(&rows.table)?;
        let mut out = vec![T::ZERO; self.width()];
        rows.table.each(&rows.ids, |id, row| {
            out.fill(T::ZERO);
            let mut large = None;
            coder.each(row, |column, value| {
                out[column] = T::nearest(value);
                note_large(&mut large, column, out[column]);
            });
            self.refuse_large(&rows.table, id, large)?;
            take(id, row, &out)
        })
    }

    pub(super) fn label_coder<'a>(&'a self, table: &'a Table) -> Result<labels::Coder<'a>, Error> {
        self.target.coder(table)
    }

    /// The features of rows, those alone stored that are not zero.
    pub fn encode_csr<T: Value>(&self, rows: &Rows) -> Result<Csr<T>, Error> {
        let mut csr = Csr::empty(self.width());
        let coder = self.rows_of(&rows.table)?;
        rows.table.each(&rows.ids, |id, row| {
            let mut large = None;
            coder.each(row, |column, value| {
                // What is 0 in this precision is not stored either.
                let value = T::nearest(value);
                note_large(&mut large, column, value);
                if value != T::ZERO {
                    csr.columns.push(column as u32);
                    csr.values.push(value);
                }
            });
            self.refuse_large(&rows.table, id, large)?;
            csr.end_row();
            check_room(&rows.table.path, bytes::<T>(2, csr.columns.len() as u64))
        })?;
        Ok(csr)
    }

    /// The labels of rows.
    pub fn labels(&self, rows: &Rows) -> Result<Labels, Error> {
        self.target.encode(rows)
    }

    fn refuse_large(&self, table: &Table, id: u64, large: Option<usize>) -> Result<(), Error> {
        let Some(column) = large else { return Ok(()) };
        let name = self.features().swap_remove(column).name;
        let message = format!(
            "row {}: {} is too large a number; standardise, bin or drop it",
            id + 1,
            shown(&name)
        );
        Err(Error::corrupt(&table.path, message))
    }

    /// The encoder for the rows of one table, whose names and columns may be numbered differently.
    fn rows_of<'a>(&'a self, table: &'a Table) -> Result<RowCoder<'a>, Error> {
        if self.version != VERSION {
            let message = format!("the encoding has version {}, not {VERSION}", self.version);
            return Err(Error::setting(message));
        }
        Ok(match (&self.inputs, &table.body) {
            (Inputs::Sparse(width), Body::Sparse(_)) => RowCoder::Sparse(*width),
            (Inputs::Columns(encoded), Body::Columns(columns)) => {
                let pair = |(i, encoded): (usize, &'a EncodedColumn)| {
                    let same = columns.get(i).filter(|c| c.name == encoded.name);
                    let column = same
                        .or_else(|| columns.iter().find(|c| c.name == encoded.name))
                        .ok_or_else(|| {
                        let message = format!(
                            "it has no column {}, which the training rows have",
                            shown(&encoded.name)
                        );
                        Error::corrupt(&table.path, message)
                    })?;
                    Ok((encoded, column, encoded.places(&column.cells)))
                };
                let list = encoded.iter().enumerate().map(pair).collect::<Result<_, Error>>()?;
                RowCoder::Columns(list)
            }
            _ => {
                let message = "it is not of the format that the training rows have";
                return Err(Error::corrupt(&table.path, message));
            }
        })
    }
}

/// Remembers the first feature of a row that its precision cannot hold.
fn note_large<T: Value>(large: &mut Option<usize>, column: usize, value: T) {
    let value: f64 = value.into();
    if large.is_none() && !value.is_finite() {
        *large = Some(column);
    }
}

fn bytes<T>(width: u64, height: u64) -> u64 {
    width.saturating_mul(height).saturating_mul(size_of::<T>() as u64)
}

/// An encoder beside the columns of one table.
enum RowCoder<'a> {
    Sparse(usize),
    /// Each column's code, the column, and the category of each of its names.
    Columns(Vec<(&'a EncodedColumn, &'a Column, Vec<Option<usize>>)>),
}

impl RowCoder<'_> {
    /// Gives out the features of a row that may be other than zero, ascending.
    fn each(&self, row: Row<'_>, mut give: impl FnMut(usize, f64)) {
        match self {
            Self::Sparse(width) => {
                let known = row.entries().take_while(|(column, _)| (*column as usize) < *width);
                known.for_each(|(column, value)| give(column as usize, value));
            }
            Self::Columns(list) => {
                let mut start = 0;
                for (encoded, column, places) in list {
                    match column.cells {
                        Cells::Words(_) => {
                            let code = row.word(column.at) as usize;
                            let place = places.get(code).copied().flatten();
                            place.into_iter().for_each(|place| give(start + place, 1.0));
                        }
                        Cells::Numbers => encoded.number(row.number(column.at), start, &mut give),
                    }
                    start += encoded.width();
                }
            }
        }
    }
}

impl EncodedColumn {
    fn width(&self) -> usize {
        match &self.code {
            Code::OneHot(categories) => categories.len(),
            Code::Bins(edges) => edges.len() + 1,
            _ => 1,
        }
    }

    /// Category of each name of a table's column.
    fn places(&self, cells: &Cells) -> Vec<Option<usize>> {
        let (Code::OneHot(categories), Cells::Words(words)) = (&self.code, cells) else {
            return Vec::new();
        };
        let known: BTreeMap<&String, usize> =
            categories.iter().enumerate().map(|(i, c)| (c, i)).collect();
        words.list.iter().map(|word| known.get(word).copied()).collect()
    }

    fn number(&self, value: f64, start: usize, give: &mut impl FnMut(usize, f64)) {
        let value = if value.is_nan() { self.fill.unwrap_or(0.0) } else { value };
        match &self.code {
            Code::OneHot(_) => {}
            Code::Bins(edges) => give(start + bin(edges, value), 1.0),
            Code::Ordinal(edges) => give(start, bin(edges, value) as f64),
            Code::Standard { mean, std } => give(start, (value - mean) / std),
            Code::Plain => give(start, value),
        }
    }

    fn features(&self) -> Vec<Feature> {
        let name = &self.name;
        match &self.code {
            Code::OneHot(categories) => categories
                .iter()
                .map(|c| Feature { name: format!("{name}={c}"), binary: true })
                .collect(),
            Code::Bins(edges) => (0..=edges.len())
                .map(|i| {
                    let low = i.checked_sub(1).map(|i| edges[i]);
                    let range = match (low, edges.get(i)) {
                        (None, None) => ": any".into(),
                        (None, Some(high)) => format!("<{high}"),
                        (Some(low), None) => format!(">={low}"),
                        (Some(low), Some(high)) => format!(">={low} and <{high}"),
                    };
                    Feature { name: format!("{name}{range}"), binary: true }
                })
                .collect(),
            _ => vec![Feature { name: name.clone(), binary: false }],
        }
    }
}

/// What the training rows hold of a column.
enum Seen {
    /// Those that are not missing.
    Numbers(Vec<f64>),
    Words(BTreeSet<u32>),
}

/// Columns are learned several at a time, as many as there is memory for the values of.
fn learn_columns(
    rows: &Rows,
    columns: &[Column],
    section: &recipe::Table,
) -> Result<Vec<EncodedColumn>, Error> {
    let column_bytes = 8 * rows.len();
    let at_once = rows.table.memory.left() / column_bytes.max(1);
    let mut learned = Vec::with_capacity(columns.len());
    for some in columns.chunks(at_once.clamp(1, columns.len().max(1) as u64) as usize) {
        let nothing = |column: &Column| match column.cells {
            Cells::Numbers => Seen::Numbers(Vec::new()),
            Cells::Words(_) => Seen::Words(BTreeSet::new()),
        };
        let mut seen: Vec<Seen> = some.iter().map(nothing).collect();
        rows.table.each(&rows.ids, |_, row| {
            for (column, seen) in some.iter().zip(&mut seen) {
                match seen {
                    Seen::Numbers(list) => {
                        list.extend(Some(row.number(column.at)).filter(|v| !v.is_nan()));
                    }
                    Seen::Words(codes) => {
                        codes.insert(row.word(column.at));
                    }
                }
            }
            Ok(())
        })?;
        for (column, seen) in some.iter().zip(seen) {
            learned.push(learn_column(rows, column, seen, section)?);
        }
    }
    Ok(learned)
}

fn learn_column(
    rows: &Rows,
    column: &Column,
    seen: Seen,
    section: &recipe::Table,
) -> Result<EncodedColumn, Error> {
    let name = column.name.clone();
    let mut known = match (seen, &column.cells) {
        (Seen::Numbers(known), _) => known,
        (Seen::Words(codes), Cells::Words(words)) => {
            let code = Code::OneHot(categories(codes, words));
            return Ok(EncodedColumn { name, fill: None, code });
        }
        (Seen::Words(_), Cells::Numbers) => Vec::new(),
    };
    let of_column = |message: &str| {
        let message = format!("column {} {message}", shown(&column.name));
        Error::corrupt(&rows.table.path, message)
    };
    if known.is_empty() && !matches!(section.missing, Missing::Value(_)) {
        return Err(of_column("has no value in the training rows; drop it"));
    }
    let fill = match section.missing {
        Missing::Error => None,
        Missing::Mean => Some(mean(&known)),
        Missing::Median => Some(median(&mut known.clone())),
        Missing::Value(value) => Some(value),
    };
    // What stands for missing values counts as they do.
    known.resize(rows.ids.len() as usize, fill.unwrap_or(0.0));
    let code = match column.purpose {
        Use::Bins { count, encode: BinEncoding::OneHot } => Code::Bins(edges(&mut known, count)),
        Use::Bins { count, .. } => Code::Ordinal(edges(&mut known, count)),
        Use::Standard => {
            let mean = mean(&known);
            let square = known.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>();
            let std = (square / known.len() as f64).sqrt();
            if !(mean.is_finite() && std.is_finite()) {
                return Err(of_column("holds numbers too large to standardise; bin or drop it"));
            }
            Code::Standard { mean, std: if std > 0.0 { std } else { 1.0 } }
        }
        _ => Code::Plain,
    };
    Ok(EncodedColumn { name, fill, code })
}

/// The names that the rows have: numbers by size, then texts.
fn categories(codes: BTreeSet<u32>, words: &Words) -> Vec<String> {
    let seen = codes.into_iter().filter(|code| *code != NO_WORD);
    let mut list: Vec<String> = seen.map(|code| words.list[code as usize].clone()).collect();
    sort(&mut list);
    list
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => values[middle - 1] / 2.0 + values[middle] / 2.0,
        _ => values[middle],
    }
}
