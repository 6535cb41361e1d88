//! Measures by their names, as scripts write them for people: `Loss: 2.3`, `loss = 0.5, step = 100`,
//! `epoch: 6, train_loss: 0.11`, `Test set: Average loss: 0.05, Accuracy: 9830/10000 (98%)`, and meters
//! like `Loss 6.9e+00 (7.0e+00)`. What stands in brackets is an average or how far it is.

use super::pairs::{STRANGERS_MAX, is_about_code, is_name, is_setting, strangeness};
use super::{Told, number};
use serde_json::Number;

/// What the last part of a measure's name is, without a number behind it (`Acc@1`, `top5`).
const MEASURES: [&str; 28] = [
    "acc",
    "accuracy",
    "auc",
    "auroc",
    "bleu",
    "ce",
    "dice",
    "elbo",
    "err",
    "f1",
    "iou",
    "kl",
    "loss",
    "losses",
    "mae",
    "map",
    "mape",
    "miou",
    "mse",
    "nll",
    "perplexity",
    "ppl",
    "precision",
    "prec",
    "recall",
    "rmse",
    "rouge",
    "top",
];
/// Names that count beside a measure, and alone tell nothing.
const BESIDE: [&str; 5] = ["epoch", "step", "global_step", "lr", "learning_rate"];

/// The figures of a line that names a measure.
pub(super) fn of(line: &str) -> Option<Told> {
    if !may_name(line) || is_about_code(line) {
        return None;
    }
    let line = without_brackets(line);
    let words = line.split(|c: char| c.is_whitespace() || ",;|".contains(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let (mut told, mut strangers, mut at) = (Told::new(), 0, 0);
    while let Some(word) = words.get(at) {
        at += 1;
        if let Some((name, value, read)) = pair(word, &words[at..]) {
            told.push((name, value));
            at += read;
        } else if word.ends_with(':') && told.is_empty() {
            // What comes before a colon names what follows.
            strangers = 0;
        } else {
            strangers += strangeness(word);
        }
    }
    let is_telling = told.iter().any(|(name, _)| is_measure(name));
    (is_telling && strangers <= STRANGERS_MAX).then_some(told)
}

/// A name and its value that begin with this word, and how many of the words after it they take.
fn pair(word: &str, after: &[&str]) -> Option<(String, Option<Number>, usize)> {
    let next = |n: usize| after.get(n).copied().unwrap_or_default();
    let is_sign = |text: &str| text == "=" || text == ":";
    let (name, value, read, is_told) = match word.split_once('=') {
        _ if is_sign(next(0)) => (word, next(1), 2, true),
        // Loggers put names before it: `INFO:tensorflow:loss`.
        Some((name, "")) => (name, next(0), 1, true),
        Some((name, value)) => (name, value, 0, true),
        None => match word.rsplit_once(':') {
            Some((name, "")) => (name, next(0), 1, true),
            // `train.py:33` is a place in a file.
            Some((name, value)) => (name, value, 0, false),
            None => (word, next(0), 1, false),
        },
    };
    let name = name.rsplit(':').next().unwrap_or(name);
    let is_known = is_measure(name) || BESIDE.contains(&name.to_ascii_lowercase().as_str());
    let is_meant = is_name(name) && !is_setting(name) && (is_told || is_known);
    let value = value_of(value).filter(|_| is_meant)?;
    Some((name.to_owned(), value, read))
}

/// A number, or one of so many: `9830/10000`.
fn value_of(text: &str) -> Option<Option<Number>> {
    let text = text.trim_end_matches(['.', '!']);
    match text.split_once('/') {
        None => number(text),
        Some((part, whole)) => {
            let (part, whole) = (part.parse::<u64>().ok()?, whole.parse::<u64>().ok()?);
            (whole > 0).then(|| Number::from_f64(part as f64 / whole as f64))
        }
    }
}

pub(super) fn is_measure(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let last = lower.rsplit(['_', '/', '.', '-']).next().unwrap_or_default();
    let last = last.split('@').next().unwrap_or(last);
    MEASURES.contains(&last)
        || MEASURES.contains(&last.trim_end_matches(|c: char| c.is_ascii_digit()))
}

/// Whether a measure's name may be in a line. Most lines have none, and a script may write millions: this
/// looks at each byte once and allocates nothing.
fn may_name(line: &str) -> bool {
    let is_one = |word: &[u8]| {
        MEASURES.iter().any(|measure| {
            let (measure, length) = (measure.as_bytes(), measure.len());
            word.len() >= length
                && word[0].eq_ignore_ascii_case(&measure[0])
                && word[..length].eq_ignore_ascii_case(measure)
                && word[length..].iter().all(u8::is_ascii_digit)
        })
    };
    line.as_bytes().split(|byte| !byte.is_ascii_alphanumeric()).any(is_one)
}

/// Without what stands in round and square brackets; one that is never closed stays.
fn without_brackets(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(open) = rest.find(['(', '[']) {
        let close = if rest[open..].starts_with('(') { ')' } else { ']' };
        let Some(end) = rest[open..].find(close) else { break };
        text.push_str(&rest[..open]);
        text.push(' ');
        rest = &rest[open + end + 1..];
    }
    text.push_str(rest);
    text
}
