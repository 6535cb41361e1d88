//! Figures in what a script writes, and the last of them.
//!
//! A line that tells figures becomes one line of `metrics.jsonl`:
//! ```json
//! {"unix_seconds":1.7e9,"process":"worker-0","epoch":3,"step":120,"loss":0.31,"learning_rate":0.001}
//! ```
//! `process` is the name of its log. `step` and `epoch` are there where the script tells them; an
//! `Epoch 3/10` counts for the lines after it too. All else is the script's own figures by their
//! own names, but those that runs of ours have get the names they have there: `lr` is
//! `learning_rate`, `acc` is `accuracy`, `val_…` is `validation_…`. A figure that is not finite is
//! `null`; `91%` is 0.91. In objects within objects names are joined by dots.
//!
//! Four ways of telling are understood: an object (JSON, or as Python prints a dict), words like
//! `loss=0.31`, Keras' `loss: 0.31 - accuracy: 0.9`, and measures by their names (`Loss: 2.3`,
//! `Acc@1 71.2 (70.9)`). All else is ordinary text; where it is not clear, a line is ordinary text. The
//! user's own expressions ([`Metrics`]) come first. Owns what a figure is; never reads or writes a file.

mod measures;
mod metrics;
mod object;
mod pairs;

pub use metrics::Metrics;

use crate::number::short;
use crate::paint::width;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use std::collections::BTreeMap;

/// Figures of one line at most; those after them are left out.
const FIGURES_MAX: usize = 64;
/// Characters of a name at most.
const NAME_MAX: usize = 64;
/// Names that [`Latest`] keeps at most.
const LATEST_MAX: usize = 64;
/// Names in the order in which they are told; others follow by the alphabet.
const FIRST: [&str; 7] = [
    "epoch",
    "step",
    "loss",
    "accuracy",
    "validation_loss",
    "validation_accuracy",
    "learning_rate",
];

/// A line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since 1970.
    pub unix_seconds: f64,
    /// The process, by the name of its log.
    pub process: String,
    /// The epoch, where the script has told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Number>,
    /// The step, where the script has told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Number>,
    /// At least one figure; nothing for one that is not finite.
    #[serde(flatten)]
    pub figures: BTreeMap<String, Option<Number>>,
}

impl Point {
    /// As it is in the file.
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string(self).expect("a point has string keys only");
        text.push('\n');
        text
    }
}

/// Looks through the lines of one process.
#[derive(Debug)]
pub struct Figures {
    process: String,
    metrics: Metrics,
    epoch: Option<Number>,
    /// Whether the lines are Python telling where it failed.
    traceback: bool,
}

impl Figures {
    /// For the process whose log has this name.
    pub fn new(process: &str) -> Self {
        Self::with(process, Metrics::default())
    }

    /// The same, with what the user says figures look like.
    pub fn with(process: &str, metrics: Metrics) -> Self {
        Self { process: process.to_owned(), metrics, epoch: None, traceback: false }
    }

    /// The figures of a finished line without colours, if it tells any.
    pub fn read(&mut self, line: &str, unix_seconds: f64) -> Option<Point> {
        let own = self.metrics.read(line);
        if self.is_traceback(line) && own.is_empty() {
            return None;
        }
        if let Some(epoch) = pairs::epoch(line) {
            self.epoch = Some(epoch);
        }
        let found = object::figures(line)
            .or_else(|| pairs::of_keras(line))
            .or_else(|| pairs::of_words(line))
            .or_else(|| measures::of(line));
        // What the user names counts before what is found under the same name.
        let told: Told = own.into_iter().chain(found.unwrap_or_default()).collect();
        self.point(told, unix_seconds)
    }

    fn point(&mut self, told: Told, unix_seconds: f64) -> Option<Point> {
        let (mut epoch, mut step) = (None, None);
        let mut figures = BTreeMap::new();
        for (name, value) in told {
            match our_name(&name).as_str() {
                "epoch" => epoch = epoch.or(value),
                "step" => step = step.or(value),
                // Ours to say.
                "unix_seconds" | "process" => {}
                _ if name.len() > NAME_MAX || figures.len() == FIGURES_MAX => {}
                name => {
                    figures.entry(name.to_owned()).or_insert(value);
                }
            }
        }
        if epoch.is_some() {
            self.epoch = epoch;
        }
        let (process, epoch) = (self.process.clone(), self.epoch.clone());
        let point = Point { unix_seconds, process, epoch, step, figures };
        (!point.figures.is_empty()).then_some(point)
    }

