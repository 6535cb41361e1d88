//! What all processes of a job write, on one screen.
//!
//! Every finished line is said with the process before it. On a terminal the lines that are not
//! finished, progress bars, stand below, drawn anew at most ten times a second; elsewhere such a
//! line is said every ten seconds while it changes. Pure: bytes, time and room go in, what to say
//! and draw comes out. Never writes anywhere: a [`Screen`](crate::talk::Screen) does.

use crate::jobs::script::lines::Lines;
use crate::talk::{Room, Style};
use planaria_runs::failure::plain;
use planaria_text::paint::{bare, cut, paint, width};

/// Seconds between redraws.
const REDRAW_SECONDS: f64 = 0.1;
/// Seconds that a line is open before it is drawn: some programs write a line and its end apart.
const OPEN_SECONDS: f64 = 0.05;
/// Seconds between plain lines that show the same bar.
const PLAIN_SECONDS: f64 = 10.0;
/// Rows that are drawn at most.
const ROWS_MAX: usize = 12;
/// Bytes that wait for the next redraw at most.
const WAITING_MAX: usize = 256 << 10;
/// Colours of processes: not red, which errors have, and those that are hard to read last.
const COLOURS: [&str; 11] =
    ["36", "33", "32", "35", "96", "93", "92", "95", "94", "34", "38;5;208"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The process: `worker 0`.
    pub process: String,
    /// Its machine; empty where all are on this one.
    pub machine: String,
}

impl Name {
    /// As it stands before lines.
    pub fn text(&self) -> String {
        let (process, machine) = (plain(&self.process), plain(&self.machine));
        match machine.is_empty() {
            true => format!("[{process}]"),
            false => format!("[{process} · {machine}]"),
        }
    }
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    /// What stays: whole lines.
    pub said: String,
    /// What is drawn below from now on, if that has changed.
    pub drawn: Option<Vec<String>>,
}

/// The screen of a job.
#[derive(Debug)]
pub struct Show {
    style: Style,
    colours: bool,
    processes: Vec<Process>,
    /// Columns of the longest name.
    width: usize,
    /// Lines that wait for the next redraw.
    waiting: String,
    drawn: Vec<String>,
    drawn_at: f64,
}

#[derive(Debug)]
struct Process {
    name: Name,
    lines: Lines,
    /// Since when it has had an open line, as seen by ticks.
    open_since: Option<f64>,
    /// What of its open lines was said last, and when.
    told: Vec<String>,
    told_at: Option<f64>,
}

impl Show {
    /// Of these processes, in colours where they are wanted and it is a terminal.
    pub fn new(style: Style, colours: bool, names: Vec<Name>) -> Self {
        let process = |name| Process {
            name,
            lines: Lines::new(),
            open_since: None,
            told: Vec::new(),
            told_at: None,
        };
        let mut show = Self {
            style,
            colours: colours && style == Style::Live,
            processes: names.into_iter().map(process).collect(),
            width: 0,
            waiting: String::new(),
            drawn: Vec::new(),
            drawn_at: f64::NEG_INFINITY,
        };
        show.measure();
        show
    }

    /// Columns that are left for what a process writes.
    pub fn columns(&self, room: Room) -> usize {
        // The space after the name, and the last column.
        room.columns.saturating_sub(self.width + 2)
    }

    /// A process goes on, or begins again, on a machine of this name.
    pub fn set_machine(&mut self, process: usize, machine: &str) {
        machine.clone_into(&mut self.processes[process].name.machine);
        self.measure();
    }

    /// A process has written these bytes; returns the lines that it has finished, without colours.
    pub fn push(&mut self, process: usize, bytes: &[u8]) -> Vec<String> {
        let finished = self.processes[process].lines.push(bytes);
        self.say(process, &finished)
    }

    /// A process has ended, with what it had not finished.
    pub fn end(&mut self, process: usize) -> Vec<String> {
        let finished = self.processes[process].lines.end();
        self.say(process, &finished)
    }

    /// What is to be written now. To be asked after bytes have come, and ten times a second.
    pub fn tick(&mut self, now_seconds: f64, room: Room) -> Update {
        match self.style {
            Style::Quiet => Update::default(),
            Style::Plain => {
                self.tell_open(now_seconds);
                Update { said: std::mem::take(&mut self.waiting), drawn: None }
            }
            Style::Live => self.redraw(now_seconds, room),
        }
    }

    /// What is left to be written when no process runs any more.
    pub fn close(&mut self) -> Update {
        (0..self.processes.len()).for_each(|process| drop(self.end(process)));
        let drawn = (!self.drawn.is_empty()).then(Vec::new);
        self.drawn.clear();
        Update { said: std::mem::take(&mut self.waiting), drawn }
    }

