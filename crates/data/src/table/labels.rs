//! Labels: which classes there are, which is positive, and rows' labels as numbers.
//!
//! Labels that are the same number are the same class, however they are written (`1`, `+1`, `1.0`).

use super::Rows;
use super::encoder::sort;
use super::read::{LabelColumn, Words};
use super::text::{number, shown};
use crate::error::Error;
use planaria_recipe::table::{Table, Word};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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

    /// Whether there are none.
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
    Classes {
        names: Vec<String>,
        positive: bool,
    },
    Numbers,
}

impl Target {
    pub fn learn(rows: &Rows, section: &Table) -> Result<Self, Error> {
        let words = match &rows.table.labels {
            LabelColumn::Numbers(_) => return Ok(Self::Numbers),
            LabelColumn::Classes(words) => words,
        };
        let seen: BTreeSet<String> = rows
            .ids
            .iter()
            .map(|id| name(&words.list[words.codes[id as usize] as usize]))
            .collect();
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
            )));
        }
        names.retain(|n| *n != positive);
        let other = if names.len() == 1 { names.remove(0) } else { format!("not {positive}") };
        Ok(Self::Classes { names: vec![other, positive], positive: true })
    }

    pub fn encode(&self, rows: &Rows) -> Result<Labels, Error> {
        let wrong = |message: &str| Err(Error::corrupt(&rows.table.path, message));
        match (self, &rows.table.labels) {
            (Self::Numbers, LabelColumn::Numbers(list)) => {
                Ok(Labels::Numbers(rows.ids.iter().map(|id| list[id as usize]).collect()))
            }
            (Self::Classes { names, positive }, LabelColumn::Classes(words)) => {
                let classes = classes(words, names, *positive);
                let class = |id: u64| {
                    let code = words.codes[id as usize] as usize;
                    classes[code].ok_or_else(|| unknown(rows, id, &words.list[code], names))
                };
                Ok(Labels::Classes(rows.ids.iter().map(class).collect::<Result<_, _>>()?))
            }
            (Self::Numbers, _) => wrong("its labels are classes, but numbers were learned"),
            (Self::Classes { .. }, _) => wrong("its labels are numbers, but classes were learned"),
        }
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

fn unknown(rows: &Rows, id: u64, word: &str, names: &[String]) -> Error {
    let message = format!(
        "row {} has the label {}, which no training row has (they have {})",
        id + 1,
        shown(word),
        list(names)
    );
    Error::corrupt(&rows.table.path, message)
}

/// A label's name: the shortest writing of a number, other texts as they are.
fn name(word: &str) -> String {
    // Adding 0 makes −0 and 0 one.
    number(word).map_or_else(|| word.to_owned(), |x| (x + 0.0).to_string())
}

fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED_MAX).map(|n| shown(n)).collect();
    let more = names.len() - shown.len();
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &tail
}
