//! A recipe for a table: which column is learned, and what the others are for.
//!
//! Every guess stands in the recipe with its reason. Never reads the table; a [`Profile`] has what is
//! known of it.

use super::yaml::{comment, list, remark, text};
use super::{Cut, Head};
use planaria_control::survey::data_failure;
use planaria_data::table::profile::{Column, Profile};
use planaria_recipe::{Source, nearest};
use planaria_runs::failure::{Failure, Result};
use planaria_text::number::{counted, grouped};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Names of a column that is learned, where a table has one of them.
const LABELS: [&str; 5] = ["label", "target", "class", "y", "species"];
/// Most different texts of a column that become features of their own.
const CATEGORIES_MAX: usize = 50;
/// Most different whole numbers that are taken for classes.
const CLASSES_MAX: usize = 20;
/// Most different whole numbers of a column that may well be codes.
const CODES_MAX: usize = 10;
/// Columns that a comment names.
const NAMED_MAX: usize = 12;

/// What each column of a table is for.
pub struct Guess<'p> {
    profile: &'p Profile,
    label: usize,
    /// Why that column.
    why: &'static str,
    /// Whether labels are numbers to predict.
    is_number: bool,
    uses: Vec<Use>,
}

/// What a column other than the label is for.
#[derive(Debug, PartialEq)]
enum Use {
    Number,
    Category,
    /// Nothing, for this reason.
    Drop(String),
}

impl<'p> Guess<'p> {
    /// Guesses; `file` is what messages call the table.
    pub fn new(profile: &'p Profile, file: &str, label: Option<&str>) -> Result<Self> {
        let columns = &profile.columns;
        if columns.len() < 2 {
            let message =
                format!("`{file}` has one column: there is nothing to learn a label from");
            return Err(Failure::user(message)
                .hint("is it a table, with `,`, `;`, `|` or a tab between its fields?"));
        }
        let (label, why) = match label {
            Some(label) => (find(profile, file, label)?, "as `--label` says"),
            None => guessed_label(profile),
        };
        check_label(profile, file, label)?;
        let uses: Vec<Use> = columns.iter().map(|column| Use::of(column, profile.rows)).collect();
        let is_feature =
            |(i, purpose): (usize, &Use)| i != label && !matches!(purpose, Use::Drop(_));
        if !uses.iter().enumerate().any(is_feature) {
            let reason = |(i, purpose): (usize, &Use)| match purpose {
                Use::Drop(reason) if i != label => Some(format!("{}: {reason}", shown(profile, i))),
                _ => None,
            };
            let reasons: Vec<String> =
                uses.iter().enumerate().filter_map(reason).take(NAMED_MAX).collect();
            let message = format!("`{file}` has no column to learn from besides its label");
            return Err(Failure::user(message).hint(reasons.join("; ")));
        }
        let is_number = is_number(&columns[label]);
        Ok(Self { profile, label, why, is_number, uses })
    }

    /// What is to be said once, beside what stands in the recipe.
    pub fn remarks(&self) -> Vec<String> {
        let mut said = Vec::new();
        let profile = self.profile;
        let label = &profile.columns[self.label];
        let what = match self.is_number {
            true => "numbers to predict".into(),
            false => format!("{} classes", label.classes()),
        };
        said.push(format!(
            "label {} ({}): {what}; another one by `--label`",
            shown(profile, self.label),
            self.why
        ));
        if !profile.is_whole {
            said.push(format!(
                "only the first {} rows were looked at; `planaria plan` reads all",
                grouped(profile.rows)
            ));
        }
        said
    }

    /// The recipe.
    pub fn recipe(&self, head: &Head, cut: Cut) -> String {
        let rows = grouped(self.profile.rows);
        let of = match self.profile.is_whole {
            true => format!("its {rows} rows"),
            false => format!("its first {rows} rows (it has more)"),
        };
        let mut out = begin(head, &of, cut);
        let _ = writeln!(out, "  format: csv");
        out += &held_out(cut);
        out += &self.section();
        out += &self.model_and_training(cut);
        out
    }

