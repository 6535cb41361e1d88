//! The recipe's columns against those of a file: what each is used for.
//!
//! Owns the mistakes that only a header can show: names that are not there, columns named twice.

use super::text::shown;
use crate::error::Error;
use planaria_recipe::table::{BinEncoding, Column, Standardize, Table};
use std::path::Path;

/// Names that a message lists.
const LISTED_MAX: usize = 12;

/// What a column is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Label,
    Drop,
    OneHot,
    Bins { count: usize, encode: BinEncoding },
    Standard,
    Plain,
}

/// What each of the columns `names` is for.
pub(super) fn uses(path: &Path, names: &[String], table: &Table) -> Result<Vec<Use>, Error> {
    let mut uses: Vec<Option<(Use, &str)>> = vec![None; names.len()];
    let mut mark = |column: &Column, purpose: Use, key: &'static str| {
        let place = find(path, names, column, key)?;
        match uses[place].replace((purpose, key)) {
            None => Ok(()),
            Some((_, other)) => Err(Error::setting(format!(
                "column {} of `{}` is in `data.table.{other}` and in `data.table.{key}`; keep one",
                shown(&names[place]),
                path.display()
            ))),
        }
    };
    let label = table.label.as_ref().ok_or_else(|| {
        Error::setting("`data.table.label` is missing: which column of the table is learned?")
    })?;
    mark(label, Use::Label, "label")?;
    for column in &table.drop {
        mark(column, Use::Drop, "drop")?;
    }
    for column in &table.one_hot {
        mark(column, Use::OneHot, "one_hot")?;
    }
    for bins in &table.bins {
        for column in &bins.columns {
            mark(column, Use::Bins { count: bins.count, encode: bins.encode }, "bins")?;
        }
    }
    let rest = match &table.standardize {
        Standardize::All(true) => Use::Standard,
        Standardize::All(false) => Use::Plain,
        Standardize::Columns(columns) => {
            for column in columns {
                mark(column, Use::Standard, "standardize")?;
            }
            Use::Plain
        }
    };
    let uses: Vec<Use> = uses.into_iter().map(|u| u.map_or(rest, |(u, _)| u)).collect();
    if uses.iter().all(|u| matches!(u, Use::Label | Use::Drop)) {
        return Err(Error::setting(format!(
            "`{}` has no column left to learn from besides its label and `data.table.drop`",
            path.display()
        )));
    }
    Ok(uses)
}

/// Place of a column, from 0.
fn find(path: &Path, names: &[String], column: &Column, key: &str) -> Result<usize, Error> {
    let wrong = |message: String| {
        let path = path.display();
        Err(Error::setting(format!("`data.table.{key}` names {message} (`{path}`)")))
    };
    match column {
        Column::Number(number) => {
            let width = names.len() as i64;
            let place = if *number < 0 { width + number } else { number - 1 };
            match usize::try_from(place).ok().filter(|p| *p < names.len()) {
                Some(place) => Ok(place),
                None => wrong(format!("column {number}, but the table has {width} columns")),
            }
        }
        Column::Name(name) => {
            let places: Vec<usize> = (0..names.len()).filter(|i| names[*i] == *name).collect();
            match places[..] {
                [place] => Ok(place),
                [] => wrong(format!("{}, but the table has {}", shown(name), list(names))),
                [a, b, ..] => wrong(format!(
                    "{}, which columns {} and {} are both called; give its number instead",
                    shown(name),
                    a + 1,
                    b + 1
                )),
            }
        }
    }
}

fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|n| shown(n)).collect();
    let (first, more) = names.split_at(names.len().min(LISTED_MAX));
    let tail = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("the columns {}{tail}", first.join(", "))
}