    /// Whether a line belongs to Python's account of an exception: its own text is indented, and
    /// the exception follows.
    fn is_traceback(&mut self, line: &str) -> bool {
        let line = without_rank(line);
        if line.trim_start().starts_with("Traceback (most recent call last)") {
            self.traceback = true;
            return true;
        }
        let within = self.traceback;
        self.traceback = within && line.starts_with(' ');
        within
    }
}

/// The last value of each figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Latest(BTreeMap<String, Option<Number>>);

impl Latest {
    /// Takes the figures of a line.
    pub fn note(&mut self, point: &Point) {
        let own = [("epoch", &point.epoch), ("step", &point.step)];
        let own = own.into_iter().filter(|(_, value)| value.is_some());
        let all = point.figures.iter().map(|(name, value)| (name.as_str(), value));
        for (name, value) in own.chain(all) {
            if self.0.len() < LATEST_MAX || self.0.contains_key(name) {
                self.0.insert(name.to_owned(), value.clone());
            }
        }
    }

    /// Each figure with its last value; nothing for one that is not finite.
    pub fn figures(&self) -> &BTreeMap<String, Option<Number>> {
        &self.0
    }

    /// `epoch 3 · loss 0.31 · accuracy 0.9`, as many as fit into so many columns; empty where
    /// nothing has been told.
    pub fn line(&self, columns: usize) -> String {
        let rank = |name: &str| FIRST.iter().position(|first| *first == name);
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(name, _)| rank(name).unwrap_or(FIRST.len()));
        let mut line = String::new();
        for (name, value) in all {
            let value = match value.as_ref().and_then(Number::as_f64) {
                Some(value) => short(value),
                None => "not finite".into(),
            };
            let dot = if line.is_empty() { "" } else { " · " };
            let longer = format!("{line}{dot}{name} {value}");
            if width(&longer) > columns {
                break;
            }
            line = longer;
        }
        line
    }
}

/// Names and values in the order of the line; nothing for what is not finite.
type Told = Vec<(String, Option<Number>)>;

/// The name that a figure has in metrics of ours.
fn our_name(name: &str) -> String {
    match name.to_ascii_lowercase().as_str() {
        "epoch" => "epoch".into(),
        "step" | "global_step" => "step".into(),
        "loss" => "loss".into(),
        "accuracy" | "acc" => "accuracy".into(),
        "lr" | "learning_rate" => "learning_rate".into(),
        "val_acc" => "validation_accuracy".into(),
        _ => match name.strip_prefix("val_").or_else(|| name.strip_prefix("val/")) {
            Some(rest) => format!("validation_{rest}"),
            None => name.to_owned(),
        },
    }
}

/// A number as scripts write them; `Some(None)` for one that is not finite, nothing for other text.
fn number(text: &str) -> Option<Option<Number>> {
    let (digits, percent) = match text.strip_suffix('%') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let unsigned = digits.trim_start_matches(['+', '-']);
    if digits.len() - unsigned.len() > 1 {
        return None;
    }
    if ["nan", "inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word)) {
        return Some(None);
    }
    // Rust reads more than numbers ("infinity"); what has a digit first is one.
    if !unsigned.trim_start_matches('.').starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let (false, Ok(whole)) = (percent, digits.parse::<i64>()) {
        return Some(Some(whole.into()));
    }
    let value: f64 = digits.parse().ok()?;
    Some(Number::from_f64(if percent { value / 100.0 } else { value }))
}

/// Without `[rank0]: `, which PyTorch puts before what a rank says when it fails.
pub fn without_rank(line: &str) -> &str {
    let rest = line.strip_prefix("[rank").map(|rest| rest.trim_start_matches(char::is_numeric));
    rest.and_then(|rest| rest.strip_prefix("]: ")).unwrap_or(line)
}

#[cfg(test)]
mod tests;
