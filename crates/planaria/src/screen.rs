//! The last lines of the terminal, which are drawn anew again and again.
//!
//! Owns what of stderr is drawn and not said: all that is said, on any thread, has the
//! drawing moved below it. Never writes to stdout, and never fails: a closed stderr does not stop
//! a run.

use crate::picture;
use planaria_control::drawing::Drawing;
use planaria_control::talk::{Room, Screen, Style, Talk};
use planaria_protocol::event::Pulse;
use planaria_runs::clock;
use planaria_runs::failure::Failure;
use planaria_runs::frame::Frame;
use planaria_text::paint::{cut, labelled};
use std::io::{IsTerminal, Write};
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

/// The terminal that stderr is, or the log.
#[derive(Debug)]
pub struct Terminal;

impl Screen for Terminal {
    fn room(&self) -> Room {
        room_of_stderr()
    }

    fn colours(&self) -> bool {
        colours()
    }

    fn say(&self, text: &str) {
        say(text);
    }

    fn update(&self, text: &str, lines: Option<Vec<String>>, room: Room) {
        update(text, lines, room);
    }

    fn draw(&self, frame: &Frame, pulse: &Pulse) {
        let room = room_of_stderr();
        let lines = if colours() { picture::coloured } else { picture::lines };
        draw(lines(frame, pulse, room), room);
    }

    fn headline(&self, frame: &Frame, pulse: &Pulse) {
        say(&format!("{}\n", picture::headline(frame, pulse, usize::MAX)));
    }
}

/// How a command talks on this stderr.
pub fn talk(quiet: bool) -> Talk {
    let style = match quiet {
        true => Style::Quiet,
        false if is_dumb() || !std::io::stderr().is_terminal() => Style::Plain,
        false => Style::Live,
    };
    Talk { style, screen: &Terminal }
}

/// Lines now and then, also on a terminal.
pub const PLAIN: Talk = Talk { style: Style::Plain, screen: &Terminal };

/// The room that stderr's terminal has.
pub fn room_of_stderr() -> Room {
    room(terminal_size::terminal_size_of(std::io::stderr()))
}

/// The room that stdout's terminal has.
pub fn room_of_stdout() -> Room {
    room(terminal_size::terminal_size_of(std::io::stdout()))
}

fn room(size: Option<(Width, Height)>) -> Room {
    let (columns, rows) = size.map_or((0, 0), |(w, h)| (usize::from(w.0), usize::from(h.0)));
    // A terminal that does not know its size says that it is 0 by 0.
    let or = |n: usize, default| if n == 0 { default } else { n };
    Room { columns: or(columns, COLUMNS_DEFAULT), rows: or(rows, ROWS_DEFAULT) }
}

/// Says something that stays, above the drawing.
pub fn say(text: &str) {
    if STAMPED.load(Ordering::Relaxed) {
        let time = clock::iso8601_millis(clock::unix_seconds());
        let lines = text.lines().map(|line| format!("{time} {line}\n"));
        return write(&lines.collect::<String>());
    }
    let text = if colours() { labelled(text) } else { text.to_owned() };
    write(&lock().said(&text, room_of_stderr().columns));
}

/// Draws these lines of a picture in place of those that were drawn before.
pub fn draw(lines: Vec<String>, room: Room) {
    let lines = lines.iter().map(|line| cut(line, room.columns.saturating_sub(1)));
    write(&lock().drawn(lines.collect(), room.columns));
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
    write(&lock().updated("", Some(Vec::new()), room_of_stderr().columns));
}

fn lock() -> MutexGuard<'static, Drawing> {
    // A thread that panicked with the drawing has at worst drawn it wrong.
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(text: &str) {
    if !text.is_empty() {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

/// What a command ends with, for stderr: its labels have colours where that is a terminal.
pub fn failed(failure: &Failure) -> String {
    let text = format!("{failure}\n");
    if colours() { labelled(&text) } else { text }
}

/// Whether colours are wanted on stderr, and can be shown (see no-color.org).
pub fn colours() -> bool {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    wanted && !is_dumb() && std::io::stderr().is_terminal()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}
