//! The last lines of the terminal, which are drawn anew again and again.
//!
//! Owns what of stderr is drawn and not said: whoever says something, on whatever thread, has the
//! drawing moved below it. Never writes to stdout, and never fails: a closed stderr does not stop
//! a run.

use crate::clock;
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
static DRAWN: Mutex<Drawing> = Mutex::new(Drawing { lines: Vec::new(), columns: 0 });

/// Whether each line that is said begins with the time: stderr is a log.
static STAMPED: AtomicBool = AtomicBool::new(false);

/// From here on stderr is a log, and each line begins with the time.
pub fn stamp() {
    STAMPED.store(true, Ordering::Relaxed);
}

/// Lines on the screen; the cursor stands behind the last.
#[derive(Debug)]
struct Drawing {
    lines: Vec<String>,
    /// Columns that the terminal had.
    columns: usize,
}

/// Room on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Characters of a line.
    pub columns: usize,
    /// Lines.
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
    let mut drawn = lock();
    let columns = Room::of_stderr().columns;
    let erased = drawn.erase(columns);
    write(&format!("{erased}{text}{}", drawn.text(columns)));
}

/// Draws these lines in place of those that were drawn before.
pub fn draw(lines: Vec<String>, room: Room) {
    let mut drawn = lock();
    // Only what is left of old lines is erased, so that nothing flickers. A terminal that has
    // changed its width remembers where its lines ran over, until they are erased as a whole.
    let top = match drawn.columns == room.columns {
        true => drawn.top(room.columns),
        false => drawn.erase(room.columns),
    };
    drawn.lines = lines;
    write(&format!("{top}{}\x1b[J", drawn.text(room.columns)));
}

/// Takes the drawing away.
pub fn clear() {
    let mut drawn = lock();
    write(&drawn.erase(Room::of_stderr().columns));
    drawn.lines.clear();
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
fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Drawing {
    /// The lines as they are written to a terminal of so many columns.
    fn text(&mut self, columns: usize) -> String {
        self.columns = columns;
        let fit = |line: &mut String| {
            if let Some((end, _)) = line.char_indices().nth(columns.saturating_sub(1)) {
                line.truncate(end);
            }
        };
        self.lines.iter_mut().for_each(fit);
        let plain = !colours();
        let line = |line: &String| match plain {
            true => format!("{line}\x1b[K"),
            false => format!("{}\x1b[K", painted(line)),
        };
        self.lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// What takes it away.
    fn erase(&self, columns: usize) -> String {
        if self.lines.is_empty() { String::new() } else { self.top(columns) + "\x1b[J" }
    }

    /// What leads to its first character. In a terminal that was made narrower its lines have run
    /// over several rows.
    fn top(&self, columns: usize) -> String {
        let rows = |line: &String| line.chars().count().div_ceil(columns.max(1)).max(1);
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
        let mut drawing = Drawing { lines: vec!["ééééé".into(), "ab".into()], columns: 80 };
        assert_eq!(drawing.text(4), "\x1b[1mééé\x1b[0m\x1b[K\n\x1b[1mab\x1b[0m\x1b[K");
        assert_eq!(drawing.top(4), "\r\x1b[1A");
    }
}