    fn section(&self) -> String {
        let profile = self.profile;
        let mut out = "  table:\n".to_owned();
        if !profile.has_header {
            out += "    header: false            # the first row looks like the others; columns go by number\n";
        }
        if profile.delimiter != ',' {
            let delimiter = serde_json::Value::from(profile.delimiter.to_string());
            let _ = writeln!(out, "    delimiter: {delimiter}");
        }
        out += &comment(4, &format!("What is learned: {}. {}", self.why, self.label_values()));
        let _ = writeln!(out, "    label: {}", self.reference(self.label));
        if self.is_number {
            out += "    target: number\n";
        }
        out += &self.missing();
        out += &self.dropped();
        out += &self.categories();
        out += &self.numbers();
        out
    }

    fn label_values(&self) -> String {
        let column = &self.profile.columns[self.label];
        if self.is_number {
            let words = "Its values are numbers to predict; without `target: number` each would be a \
                         class.";
            return words.into();
        }
        let mut values: Vec<(&String, &u64)> = column.values.iter().collect();
        values.sort_by_key(|(value, rows)| (std::cmp::Reverse(**rows), (*value).clone()));
        let listed: Vec<String> = values
            .iter()
            .take(NAMED_MAX)
            .map(|(value, rows)| format!("{} in {}", remark(value), counted(**rows, "row")))
            .collect();
        let more = values.len() - listed.len();
        let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
        let number = match column.is_numeric() {
            true => " (for numbers to predict, add `target: number`)",
            false => "",
        };
        format!("Its classes: {}{tail}{number}.", listed.join(", "))
    }

    /// What becomes of missing values, where there are any or may be.
    fn missing(&self) -> String {
        let lacking = |(i, column): (usize, &'p Column)| {
            let is_used = i != self.label && !matches!(self.uses[i], Use::Drop(_));
            (is_used && column.missing > 0)
                .then(|| format!("{} ({})", shown(self.profile, i), grouped(column.missing)))
        };
        let columns: Vec<String> =
            self.profile.columns.iter().enumerate().filter_map(lacking).collect();
        let filled = "The mean takes the place of a missing number; of a missing category all \
                      features are 0.";
        let words = match (columns.is_empty(), self.profile.is_whole) {
            (true, true) => return String::new(),
            (true, false) => format!("{filled} None is missing in the rows that were looked at."),
            (false, _) => format!("{filled} Missing: {}.", named(&columns)),
        };
        comment(4, &words) + "    missing: mean\n"
    }

    fn dropped(&self) -> String {
        let mut out = String::new();
        for (i, purpose) in self.uses.iter().enumerate().filter(|(i, _)| *i != self.label) {
            let Use::Drop(reason) = purpose else { continue };
            if out.is_empty() {
                out += "    drop:                    # not learned from\n";
            }
            let _ = writeln!(out, "      - {:<22} # {reason}", self.reference(i));
        }
        out
    }

    fn categories(&self) -> String {
        let columns = self.columns(&Use::Category);
        if columns.is_empty() {
            return String::new();
        }
        let about = "Texts of a few values: each value becomes a feature of 0 or 1.";
        comment(4, about) + &list(4, "one_hot", &columns)
    }

    /// A word on columns that are left, which need no key.
    fn numbers(&self) -> String {
        let columns = &self.profile.columns;
        if self.columns(&Use::Number).is_empty() {
            return String::new();
        }
        let mut words = "All other columns are numbers, as (value - mean) / std.".to_owned();
        let may_be_codes = |i: &usize| {
            let column = &columns[*i];
            let few = (3..=CODES_MAX).contains(&column.values.len()) && !column.has_more_values;
            *i != self.label && self.uses[*i] == Use::Number && column.is_whole_numbers && few
        };
        let codes: Vec<String> =
            (0..columns.len()).filter(may_be_codes).map(|i| shown(self.profile, i)).collect();
        if !codes.is_empty() {
            let _ = write!(
                words,
                " Whole numbers of a few values may be codes rather than amounts, and then belong in \
                 `one_hot`: {}.",
                named(&codes)
            );
        }
        comment(4, &words)
    }

    fn model_and_training(&self, cut: Cut) -> String {
        let rows = self.profile.rows;
        let outputs = match self.is_number {
            true => 1,
            false => self.profile.columns[self.label].classes(),
        };
        let hidden: &[usize] = if rows < 1000 { &[32] } else { &[64, 32] };
        model(hidden, outputs, self.is_number) + &training(rows, self.is_number, cut)
    }

