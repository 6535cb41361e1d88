//! The last lines of the terminal, which are drawn anew again and again.
//!
//! Owns what of stderr is drawn and not said: whoever says something, on whatever thread, has the
//! drawing moved below it. Never writes to stdout, and never fails: a closed stderr does not stop
//! a run.

use crate::clock;
use crate::paint::{cut, width};
use crate::picture::painted;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terminal_size::{Height, Width};

/// Columns assumed where the terminal does not tell.
const COLUMNS_DEFAULT: usize = 80;
/// Rows assumed where the terminal does not tell.
const ROWS_DEFAULT: usize = 24;

/// What is drawn at the moment.
static DRAWN: Mutex<Drawing> = Mutex::new(Drawing::new());

/// Whether each line that is said begins with the time: stderr is a log.
static STAMPED: AtomicBool = AtomicBool::new(false);

/// From here on stderr is a log, and each line begins with the time.
pub fn stamp() {
    STAMPED.store(true, Ordering::Relaxed);
}

/// Lines on the screen, with their colours; the cursor stands behind the last.
#[derive(Debug)]
pub(crate) struct Drawing {
    lines: Vec<String>,
    /// Columns that the terminal had.
    columns: usize,
}

/// Room on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Characters of a line.
    pub columns: usize,
    pub rows: usize,
}

impl Room {
    /// For text that is not drawn on a terminal.
    pub const ENDLESS: Self = Self { columns: usize::MAX, rows: usize::MAX };

    /// The room that stderr's terminal has.
    pub fn of_stderr() -> Self {
        Self::of(terminal_size::terminal_size_of(std::io::stderr()))
    }

    /// The room that stdout's terminal has.
    pub fn of_stdout() -> Self {
        Self::of(terminal_size::terminal_size_of(std::io::stdout()))
    }

    fn of(size: Option<(Width, Height)>) -> Self {
        let (columns, rows) = size.map_or((0, 0), |(w, h)| (usize::from(w.0), usize::from(h.0)));
        // A terminal that does not know its size says that it is 0 by 0.
        let or = |n: usize, default| if n == 0 { default } else { n };
        Self { columns: or(columns, COLUMNS_DEFAULT), rows: or(rows, ROWS_DEFAULT) }
    }
}

/// Says something that stays, above the drawing.
pub fn say(text: &str) {
    if STAMPED.load(Ordering::Relaxed) {
        let time = clock::iso8601_millis(clock::unix_seconds());
        let lines = text.lines().map(|line| format!("{time} {line}\n"));
        return write(&lines.collect::<String>());
    }
    write(&lock().said(text, Room::of_stderr().columns));
}

/// Draws these lines of a picture in place of those that were drawn before.
pub fn draw(lines: Vec<String>, room: Room) {
    let paint = |line: &String| if colours() { painted(line) } else { line.clone() };
    let lines = lines.iter().map(|line| cut(line, room.columns.saturating_sub(1)));
    let lines = lines.map(|line| paint(&line)).collect();
    write(&lock().drawn(lines, room.columns));
}

/// Says something that stays, then draws these lines, which have their colours already; nothing
/// leaves the drawing as it is.
pub fn update(text: &str, lines: Option<Vec<String>>, room: Room) {
    if STAMPED.load(Ordering::Relaxed) {
        return say(text);
    }
    write(&lock().updated(text, lines, room.columns));
}

/// Takes the drawing away.
pub fn clear() {
    write(&lock().updated("", Some(Vec::new()), Room::of_stderr().columns));
}

fn lock() -> MutexGuard<'static, Drawing> {
    // Whoever panicked with the drawing has at worst drawn it wrong.
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(text: &str) {
    if !text.is_empty() {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

/// Whether colours are wanted (see no-color.org).
pub fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Drawing {
    /// Nothing drawn.
    pub(crate) const fn new() -> Self {
        Self { lines: Vec::new(), columns: 0 }
    }

    /// What says something above the drawing.
    pub(crate) fn said(&mut self, text: &str, columns: usize) -> String {
        let erased = self.erase(columns);
        format!("{erased}{text}{}", self.text(columns))
    }

    /// What draws these lines in place of those there are.
    pub(crate) fn drawn(&mut self, lines: Vec<String>, columns: usize) -> String {
        // Only what is left of old lines is erased, so that nothing flickers. A terminal that has
        // changed its width remembers where its lines ran over, until they are erased as a whole.
        let top = match self.columns == columns {
            true => self.top(columns),
            false => self.erase(columns),
        };
        self.lines = lines;
        format!("{top}{}\x1b[J", self.text(columns))
    }

    /// What says something, and draws these lines below it.
    pub(crate) fn updated(
        &mut self,
        text: &str,
        lines: Option<Vec<String>>,
        columns: usize,
    ) -> String {
        match lines {
            None if text.is_empty() => String::new(),
            None => self.said(text, columns),
            Some(lines) if text.is_empty() && !lines.is_empty() => self.drawn(lines, columns),
            Some(lines) => {
                let erased = self.erase(columns);
                self.lines = lines;
                format!("{erased}{text}{}", self.text(columns))
            }
        }
    }

    /// The lines as they are written to a terminal of so many columns.
    fn text(&mut self, columns: usize) -> String {
        self.columns = columns;
        for line in &mut self.lines {
            if width(line) >= columns {
                *line = cut(line, columns.saturating_sub(1));
            }
        }
        self.lines.iter().map(|line| format!("{line}\x1b[K")).collect::<Vec<_>>().join("\n")
    }

    /// What takes it away.
    fn erase(&self, columns: usize) -> String {
        if self.lines.is_empty() { String::new() } else { self.top(columns) + "\x1b[J" }
    }

    /// What leads to its first character. In a terminal that was made narrower its lines have run
    /// over several rows.
    fn top(&self, columns: usize) -> String {
        let rows = |line: &String| width(line).div_ceil(columns.max(1)).max(1);
        match self.lines.iter().map(rows).sum() {
            0usize => String::new(),
            1 => "\r".into(),
            rows => format!("\r\x1b[{}A", rows - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_is_erased_with_all_its_rows() {
        for (drawn, columns, expect) in [
            (&[][..], 80, ""),
            (&[70], 80, "\r\x1b[J"),
            (&[70], 30, "\r\x1b[2A\x1b[J"),
            (&[70, 20, 10], 80, "\r\x1b[2A\x1b[J"),
            (&[70, 20, 0], 30, "\r\x1b[4A\x1b[J"),
            (&[0], 0, "\r\x1b[J"),
        ] {
            let lines = drawn.iter().map(|n| "é".repeat(*n)).collect();
            assert_eq!(Drawing { lines, columns: 80 }.erase(columns), expect, "{drawn:?}");
        }
    }

    #[test]
    fn what_no_longer_fits_is_cut() {
        let lines = vec!["\x1b[1mééééé\x1b[0m".into(), "ab".into()];
        let mut drawing = Drawing { lines, columns: 80 };
        assert_eq!(drawing.text(4), "\x1b[1mééé\x1b[0m\x1b[K\nab\x1b[K");
        assert_eq!(drawing.top(4), "\r\x1b[1A");
    }
}
