//! Labels: which classes there are, which is positive, and rows' labels as numbers.
//!
//! Labels that are the same number are the same class, however they are written (`1`, `+1`, `1.0`).

use super::read::{LabelColumn, Words};
use super::row::Row;
use super::text::{number, shown, sort};
use super::{Rows, Table as Stored};
use crate::error::Error;
use planaria_numerics::regression::TargetScale;
use planaria_recipe::table::{Table, Word};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Classes that are numbers are more likely to be something to predict where there are more of them
/// than this, and more than one for this many rows.
const NUMERIC_CLASSES: usize = 100;
const ROWS_OF_NUMERIC_CLASS: u64 = 10;
/// Classes that a message lists.
const LISTED_MAX: usize = 12;

/// What is learned of each row.
#[derive(Debug, Clone, PartialEq)]
pub enum Labels {
    /// Numbers of classes.
    Classes(Vec<u32>),
    /// Numbers to predict.
    Numbers(Vec<f64>),
}

impl Labels {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Classes(list) => list.len(),
            Self::Numbers(list) => list.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One number for each row: of two classes −1 for the first and 1 for the second (positive),
    /// else the class's number or the number itself.
    pub fn numbers(&self, classes: Option<usize>) -> Vec<f64> {
        match self {
            Self::Classes(list) if classes == Some(2) => {
                list.iter().map(|c| if *c == 1 { 1.0 } else { -1.0 }).collect()
            }
            Self::Classes(list) => list.iter().map(|c| f64::from(*c)).collect(),
            Self::Numbers(list) => list.clone(),
        }
    }
}

/// What labels are, as learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Target {
    /// Classes by number; where one is positive it is the second of two, and all labels but it are
    /// the first.
    Classes { names: Vec<String>, positive: bool },
    /// As they are.
    Numbers,
    /// Numbers that are learned as (number − mean) / std.
    Standard(TargetScale),
}

impl Target {
    pub fn learn(rows: &Rows, section: &Table) -> Result<Self, Error> {
        let words = match &rows.table.labels {
            LabelColumn::Numbers if section.standardize_target => {
                return Ok(Self::Standard(scale(rows)?));
            }
            LabelColumn::Numbers => return Ok(Self::Numbers),
            LabelColumn::Classes(words) => words,
        };
        let mut codes = BTreeSet::new();
        rows.table.each(&rows.ids, |_, row| {
            codes.insert(row.label_code());
            Ok(())
        })?;
        let seen: BTreeSet<String> =
            codes.into_iter().map(|code| name(&words.list[code as usize])).collect();
        let mut names: Vec<String> = seen.into_iter().collect();
        sort(&mut names);
        if let [only] = &names[..] {
            let message = format!("all training rows have the label {}", shown(only));
            return Err(Error::corrupt(&rows.table.path, message));
        }
        let Some(positive) = &section.positive else {
            return Ok(Self::Classes { names, positive: false });
        };
        let positive = match positive {
            Word::Number(x) => x.to_string(),
            Word::Text(text) => name(text),
        };
        if !names.contains(&positive) {
            return Err(Error::setting(format!(
                "`data.table.positive` is {}, but the training rows have the labels {}",
                shown(&positive),
                list(&names)
            ))
            .at("data.table.positive"));
        }
        names.retain(|n| *n != positive);
        let other = if names.len() == 1 { names.remove(0) } else { format!("not {positive}") };
        Ok(Self::Classes { names: vec![other, positive], positive: true })
    }

    /// How numbers are scaled to be learned; nothing for classes.
    pub fn scale(&self) -> Option<TargetScale> {
        match self {
            Self::Classes { .. } => None,
            Self::Numbers => Some(TargetScale::default()),
            Self::Standard(scale) => Some(*scale),
        }
    }

    /// How many classes there are, where all have numbers for names and are so many that they look
    /// like numbers to predict. Years, codes and counts are fewer, or have many rows each.
    pub fn numeric_classes(&self, rows: u64) -> Option<usize> {
        let Self::Classes { names, .. } = self else { return None };
        let count = names.len();
        let are_many = count > NUMERIC_CLASSES && count as u64 > rows / ROWS_OF_NUMERIC_CLASS;
        (are_many && names.iter().all(|name| number(name).is_some())).then_some(count)
    }