    fn columns(&self, purpose: &Use) -> Vec<String> {
        let is_so = |i: &usize| *i != self.label && self.uses[*i] == *purpose;
        (0..self.uses.len()).filter(is_so).map(|i| self.reference(i)).collect()
    }

    /// A column as a recipe names it: by name where that is one column's alone.
    fn reference(&self, place: usize) -> String {
        let own = self.profile.columns[place].name.as_ref();
        let same = self.profile.columns.iter().filter(|column| column.name.as_ref() == own).count();
        match own {
            Some(name) if same == 1 => text(name),
            _ => (place + 1).to_string(),
        }
    }
}

/// A recipe for a LIBSVM file, whose features have numbers and need no guess.
pub fn sparse(head: &Head, path: &Path) -> Result<String> {
    let cut = Cut { seed: 1, is_held_out: true };
    let data = format!("{{name: a, data: {{train: {}}}}}", serde_json::json!(path));
    let set = ["model={preset: mlp}".to_owned(), "data.format=libsvm".to_owned()];
    let source = Source::parse("the recipe", data.as_bytes(), &set)?;
    let facts = planaria_data::peek(&source.recipe().data, 1);
    let facts = facts.map_err(data_failure)?;
    let (classes, rows) = (facts.classes().unwrap_or(1), facts.train + facts.validation);
    let mut out = begin(head, &format!("its {} rows", grouped(rows)), cut);
    out += "  format: libsvm\n";
    out += &held_out(cut);
    out +=
        &comment(2, "Labels are classes; for numbers to predict, add `table: {target: number}`.");
    Ok(out + &model(&[64, 32], classes, false) + &training(rows, false, cut))
}

fn begin(head: &Head, of: &str, cut: Cut) -> String {
    let Head { asked, name, train, file } = head;
    let asked = remark(asked);
    let file = remark(file);
    let (asked, file) = (asked.trim_matches('`'), file.trim_matches('`'));
    let about = format!(
        "Written by `planaria init {asked}` from {of}; what it guessed is for you to change. \
         `planaria plan {file}` shows what it comes to, `planaria train {file}` trains."
    );
    let mut out = comment(0, &about);
    let _ = write!(out, "name: {name}\nseed: {}\ndata:\n  train: {}\n", cut.seed, text(train));
    out
}

fn held_out(cut: Cut) -> String {
    match cut.is_held_out {
        true => {
            "  validation: 0.1            # judged after each epoch\n  test: 0.1                  \
                 # judged once, at the end: the figures of the report\n"
                .into()
        }
        false => {
            comment(2, "Too few rows, or classes too rare, to hold any out: all are learned from.")
                + "  validation: null\n"
        }
    }
}

fn model(hidden: &[usize], outputs: usize, is_number: bool) -> String {
    let mut out = "model:\n  layers:\n".to_owned();
    for units in hidden {
        let _ = writeln!(
            out,
            "    - {{Dense: {{units: {units}, activation: relu, kernel_initializer: he_normal}}}}"
        );
    }
    let what = if is_number { "the number that is predicted" } else { "one for each class" };
    let _ = writeln!(out, "    - {{Dense: {{units: {outputs}}}}}   # {what}");
    out
}

fn training(rows: u64, is_number: bool, cut: Cut) -> String {
    let (batch, epochs) = match rows {
        0..200 => (8, 60),
        200..2000 => (16, 40),
        2000..20_000 => (64, 30),
        _ => (128, 20),
    };
    let stopping = match cut.is_held_out {
        true => "  early_stopping: {patience: 5}   # ends once validation stops improving\n",
        false => "",
    };
    let loss = if is_number { "  loss: mse\n" } else { "" };
    format!(
        "train:\n{loss}  epochs: {epochs}\n  batch: {batch}\n  optimizer: {{adam: {{learning_rate: \
         0.001}}}}\n{stopping}"
    )
}

