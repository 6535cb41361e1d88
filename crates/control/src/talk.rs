//! What a job says while it runs, and on which screen.
//!
//! On a terminal a run's picture is drawn anew, at most ten times a second; elsewhere plain lines
//! appear now and then. Owns when something is shown; the [`Screen`] that it is given knows how.
//! Figures and time come from the caller. Never writes anywhere itself.

use planaria_protocol::event::Pulse;
use planaria_runs::failure::plain;
use planaria_runs::frame::Frame;
use std::fmt::Debug;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Seconds between redraws of a live picture.
const REDRAW_SECONDS: f64 = 0.1;
/// Seconds between plain lines.
const PLAIN_SECONDS: f64 = 10.0;
/// How long something may take before it is said what is waited for.
const MOMENT: Duration = Duration::from_millis(400);

/// How a job talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A picture, redrawn.
    Live,
    /// A line now and then.
    Plain,
    Quiet,
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
}

/// Where a job's words and pictures go. Never fails: a closed terminal does not stop a job.
pub trait Screen: Debug + Sync {
    fn room(&self) -> Room;
    /// Whether colours are wanted.
    fn colours(&self) -> bool;
    /// Says something that stays, above what is drawn.
    fn say(&self, text: &str);
    /// Says something that stays, then draws these lines; nothing leaves the drawing as it is.
    fn update(&self, text: &str, lines: Option<Vec<String>>, room: Room);
    /// Draws a run's picture in place of what was drawn before.
    fn draw(&self, frame: &Frame, pulse: &Pulse);
    /// The same in one line, which stays.
    fn headline(&self, frame: &Frame, pulse: &Pulse);
}

/// Where nothing is shown.
#[derive(Debug)]
struct Nowhere;

impl Screen for Nowhere {
    fn room(&self) -> Room {
        Room::ENDLESS
    }
    fn colours(&self) -> bool {
        false
    }
    fn say(&self, _: &str) {}
    fn update(&self, _: &str, _: Option<Vec<String>>, _: Room) {}
    fn draw(&self, _: &Frame, _: &Pulse) {}
    fn headline(&self, _: &Frame, _: &Pulse) {}
}

/// How a job talks, and where to.
#[derive(Debug, Clone, Copy)]
pub struct Talk {
    pub style: Style,
    pub screen: &'static dyn Screen,
}

impl Talk {
    /// Nothing is said.
    pub const QUIET: Self = Self { style: Style::Quiet, screen: &Nowhere };

    pub fn is_quiet(self) -> bool {
        self.style == Style::Quiet
    }
}

/// The talk of one run.
#[derive(Debug)]
pub struct Progress {
    talk: Talk,
    drawn_at: Option<f64>,
}

impl Progress {
    /// Nothing said yet.
    pub fn new(talk: Talk) -> Self {
        Self { talk, drawn_at: None }
    }

    /// Characters that a line may have without running over.
    pub fn columns(&self) -> usize {
        if self.talk.style == Style::Live { self.talk.screen.room().columns } else { usize::MAX }
    }

    /// Shows where the run is, by its own seconds.
    pub fn show(&mut self, frame: &Frame, pulse: &Pulse) {
        let (now, style) = (pulse.seconds, self.talk.style);
        let wait = match style {
            Style::Live => REDRAW_SECONDS,
            Style::Plain => PLAIN_SECONDS,
            Style::Quiet => return,
        };
        // The first plain line waits too: short epochs need no line but their own.
        let since =
            *self.drawn_at.get_or_insert(if style == Style::Live { now - wait } else { now });
        // Pulses come as often as pictures are drawn, give or take a little.
        if now - since < 0.9 * wait {
            return;
        }
        self.drawn_at = Some(now);
        match style {
            Style::Live => self.talk.screen.draw(frame, pulse),
            _ => self.talk.screen.headline(frame, pulse),
        }
    }

    /// Says something that stays.
    pub fn note(&mut self, text: &str) {
        if !self.talk.is_quiet() {
            self.talk.screen.say(&format!("{}\n", plain(text)));
        }
    }

    /// Says something that a picture shows anyway.
    pub fn note_if_plain(&mut self, text: &str) {
        if self.talk.style == Style::Plain {
            self.note(text);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.talk.style == Style::Live {
            self.talk.screen.update("", Some(Vec::new()), self.talk.screen.room());
        }
    }
}

/// Does `work`, and says `text` if it takes longer than a moment.
pub fn patiently<T>(talk: Talk, text: &str, work: impl FnOnce() -> T) -> T {
    if talk.is_quiet() {
        return work();
    }
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if waiting.recv_timeout(MOMENT) == Err(RecvTimeoutError::Timeout) {
                talk.screen.say(&format!("{}\n", plain(text)));
            }
        });
        let result = work();
        drop(done);
        result
    })
}
