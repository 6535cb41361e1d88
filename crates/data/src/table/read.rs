//! A CSV file into rows of one size: numbers as `f64`, names as numbers of a list.
//!
//! Reads record by record and keeps the columns that are used, in memory as far as there is room.
//! Learns nothing: what is kept of a row
//! depends on that row alone.

use super::columns::{Use, check_delimiter, uses};
use super::csv::{Record, Records};
use super::row::LABEL_BYTES;
use super::text::{number, shown};
use super::{Body, Table as Rows};
use crate::budget::Memory;
use crate::error::Error;
use crate::files::MATRIX_BYTES_MAX;
use crate::records::{self, Spool};
use planaria_recipe::table::{LabelKind, Missing, Table};
use std::collections::BTreeMap;
use std::path::Path;

/// Most different values of one column of names.
const WORDS_MAX: usize = 100_000;
/// A missing name.
pub(super) const NO_WORD: u32 = u32::MAX;

/// A column that is used.
#[derive(Debug)]
pub(super) struct Column {
    pub name: String,
    pub purpose: Use,
    pub cells: Cells,
    /// The byte of a row at which its value stands.
    pub at: usize,
}

/// What its values are.
#[derive(Debug)]
pub(super) enum Cells {
    /// Missing ones are NaN.
    Numbers,
    /// Missing ones are `NO_WORD`.
    Words(Words),
}

impl Cells {
    fn bytes(&self) -> usize {
        match self {
            Self::Numbers => size_of::<f64>(),
            Self::Words(_) => size_of::<u32>(),
        }
    }
}

/// Names by number, in the order they came.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub list: Vec<String>,
    known: BTreeMap<String, u32>,
}

/// What labels are as they are written.
#[derive(Debug)]
pub(super) enum LabelColumn {
    Classes(Words),
    Numbers,
}

/// Reads a file.
pub(super) fn read(path: &Path, table: &Table, memory: &Memory) -> Result<Rows, Error> {
    let delimiter = match table.delimiter.as_bytes() {
        [byte] => *byte,
        _ => {
            let message = "`data.table.delimiter` must be one character";
            return Err(Error::setting(message).at("data.table.delimiter"));
        }
    };
    let mut records = Records::open(path, delimiter, table.skip_rows)?;
    let mut record = Record::default();
    if !records.next(&mut record)? {
        return Err(Error::corrupt(path, "it has no rows"));
    }
    check_delimiter(path, &record, delimiter)?;
    let names = names(path, &record, table.header)?;
    let mut reader = Reader::new(path, names, table)?;
    let mut more = if table.header { records.next(&mut record)? } else { true };
    if !more {
        return Err(Error::corrupt(path, "it has a header but no rows"));
    }
    let (mut spool, mut count) = (Spool::new(path, memory), 0);
    while more {
        spool.push(reader.take(&record)?)?;
        count += 1;
        more = records.next(&mut record)?;
    }
    let rows = records::Records::new(reader.row.len()).with(spool.finish()?, count);
    Ok(Rows {
        path: path.into(),
        body: Body::Columns(reader.columns),
        labels: reader.labels,
        rows,
        file: records.data_file(),
        memory: memory.clone(),
    })
}

/// Names of the columns: the header's, or `column 1`, `column 2`, …
fn names(path: &Path, record: &Record, header: bool) -> Result<Vec<String>, Error> {
    let name = |i: usize| {
        let text = record.field(i).ok_or_else(|| not_text(path, record.line, i, ""))?.trim();
        Ok(match header && !text.is_empty() {
            true => text.to_owned(),
            false => format!("column {}", i + 1),
        })
    };
    (0..record.len()).map(name).collect()
}

fn not_text(path: &Path, line: u64, i: usize, name: &str) -> Error {
    let message = format!(
        "line {line}, column {}{name} is not UTF-8 text; save the file as UTF-8 (in spreadsheets: \
         \"CSV UTF-8\")",
        i + 1
    );
    Error::corrupt(path, message)
}

struct Reader<'a> {
    path: &'a Path,
    table: &'a Table,
    names: Vec<String>,
    /// For each field: a column that is kept, the label, or nothing.
    places: Vec<Place>,
    columns: Vec<Column>,
    labels: LabelColumn,
    missing: Vec<String>,
    /// The row that is being read.
    row: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Place {
    Label,
    Kept(usize),
    Dropped,
}

impl<'a> Reader<'a> {
    fn new(path: &'a Path, names: Vec<String>, table: &'a Table) -> Result<Self, Error> {
        let (mut columns, mut places, mut at) = (Vec::new(), Vec::new(), LABEL_BYTES);
        for (name, purpose) in names.iter().zip(uses(path, &names, table)?) {
            let cells = match purpose {
                Use::Label => {
                    places.push(Place::Label);
                    continue;
                }
                Use::Drop => {
                    places.push(Place::Dropped);
                    continue;
                }
                Use::OneHot => Cells::Words(Words::default()),
                _ => Cells::Numbers,
            };
            places.push(Place::Kept(columns.len()));
            at += cells.bytes();
            columns.push(Column { name: name.clone(), purpose, at: at - cells.bytes(), cells });
        }
        let labels = LabelColumn::new(table.target);
        let missing = lowercase(&table.missing_texts);
        Ok(Self { path, table, names, places, columns, labels, missing, row: vec![0; at] })
    }

