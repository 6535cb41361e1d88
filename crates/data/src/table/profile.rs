//! What a table looks like, for those who have no recipe for it yet.
//!
//! Owns the guesses at delimiter and header, and what the first rows hold, column by column. Reads no
//! more than it says; never decides what a column is for.

use super::columns::DELIMITERS;
use super::csv::{Record, Records};
use super::labels::name as class_name;
use super::read::{is_missing, lowercase};
use super::text::number;
use crate::error::Error;
use planaria_recipe::table::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Rows that are looked at.
pub const ROWS_MAX: u64 = 100_000;
/// Bytes of fields that are looked at.
pub const BYTES_MAX: usize = 32 << 20;
/// Different values of a column that are counted; fewer where there are many columns.
pub const VALUES_MAX: usize = 1000;
/// The same of all columns together.
const VALUES_IN_ALL: usize = 200_000;
/// Of each column, however many there are.
const VALUES_MIN: usize = 20;
/// Longest value that is kept, in bytes.
const VALUE_BYTES_MAX: usize = 100;
/// Rows by which delimiter and header are guessed.
const SAMPLE_ROWS: usize = 50;

/// Rows as fields.
type Sample = Vec<Vec<String>>;

/// What the first rows of a table hold.
#[derive(Debug, Clone)]
pub struct Profile {
    pub delimiter: char,
    pub has_header: bool,
    pub columns: Vec<Column>,
    /// Rows that were looked at.
    pub rows: u64,
    /// Whether there are no others.
    pub is_whole: bool,
}

/// What a column holds in the rows that were looked at.
#[derive(Debug, Clone, Default)]
pub struct Column {
    /// In the header; nothing where there is none, or its field is empty.
    pub name: Option<String>,
    pub missing: u64,
    pub numbers: u64,
    /// Values that are neither missing nor numbers.
    pub texts: u64,
    /// The first of those.
    pub first_text: Option<String>,
    /// Whether all numbers are whole.
    pub is_whole_numbers: bool,
    /// Whether each number is one more than that of the row before.
    pub is_counting: bool,
    /// Each value with its rows; no more are counted once there are [`VALUES_MAX`].
    pub values: BTreeMap<String, u64>,
    /// Whether there are more different values than that.
    pub has_more_values: bool,
    previous: Option<f64>,
}

impl Profile {
    /// Looks at the first rows of a file.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let (delimiter, rows) = delimiter(path)?;
        if rows.is_empty() {
            return Err(Error::corrupt(path, "it has no rows"));
        }
        let missing = lowercase(&Table::default().missing_texts);
        read(path, delimiter, has_header(&rows, &missing), &missing)
    }
}

/// The delimiter that fits best, and the first rows as they are with it.
fn delimiter(path: &Path) -> Result<(u8, Sample), Error> {
    let mut best: Option<(u8, Sample)> = None;
    let mut broken = None;
    for delimiter in DELIMITERS {
        match sample(path, delimiter) {
            // Of two that fit alike the more usual one.
            Ok(rows) if best.as_ref().is_none_or(|(_, other)| fit(&rows) > fit(other)) => {
                best = Some((delimiter, rows));
            }
            Ok(_) => {}
            Err(error) => broken = broken.or(Some(error)),
        }
    }
    best.ok_or_else(|| broken.unwrap_or_else(|| Error::corrupt(path, "it has no rows")))
}

/// The first records of a file, as they are with this delimiter.
fn sample(path: &Path, delimiter: u8) -> Result<Sample, Error> {
    let mut records = Records::open(path, delimiter, 0)?;
    let (mut record, mut rows) = (Record::default(), Vec::new());
    while rows.len() < SAMPLE_ROWS && records.next(&mut record)? {
        let field = |i| record.field(i).unwrap_or_default().to_owned();
        rows.push((0..record.len()).map(field).collect());
    }
    Ok(rows)
}

/// How well a delimiter fits: rows that have as many fields as the first, if more than one, and how
/// many fields those are.
fn fit(rows: &[Vec<String>]) -> (usize, usize) {
    let width = rows.first().map_or(0, Vec::len);
    let alike = rows.iter().filter(|row| row.len() == width).count();
    if width > 1 { (alike, width) } else { (0, 0) }
}

/// Whether the first row names columns: it holds a word above numbers, or words alone that are no
/// values of their columns.
fn has_header(rows: &[Vec<String>], missing: &[String]) -> bool {
    let Some((first, rest)) = rows.split_first() else { return false };
    let is_number = |text: &String| number(text).is_some();
    let below = |i: usize| {
        let values = rest.iter().filter_map(move |row| row.get(i));
        values.filter(|text| !is_missing(missing, text))
    };
    let is_word = |text: &String| !is_number(text) && !is_missing(missing, text);
    let named = |(i, text): (usize, &String)| {
        is_word(text) && below(i).next().is_some() && below(i).all(is_number)
    };
    let is_no_value = |(i, text): (usize, &String)| !is_number(text) && below(i).all(|t| t != text);
    first.iter().enumerate().any(named)
        || (first.iter().any(is_word) && first.iter().enumerate().all(is_no_value))
}