    /// The labels of a table's rows.
    pub fn coder<'a>(&'a self, table: &'a Stored) -> Result<Coder<'a>, Error> {
        let wrong = |message: &str| Err(Error::corrupt(&table.path, message));
        match (self, &table.labels) {
            (Self::Numbers | Self::Standard(_), LabelColumn::Numbers) => Ok(Coder::Numbers),
            (Self::Classes { names, positive }, LabelColumn::Classes(words)) => {
                let classes = classes(words, names, *positive);
                Ok(Coder::Classes { table, words, names, classes })
            }
            (Self::Numbers | Self::Standard(_), _) => {
                wrong("its labels are classes, but numbers were learned")
            }
            (Self::Classes { .. }, _) => wrong("its labels are numbers, but classes were learned"),
        }
    }

    pub fn encode(&self, rows: &Rows) -> Result<Labels, Error> {
        let coder = self.coder(&rows.table)?;
        let mut labels = match coder {
            Coder::Numbers => Labels::Numbers(Vec::new()),
            Coder::Classes { .. } => Labels::Classes(Vec::new()),
        };
        rows.table.each(&rows.ids, |id, row| {
            match &mut labels {
                Labels::Classes(list) => list.push(coder.class(id, row)?),
                Labels::Numbers(list) => list.push(row.label_number()),
            }
            Ok(())
        })?;
        Ok(labels)
    }
}

/// Mean and standard deviation of the rows' labels; labels that are all the same become 0.
fn scale(rows: &Rows) -> Result<TargetScale, Error> {
    let each = |take: &mut dyn FnMut(f64)| {
        rows.table.each(&rows.ids, |_, row| {
            take(row.label_number());
            Ok(())
        })
    };
    let count = rows.ids.len() as f64;
    let (mut sum, mut low, mut high) = (0.0, f64::INFINITY, f64::NEG_INFINITY);
    each(&mut |label| {
        sum += label;
        (low, high) = (label.min(low), label.max(high));
    })?;
    if low == high {
        return Ok(TargetScale { mean: low, std: 1.0 });
    }
    let (mean, mut square) = (sum / count, 0.0);
    each(&mut |label| square += (label - mean) * (label - mean))?;
    let std = (square / count).sqrt();
    if mean.is_finite() && std.is_normal() {
        return Ok(TargetScale { mean, std });
    }
    let message = "its labels are numbers too large or too close to each other to standardise; \
                   write `data.table.standardize_target: false`";
    Err(Error::corrupt(&rows.table.path, message))
}

/// What was learned of labels beside those of one table.
pub(super) enum Coder<'a> {
    Numbers,
    Classes {
        table: &'a Stored,
        words: &'a Words,
        names: &'a [String],
        /// The class of each label that the table has.
        classes: Vec<Option<u32>>,
    },
}

impl Coder<'_> {
    /// The class of a row; 0 where labels are numbers.
    pub fn class(&self, id: u64, row: Row<'_>) -> Result<u32, Error> {
        let Self::Classes { table, words, names, classes } = self else { return Ok(0) };
        let code = row.label_code() as usize;
        classes[code].ok_or_else(|| unknown(table, id, &words.list[code], names))
    }
}

/// Class of each label that a table has.
fn classes(words: &Words, names: &[String], positive: bool) -> Vec<Option<u32>> {
    let class = |word: &String| {
        let word = name(word);
        match positive {
            true => Some(u32::from(names.get(1) == Some(&word))),
            false => names.iter().position(|n| *n == word).map(|i| i as u32),
        }
    };
    words.list.iter().map(class).collect()
}

fn unknown(table: &Stored, id: u64, word: &str, names: &[String]) -> Error {
    let message = format!(
        "row {} has the label {}, which no training row has (they have {})",
        id + 1,
        shown(word),
        list(names)
    );
    let hint = match names.len() > NUMERIC_CLASSES && names.iter().all(|n| number(n).is_some()) {
        true => "; write `data.table.target: number` if labels are numbers to predict",
        false => "",
    };
    let message = message + hint;
    Error::corrupt(&table.path, message)
}

/// A label's name: the shortest writing of a number, other texts as they are.
pub(super) fn name(word: &str) -> String {
    // Adding 0 makes −0 and 0 one.
    number(word).map_or_else(|| word.to_owned(), |x| (x + 0.0).to_string())
}

fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED_MAX).map(|n| shown(n)).collect();
    let more = names.len() - shown.len();
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &tail
}