    fn measure(&mut self) {
        let widths = self.processes.iter().map(|process| width(&process.name.text()));
        self.width = widths.max().unwrap_or(0);
    }

    fn say(&mut self, process: usize, finished: &[String]) -> Vec<String> {
        if finished.is_empty() {
            return Vec::new();
        }
        self.processes[process].told.clear();
        self.processes[process].told_at = None;
        if self.style != Style::Quiet {
            let prefix = self.prefix(process);
            finished.iter().for_each(|line| self.waiting += &said(&prefix, line, self.colours));
        }
        finished.iter().map(|line| bare(line)).collect()
    }

    /// The name of a process, as wide as the longest.
    fn prefix(&self, process: usize) -> String {
        let name = self.processes[process].name.text();
        let space = " ".repeat(self.width - width(&name));
        match self.colours {
            true => paint(COLOURS[process % COLOURS.len()], &name) + &space,
            false => name + &space,
        }
    }

    /// Says those open lines that have changed and were not said for a while.
    fn tell_open(&mut self, now: f64) {
        for at in 0..self.processes.len() {
            let prefix = self.prefix(at);
            let process = &mut self.processes[at];
            if !process.lines.is_open() {
                continue;
            }
            // The first one waits too: most lines are finished soon.
            if now - *process.told_at.get_or_insert(now) < PLAIN_SECONDS {
                continue;
            }
            process.told_at = Some(now);
            let open = process.lines.open();
            if open != process.told {
                open.iter().for_each(|line| self.waiting += &said(&prefix, line, false));
                process.told = open;
            }
        }
    }

    fn redraw(&mut self, now: f64, room: Room) -> Update {
        for process in &mut self.processes {
            let since = process.open_since.unwrap_or(now);
            process.open_since = process.lines.is_open().then_some(since);
        }
        let live = !self.drawn.is_empty() || self.shown(now).next().is_some();
        // Lines wait for the next redraw: they make one necessary.
        if live && now - self.drawn_at < REDRAW_SECONDS && self.waiting.len() < WAITING_MAX {
            return Update::default();
        }
        let lines = self.picture(now, room);
        let changed = lines != self.drawn;
        let update = Update {
            said: std::mem::take(&mut self.waiting),
            drawn: changed.then(|| lines.clone()),
        };
        if live && update != Update::default() {
            self.drawn_at = now;
        }
        self.drawn = lines;
        update
    }

    /// The processes whose open lines are shown, by number.
    fn shown(&self, now: f64) -> impl Iterator<Item = (usize, &Process)> {
        let long = move |since: f64| now - since >= OPEN_SECONDS;
        let all = self.processes.iter().enumerate();
        all.filter(move |(_, process)| process.open_since.is_some_and(long))
    }

    /// The open lines, one of each process first, then as many as there is room for.
    fn picture(&self, now: f64, room: Room) -> Vec<String> {
        let rows_max = (room.rows / 3).clamp(1, ROWS_MAX);
        let open: Vec<(usize, Vec<String>)> =
            self.shown(now).map(|(at, process)| (at, process.lines.open())).collect();
        let shown = if open.len() > rows_max { rows_max - 1 } else { open.len() };
        let mut spare = rows_max - shown;
        let mut lines = Vec::new();
        for (process, rows) in &open[..shown] {
            let kept = rows.len().min(1 + spare);
            spare -= kept - 1;
            let prefix = self.prefix(*process);
            lines.extend(rows[..kept].iter().map(|row| self.row(&prefix, row, room.columns)));
        }
        let more = open.len() - shown;
        if more > 0 {
            lines.push(self.row("", &format!("… and {more} more"), room.columns).trim().to_owned());
        }
        lines
    }

    /// A row that is drawn. The last column stays free: some terminals wrap when it is written.
    fn row(&self, prefix: &str, text: &str, columns: usize) -> String {
        let text = if self.colours { text.to_owned() } else { bare(text) };
        let line = format!("{prefix} {text}");
        match width(&line) < columns {
            true => line,
            false => cut(&line, columns.saturating_sub(2)) + "…",
        }
    }
}

/// The log of a process, as it was written, as lines with its name before each.
pub fn log(name: &Name, bytes: &[u8], colours: bool) -> String {
    let mut lines = Lines::new();
    let mut finished = lines.push(bytes);
    finished.extend(lines.end());
    let prefix = name.text();
    finished.iter().map(|line| said(&prefix, line, colours)).collect()
}

/// A line that stays.
pub fn said(prefix: &str, line: &str, colours: bool) -> String {
    let line = if colours { line } else { &bare(line) };
    match line.is_empty() {
        true => format!("{}\n", prefix.trim_end()),
        false => format!("{prefix} {line}\n"),
    }
}

#[cfg(test)]
mod tests;
