//! Text files as bytes, with the line they stand in.
//!
//! Holds one buffer of a file, never more. Knows marks of encodings (byte order marks) and nothing
//! of formats.

use crate::error::Error;
use crate::files::Stream;
use crate::source::DataFile;
use std::path::{Path, PathBuf};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 16;
/// Characters of a value that a message shows.
const SHOWN_CHARS: usize = 40;

/// An open text file.
pub(super) struct Text {
    stream: Stream,
    path: PathBuf,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    line: u64,
}

impl Text {
    /// Opens a file and steps over a UTF-8 byte order mark, which spreadsheets write.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let stream = Stream::open(path)?;
        let buffer = vec![0; BUFFER_BYTES];
        let mut text = Self { stream, path: path.into(), buffer, at: 0, end: 0, line: 1 };
        text.refill()?;
        match text.buffer[..text.end] {
            [0xEF, 0xBB, 0xBF, ..] => text.at = 3,
            [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => {
                let message = "it is UTF-16 text; save it as UTF-8 (in spreadsheets: \
                               \"CSV UTF-8\")";
                return Err(Error::corrupt(path, message));
            }
            _ => {}
        }
        Ok(text)
    }

    /// The next byte, which stays where it is.
    pub fn peek(&mut self) -> Result<Option<u8>, Error> {
        if self.at == self.end {
            self.refill()?;
        }
        Ok(self.buffer[..self.end].get(self.at).copied())
    }

    /// The next byte as it is in the file. Line ends count when they are taken.
    pub fn take(&mut self) -> Result<Option<u8>, Error> {
        let byte = self.peek()?;
        self.at += usize::from(byte.is_some());
        // Of `\r\n` the second counts; `\r` alone ended lines once and still does.
        let ended = match byte {
            Some(b'\n') => true,
            Some(b'\r') => self.peek()? != Some(b'\n'),
            _ => false,
        };
        self.line += u64::from(ended);
        Ok(byte)
    }

    /// Takes what is left of a line end whose first byte was `byte`.
    pub fn end_line(&mut self, byte: u8) -> Result<(), Error> {
        if byte == b'\r' && self.peek()? == Some(b'\n') {
            self.take()?;
        }
        Ok(())
    }

    /// Steps over the rest of the line; false where the file had ended.
    pub fn skip_line(&mut self) -> Result<bool, Error> {
        let mut any = false;
        while let Some(byte) = self.take()? {
            any = true;
            if byte == b'\n' || byte == b'\r' {
                self.end_line(byte)?;
                break;
            }
        }
        Ok(any)
    }

    /// Number of the line that the next byte stands in, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, with a mark of what was read; of all of it once it has ended.
    pub fn data_file(&self) -> DataFile {
        self.stream.data_file()
    }

    fn refill(&mut self) -> Result<(), Error> {
        let line = self.line;
        self.end = self.stream.fill(&mut self.buffer, |_| format!("line {line}"))?;
        self.at = 0;
        Ok(())
    }
}

/// A value in a message: short, on one line, between backticks.
pub(super) fn shown(value: &str) -> String {
    let plain = |c: char| if c.is_control() || c == '`' { '·' } else { c };
    let mut short: String = value.chars().take(SHOWN_CHARS).map(plain).collect();
    if value.chars().nth(SHOWN_CHARS).is_some() {
        short.push('…');
    }
    format!("`{short}`")
}

/// Sorts names: numbers by size, then texts.
pub(super) fn sort(list: &mut [String]) {
    list.sort_by(|a, b| match (number(a), number(b)) {
        (Some(x), Some(y)) => x.total_cmp(&y).then_with(|| a.cmp(b)),
        (x, y) => y.is_some().cmp(&x.is_some()).then_with(|| a.cmp(b)),
    });
}

/// A finite number, as tables write them; `+1` is one, `1,5` and `0x1` are none.
pub(super) fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|x| x.is_finite())
}
