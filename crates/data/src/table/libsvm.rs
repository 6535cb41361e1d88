//! LIBSVM's sparse text: `label index:value index:value …`, indices ascending from 1, `#` before a
//! remark. Features are kept as they are.

use super::read::LabelColumn;
use super::row::{ENTRY_BYTES, SPARSE_BYTES};
use super::text::{Text, number, shown};
use super::{Body, Table};
use crate::budget::Memory;
use crate::error::Error;
use crate::records::{Records, Spool};
use planaria_recipe::table::LabelKind;
use std::path::Path;

/// Most bytes of one line.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Largest index: more features than any model here can have.
const INDEX_MAX: u32 = 1 << 30;

/// Reads a file.
pub(super) fn read(path: &Path, target: LabelKind, memory: &Memory) -> Result<Table, Error> {
    let mut text = Text::open(path)?;
    let (mut rows, mut entries) = (Spool::new(path, memory), Spool::new(path, memory));
    let (mut count, mut start) = (0, 0u64);
    let mut labels = LabelColumn::new(target);
    let (mut bytes, mut row) = (Vec::new(), Vec::new());
    loop {
        let line = text.line();
        if !take_line(&mut text, &mut bytes)? {
            break;
        }
        let at = |message: String| Error::corrupt(path, format!("line {line}: {message}"));
        let content = std::str::from_utf8(&bytes)
            .map_err(|_| at("it is not text (UTF-8); is this a LIBSVM file?".into()))?;
        let content = content.split('#').next().unwrap_or_default();
        let mut words = content.split_ascii_whitespace();
        let Some(label) = words.next() else { continue };
        if number(label).is_none() {
            let message = format!("the label {} is not a finite number", shown(label));
            return Err(at(format!("{message}; a line is `label index:value …`")));
        }
        let label = labels.value(label).map_err(|m| at(format!("column 1 {m}")))?;
        row.clear();
        let mut last = 0;
        for word in words {
            let (index, value) = entry(word, last).map_err(at)?;
            last = index;
            if value != 0.0 {
                row.extend_from_slice(&(index - 1).to_le_bytes());
                row.extend_from_slice(&value.to_le_bytes());
            }
        }
        entries.push(&row)?;
        let length = (row.len() / ENTRY_BYTES) as u64;
        rows.push(&[label, start.to_le_bytes(), length.to_le_bytes()].concat())?;
        (count, start) = (count + 1, start + length);
    }
    if count == 0 {
        return Err(Error::corrupt(path, "it has no rows"));
    }
    Ok(Table {
        path: path.into(),
        body: Body::Sparse(entries.finish()?),
        labels,
        rows: Records::new(SPARSE_BYTES).with(rows.finish()?, count),
        file: text.data_file(),
        memory: memory.clone(),
    })
}

fn take_line(text: &mut Text, line: &mut Vec<u8>) -> Result<bool, Error> {
    line.clear();
    let start = text.line();
    let mut any = false;
    while let Some(byte) = text.take()? {
        any = true;
        if byte == b'\n' || byte == b'\r' {
            text.end_line(byte)?;
            break;
        }
        if line.len() == LINE_BYTES_MAX {
            let message = format!("line {start} has more than {} MiB", LINE_BYTES_MAX >> 20);
            return Err(Error::corrupt(text.path(), message));
        }
        line.push(byte);
    }
    Ok(any)
}

/// One `index:value`, whose index is above `last`.
fn entry(word: &str, last: u32) -> Result<(u32, f64), String> {
    let Some((index, value)) = word.split_once(':') else {
        return Err(format!("{} is no `index:value`", shown(word)));
    };
    let index = match index.parse::<u32>() {
        Ok(0) => return Err(format!("{}: indices count from 1", shown(word))),
        Ok(index) if index > INDEX_MAX => {
            return Err(format!("{}: an index above {INDEX_MAX}", shown(word)));
        }
        Ok(index) => index,
        Err(_) => return Err(format!("{}: {} is no index", shown(word), shown(index))),
    };
    if index <= last {
        return Err(format!("{}: index {index} after {last}; sort them", shown(word)));
    }
    let value = number(value)
        .ok_or_else(|| format!("feature {index} is {}, which is no finite number", shown(value)))?;
    Ok((index, value))
}
