//! A CSV file into columns: numbers as `f64`, names as numbers of a list.
//!
//! Reads record by record and keeps the columns that are used. Learns nothing: what is kept of a row
//! depends on that row alone.

use super::columns::{Use, uses};
use super::csv::{Record, Records};
use super::text::{number, shown};
use crate::error::Error;
use crate::files::SOURCE_BYTES_MAX;
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
}

/// Its values, one for each row.
#[derive(Debug)]
pub(super) enum Cells {
    /// Missing ones are NaN.
    Numbers(Vec<f64>),
    /// Missing ones are `NO_WORD`.
    Words(Words),
}

/// Names as numbers, in the order they came.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub codes: Vec<u32>,
    pub list: Vec<String>,
    known: BTreeMap<String, u32>,
}

/// The labels as they are written.
#[derive(Debug)]
pub(super) enum LabelColumn {
    Classes(Words),
    Numbers(Vec<f64>),
}

/// What a file holds.
pub(super) struct Content {
    pub columns: Vec<Column>,
    pub labels: LabelColumn,
    pub mark: u128,
}

/// Reads a file.
pub(super) fn read(path: &Path, table: &Table) -> Result<Content, Error> {
    let delimiter = match table.delimiter.as_bytes() {
        [byte] => *byte,
        _ => return Err(Error::setting("`data.table.delimiter` must be one character")),
    };
    let mut records = Records::open(path, delimiter, table.skip_rows)?;
    let mut record = Record::default();
    if !records.next(&mut record)? {
        return Err(Error::corrupt(path, "it has no rows"));
    }
    let names = names(path, &record, table.header)?;
    let mut reader = Reader::new(path, names, table)?;
    let mut more = if table.header { records.next(&mut record)? } else { true };
    if !more {
        return Err(Error::corrupt(path, "it has a header but no rows"));
    }
    while more {
        reader.take(&record)?;
        more = records.next(&mut record)?;
    }
    Ok(Content { columns: reader.columns, labels: reader.labels, mark: records.mark() })
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
    rows: u64,
}

#[derive(Clone, Copy)]
enum Place {
    Label,
    Kept(usize),
    Dropped,
}

impl<'a> Reader<'a> {
    fn new(path: &'a Path, names: Vec<String>, table: &'a Table) -> Result<Self, Error> {
        let (mut columns, mut places) = (Vec::new(), Vec::new());
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
                _ => Cells::Numbers(Vec::new()),
            };
            places.push(Place::Kept(columns.len()));
            columns.push(Column { name: name.clone(), purpose, cells });
        }
        let labels = LabelColumn::new(table.target);
        let missing = table.missing_texts.iter().map(|t| t.trim().to_lowercase()).collect();
        Ok(Self { path, table, names, places, columns, labels, missing, rows: 0 })
    }

    fn take(&mut self, record: &Record) -> Result<(), Error> {
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
        self.rows += 1;
        check_room(self.path, self.rows.saturating_mul(8 * (self.columns.len() as u64 + 1)))
    }

    /// Takes one field, or says what is wrong with it.
    fn cell(&mut self, place: Place, text: &str) -> Result<(), String> {
        let missing = is_missing(&self.missing, text);
        let kept = match place {
            Place::Dropped => return Ok(()),
            Place::Label if missing => {
                return Err(format!("holds {}, but a label is needed", shown(text)));
            }
            Place::Label => return self.labels.push(text),
            Place::Kept(_) if missing && self.table.missing == Missing::Error => {
                return Err(format!(
                    "holds {}, a missing value; say what fills it with `data.table.missing` \
                     (mean, median or {{value: 0}}), or drop the column",
                    shown(text)
                ));
            }
            Place::Kept(kept) => kept,
        };
        match &mut self.columns[kept].cells {
            Cells::Numbers(list) if missing => list.push(f64::NAN),
            Cells::Numbers(list) => list.push(number(text).ok_or_else(|| no_number(text))?),
            Cells::Words(words) if missing => words.codes.push(NO_WORD),
            Cells::Words(words) => words.push(text).ok_or_else(|| {
                format!(
                    "is in `data.table.one_hot`, but has more than {WORDS_MAX} different values; \
                     use `bins`, or drop the column"
                )
            })?,
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

fn is_missing(missing: &[String], text: &str) -> bool {
    let text = text.trim();
    missing.iter().any(|m| m.len() == text.len() && m.eq_ignore_ascii_case(text))
}

fn no_number(text: &str) -> String {
    format!(
        "holds {}, which is no number; name the column in `data.table.one_hot` if its values are \
         names, in `drop` if it is not needed, or the text in `missing_texts`",
        shown(text)
    )
}

impl LabelColumn {
    pub fn new(target: LabelKind) -> Self {
        match target {
            LabelKind::Class => Self::Classes(Words::default()),
            LabelKind::Number => Self::Numbers(Vec::new()),
        }
    }

    /// Takes the next label, or says what is wrong with it.
    pub fn push(&mut self, text: &str) -> Result<(), String> {
        match self {
            Self::Classes(words) => words.push(text).ok_or_else(|| {
                format!(
                    "is the label, but has more than {WORDS_MAX} different values; write \
                     `data.table.target: number` if they are numbers to predict"
                )
            })?,
            Self::Numbers(list) => list.push(number(text).ok_or_else(|| {
                format!(
                    "holds {}, which is no number; leave out `data.table.target` if labels are \
                     classes",
                    shown(text)
                )
            })?),
        }
        Ok(())
    }
}

impl Words {
    /// Takes the next name; nothing if there are too many different ones.
    pub fn push(&mut self, text: &str) -> Option<()> {
        let code = match self.known.get(text) {
            Some(code) => *code,
            None if self.list.len() == WORDS_MAX => return None,
            None => {
                let code = self.list.len() as u32;
                self.known.insert(text.to_owned(), code);
                self.list.push(text.to_owned());
                code
            }
        };
        self.codes.push(code);
        Some(())
    }
}

/// Refuses a table whose values take too many bytes.
pub(super) fn check_room(path: &Path, bytes: u64) -> Result<(), Error> {
    if bytes <= SOURCE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("its values take more than {} GiB", SOURCE_BYTES_MAX >> 30);
    Err(Error::corrupt(path, message))
}
