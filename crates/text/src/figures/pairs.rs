//! Figures in a line of words: `loss=0.31`, and Keras' `loss: 0.31 - accuracy: 0.9`.

use super::{NAME_MAX, Told, number};
use serde_json::Number;

/// Words that are at home in a line of figures, wherever they stand.
const AT_HOME: [&str; 40] = [
    "after",
    "average",
    "avg",
    "batch",
    "best",
    "debug",
    "done",
    "end",
    "epoch",
    "eval",
    "evaluation",
    "final",
    "finished",
    "global",
    "h",
    "info",
    "it",
    "iter",
    "iteration",
    "mean",
    "metrics",
    "min",
    "ms",
    "of",
    "rank",
    "result",
    "results",
    "s",
    "samples",
    "sec",
    "seconds",
    "step",
    "steps",
    "test",
    "time",
    "train",
    "training",
    "val",
    "validation",
    "worker",
];
/// Words that only sentences have.
const OF_SENTENCES: [&str; 22] = [
    "an", "and", "are", "at", "by", "default", "for", "from", "got", "in", "is", "on", "set",
    "setting", "that", "the", "to", "use", "using", "was", "when", "with",
];
/// Endings of names that say which process or place it is, not how well it goes.
const NO_FIGURES: [&str; 14] = [
    "count", "exitcode", "id", "index", "line", "pid", "port", "rank", "seed", "size", "threads",
    "tid", "version", "workers",
];
/// Parts of names of settings, which are no figures either.
const OF_SETTINGS: [&str; 9] =
    ["attempts", "backoff", "deadline", "delay", "interval", "limit", "retries", "timeout", "ttl"];
/// What a name with a slash may begin with; others are paths.
const PARTS: [&str; 7] = ["train", "val", "valid", "validation", "eval", "test", "dev"];
/// Words at most that are not at home in a line of figures.
pub(super) const STRANGERS_MAX: usize = 1;

/// The epoch that a line names: `Epoch 3/10`, `epoch: 3`, `[Epoch 3]`.
pub(super) fn epoch(line: &str) -> Option<Number> {
    let mut words = line.split(|c: char| c.is_whitespace() || "[]():,|".contains(c));
    words.find(|word| word.eq_ignore_ascii_case("epoch"))?;
    let word = words.find(|word| !word.is_empty())?;
    let (epoch, of) = word.split_once('/').unwrap_or((word, "1"));
    of.parse::<u64>().ok()?;
    epoch.parse::<u64>().ok().map(Number::from)
}

/// Pairs as Keras writes them, after how far it is and how long that took.
pub(super) fn of_keras(line: &str) -> Option<Told> {
    if !line.contains(": ") {
        return None;
    }
    let (mut told, mut progress) = (Told::new(), false);
    for (at, part) in line.trim().split(" - ").enumerate() {
        match pair_of_keras(part.trim()) {
            Some(pair) => told.push(pair),
            None if at == 0 && is_progress(part) => progress = true,
            None if is_time(part.trim()) => {}
            None => return None,
        }
    }
    (told.len() >= if progress { 1 } else { 2 }).then_some(told)
}

/// Words like `loss=0.31`; nothing where they stand in a sentence, a command or a call.
pub(super) fn of_words(line: &str) -> Option<Told> {
    if !line.contains('=') || is_about_code(line) {
        return None;
    }
    let mut told = Told::new();
    let (mut strangers, mut calls) = (0, Vec::new());
    for word in Words(line) {
        match word {
            Word::Open(call) => calls.push(call),
            Word::Close => drop(calls.pop()),
            Word::Text(_) if calls.contains(&true) => {}
            // What comes before a colon names what follows.
            Word::Text(text) if text.ends_with(':') && told.is_empty() => strangers = 0,
            Word::Text(text) if text.starts_with("--") => return None,
            Word::Text(text) => match pair_of_word(text) {
                Some(pair) => told.push(pair),
                None => strangers += strangeness(text),
            },
        }
    }
    (!told.is_empty() && strangers <= STRANGERS_MAX).then_some(told)
}

