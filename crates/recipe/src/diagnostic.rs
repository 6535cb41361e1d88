//! Mistakes with their places, and how they are shown.
//!
//! Owns spans, the texts they point into and the rendered form. Never decides what a mistake is.

use std::fmt;

/// Printed mistakes; the rest is only counted.
const PRINTED_MAX: usize = 50;
/// Rendered mistakes; a hostile file could hold as many as it has values.
const RENDERED_MAX: usize = 200;
/// Characters of a source line that are shown around the offending text.
const SNIPPET_CHARS: usize = 120;

/// A place in the recipe file or in one `--set` argument. Lines and columns count from 1, in
/// characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span {
    /// 0 for the file, n for the n-th `--set`.
    pub text: usize,
    /// Line, from 1; 0 when the text as a whole is meant.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// Characters on that line, at least 1 when shown.
    pub length: usize,
}

/// A mistake before it is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub span: Span,
    pub message: String,
    pub hint: Option<String>,
    /// The known key it is about, where there is one.
    pub concerns: Option<String>,
}

impl Mistake {
    pub fn new(span: Span, message: impl Into<String>, hint: impl Into<Option<String>>) -> Self {
        Self { span, message: message.into(), hint: hint.into(), concerns: None }
    }
}

/// A mistake found by a caller, at a key of the recipe such as `data.train` or
/// `model.layers.2.Conv2D.kernel_size` (list positions count from 0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Dotted path of the key.
    pub key: String,
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Finding {
    /// A mistake at `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into(), hint: None }
    }
    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// One mistake, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Diagnostic {
    /// The recipe file, or the `--set` argument.
    pub file: String,
    /// Line, from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    pub message: String,
    /// The source line with carets under the offending text; empty when there is none to show.
    pub snippet: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        match (self.line, self.file.starts_with("--set ")) {
            (0, _) => writeln!(f, "  --> {}", self.file)?,
            (_, true) => writeln!(f, "  --> {}, column {}", self.file, self.column)?,
            (line, false) => writeln!(f, "  --> {}:{line}:{}", self.file, self.column)?,
        }
        f.write_str(&self.snippet)?;
        match &self.hint {
            Some(hint) => writeln!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Every mistake found in one recipe, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Diagnostics {
    /// The recipe file.
    pub file: String,
    /// At least one; the first 200 when there are more.
    pub list: Vec<Diagnostic>,
    /// How many there are.
    pub count: usize,
    /// How many of them are in `--set` arguments, and not in the file.
    pub in_sets: usize,
}

impl Diagnostics {
    /// Adds another's mistakes.
    pub fn extend(&mut self, other: Diagnostics) {
        self.list.extend(other.list);
        self.count += other.count;
        self.in_sets += other.in_sets;
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in self.list.iter().take(PRINTED_MAX) {
            writeln!(f, "{diagnostic}")?;
        }
        if self.count > PRINTED_MAX {
            writeln!(f, "… and {} more\n", self.count - PRINTED_MAX)?;
        }
        let mistakes = |n| if n == 1 { "1 mistake".to_owned() } else { format!("{n} mistakes") };
        let in_file = self.count.saturating_sub(self.in_sets);
        match (in_file, self.in_sets) {
            (n, 0) => write!(f, "{} in {}", mistakes(n), self.file),
            (0, n) => write!(f, "{} in `--set`", mistakes(n)),
            (n, m) => write!(f, "{} in {}, {} in `--set`", mistakes(n), self.file, mistakes(m)),
        }
    }
}

impl std::error::Error for Diagnostics {}

/// The texts that spans point into.
#[derive(Debug, Clone, Default)]
pub(crate) struct Texts {
    file: String,
    lines: Vec<String>,
    sets: Vec<String>,
}

impl Texts {
    pub fn new(file: &str, text: &str, sets: &[String]) -> Self {
        Self { file: plain(file), lines: lines_of(text), sets: sets.to_vec() }
    }

    /// Renders mistakes in the order of the texts, each once.
    pub fn render(&self, mut mistakes: Vec<Mistake>) -> Diagnostics {
        mistakes.sort_by_key(|m| m.span);
        mistakes.dedup();
        let count = mistakes.len();
        let in_sets = mistakes.iter().filter(|mistake| mistake.span.text > 0).count();
        let list = mistakes.into_iter().take(RENDERED_MAX).map(|m| self.render_one(m)).collect();
        Diagnostics { file: self.file.clone(), list, count, in_sets }
    }

    fn render_one(&self, mistake: Mistake) -> Diagnostic {
        let Span { text, line, column, length } = mistake.span;
        let set = text.checked_sub(1).map(|n| self.sets.get(n).map_or("", String::as_str));
        let set_lines = set.map(lines_of);
        let lines = set_lines.as_ref().unwrap_or(&self.lines);
        let source = line.checked_sub(1).and_then(|n| lines.get(n)).filter(|s| !s.is_empty());
        let snippet = source.map_or(String::new(), |s| snippet(s, line, column, length));
        let file = set.map_or(self.file.clone(), |s| format!("--set {}", plain(s)));
        Diagnostic { file, line, column, message: mistake.message, snippet, hint: mistake.hint }
    }
}

/// Text as it may be shown: no control characters, so that a file cannot steer the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(shown).collect()
}

/// Text in a message: shown characters only, cut when long.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(40).map(shown).collect();
    if text.chars().nth(40).is_some() {
        short.push('…');
    }
    format!("`{short}`")
}

fn shown(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '·',
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '·',
        '\u{feff}' => '·',
        c => c,
    }
}

/// Lines as YAML breaks them.
pub(crate) fn lines_of(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n");
    text.split(['\n', '\r']).map(str::to_owned).collect()
}

/// The line with a caret under each offending character.
fn snippet(source: &str, line: usize, column: usize, length: usize) -> String {
    let start = column.saturating_sub(1);
    let long = source.chars().nth(SNIPPET_CHARS).is_some();
    let first = if long { start.saturating_sub(SNIPPET_CHARS / 2) } else { 0 };
    let rest: Vec<char> = source.chars().skip(first).map(shown).collect();
    let window: String = rest.iter().take(SNIPPET_CHARS).collect();
    let more = rest.len() > SNIPPET_CHARS;
    let (left, right) = (if first > 0 { "…" } else { "" }, if more { "…" } else { "" });
    let indent = (start - first + left.chars().count()).min(SNIPPET_CHARS + 1);
    let room = rest.len().min(SNIPPET_CHARS).saturating_sub(start - first).max(1);
    let carets = "^".repeat(length.clamp(1, room));
    let number = line.to_string();
    let gutter = " ".repeat(number.len().max(2));
    let shown_line = format!("{left}{}{right}", window.trim_end());
    format!(
        " {gutter}|\n{number:>width$} | {shown_line}\n {gutter}| {}{carets}\n",
        " ".repeat(indent),
        width = gutter.len()
    )
}
