//! What a process writes, as lines: bytes go in as they come, text that is safe to show comes out.
//!
//! Owns the few rows that a program may still change: it goes back to the beginning of a row
//! (`\r`, backspaces) and up to rows above (`ESC [ A`) to draw a progress bar anew. A row that is
//! left for good is a finished line. In lines there are no controls but colours, which end with
//! the line. Memory is bounded for any input. Never looks at what a line says.

mod style;

use style::Style;

/// Characters of a line at most; a longer one is cut into several.
pub const LINE_MAX: usize = 64 << 10;
/// Rows that a program may go back to at most.
const ROWS_MAX: usize = 16;
/// Characters of an escape at most; what is longer is text.
const ESCAPE_MAX: usize = 4096;
/// Columns between tabulators.
const TAB: usize = 8;

/// The output of one process.
#[derive(Debug)]
pub struct Lines {
    /// The first bytes of a character whose last ones have not come.
    half: Vec<u8>,
    escape: Escape,
    style: Style,
    /// Never empty; more than one once the program has gone up.
    rows: Vec<Row>,
    /// The row and the column of the next character.
    row: usize,
    column: usize,
    /// Rows begun since the program last went up.
    begun: usize,
    finished: Vec<String>,
}

/// A row, by its characters.
#[derive(Debug, Default)]
struct Row(Vec<(char, Style)>);

/// Where in an escape we are.
#[derive(Debug, PartialEq, Eq)]
enum Escape {
    Outside,
    /// After ESC, with what may stand between it and the last character.
    Begun,
    /// `ESC [`, and its parameters so far.
    Control(String),
    /// `ESC ]` and the like: a string for the terminal, so many characters of it, and whether the
    /// last was ESC.
    Text(usize, bool),
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl Lines {
    /// Nothing written.
    pub fn new() -> Self {
        Self {
            half: Vec::new(),
            escape: Escape::Outside,
            style: Style::default(),
            rows: vec![Row::default()],
            row: 0,
            column: 0,
            begun: 0,
            finished: Vec::new(),
        }
    }

    /// Takes what was written; returns the lines that it has finished.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let joined;
        let mut rest = match self.half.is_empty() {
            true => bytes,
            false => {
                joined = [std::mem::take(&mut self.half).as_slice(), bytes].concat();
                joined.as_slice()
            }
        };
        while !rest.is_empty() {
            let error = match str::from_utf8(rest) {
                Ok(text) => {
                    self.text(text);
                    break;
                }
                Err(error) => error,
            };
            let (valid, after) = rest.split_at(error.valid_up_to());
            self.text(str::from_utf8(valid).unwrap_or_default());
            match error.error_len() {
                Some(length) => {
                    self.take(char::REPLACEMENT_CHARACTER);
                    rest = &after[length..];
                }
                None => {
                    self.half = after.to_vec();
                    break;
                }
            }
        }
        std::mem::take(&mut self.finished)
    }

    /// What is not finished: the rows that the program may still change, without empty ones.
    pub fn open(&self) -> Vec<String> {
        self.rows.iter().map(Row::text).filter(|text| !text.is_empty()).collect()
    }

    /// Whether there is anything not finished.
    pub fn is_open(&self) -> bool {
        !self.rows.iter().all(Row::is_blank)
    }

    /// The process has ended: what it had not finished is finished.
    pub fn end(&mut self) -> Vec<String> {
        if !std::mem::take(&mut self.half).is_empty() {
            self.take(char::REPLACEMENT_CHARACTER);
        }
        let mut lines = std::mem::take(&mut self.finished);
        lines.extend(self.open());
        *self = Self::new();
        lines
    }

    fn text(&mut self, mut text: &str) {
        while let Some(end) = text.find('\n') {
            let (line, rest) = text.split_at(end + 1);
            match self.as_it_is(line) {
                Some(line) => self.finished.push(line.to_owned()),
                None => line.chars().for_each(|c| self.take(c)),
            }
            text = rest;
        }
        text.chars().for_each(|c| self.take(c));
    }