fn read(
    path: &Path,
    delimiter: u8,
    has_header: bool,
    missing: &[String],
) -> Result<Profile, Error> {
    let mut records = Records::open(path, delimiter, 0)?;
    let mut record = Record::default();
    let mut columns = Vec::new();
    let (mut rows, mut bytes, mut is_whole) = (0, 0, true);
    let mut is_first = true;
    while records.next(&mut record)? {
        if is_first {
            columns = (0..record.len()).map(|i| Column::new(&record, i, has_header)).collect();
            is_first = false;
            if has_header {
                continue;
            }
        }
        if rows == ROWS_MAX || bytes > BYTES_MAX {
            is_whole = false;
            break;
        }
        let values_max = (VALUES_IN_ALL / columns.len().max(1)).clamp(VALUES_MIN, VALUES_MAX);
        for (i, column) in columns.iter_mut().enumerate().take(record.len()) {
            // What is not UTF-8 is told when the table is read.
            column.take(record.field(i).unwrap_or_default(), missing, values_max);
        }
        rows += 1;
        bytes += record.bytes();
    }
    match rows {
        0 => Err(Error::corrupt(path, "it has a header but no rows")),
        rows => {
            Ok(Profile { delimiter: char::from(delimiter), has_header, columns, rows, is_whole })
        }
    }
}

impl Column {
    fn new(record: &Record, place: usize, has_header: bool) -> Self {
        let name = record.field(place).map(str::trim).filter(|name| !name.is_empty() && has_header);
        let name = name.map(str::to_owned);
        Self { name, is_whole_numbers: true, is_counting: true, ..Self::default() }
    }

    fn take(&mut self, text: &str, missing: &[String], values_max: usize) {
        if is_missing(missing, text) {
            self.missing += 1;
            self.is_counting = false;
            return;
        }
        match number(text) {
            Some(x) => {
                self.numbers += 1;
                self.is_whole_numbers &= x.fract() == 0.0;
                self.is_counting &= self.previous.is_none_or(|before| x == before + 1.0);
                self.previous = Some(x);
            }
            None => {
                self.texts += 1;
                self.is_counting = false;
                self.first_text.get_or_insert_with(|| text.to_owned());
            }
        }
        if let Some(count) = self.values.get_mut(text) {
            *count += 1;
        } else if self.values.len() == values_max || text.len() > VALUE_BYTES_MAX {
            self.has_more_values = true;
        } else {
            self.values.insert(text.to_owned(), 1);
        }
    }

    /// Rows that have a value.
    pub fn filled(&self) -> u64 {
        self.numbers + self.texts
    }

    /// Whether all values are numbers.
    pub fn is_numeric(&self) -> bool {
        self.numbers > 0 && self.texts == 0
    }

    /// How many classes its values are, as labels: `1` and `1.0` are one.
    pub fn classes(&self) -> usize {
        self.values.keys().map(|value| class_name(value)).collect::<BTreeSet<_>>().len()
    }

    /// Whether no value stands in two rows; of many values, as far as they were counted.
    pub fn is_all_different(&self) -> bool {
        self.filled() > 1 && self.values.values().all(|rows| *rows == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(text: &str) -> Profile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, text).unwrap();
        Profile::of(&path).unwrap()
    }

    #[test]
    fn delimiters_and_headers_are_guessed() {
        for (text, delimiter, has_header) in [
            ("a,b\n1,2\n3,4\n", ',', true),
            ("1,2,x\n3,4,y\n", ',', false),
            ("a;b;c\n1,5;2;3\n2,5;2;3\n", ';', true),
            ("a\tb\n\"x, y\"\t1\n", '\t', true),
            ("red|no\nblue|yes\nred|yes\n", '|', false),
            ("colour,answer\nred,no\nred,yes\n", ',', true),
            // As well the values of a first row.
            ("name,2019,2020\nx,3,4\ny,5,6\n", ',', false),
            ("a,b\n,\nNA,3\n", ',', true),
        ] {
            let found = profile(text);
            assert_eq!((found.delimiter, found.has_header), (delimiter, has_header), "{text}");
        }
    }

    #[test]
    fn columns_are_counted() {
        let found = profile("id,size,colour\n1,1.5,red\n2,NA,red\n3,2,\n4,x,blue\n");
        assert_eq!((found.rows, found.is_whole), (4, true));
        let [id, size, colour] = &found.columns[..] else { panic!("{found:?}") };
        assert!(id.is_counting && id.is_all_different() && id.is_whole_numbers);
        assert_eq!((size.numbers, size.missing, size.texts), (2, 1, 1));
        assert_eq!(size.first_text.as_deref(), Some("x"));
        assert!(!size.is_numeric() && !size.is_whole_numbers && !size.is_counting);
        let expect = [("blue".to_owned(), 1), ("red".to_owned(), 2)];
        assert_eq!((colour.missing, &colour.values), (1, &BTreeMap::from(expect)));
    }

    #[test]
    fn only_the_first_rows_are_looked_at() {
        let rows: String = (0..ROWS_MAX + 5).map(|i| format!("{i},{}\n", i % 3)).collect();
        let found = profile(&format!("a,b\n{rows}"));
        assert_eq!((found.rows, found.is_whole), (ROWS_MAX, false));
        let (a, b) = (&found.columns[0], &found.columns[1]);
        assert_eq!((a.values.len(), a.has_more_values), (VALUES_MAX, true));
        assert_eq!((b.values.len(), b.has_more_values), (3, false));
    }
}
