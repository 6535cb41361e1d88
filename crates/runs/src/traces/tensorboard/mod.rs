//! TensorBoard event files: scalars framed as TFRecords of `Event` messages.
//!
//! Owns the bytes (TensorFlow's `record_writer.h`, `event.proto` and `summary.proto`). The file
//! is made from lines of metrics alone, so a resumed run, or one whose file was spoilt, writes it
//! anew. Never computes a figure.

use crate::failure::{Context, Result};
use crate::run_dir::metrics::{Line, Span, is_there};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The only event file of a folder.
#[derive(Debug)]
pub struct EventFile {
    folder: PathBuf,
    /// When it began, in seconds since 1970.
    unix_seconds: f64,
    /// Nothing where the file is not as the lines are: it is then written anew.
    file: Option<File>,
}

impl EventFile {
    /// Starts the only event file of `folder` with the lines so far; files of earlier sessions,
    /// which may go beyond the step resumed from, are removed.
    pub fn create(folder: &Path, unix_seconds: f64, lines: &[Line]) -> Result<Self> {
        let mut events = Self { folder: folder.to_path_buf(), unix_seconds, file: None };
        events.anew(lines)?;
        Ok(events)
    }

    /// Adds the last of all lines. What the disk does not take is written with the next.
    pub fn push(&mut self, lines: &[Line]) -> Result<()> {
        let (Some(line), Some(file)) = (lines.last(), self.file.as_mut().filter(|f| is_there(f)))
        else {
            return self.anew(lines);
        };
        let written = file.write_all(&record(&line_event(line)));
        if written.is_err() {
            self.file = None;
        }
        written.context(|| format!("cannot write an event file in `{}`", self.folder.display()))
    }

    /// Writes the file anew with these lines.
    pub fn anew(&mut self, lines: &[Line]) -> Result<()> {
        let start = || -> std::io::Result<File> {
            fs::create_dir_all(&self.folder)?;
            for entry in fs::read_dir(&self.folder)? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().contains("tfevents") {
                    fs::remove_file(entry.path())?;
                }
            }
            let name = format!("events.out.tfevents.{:010}.planaria", self.unix_seconds as u64);
            let mut file = File::create(self.folder.join(name))?;
            let mut bytes = record(&version_event(self.unix_seconds));
            bytes.extend(lines.iter().flat_map(|line| record(&line_event(line))));
            file.write_all(&bytes)?;
            Ok(file)
        };
        self.file = None;
        let folder = self.folder.display();
        self.file = Some(start().context(|| format!("cannot start an event file in `{folder}`"))?);
        Ok(())
    }
}

/// The event every file begins with.
fn version_event(unix_seconds: f64) -> Vec<u8> {
    let mut event = Vec::new();
    put_fixed64(&mut event, 1, unix_seconds.to_bits());
    put_bytes(&mut event, 3, b"brain.Event:2");
    event
}

fn line_event(line: &Line) -> Vec<u8> {
    let mut scalars: Vec<(&str, Option<f64>)> = Vec::new();
    match line.span {
        Span::Steps => scalars.extend([
            ("loss/train", line.loss),
            ("accuracy/train", line.accuracy),
            ("learning_rate", Some(f64::from(line.learning_rate))),
            ("examples_per_second", line.examples_per_second),
        ]),
        Span::Epoch => scalars.extend([
            ("epoch_loss/train", line.loss),
            ("epoch_accuracy/train", line.accuracy),
            ("loss/validation", line.validation_loss),
            ("accuracy/validation", line.validation_accuracy),
        ]),
    }
    let mut summary = Vec::new();
    for (tag, value) in scalars {
        let Some(value) = value else { continue };
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, tag.as_bytes());
        put_fixed32(&mut entry, 2, (value as f32).to_bits());
        put_bytes(&mut summary, 1, &entry);
    }
    let mut event = Vec::new();
    put_fixed64(&mut event, 1, line.unix_seconds.to_bits());
    put_varint_field(&mut event, 2, line.step);
    put_bytes(&mut event, 5, &summary);
    event
}

/// A TFRecord: length, masked CRC of the length, data, masked CRC of the data.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut bytes = Vec::with_capacity(data.len() + 16);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&masked_crc(&length).to_le_bytes());
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(&masked_crc(data).to_le_bytes());
    bytes
}

fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: a few hundred bytes per line do not need a table.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn put_varint_field(bytes: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(bytes, field << 3);
    put_varint(bytes, value);
}

fn put_fixed64(bytes: &mut Vec<u8>, field: u64, bits: u64) {
    put_varint(bytes, field << 3 | 1);
    bytes.extend_from_slice(&bits.to_le_bytes());
}

fn put_bytes(bytes: &mut Vec<u8>, field: u64, value: &[u8]) {
    put_varint(bytes, field << 3 | 2);
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

fn put_fixed32(bytes: &mut Vec<u8>, field: u64, bits: u32) {
    put_varint(bytes, field << 3 | 5);
    bytes.extend_from_slice(&bits.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::metrics::tests::line;

    #[test]
    fn crc_matches_the_published_vectors() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn records_are_framed_and_a_new_session_replaces_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let lines = [line(Span::Steps, 300, 1), line(Span::Epoch, 300, 1)];
        let mut first = EventFile::create(dir.path(), 1e9, &[]).unwrap();
        for n in 1..=lines.len() {
            first.push(&lines[..n]).unwrap();
        }
        let bytes = only_file(dir.path());
        EventFile::create(dir.path(), 1e9 + 5.0, &lines).unwrap();
        let again = only_file(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let (old, new) = (events(&bytes), events(&again));
        assert_eq!(old.len(), 3);
        assert_eq!(old[1..], new[1..]);
        let text = String::from_utf8_lossy(&old[1]).into_owned();
        assert!(text.contains("loss/train") && text.contains("learning_rate"), "{text}");
    }

    #[test]
    fn a_file_that_was_spoilt_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let lines: Vec<Line> = (1..5).map(|n| line(Span::Steps, n, 1)).collect();
        let mut file = EventFile::create(dir.path(), 1e9, &lines[..1]).unwrap();
        fs::remove_dir_all(dir.path()).unwrap();
        file.push(&lines[..2]).unwrap();
        assert_eq!(events(&only_file(dir.path())).len(), 3);
        file.file = Some(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        assert!(file.push(&lines[..3]).is_err());
        file.push(&lines).unwrap();
        assert_eq!(events(&only_file(dir.path())).len(), 5);
    }

    fn only_file(folder: &Path) -> Vec<u8> {
        let mut entries = fs::read_dir(folder).unwrap();
        let path = entries.next().unwrap().unwrap().path();
        assert!(entries.next().is_none());
        fs::read(path).unwrap()
    }

    fn events(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            assert_eq!(masked_crc(&bytes[..8]).to_le_bytes(), bytes[8..12]);
            let data = &bytes[12..12 + length];
            assert_eq!(masked_crc(data).to_le_bytes(), bytes[12 + length..16 + length]);
            events.push(data.to_vec());
            bytes = &bytes[16 + length..];
        }
        events
    }
}
