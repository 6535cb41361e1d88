//! Comma-separated values, record by record (RFC 4180, with any delimiter and any line end).
//!
//! A field that starts with `"` ends at the next `"` that is not doubled, and may hold delimiters and
//! line ends; a quote inside another field is a character. Empty lines are no records. Holds one
//! record at a time; knows nothing of what fields mean.

use super::text::{Text, shown};
use crate::error::Error;
use crate::source::DataFile;
use std::ops::Range;
use std::path::Path;

/// Most bytes of one record, so that a stray quote does not take the rest of a file.
const RECORD_BYTES_MAX: usize = 16 << 20;
/// Most fields of one record.
pub(super) const FIELDS_MAX: usize = 1 << 16;

/// The records of a file.
pub(super) struct Records {
    text: Text,
    delimiter: u8,
}

/// One record; its room is used again for the next.
#[derive(Debug, Default)]
pub(super) struct Record {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    quoted: Vec<bool>,
    /// Line of its first byte, from 1.
    pub line: u64,
}

/// What comes after a field.
#[derive(PartialEq)]
enum Next {
    Field,
    Record,
    End,
}

impl Records {
    /// Opens a file and steps over its first `skip_lines` lines.
    pub fn open(path: &Path, delimiter: u8, skip_lines: usize) -> Result<Self, Error> {
        let mut text = Text::open(path)?;
        for skipped in 0..skip_lines {
            if !text.skip_line()? {
                let message = format!(
                    "it has {skipped} lines, but `data.table.skip_rows` leaves out {skip_lines}"
                );
                return Err(Error::corrupt(path, message));
            }
        }
        Ok(Self { text, delimiter })
    }

    /// Reads the next record that is not empty; false at the end.
    pub fn next(&mut self, record: &mut Record) -> Result<bool, Error> {
        loop {
            record.clear(self.text.line());
            let mut after = self.field(record)?;
            while after == Next::Field {
                if record.len() == FIELDS_MAX {
                    let message = format!(
                        "line {}: more than {FIELDS_MAX} fields; is `data.table.delimiter` right?",
                        record.line
                    );
                    return Err(self.corrupt(message));
                }
                after = self.field(record)?;
            }
            let empty = record.bytes.is_empty() && record.quoted == [false];
            match (empty, after) {
                (false, _) => return Ok(true),
                (true, Next::End) => return Ok(false),
                (true, _) => {}
            }
        }
    }

    /// The file, with the mark of what was read.
    pub fn data_file(&self) -> DataFile {
        self.text.data_file()
    }

    fn field(&mut self, record: &mut Record) -> Result<Next, Error> {
        let quoted = self.text.peek()? == Some(b'"');
        let next = match quoted {
            true => self.quoted(record)?,
            false => self.plain(record)?,
        };
        record.ends.push(record.bytes.len());
        record.quoted.push(quoted);
        Ok(next)
    }

    fn plain(&mut self, record: &mut Record) -> Result<Next, Error> {
        loop {
            match self.text.take()? {
                None => return Ok(Next::End),
                Some(byte) if byte == self.delimiter => return Ok(Next::Field),
                Some(byte @ (b'\n' | b'\r')) => {
                    self.text.end_line(byte)?;
                    return Ok(Next::Record);
                }
                Some(byte) => self.push(record, byte)?,
            }
        }
    }

    fn quoted(&mut self, record: &mut Record) -> Result<Next, Error> {
        let start = self.text.line();
        self.text.take()?;
        loop {
            match self.text.take()? {
                None => {
                    let message = format!(
                        "line {start}, column {}: a quote is opened and never closed",
                        record.len() + 1
                    );
                    return Err(self.corrupt(message));
                }
                Some(b'"') if self.text.peek()? == Some(b'"') => {
                    self.text.take()?;
                    self.push(record, b'"')?;
                }
                Some(b'"') => return self.after_quote(record),
                Some(byte) => self.push(record, byte)?,
            }
        }
    }

    /// Only the end of the field may follow a closing quote.
    fn after_quote(&mut self, record: &Record) -> Result<Next, Error> {
        let line = self.text.line();
        match self.text.take()? {
            None => Ok(Next::End),
            Some(byte) if byte == self.delimiter => Ok(Next::Field),
            Some(byte @ (b'\n' | b'\r')) => {
                self.text.end_line(byte)?;
                Ok(Next::Record)
            }
            Some(byte) => {
                let message = format!(
                    "line {line}, column {}: {} follows a closing quote, where {} or the end of \
                     the line is due; a quote inside quotes is doubled",
                    record.len() + 1,
                    shown(&char::from(byte).to_string()),
                    shown(&char::from(self.delimiter).to_string())
                );
                Err(self.corrupt(message))
            }
        }
    }

