//! Lines that are drawn anew again and again at the end of a terminal, as the bytes that do it.
//!
//! Owns what is on the screen. Pure: what is to be said or drawn goes in, what is to be written comes
//! out.

use planaria_text::paint::{cut, width};

/// Lines on the screen, with their colours; the cursor stands behind the last.
#[derive(Debug, Default)]
pub struct Drawing {
    lines: Vec<String>,
    /// Columns that the terminal had.
    columns: usize,
}

impl Drawing {
    /// Nothing drawn.
    pub const fn new() -> Self {
        Self { lines: Vec::new(), columns: 0 }
    }

    /// What says something above the drawing.
    pub fn said(&mut self, text: &str, columns: usize) -> String {
        let erased = self.erase(columns);
        format!("{erased}{text}{}", self.text(columns))
    }

    /// What draws these lines in place of those there are.
    pub fn drawn(&mut self, lines: Vec<String>, columns: usize) -> String {
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
    pub fn updated(&mut self, text: &str, lines: Option<Vec<String>>, columns: usize) -> String {
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