impl Use {
    fn of(column: &Column, rows: u64) -> Self {
        let different = column.values.len();
        let many = match column.has_more_values {
            true => format!("more than {different}"),
            false => different.to_string(),
        };
        if column.filled() == 0 {
            return Self::Drop("empty".into());
        }
        if different == 1 && !column.has_more_values {
            return Self::Drop("the same in every row".into());
        }
        if column.is_numeric() {
            let is_id = column.name.as_deref().is_some_and(is_id);
            return match () {
                () if column.is_counting && rows > 2 => Self::Drop("numbers the rows".into()),
                () if is_id && column.is_whole_numbers && column.is_all_different() => {
                    Self::Drop("an id: another one in every row".into())
                }
                () => Self::Number,
            };
        }
        let text = remark(column.first_text.as_deref().unwrap_or_default());
        match () {
            () if column.numbers > column.texts => Self::Drop(format!(
                "numbers, but also {text}: if that means none, list it in `missing_texts`"
            )),
            () if column.is_all_different() => Self::Drop("another text in every row".into()),
            () if column.has_more_values || different > CATEGORIES_MAX => {
                Self::Drop(format!("{many} different texts are many for `one_hot`"))
            }
            () => Self::Category,
        }
    }
}

fn is_id(name: &str) -> bool {
    let lower = name.to_lowercase();
    lower == "id" || name.ends_with("Id") || name.ends_with("ID") || lower.ends_with("_id")
}

fn is_number(label: &Column) -> bool {
    let many = label.has_more_values || label.values.len() > CLASSES_MAX;
    label.is_numeric() && (many || !label.is_whole_numbers)
}

/// The column that is probably learned, and why.
fn guessed_label(profile: &Profile) -> (usize, &'static str) {
    let is_named = |column: &Column| {
        column.name.as_ref().is_some_and(|name| LABELS.contains(&name.to_lowercase().as_str()))
    };
    let named: Vec<usize> =
        (0..profile.columns.len()).filter(|i| is_named(&profile.columns[*i])).collect();
    match named[..] {
        [only] => (only, "it is called so"),
        _ => (profile.columns.len() - 1, "the last column"),
    }
}

fn find(profile: &Profile, file: &str, label: &str) -> Result<usize> {
    let names: BTreeMap<&str, usize> = (profile.columns.iter().enumerate())
        .filter_map(|(i, column)| Some((column.name.as_deref()?, i)))
        .collect();
    if let Some(place) = names.get(label) {
        return Ok(*place);
    }
    let width = profile.columns.len() as i64;
    let place = label.parse::<i64>().ok().map(|n| if n < 0 { width + n } else { n - 1 });
    if let Some(place) =
        place.and_then(|p| usize::try_from(p).ok()).filter(|p| *p < profile.columns.len())
    {
        return Ok(place);
    }
    let known: Vec<&str> =
        profile.columns.iter().filter_map(|column| column.name.as_deref()).collect();
    let hint = match nearest(label, &known) {
        Some(name) => format!("did you mean {}?", remark(name)),
        None => {
            let known: Vec<String> = known.iter().map(|name| remark(name)).collect();
            format!("it has {width} columns: {}", named(&known))
        }
    };
    Err(Failure::user(format!("`{file}` has no column {}", remark(label))).hint(hint))
}

/// Refuses a label that nothing can be learned of.
fn check_label(profile: &Profile, file: &str, label: usize) -> Result<()> {
    let column = &profile.columns[label];
    let texts = column.texts > 0;
    let wrong = if column.filled() == 0 {
        "is empty".to_owned()
    } else if column.classes() == 1 && !column.has_more_values {
        "is the same in every row".to_owned()
    } else if texts && (column.has_more_values || (column.is_all_different() && profile.rows > 20))
    {
        format!("has {} different texts or more: those are no classes", column.values.len())
    } else {
        return Ok(());
    };
    let message = format!("column {} of `{file}` {wrong}", shown(profile, label));
    Err(Failure::user(message).hint("name the column that is learned by `--label`"))
}

/// A column in a message.
fn shown(profile: &Profile, place: usize) -> String {
    match &profile.columns[place].name {
        Some(name) => remark(name),
        None => format!("column {}", place + 1),
    }
}

fn named(columns: &[String]) -> String {
    let (first, more) = columns.split_at(columns.len().min(NAMED_MAX));
    let tail = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{tail}", first.join(", "))
}