    /// A whole line that is as it will be shown, which most are; a shorter way to the same.
    fn as_it_is<'a>(&self, line: &'a str) -> Option<&'a str> {
        let fresh = self.escape == Escape::Outside
            && self.style == Style::default()
            && self.rows.len() == 1
            && self.rows[0].0.is_empty()
            && self.column == 0;
        let line = line.trim_end_matches(['\r', '\n']);
        let short = line.len() <= LINE_MAX;
        (fresh && short && !line.chars().any(is_harmful)).then(|| line.trim_end_matches(' '))
    }

    fn take(&mut self, c: char) {
        match std::mem::replace(&mut self.escape, Escape::Outside) {
            Escape::Outside => self.plain(c),
            Escape::Begun => self.escape = self.after_escape(c),
            Escape::Control(parameters) => self.in_control(parameters, c),
            Escape::Text(length, escaped) => self.in_text(length, escaped, c),
        }
    }

    fn plain(&mut self, c: char) {
        match c {
            '\n' => self.line_feed(),
            '\r' => self.column = 0,
            '\x08' => self.column = self.column.saturating_sub(1),
            '\t' => self.go_to(self.column / TAB * TAB + TAB),
            '\x1b' => self.escape = Escape::Begun,
            c if is_harmful(c) => {}
            c => self.put(c),
        }
    }

    fn after_escape(&mut self, c: char) -> Escape {
        match c {
            '[' => return Escape::Control(String::new()),
            ']' | 'P' | 'X' | '^' | '_' => return Escape::Text(0, false),
            // Others have characters in between, such as `ESC ( B`.
            ' '..='/' | '\x1b' => return Escape::Begun,
            'M' => self.up(1),
            'D' | 'E' => self.line_feed(),
            c if c.is_control() => self.plain(c),
            _ => {}
        }
        Escape::Outside
    }

    fn in_control(&mut self, mut parameters: String, c: char) {
        match c {
            '\x1b' => self.escape = Escape::Begun,
            // Terminals act on these in the middle of an escape; a line's end is worth more to us
            // than an escape that was never ended.
            '\n' => self.line_feed(),
            ' '..='?' if parameters.len() < ESCAPE_MAX => {
                parameters.push(c);
                self.escape = Escape::Control(parameters);
            }
            '@'..='~' => self.control(&parameters, c),
            _ => self.escape = Escape::Control(parameters),
        }
    }

    fn in_text(&mut self, length: usize, escaped: bool, c: char) {
        match c {
            '\x07' => {}
            '\\' if escaped => {}
            '\n' => self.line_feed(),
            _ if length >= ESCAPE_MAX => self.plain(c),
            c => self.escape = Escape::Text(length + 1, c == '\x1b'),
        }
    }

    /// An escape whose effect is on rows and colours; all others have none.
    fn control(&mut self, parameters: &str, last: char) {
        if parameters.starts_with(['<', '=', '>', '?']) || parameters.contains([' ', '!', '$']) {
            return;
        }
        let first = parameters.split([';', ':']).next().and_then(|n| n.parse::<usize>().ok());
        let count = first.unwrap_or(1).max(1);
        match last {
            'm' => self.style.apply(parameters),
            'A' => self.up(count),
            'F' => {
                self.up(count);
                self.column = 0;
            }
            'B' => self.row = (self.row + count.min(ROWS_MAX)).min(self.rows.len() - 1),
            'E' => (0..count.min(ROWS_MAX)).for_each(|_| self.line_feed()),
            'C' => self.go_to(self.column.saturating_add(count)),
            'D' => self.column = self.column.saturating_sub(count),
            'G' | '`' => self.go_to(count - 1),
            'K' => self.erase(first.unwrap_or(0)),
            'J' if first.unwrap_or(0) == 0 => {
                self.erase(0);
                self.rows.truncate(self.row + 1);
            }
            // A screen of its own; what was on it is kept as lines.
            'J' | 'H' | 'f' => self.settle(),
            _ => {}
        }
    }

    fn put(&mut self, c: char) {
        if self.column >= LINE_MAX {
            self.line_feed();
        }
        let (column, style) = (self.column, self.style);
        let row = &mut self.rows[self.row].0;
        if row.len() < column {
            row.resize(column, (' ', Style::default()));
        }
        match row.get_mut(column) {
            Some(cell) => *cell = (c, style),
            None => row.push((c, style)),
        }
        self.column += 1;
    }

    fn go_to(&mut self, column: usize) {
        self.column = column.min(LINE_MAX);
    }

    fn erase(&mut self, what: usize) {
        let (column, row) = (self.column, &mut self.rows[self.row].0);
        match what {
            0 => row.truncate(column),
            1 => row.iter_mut().take(column + 1).for_each(|cell| *cell = (' ', Style::default())),
            _ => row.clear(),
        }
    }

    /// On to the next row. The first row is finished when there are as many as were gone up.
    fn line_feed(&mut self) {
        self.column = 0;
        if self.row + 1 < self.rows.len() {
            self.row += 1;
            return;
        }
        self.begun += 1;
        if self.rows.len() == 1 {
            let line = std::mem::take(&mut self.rows[0]).text();
            self.finished.push(line);
        } else if self.begun >= self.rows.len() {
            // All bars have scrolled away: the program writes plain lines again.
            self.settle();
        } else {
            let top = self.rows.remove(0).text();
            self.finished.extend((!top.is_empty()).then_some(top));
            self.rows.push(Row::default());
        }
    }

    /// Up to a row that may have been finished already: then one as it is now begins there.
    fn up(&mut self, count: usize) {
        self.begun = 0;
        let count = count.min(ROWS_MAX);
        for _ in self.row..count {
            if self.rows.len() == ROWS_MAX {
                break;
            }
            self.rows.insert(0, Row::default());
            self.row += 1;
        }
        self.row = self.row.saturating_sub(count);
    }

    /// Finishes all rows.
    fn settle(&mut self) {
        let open = self.open();
        self.finished.extend(open);
        self.rows = vec![Row::default()];
        (self.row, self.column, self.begun) = (0, 0, 0);
    }
}

impl Row {
    fn is_blank(&self) -> bool {
        self.0.iter().all(|(c, _)| *c == ' ')
    }

    /// Without spaces at the end, and with colours that end with it.
    fn text(&self) -> String {
        let length = self.0.iter().rposition(|(c, _)| *c != ' ').map_or(0, |at| at + 1);
        let mut text = String::with_capacity(length);
        let mut style = Style::default();
        for (c, own) in &self.0[..length] {
            if *own != style {
                text.push_str(&own.escape());
                style = *own;
            }
            text.push(*c);
        }
        if style != Style::default() {
            text.push_str(planaria_text::paint::RESET);
        }
        text
    }
}

/// Controls, and what changes the direction of text or ends lines in some terminals.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}'..='\u{200f}')
}

#[cfg(test)]
mod tests;
