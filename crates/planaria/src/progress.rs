//! What is said on stderr while a run trains.
//!
//! On a terminal one line is redrawn, at most ten times a second; elsewhere plain lines appear
//! now and then. Figures and time come from the caller. Never writes to stdout, and never fails:
//! a closed stderr does not stop a run.

use crate::failure::plain;
use crate::traces::number::{clock, grouped, loss};
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Seconds between redraws of a live line.
const REDRAW_SECONDS: f64 = 0.1;
/// Seconds between plain lines.
const PLAIN_SECONDS: f64 = 10.0;
/// How long something may take before it is said what is waited for.
const MOMENT: Duration = Duration::from_millis(400);
/// Columns assumed where the terminal does not tell.
const COLUMNS_DEFAULT: usize = 80;

/// How a run talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One line, redrawn.
    Live,
    /// A line now and then.
    Plain,
    /// Nothing.
    Quiet,
}

impl Style {
    /// The style for this stderr.
    pub fn of_stderr(quiet: bool) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        match quiet {
            true => Self::Quiet,
            false if set("NO_COLOR") || dumb || !std::io::stderr().is_terminal() => Self::Plain,
            false => Self::Live,
        }
    }
}

/// Figures of the moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// Epoch under way, from 1.
    pub epoch: u64,
    /// Epochs in all.
    pub epochs: u64,
    /// Steps done.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// Mean loss of the epoch so far.
    pub loss: Option<f64>,
    /// Accuracy of the epoch so far.
    pub accuracy: Option<f64>,
    /// Training speed.
    pub examples_per_second: Option<f64>,
    /// Time to the end of the run.
    pub seconds_left: Option<f64>,
}

/// The talk of one run.
#[derive(Debug)]
pub struct Progress {
    style: Style,
    drawn_at: Option<f64>,
    /// Characters of the live line on the screen.
    shown: usize,
}

impl Progress {
    /// Nothing said yet.
    pub fn new(style: Style) -> Self {
        Self { style, drawn_at: None, shown: 0 }
    }

    /// Shows where the run is; `now` is in seconds of any clock that does not go back.
    pub fn show(&mut self, now: f64, view: &View) {
        let wait = match self.style {
            Style::Live => REDRAW_SECONDS,
            Style::Plain => PLAIN_SECONDS,
            Style::Quiet => return,
        };
        // The first plain line waits too: short epochs need no line but their own.
        let since =
            *self.drawn_at.get_or_insert(if self.style == Style::Live { now - wait } else { now });
        if now - since < wait {
            return;
        }
        self.drawn_at = Some(now);
        if self.style == Style::Live {
            let columns = columns();
            let line = fit(view, columns);
            say(&format!("{}{line}", erase(self.shown, columns)));
            self.shown = line.chars().count();
        } else {
            say(&format!("{}\n", fit(view, usize::MAX)));
        }
    }

    /// Says something that stays.
    pub fn note(&mut self, text: &str) {
        if self.style != Style::Quiet {
            self.clear();
            say(&format!("{}\n", plain(text)));
        }
    }

    /// Takes the live line away.
    pub fn clear(&mut self) {
        match std::mem::take(&mut self.shown) {
            0 => {}
            shown => say(&erase(shown, columns())),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// What takes a live line away. In a terminal that was made narrower it has run over several rows.
fn erase(shown: usize, columns: usize) -> String {
    match shown.saturating_sub(1) / columns.max(1) {
        0 => "\r\x1b[2K".into(),
        above => format!("\r\x1b[{above}A\x1b[J"),
    }
}

/// Does `work`, and says `text` if it takes longer than a moment.
pub fn patiently<T>(style: Style, text: &str, work: impl FnOnce() -> T) -> T {
    if style == Style::Quiet {
        return work();
    }
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if waiting.recv_timeout(MOMENT) == Err(RecvTimeoutError::Timeout) {
                say(&format!("{}\n", plain(text)));
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Writes to stderr, whatever becomes of it.
pub(crate) fn say(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

fn columns() -> usize {
    terminal_size::terminal_size_of(std::io::stderr())
        .map_or(COLUMNS_DEFAULT, |(width, _)| usize::from(width.0))
}

/// The view as one line of at most `columns` characters: what matters least goes first.
fn fit(view: &View, columns: usize) -> String {
    let mut parts: Vec<(u8, String)> = vec![
        (3, format!("epoch {}/{}", view.epoch, view.epochs)),
        (1, format!("step {}/{}", view.step, view.steps)),
    ];
    let mut add = |rank, text: Option<String>| parts.extend(text.map(|text| (rank, text)));
    add(5, view.loss.map(|v| format!("loss {}", loss(v))));
    add(4, view.accuracy.map(|accuracy| format!("acc {:.1}%", 100.0 * accuracy)));
    add(0, view.examples_per_second.map(|s| format!("{} ex/s", grouped(s.round() as u64))));
    add(2, view.seconds_left.map(|s| format!("{} left", clock(s))));
    loop {
        let line = parts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" · ");
        // The last column stays free: some terminals wrap when it is written.
        if line.chars().count() < columns || parts.is_empty() {
            return line;
        }
        let least = parts.iter().map(|(rank, _)| *rank).min();
        parts.retain(|(rank, _)| Some(*rank) != least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_erased_with_all_its_rows() {
        assert_eq!(erase(70, 80), "\r\x1b[2K");
        assert_eq!(erase(70, 30), "\r\x1b[2A\x1b[J");
        assert_eq!(erase(0, 0), "\r\x1b[2K");
    }

    #[test]
    fn a_line_fits_its_terminal() {
        let view = View {
            epoch: 3,
            epochs: 10,
            step: 412,
            steps: 1200,
            loss: Some(0.12341),
            accuracy: Some(0.971),
            examples_per_second: Some(12345.2),
            seconds_left: Some(42.0),
        };
        let full = "epoch 3/10 · step 412/1200 · loss 0.1234 · acc 97.1% · 12,345 ex/s · 0:42 left";
        for (columns, expect) in [
            (200, full),
            (78, "epoch 3/10 · step 412/1200 · loss 0.1234 · acc 97.1% · 0:42 left"),
            (50, "epoch 3/10 · loss 0.1234 · acc 97.1% · 0:42 left"),
            (12, "loss 0.1234"),
            (3, ""),
        ] {
            assert_eq!(fit(&view, columns), expect);
        }
    }
}