    fn push(&self, record: &mut Record, byte: u8) -> Result<(), Error> {
        if record.bytes.len() == RECORD_BYTES_MAX {
            let message = format!(
                "line {}: a record of more than {} MiB; is a quote not closed?",
                record.line,
                RECORD_BYTES_MAX >> 20
            );
            return Err(self.corrupt(message));
        }
        record.bytes.push(byte);
        Ok(())
    }

    fn corrupt(&self, message: String) -> Error {
        Error::corrupt(self.text.path(), message)
    }
}

impl Record {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of its fields.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Field `i` without quotes; blanks around it are kept only where it was quoted. Nothing if it is
    /// not UTF-8.
    pub fn field(&self, i: usize) -> Option<&str> {
        let text = std::str::from_utf8(&self.bytes[self.range(i)]).ok()?;
        Some(if self.quoted[i] { text } else { text.trim() })
    }

    fn range(&self, i: usize) -> Range<usize> {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[i]
    }

    fn clear(&mut self, line: u64) {
        self.bytes.clear();
        self.ends.clear();
        self.quoted.clear();
        self.line = line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8], delimiter: u8, skip: usize) -> Result<Vec<Vec<String>>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, bytes).unwrap();
        let mut records = Records::open(&path, delimiter, skip).map_err(|e| e.to_string())?;
        let (mut record, mut list) = (Record::default(), Vec::new());
        while records.next(&mut record).map_err(|e| e.to_string())? {
            list.push((0..record.len()).map(|i| record.field(i).unwrap_or("?").into()).collect());
        }
        Ok(list)
    }

    fn written(rows: &[Vec<String>], delimiter: char, end: &str) -> String {
        let field = |text: &String| format!("\"{}\"", text.replace('"', "\"\""));
        let row = |row: &Vec<String>| {
            row.iter().map(field).collect::<Vec<_>>().join(&delimiter.to_string()) + end
        };
        rows.iter().map(row).collect()
    }

    proptest! {
        #[test]
        fn quoted_fields_come_back(
            rows in prop::collection::vec(prop::collection::vec("[a\",;\r\n é`]{0,8}", 1..5), 0..8),
            delimiter in prop::sample::select(vec![',', ';', '\t', '|']),
            end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        ) {
            let text = written(&rows, delimiter, end);
            // An empty file is refused before it gets here.
            prop_assume!(!rows.is_empty());
            prop_assert_eq!(read(text.as_bytes(), delimiter as u8, 0).unwrap(), rows);
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(prop::sample::select(b"\",\n\r a1\xff".to_vec()), 1..60),
        ) {
            let _ = read(&bytes, b',', 0);
        }
    }

    #[test]
    fn tables() {
        let check = |text: &str, expect: &[&[&str]]| {
            let expect: Vec<Vec<String>> =
                expect.iter().map(|r| r.iter().map(|f| (*f).to_owned()).collect()).collect();
            assert_eq!(read(text.as_bytes(), b',', 0).unwrap(), expect, "{text:?}");
        };
        check("a,b\n1,2", &[&["a", "b"], &["1", "2"]]);
        check("\u{feff}a,b\r\n\r\n 1 ,2\r\n\r\n", &[&["a", "b"], &["1", "2"]]);
        check("a,\rb,c\r", &[&["a", ""], &["b", "c"]]);
        check("\"a \"\"b\"\"\",\" c \"\n", &[&["a \"b\"", " c "]]);
        check("5\" pipe,1\n", &[&["5\" pipe", "1"]]);
        check("\"\"\n", &[&[""]]);
    }

    #[test]
    fn mistakes_name_line_and_column() {
        let check = |text: &[u8], skip: usize, expect: &str| {
            let error = read(text, b',', skip).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        check(b"a,b\n1,\"x\n2,3\n", 0, "t.csv: line 2, column 2: a quote is opened and never");
        check(b"a,b\n1,2\n\"x\"y,3\n", 0, "line 3, column 1: `y` follows a closing quote");
        check(b"\xff\xfea\0", 0, "UTF-16");
        check(b"a\nb\n", 3, "it has 2 lines, but `data.table.skip_rows` leaves out 3");
        assert_eq!(read(b"X1,,\n\"x\nID,b\n", b',', 2).unwrap(), [["ID", "b"]]);
    }
}
