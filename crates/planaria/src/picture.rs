//! A run at a moment, as lines of text: a pure function of a pulse and the room there is.
//!
//! Owns what is shown, in which order, and what goes first where room is scarce. Never writes
//! anywhere; colours are put over text that says it all without them.

use planaria_control::talk::Room;
use planaria_protocol::event::{Activity, Doing, Pulse, ServerPulse, WorkerPulse};
use planaria_runs::failure::plain;
use planaria_runs::frame::Frame;
use planaria_text::number::{bytes, clock, counted, grouped, loss};
use planaria_text::paint::{DOT, bare, cut, fit, paint, width};
use std::collections::BTreeMap;

/// Characters of the bar that shows how busy a worker is.
const BAR: usize = 8;
/// Characters of a state at least, so that rows hold still while states change.
const STATE: usize = 10;
/// What is before a process.
const INDENT: &str = "  ";
/// Colours of a terminal.
const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";

/// The run in at most as many lines as there are rows, each shorter than a row.
pub fn lines(frame: &Frame, pulse: &Pulse, room: Room) -> Vec<String> {
    coloured(frame, pulse, room).iter().map(|line| bare(line)).collect()
}

/// The same with colours; without them it says the same.
pub fn coloured(frame: &Frame, pulse: &Pulse, room: Room) -> Vec<String> {
    let headline = headline(frame, pulse, room.columns);
    let (first, rest) = headline.split_at(headline.find(DOT).unwrap_or(headline.len()));
    let mut lines = vec![paint(BOLD, first) + rest];
    // A row stays free, so that a terminal that is just being resized does not scroll.
    let (workers, servers) = cut_rows(pulse, room.rows.saturating_sub(2));
    let mut rows: Vec<Row> = pulse.workers[..workers].iter().map(worker).collect();
    let more = &pulse.workers[workers..];
    rows.extend(sum_up(more.iter().map(|w| w.state.text()), workers, "worker"));
    rows.extend(pulse.servers[..servers].iter().map(server));
    let more = &pulse.servers[servers..];
    rows.extend(sum_up(more.iter().map(|s| s.state.text()), servers, "server"));
    rows.truncate(room.rows.saturating_sub(2));
    lines.extend(table(&rows, room.columns));
    lines
}

/// The first line: what matters least goes first where it does not fit.
pub fn headline(frame: &Frame, pulse: &Pulse, columns: usize) -> String {
    let many = !pulse.workers.is_empty();
    let training = pulse.activity == Activity::Training;
    let mut parts: Vec<(u8, String)> = Vec::new();
    let mut add = |rank, text: Option<String>| parts.extend(text.map(|text| (rank, text)));
    add(3, many.then(|| plain(&frame.name)));
    add(8, (!training).then(|| plain(&pulse.phase)));
    // How many there are is unknown where the events that said so are gone.
    add(5, (frame.epochs > 0).then(|| epochs(pulse, frame)));
    add(1, Some(steps(pulse, frame)));
    add(7, pulse.loss.map(|v| format!("loss {}", loss(v))));
    add(4, frame.validation_loss.map(|v| format!("val loss {}", loss(v))));
    add(6, pulse.accuracy.map(|accuracy| format!("acc {:.1}%", 100.0 * accuracy)));
    let speed = pulse.examples_per_second.filter(|_| training);
    add(0, speed.map(|s| format!("{} ex/s", grouped(s.round() as u64))));
    let left = pulse.seconds_left.filter(|_| training);
    add(2, left.map(|s| format!("{} left", clock(s))));
    fit(parts, columns)
}

fn epochs(pulse: &Pulse, frame: &Frame) -> String {
    format!("epoch {}/{}", pulse.epoch.min(frame.epochs), frame.epochs)
}

fn steps(pulse: &Pulse, frame: &Frame) -> String {
    match frame.steps {
        0 => format!("step {}", pulse.step),
        steps => format!("step {}/{steps}", pulse.step),
    }
}

/// How many workers and servers have a row of their own; what is left of either takes one more.
fn cut_rows(pulse: &Pulse, rows: usize) -> (usize, usize) {
    let (workers, servers) = (pulse.workers.len(), pulse.servers.len());
    if workers + servers <= rows {
        return (workers, servers);
    }
    // Workers are what there are many of; servers give way when they would take a third.
    let own = if servers <= (rows / 3).max(1) { servers } else { 0 };
    let taken = if own == servers { servers } else { 1 };
    let left = rows.saturating_sub(taken);
    (if workers <= left { workers } else { left.saturating_sub(1) }, own)
}

/// A process: its name, its state, and what may be left out, the most important first.
#[derive(Debug, Default)]
struct Row {
    name: String,
    /// What it does; nothing for a line about several.
    state: Option<Doing>,
    /// Where it lives; nothing for the controller's own machine.
    machine: String,
    columns: Vec<String>,
    /// Whether it is a sentence that no other row is lined up with.
    free: bool,
}