    /// The row of a record.
    fn take(&mut self, record: &Record) -> Result<&[u8], Error> {
        self.check_width(record)?;
        for i in 0..self.places.len() {
            let place = self.places[i];
            if let Place::Dropped = place {
                continue;
            }
            let text = record
                .field(i)
                .ok_or_else(|| not_text(self.path, record.line, i, &self.called(i)))?;
            if let Err(message) = self.cell(place, text) {
                let place = format!("line {}, column {}{}", record.line, i + 1, self.called(i));
                return Err(Error::corrupt(self.path, format!("{place} {message}")));
            }
        }
        Ok(&self.row)
    }

    /// Takes one field, or says what is wrong with it.
    fn cell(&mut self, place: Place, text: &str) -> Result<(), String> {
        let missing = is_missing(&self.missing, text);
        let kept = match place {
            Place::Dropped => return Ok(()),
            Place::Label if missing => {
                return Err(format!("holds {}, but a label is needed", shown(text)));
            }
            Place::Label => {
                let label = self.labels.value(text)?;
                self.row[..LABEL_BYTES].copy_from_slice(&label);
                return Ok(());
            }
            Place::Kept(_) if missing && self.table.missing == Missing::Error => {
                return Err(format!(
                    "holds {}, a missing value; say what fills it with `data.table.missing` \
                     (mean, median or {{value: 0}}), or drop the column",
                    shown(text)
                ));
            }
            Place::Kept(kept) => kept,
        };
        let column = &mut self.columns[kept];
        let place = &mut self.row[column.at..column.at + column.cells.bytes()];
        match &mut column.cells {
            Cells::Numbers => {
                let value = if missing { Some(f64::NAN) } else { number(text) };
                place.copy_from_slice(&value.ok_or_else(|| no_number(text))?.to_le_bytes());
            }
            Cells::Words(words) => {
                let code = if missing { Some(NO_WORD) } else { words.code(text) };
                let code = code.ok_or_else(|| {
                    format!(
                        "is in `data.table.one_hot`, but has more than {WORDS_MAX} different \
                         values; use `bins`, or drop the column"
                    )
                })?;
                place.copy_from_slice(&code.to_le_bytes());
            }
        }
        Ok(())
    }

    /// Spreadsheets write empty fields behind the last column; they are no fault.
    fn check_width(&self, record: &Record) -> Result<(), Error> {
        let width = self.names.len();
        let extra = (width..record.len()).any(|i| record.field(i) != Some(""));
        if record.len() >= width && !extra {
            return Ok(());
        }
        let first = if self.table.header { "the header" } else { "the first row" };
        let message = format!(
            "line {} has {} fields, but {first} has {width}; is `data.table.delimiter` \
             (`{}`) right, and are fields that hold it quoted?",
            record.line,
            record.len(),
            self.table.delimiter.escape_default()
        );
        Err(Error::corrupt(self.path, message))
    }

    /// A column's name behind its number, where it has one of its own.
    fn called(&self, i: usize) -> String {
        match self.table.header {
            true => format!(" ({})", shown(&self.names[i])),
            false => String::new(),
        }
    }
}

/// Texts that mean a missing value, as [`is_missing`] takes them.
pub(super) fn lowercase(texts: &[String]) -> Vec<String> {
    texts.iter().map(|t| t.trim().to_lowercase()).collect()
}

pub(super) fn is_missing(missing: &[String], text: &str) -> bool {
    let text = text.trim();
    missing.iter().any(|m| m.len() == text.len() && m.eq_ignore_ascii_case(text))
}

fn no_number(text: &str) -> String {
    format!(
        "holds {}, which is not a finite number; name the column in `data.table.one_hot` if its values are \
         names, in `drop` if it is not needed, or the text in `missing_texts`",
        shown(text)
    )
}

impl LabelColumn {
    pub fn new(target: LabelKind) -> Self {
        match target {
            LabelKind::Class => Self::Classes(Words::default()),
            LabelKind::Number => Self::Numbers,
        }
    }

    /// A label as a row holds it, or what is wrong with it.
    pub fn value(&mut self, text: &str) -> Result<[u8; LABEL_BYTES], String> {
        match self {
            Self::Classes(words) => {
                let code = words.code(text).ok_or_else(|| {
                    format!(
                        "is the label, but has more than {WORDS_MAX} different values; write \
                         `data.table.target: number` if they are numbers to predict"
                    )
                })?;
                Ok(u64::from(code).to_le_bytes())
            }
            Self::Numbers => {
                let value = number(text).ok_or_else(|| {
                    format!(
                        "holds {}, which is not a finite number; leave out `data.table.target` if labels \
                         are classes",
                        shown(text)
                    )
                })?;
                Ok(value.to_le_bytes())
            }
        }
    }
}

impl Words {
    /// The number of a name; nothing if there are too many different ones.
    pub fn code(&mut self, text: &str) -> Option<u32> {
        match self.known.get(text) {
            Some(code) => Some(*code),
            None if self.list.len() == WORDS_MAX => None,
            None => {
                let code = self.list.len() as u32;
                self.known.insert(text.to_owned(), code);
                self.list.push(text.to_owned());
                Some(code)
            }
        }
    }
}

/// Refuses a matrix that takes too many bytes.
pub(super) fn check_room(path: &Path, bytes: u64) -> Result<(), Error> {
    if bytes <= MATRIX_BYTES_MAX {
        return Ok(());
    }
    let message = format!("its values take more than {} GiB", MATRIX_BYTES_MAX >> 30);
    Err(Error::corrupt(path, message))
}
