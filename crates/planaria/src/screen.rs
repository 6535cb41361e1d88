//! The last lines of the terminal, which are drawn anew again and again.
//!
//! Owns what of stderr is drawn and not said: whoever says something, on whatever thread, has the
//! drawing taken away first. Never writes to stdout, and never fails: a closed stderr does not stop
//! a run.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Columns assumed where the terminal does not tell.
const COLUMNS_DEFAULT: usize = 80;
/// Rows assumed where the terminal does not tell.
const ROWS_DEFAULT: usize = 24;

/// Characters of each line of the drawing on the screen; the cursor stands behind the last.
static DRAWN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

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
        let size = terminal_size::terminal_size_of(std::io::stderr());
        let (columns, rows) = size.map_or((0, 0), |(w, h)| (usize::from(w.0), usize::from(h.0)));
        // A terminal that does not know its size says that it is 0 by 0.
        let or = |n: usize, default| if n == 0 { default } else { n };
        Self { columns: or(columns, COLUMNS_DEFAULT), rows: or(rows, ROWS_DEFAULT) }
    }
}

/// Says something that stays, in place of the drawing.
pub fn say(text: &str) {
    let mut drawn = lock();
    let erased = erase(&std::mem::take(&mut *drawn), Room::of_stderr().columns);
    write(&format!("{erased}{text}"));
}

/// Draws these lines in place of those that were drawn before.
pub fn draw(lines: &[String], room: Room) {
    let mut drawn = lock();
    let mut text = top(&drawn, room.columns);
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            text.push('\n');
        }
        // Only what is left of the old line is erased, so that nothing flickers.
        text += line;
        text += "\x1b[K";
    }
    write(&(text + "\x1b[J"));
    *drawn = lines.iter().map(|line| line.chars().count()).collect();
}

/// Takes the drawing away.
pub fn clear() {
    say("");
}

fn lock() -> std::sync::MutexGuard<'static, Vec<usize>> {
    // Line lengths are never half written.
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(text: &str) {
    if !text.is_empty() {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

/// What takes a drawing away.
fn erase(drawn: &[usize], columns: usize) -> String {
    match drawn {
        [] => String::new(),
        drawn => top(drawn, columns) + "\x1b[J",
    }
}

/// What leads to a drawing's first character. In a terminal that was made narrower its lines have
/// run over several rows.
fn top(drawn: &[usize], columns: usize) -> String {
    let rows: usize = drawn.iter().map(|n| n.div_ceil(columns.max(1)).max(1)).sum();
    match rows {
        0 => String::new(),
        1 => "\r".into(),
        rows => format!("\r\x1b[{}A", rows - 1),
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
            assert_eq!(erase(drawn, columns), expect, "{drawn:?} at {columns}");
        }
    }
}