/// `loss: 0.31`.
fn pair_of_keras(part: &str) -> Option<(String, Option<Number>)> {
    let (name, value) = part.split_once(": ")?;
    is_name(name).then(|| Some((name.to_owned(), number(value.trim())?)))?
}

/// `loss=0.31`, where it is a figure.
fn pair_of_word(word: &str) -> Option<(String, Option<Number>)> {
    let (name, value) = word.split_once('=')?;
    let told = number(value)?;
    let shouted = !name.contains(|c: char| c.is_ascii_lowercase());
    let known = ["epoch", "step"].iter().any(|known| name.eq_ignore_ascii_case(known));
    // What is in capitals is a variable of the environment, unless it looks like a measure (`MAE`).
    let variable = shouted && (name.contains('_') || !value.contains('.'));
    let figure = is_name(name) && !is_setting(name) && (known || !variable);
    figure.then(|| (name.to_owned(), told))
}

/// Whether a name is one of what a script was told, not of what it found.
pub(super) fn is_setting(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut parts = lower.split(['_', '/', '.', '-']);
    parts.clone().next_back().is_some_and(|last| NO_FIGURES.contains(&last))
        || parts.any(|part| OF_SETTINGS.contains(&part))
}

pub(super) fn is_name(name: &str) -> bool {
    let part = name.split_once('/').is_none_or(|(first, _)| PARTS.contains(&first));
    name.len() <= NAME_MAX
        && part
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_./@".contains(c))
}

/// `32/32`, and a bar.
fn is_progress(part: &str) -> bool {
    let first = part.split_whitespace().next().unwrap_or_default();
    first.split_once('/').is_some_and(|(done, all)| {
        done.parse::<u64>().is_ok() && (all == "Unknown" || all.parse::<u64>().is_ok())
    })
}

/// `2s`, `1s 2ms/step`, `ETA: 1:02`.
fn is_time(part: &str) -> bool {
    let part = part.strip_prefix("ETA: ").unwrap_or(part);
    let time = |word: &str| {
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || ".:".contains(c));
        let units = ["", "s", "ms", "us", "ns"];
        let (unit, per) = unit.split_once('/').unwrap_or((unit, "step"));
        word.starts_with(|c: char| c.is_ascii_digit())
            && units.contains(&unit)
            && ["step", "epoch", "sample"].contains(&per)
    };
    !part.is_empty() && part.split_whitespace().all(time)
}

/// A warning or an error, which quote code and settings.
pub(super) fn is_about_code(line: &str) -> bool {
    let ends = ["Warning:", "Error:", "Exception:", "warning:", "error:"];
    line.split_whitespace().any(|word| ends.iter().any(|end| word.ends_with(end)))
        || line.trim_start().starts_with(['$', '+', '>', '#', '@'])
}

/// How much a word speaks for a sentence.
pub(super) fn strangeness(text: &str) -> usize {
    let word = text.trim_end_matches(['.', '!', ':', ';']);
    let lower = word.to_ascii_lowercase();
    match lower.as_str() {
        lower if OF_SENTENCES.contains(&lower) => STRANGERS_MAX + 1,
        lower if AT_HOME.contains(&lower) || lower.len() < 2 => 0,
        lower => usize::from(lower.chars().all(|c| c.is_alphabetic() || c == '\'')),
    }
}

/// A line in words; brackets, commas and bars are between them.
struct Words<'a>(&'a str);

enum Word<'a> {
    Text(&'a str),
    /// A bracket, and whether it is that of a call, as in `Namespace(`.
    Open(bool),
    Close,
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let between = |c: char| c.is_whitespace() || ",;|".contains(c);
        self.0 = self.0.trim_start_matches(between);
        let first = self.0.chars().next()?;
        let brackets = |c: char| "()[]{}<>".contains(c);
        if brackets(first) {
            self.0 = &self.0[1..];
            return Some(if "([{<".contains(first) { Word::Open(false) } else { Word::Close });
        }
        let end = self.0.find(|c| between(c) || brackets(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        let called = word.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '=');
        if let Some(rest) =
            rest.strip_prefix(['(', '{', '[']).filter(|_| called && pair_of_word(word).is_none())
        {
            self.0 = rest;
            return Some(Word::Open(true));
        }
        Some(Word::Text(word))
    }
}
