//! What `data.format` and `data.table` must mean together.
//!
//! Never knows the columns of a file; `crates/data` compares with them when it opens one.

use crate::diagnostic::{Finding, quoted};
use crate::sections::{Augment, Data, Format, Normalize};
use crate::table::{Column, LabelKind, Missing, Named, Standardize, Table};

/// Every rule that the section breaks.
pub(super) fn check(data: &Data, found: &mut Vec<Finding>) {
    match (&data.table, data.format) {
        (None, Format::Csv) => found.push(needs_label("data.format")),
        (None, Format::Libsvm) => pictures(data, found),
        (None, _) => {}
        (Some(_), Format::Idx | Format::Cifar10) => {
            let message = "`data.table` is for tables, but `data.format` names images";
            let hint = "write `format: csv` or `format: libsvm`, or leave `table` out";
            found.push(Finding::new("data.table", message).hint(hint));
        }
        (Some(table), format) => {
            pictures(data, found);
            common(table, found);
            match format {
                Format::Libsvm => sparse(table, found),
                _ => columns(table, found),
            }
            if table.label.is_none() && format == Format::Csv {
                found.push(needs_label("data.table"));
            }
        }
    }
}

/// Whether a file could be read by the section, were it there: what cannot be said of its columns has
/// been told then.
pub(super) fn can_be_read(data: &Data) -> bool {
    let plain = Table::default();
    let table = data.table.as_ref().unwrap_or(&plain);
    let has_label = data.format != Format::Csv || table.label.is_some();
    has_label && is_delimiter(&table.delimiter)
}

fn needs_label(key: &str) -> Finding {
    Finding::new(key, "`format: csv` needs to know which column is learned")
        .hint("write `table: {label: …}` with the column's name or number (-1 is the last)")
}

/// Settings of images, which do nothing here.
fn pictures(data: &Data, found: &mut Vec<Finding>) {
    let written = [
        ("normalize", data.normalize != Normalize::default()),
        ("augment", data.augment != Augment::default()),
    ];
    for (key, _) in written.into_iter().filter(|(_, written)| *written) {
        let message = format!("`data.{key}` is for images, but the data is a table");
        let hint = "leave it out; `data.table.standardize` scales columns";
        found.push(Finding::new(format!("data.{key}"), message).hint(hint));
    }
}

fn common(table: &Table, found: &mut Vec<Finding>) {
    if table.positive.is_some() && table.target == LabelKind::Number {
        let message = "`data.table.positive` names a class, but `target: number` has none";
        let hint = "leave out one of the two";
        found.push(Finding::new("data.table.positive", message).hint(hint));
    }
    if !table.standardize_target && table.target == LabelKind::Class {
        let message =
            "`data.table.standardize_target` is for numbers to predict, but labels are classes";
        let hint = "leave it out, or write `target: number`";
        found.push(Finding::new("data.table.standardize_target", message).hint(hint));
    }
    if let Missing::Value(value) = table.missing
        && !value.is_finite()
    {
        let message = format!("`data.table.missing` must be a finite number, but is {value}");
        found.push(Finding::new("data.table.missing", message));
    }
}

/// Options that mean nothing where features have numbers and most are absent.
fn sparse(table: &Table, found: &mut Vec<Finding>) {
    let plain = Table::default();
    let used = [
        ("label", table.label.is_some()),
        ("skip_rows", table.skip_rows > 0),
        ("delimiter", table.delimiter != plain.delimiter),
        ("missing", table.missing != plain.missing),
        ("drop", !table.drop.is_empty()),
        ("one_hot", !table.one_hot.is_empty()),
        ("bins", !table.bins.is_empty()),
        ("standardize", matches!(table.standardize, Standardize::Columns(_))),
    ];
    for (key, _) in used.into_iter().filter(|(_, used)| *used) {
        let message = format!("`data.table.{key}` is for `format: csv`");
        let hint = "LIBSVM files hold a label and features that are used as they are";
        found.push(Finding::new(format!("data.table.{key}"), message).hint(hint));
    }
}

fn columns(table: &Table, found: &mut Vec<Finding>) {
    delimiter(&table.delimiter, found);
    for (i, bins) in table.bins.iter().enumerate().filter(|(_, b)| b.columns.is_empty()) {
        let message = format!("`data.table.bins` has {} bins of no column", bins.count);
        let key = format!("data.table.bins.{i}.columns");
        found.push(Finding::new(key, message).hint("list its columns, or leave it out"));
    }
    let mut seen: Vec<(&Column, &str)> = Vec::new();
    for Named { key, purpose: use_, column, .. } in table.named() {
        if *column == Column::Number(0) {
            let message = "columns count from 1 (the first) or from -1 (the last), but one is 0";
            found.push(Finding::new(key, message));
            continue;
        }
        match seen.iter().find(|(other, _)| *other == column) {
            Some((_, other)) => {
                let name = quoted(&column.to_string().replace('`', ""));
                let message = match *other == use_ {
                    true => format!("column {name} stands twice in `{use_}`"),
                    false => format!("column {name} is in `{other}` and in `{use_}`"),
                };
                found.push(Finding::new(key, message).hint("keep one of them"));
            }
            None => seen.push((column, use_)),
        }
    }
}

fn is_delimiter(text: &str) -> bool {
    match text.as_bytes() {
        [byte] => byte.is_ascii() && !b"\"\r\n".contains(byte) && !byte.is_ascii_alphanumeric(),
        _ => false,
    }
}

fn delimiter(text: &str, found: &mut Vec<Finding>) {
    if !is_delimiter(text) {
        let message = format!(
            "`data.table.delimiter` must be one character that no number holds, but is {}",
            quoted(text)
        );
        let hint = "write `\",\"`, `\";\"`, `\"|\"` or `\"\\t\"` (with double quotes)";
        found.push(Finding::new("data.table.delimiter", message).hint(hint));
    }
}
