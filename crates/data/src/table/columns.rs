//! The recipe's columns against those of a file: what each is used for.
//!
//! Owns the mistakes that only a header can show, all of them at once: names that are not there,
//! columns named twice, fields that another character separates.

use super::csv::Record;
use super::text::shown;
use crate::error::{Error, Mistake};
use planaria_recipe::table::{BinEncoding, Column, Named, Standardize, Table};
use std::path::Path;

/// The key of the column that is learned.
const LABEL: &str = "data.table.label";
/// Characters that separate fields.
pub(super) const DELIMITERS: [u8; 4] = *b",;\t|";

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

/// What each of the columns `names` of a file is for, or all that is wrong with what the section says
/// of them.
pub(super) fn uses(path: &Path, names: &[String], table: &Table) -> Result<Vec<Use>, Error> {
    let mut marks = Marks { path, names, uses: vec![None; names.len()], mistakes: Vec::new() };
    if table.label.is_none() {
        let message = "`data.table.label` is missing: which column of the table is learned?";
        marks.mistake(LABEL, message.into(), None);
    }
    table.named().iter().for_each(|named| marks.mark(named));
    marks.uses(&table.standardize)
}

/// What is known so far of each column.
struct Marks<'a> {
    path: &'a Path,
    names: &'a [String],
    /// What a column is for, and the key that says so.
    uses: Vec<Option<(Use, &'static str)>>,
    mistakes: Vec<Mistake>,
}

impl Marks<'_> {
    fn mark(&mut self, named: &Named<'_>) {
        let Some(place) = self.find(named) else { return };
        let purpose = match (named.purpose, named.bins) {
            ("label", _) => Use::Label,
            ("drop", _) => Use::Drop,
            ("one_hot", _) => Use::OneHot,
            (_, Some(bins)) => Use::Bins { count: bins.count, encode: bins.encode },
            _ => Use::Standard,
        };
        if let Some((_, other)) = self.uses[place].replace((purpose, named.purpose)) {
            let message = format!(
                "column {} of `{}` is in `data.table.{other}` and in `data.table.{}`",
                shown(&self.names[place]),
                self.path.display(),
                named.purpose
            );
            self.mistake(&named.key, message, Some("keep one".into()));
        }
    }

    /// Place of a column, from 0.
    fn find(&mut self, named: &Named<'_>) -> Option<usize> {
        let (message, hint) = match named.column {
            Column::Number(number) => {
                let width = self.names.len() as i64;
                let place = if *number < 0 { width + number } else { number - 1 };
                if let Some(place) = usize::try_from(place).ok().filter(|p| *p < self.names.len()) {
                    return Some(place);
                }
                let quoted = self.names.contains(&number.to_string());
                let hint =
                    quoted.then(|| format!("write `\"{number}\"` for the column of that name"));
                (format!("column {number}, but the table has {width} columns"), hint)
            }
            Column::Name(name) => {
                let places: Vec<usize> =
                    (0..self.names.len()).filter(|i| self.names[*i] == *name).collect();
                match places[..] {
                    [place] => return Some(place),
                    [] => {
                        (format!("{}, which is no column", shown(name)), Some(self.nearest(name)))
                    }
                    [a, b, ..] => {
                        let message = format!(
                            "{}, which columns {} and {} are both called",
                            shown(name),
                            a + 1,
                            b + 1
                        );
                        (message, Some("give its number instead".into()))
                    }
                }
            }
        };
        let message =
            format!("`data.table.{}` names {message} of `{}`", named.purpose, self.path.display());
        self.mistake(&named.key, message, hint);
        None
    }

    /// The column that was probably meant, or what there is.
    fn nearest(&self, name: &str) -> String {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        match planaria_recipe::nearest(name, &names) {
            Some(found) => format!("did you mean {}?", shown(found)),
            None => list(self.names),
        }
    }

    fn mistake(&mut self, key: &str, message: String, hint: Option<String>) {
        self.mistakes.push(Mistake { key: key.into(), message, hint });
    }

    /// What each column is for, those that no key names as `standardize` says.
    fn uses(mut self, standardize: &Standardize) -> Result<Vec<Use>, Error> {
        let rest = match standardize {
            Standardize::All(true) => Use::Standard,
            _ => Use::Plain,
        };
        let uses: Vec<Use> = self.uses.iter().map(|u| u.map_or(rest, |(u, _)| u)).collect();
        // Of columns that were not found it is not known what is left without them.
        let nothing_left = uses.iter().all(|u| matches!(u, Use::Label | Use::Drop));
        if self.mistakes.is_empty() && nothing_left {
            let message = format!(
                "`{}` has no column left to learn from besides its label and `data.table.drop`",
                self.path.display()
            );
            self.mistake(LABEL, message, None);
        }
        match self.mistakes.is_empty() {
            true => Ok(uses),
            false => Err(Error::Columns { mistakes: self.mistakes }),
        }
    }
}

fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|n| shown(n)).collect();
    let (first, more) = names.split_at(names.len().min(LISTED_MAX));
    let tail = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("the columns are {}{tail}", first.join(", "))
}

/// Refuses a file that has one column only because another character separates its fields.
pub(super) fn check_delimiter(path: &Path, first: &Record, delimiter: u8) -> Result<(), Error> {
    let Some(text) = first.field(0).filter(|_| first.len() == 1) else { return Ok(()) };
    let count = |other: u8| text.bytes().filter(|byte| *byte == other).count();
    let others = DELIMITERS.into_iter().filter(|other| *other != delimiter);
    let Some(other) = others.max_by_key(|other| count(*other)).filter(|o| count(*o) > 0) else {
        return Ok(());
    };
    let [used, looks] = [delimiter, other].map(|byte| byte.escape_ascii().to_string());
    let message = format!(
        "`{}` is one column when its fields end at `{used}`, but they look separated by `{looks}`",
        path.display()
    );
    let hint = Some(format!("write `delimiter: \"{looks}\"` in `data.table`"));
    let key = "data.table.delimiter".into();
    Err(Error::Columns { mistakes: vec![Mistake { key, message, hint }] })
}
