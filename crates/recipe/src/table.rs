//! Vocabulary of `data.table`: how the columns of a table become features.
//!
//! Owns the words and their defaults. Never reads a table; `crates/data` does.

use serde::{Deserialize, Serialize};

crate::json::json!(Table);

/// The `data.table` section. What is learned from values (categories, bins, means) is learned on the training part only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Table {
    /// Column that is learned: its name, or its number (1 is the first, -1 the last). LIBSVM files have it in front.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Column>,
    /// What labels are: classes, or numbers to predict.
    pub target: LabelKind,
    /// Whether numbers to predict become (number − mean) / std of the training rows while they are
    /// learned; predictions and errors are told in the label's units all the same.
    pub standardize_target: bool,
    /// The label that counts as positive, all others as negative; without it each label is a class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub positive: Option<Word>,
    /// Whether names of columns stand above the rows.
    pub header: bool,
    /// Lines to leave out before the header, or before the rows where there is none.
    #[cfg_attr(test, schemars(range(min = 0, max = 1_000_000)))]
    pub skip_rows: usize,
    /// What stands between fields: one character, such as `;` or `"\t"`.
    pub delimiter: String,
    /// What becomes of missing values; in `one_hot` columns they are no category, so all zeros.
    pub missing: Missing,
    /// Texts that mean a missing value, in any case.
    pub missing_texts: Vec<String>,
    /// Columns that are not used.
    pub drop: Vec<Column>,
    /// Columns whose values are names: one feature of 0 or 1 for each that the training part has.
    pub one_hot: Vec<Column>,
    /// Numeric columns that are cut into bins of about as many training rows each.
    pub bins: Vec<Bins>,
    /// Which of the remaining numeric columns become (value − mean) / std: all, none or a list.
    pub standardize: Standardize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            label: None,
            target: LabelKind::default(),
            standardize_target: true,
            positive: None,
            header: true,
            skip_rows: 0,
            delimiter: ",".into(),
            missing: Missing::default(),
            missing_texts: ["", "NA", "N/A", "NaN", "null", "?"].map(String::from).to_vec(),
            drop: Vec::new(),
            one_hot: Vec::new(),
            bins: Vec::new(),
            standardize: Standardize::default(),
        }
    }
}

/// A column that the section names, and where.
#[derive(Debug)]
pub struct Named<'t> {
    /// Its place in the recipe, such as `data.table.drop.0`.
    pub key: String,
    /// The key that says what it is for, such as `drop`.
    pub purpose: &'static str,
    pub column: &'t Column,
    /// Of a column in `bins`.
    pub bins: Option<&'t Bins>,
}

impl Table {
    /// Every column that is named, the label first.
    pub fn named(&self) -> Vec<Named<'_>> {
        let label = self.label.iter().map(|column| Named {
            key: "data.table.label".into(),
            purpose: "label",
            column,
            bins: None,
        });
        let standardize: &[Column] = match &self.standardize {
            Standardize::Columns(columns) => columns,
            Standardize::All(_) => &[],
        };
        let drop = listed("data.table.drop".into(), "drop", &self.drop, None);
        let one_hot = listed("data.table.one_hot".into(), "one_hot", &self.one_hot, None);
        let bins = self.bins.iter().enumerate().flat_map(|(i, bins)| {
            listed(format!("data.table.bins.{i}.columns"), "bins", &bins.columns, Some(bins))
        });
        let standard = listed("data.table.standardize".into(), "standardize", standardize, None);
        label.chain(drop).chain(one_hot).chain(bins).chain(standard).collect()
    }
}

fn listed<'t>(
    key: String,
    purpose: &'static str,
    columns: &'t [Column],
    bins: Option<&'t Bins>,
) -> impl Iterator<Item = Named<'t>> {
    let named = move |(i, column)| Named { key: format!("{key}.{i}"), purpose, column, bins };
    columns.iter().enumerate().map(named)
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Column {
    /// Its number: 1 is the first, -1 the last.
    Number(#[cfg_attr(test, schemars(range(min = -1_000_000, max = 1_000_000)))] i64),
    /// Its name in the header.
    Name(String),
}

impl std::fmt::Display for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => write!(f, "`{name}`"),
        }
    }
}

/// A value as it stands in a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Word {
    /// Compared as a number: 1 is also `+1` and `1.0`.
    Number(f64),
    /// Compared as text.
    Text(String),
}

/// What labels are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LabelKind {
    /// Names of classes, also where they look like numbers.
    #[default]
    Class,
    /// Numbers to predict.
    Number,
}

/// What becomes of missing values.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// The first stops the run and is named.
    #[default]
    Error,
    /// The mean of the column's training values.
    Mean,
    /// The median of the column's training values.
    Median,
    /// This number.
    Value(f64),
}

/// Columns that are cut into bins alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Bins {
    /// The columns.
    pub columns: Vec<Column>,
    /// Bins of each; fewer where the training part has fewer values.
    #[serde(default = "ten")]
    #[cfg_attr(test, schemars(range(min = 2, max = 10_000)))]
    pub count: usize,
    /// What a bin becomes.
    #[serde(default)]
    pub encode: BinEncoding,
}

/// What a bin becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BinEncoding {
    /// One feature of 0 or 1 for each bin.
    #[default]
    OneHot,
    /// One feature: the bin's number, from 0.
    Ordinal,
}

/// Which numeric columns are standardised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Standardize {
    /// All that remain, or none.
    All(bool),
    /// These; the others stay as they are.
    Columns(Vec<Column>),
}

impl Default for Standardize {
    fn default() -> Self {
        Self::All(true)
    }
}

fn ten() -> usize {
    10
}
