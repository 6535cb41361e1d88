//! What is said on stderr while a run trains.
//!
//! On a terminal the run's [`picture`] is drawn anew, at most ten times a second; elsewhere plain
//! lines appear now and then. Figures and time come from the caller. Never writes to stdout, and
//! never fails: a closed stderr does not stop a run.

use crate::failure::plain;
use crate::picture::{self, Frame};
use crate::screen::{self, Room};
use planaria_protocol::event::Pulse;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

pub(crate) use crate::screen::say;

/// Seconds between redraws of a live picture.
const REDRAW_SECONDS: f64 = 0.1;
/// Seconds between plain lines.
const PLAIN_SECONDS: f64 = 10.0;
/// How long something may take before it is said what is waited for.
const MOMENT: Duration = Duration::from_millis(400);

/// How a run talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A picture, redrawn.
    Live,
    /// A line now and then.
    Plain,
    Quiet,
}

impl Style {
    /// The style for this stderr.
    pub fn of_stderr(quiet: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        match quiet {
            true => Self::Quiet,
            false if dumb || !std::io::stderr().is_terminal() => Self::Plain,
            false => Self::Live,
        }
    }
}

/// The talk of one run.
#[derive(Debug)]
pub struct Progress {
    style: Style,
    drawn_at: Option<f64>,
}

impl Progress {
    /// Nothing said yet.
    pub fn new(style: Style) -> Self {
        Self { style, drawn_at: None }
    }

    /// Characters that a line may have without running over.
    pub fn columns(&self) -> usize {
        if self.style == Style::Live { Room::of_stderr().columns } else { usize::MAX }
    }

    /// Shows where the run is, by its own seconds.
    pub fn show(&mut self, frame: &Frame, pulse: &Pulse) {
        let now = pulse.seconds;
        let wait = match self.style {
            Style::Live => REDRAW_SECONDS,
            Style::Plain => PLAIN_SECONDS,
            Style::Quiet => return,
        };
        // The first plain line waits too: short epochs need no line but their own.
        let since =
            *self.drawn_at.get_or_insert(if self.style == Style::Live { now - wait } else { now });
        // Pulses come as often as pictures are drawn, give or take a little.
        if now - since < 0.9 * wait {
            return;
        }
        self.drawn_at = Some(now);
        if self.style == Style::Live {
            let room = Room::of_stderr();
            screen::draw(picture::lines(frame, pulse, room), room);
        } else {
            say(&format!("{}\n", picture::headline(frame, pulse, usize::MAX)));
        }
    }

    /// Says something that stays.
    pub fn note(&mut self, text: &str) {
        if self.style != Style::Quiet {
            say(&format!("{}\n", plain(text)));
        }
    }

    /// Says something that a picture shows anyway.
    pub fn note_if_plain(&mut self, text: &str) {
        if self.style == Style::Plain {
            self.note(text);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.style == Style::Live {
            screen::clear();
        }
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