fn worker(pulse: &WorkerPulse) -> Row {
    let rate = |rate: f64| format!("{} ex/s", grouped(rate.round() as u64));
    let busy = |busy: f64| {
        let percent = 100.0 * busy.clamp(0.0, 1.0);
        format!("{} {percent:>3.0}% busy", paint(CYAN, &bar(busy)))
    };
    let idle = pulse.shards == 0;
    Row {
        name: format!("worker-{}", pulse.worker),
        state: Some(pulse.state),
        machine: pulse.machine.as_deref().map_or_else(String::new, plain),
        columns: vec![
            if idle { String::new() } else { counted(u64::from(pulse.shards), "shard") },
            pulse.examples_per_second.filter(|_| !idle).map_or_else(String::new, rate),
            pulse.busy.filter(|_| !idle).map_or_else(String::new, busy),
        ],
        free: false,
    }
}

fn server(pulse: &ServerPulse) -> Row {
    let busy = |busy: f64| format!("{:.0}% of a core", 100.0 * busy);
    let rate = |rate: f64| format!("{}/s", bytes(rate.max(0.0) as u64));
    let parts = [pulse.busy.map(busy), pulse.bytes_per_second.map(rate)];
    Row {
        name: format!("server-{}", pulse.server),
        state: Some(pulse.state),
        machine: pulse.machine.as_deref().map_or_else(String::new, plain),
        columns: parts.into_iter().flatten().collect(),
        free: true,
    }
}

/// `… and 57 more: 55 computing, 2 standby`.
fn sum_up(
    states: impl Iterator<Item = &'static str>,
    shown: usize,
    what: &str,
) -> impl Iterator<Item = Row> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    states.for_each(|state| *counts.entry(state).or_default() += 1);
    let all: u64 = counts.values().sum();
    let mut each: Vec<(&str, u64)> = counts.into_iter().collect();
    each.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let each: Vec<String> =
        each.iter().map(|(state, n)| format!("{} {}", grouped(*n), state)).collect();
    let head = match shown {
        0 => counted(all, what),
        _ => format!("… and {} more", grouped(all)),
    };
    let name = format!("{head}: {}", each.join(", "));
    (all > 0).then(|| Row { name, free: true, ..Row::default() }).into_iter()
}

/// `███████░`.
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    "█".repeat(full) + &"░".repeat(BAR - full)
}

fn colour(state: Doing) -> &'static str {
    match state {
        Doing::Computing | Doing::Serving | Doing::Evaluating => GREEN,
        Doing::Late | Doing::CutOff => RED,
        _ => YELLOW,
    }
}

/// Rows with their columns lined up; the last columns go where there is no room for them.
fn table(rows: &[Row], columns: usize) -> Vec<String> {
    let most = |of: fn(&Row) -> usize| {
        rows.iter().filter(|r| r.state.is_some()).map(of).max().unwrap_or(0)
    };
    let name = most(|r| width(&r.name));
    let state = most(|r| r.state.map_or(0, |state| width(state.text()))).max(STATE);
    // There is no such column where every process is on this machine.
    let machine = most(|r| width(&r.machine));
    let lined_up = || rows.iter().filter(|r| !r.free);
    let count = lined_up().map(|r| r.columns.len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|i| lined_up().map(|r| r.columns.get(i).map_or(0, |c| width(c))).max().unwrap_or(0))
        .collect();
    let line = |row: &Row, kept: usize| {
        let mut line = format!("{INDENT}{}{}", row.name, padding(&row.name, name));
        if let Some(doing) = row.state {
            let word = doing.text();
            line += &format!("  {}{}", paint(colour(doing), word), padding(word, state));
            if machine > 0 {
                line += &format!("  {}{}", row.machine, padding(&row.machine, machine));
            }
        }
        for (i, text) in row.columns.iter().take(kept).enumerate() {
            let width = if row.free { 0 } else { widths[i] };
            line += &format!("  {}{text}", padding(text, width));
        }
        line.trim_end().to_owned()
    };
    let fits = |kept: usize| lined_up().all(|row| width(&line(row, kept)) < columns);
    // Lined-up rows lose the same columns; the others are on their own.
    let together = (0..=count).rev().find(|kept| fits(*kept)).unwrap_or(0);
    let own = |row: &Row| {
        let fits = |kept: &usize| width(&line(row, *kept)) < columns;
        (0..=row.columns.len()).rev().find(fits).unwrap_or(0)
    };
    rows.iter()
        .map(|row| {
            let kept = if row.free { own(row) } else { together };
            cut(&line(row, kept), columns.saturating_sub(1))
        })
        .collect()
}

/// Spaces that make text as wide as this.
fn padding(text: &str, columns: usize) -> String {
    " ".repeat(columns.saturating_sub(width(text)))
}

#[cfg(test)]
mod tests;
