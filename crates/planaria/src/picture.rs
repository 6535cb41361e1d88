//! A run at a moment, as lines of text: a pure function of a pulse and the room there is.
//!
//! Owns what is shown, in which order, and what goes first where room is scarce. Never writes
//! anywhere; colours are put over text that says it all without them.

use planaria_control::talk::Room;
use planaria_protocol::event::{Activity, Pulse, ServerPulse, WorkerPulse};
use planaria_runs::failure::plain;
use planaria_runs::frame::Frame;
use planaria_runs::number::{bytes, clock, counted, grouped, loss};
use planaria_runs::paint::{DOT, fit};
use std::collections::BTreeMap;

/// Characters of the bar that shows how busy a worker is.
const BAR: usize = 8;
/// Characters of a state at least, so that rows hold still while states change.
const STATE: usize = 10;
/// What is before a process.
const INDENT: &str = "  ";

/// The run in at most as many lines as there are rows, each shorter than a row.
pub fn lines(frame: &Frame, pulse: &Pulse, room: Room) -> Vec<String> {
    let mut lines = vec![headline(frame, pulse, room.columns)];
    // A row stays free, so that a terminal that is just being resized does not scroll.
    let (workers, servers) = cut(pulse, room.rows.saturating_sub(2));
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
    add(7, (!training).then(|| plain(&pulse.phase)));
    add(4, Some(format!("epoch {}/{}", pulse.epoch.min(frame.epochs), frame.epochs)));
    add(1, Some(format!("step {}/{}", pulse.step, frame.steps)));
    add(6, pulse.loss.map(|v| format!("loss {}", loss(v))));
    add(5, pulse.accuracy.map(|accuracy| format!("acc {:.1}%", 100.0 * accuracy)));
    let speed = pulse.examples_per_second.filter(|_| training);
    add(0, speed.map(|s| format!("{} ex/s", grouped(s.round() as u64))));
    let left = pulse.seconds_left.filter(|_| training);
    add(2, left.map(|s| format!("{} left", clock(s))));
    fit(parts, columns)
}

/// A line with colours; without them it says the same.
pub fn painted(line: &str) -> String {
    let paint = |code: &str, text: &str| format!("\x1b[{code}m{text}\x1b[0m");
    let Some(row) = line.strip_prefix(INDENT) else {
        let (first, rest) = line.split_at(line.find(DOT).unwrap_or(line.len()));
        return paint("1", first) + rest;
    };
    let Some((name, rest)) = row.split_once("  ") else { return line.to_owned() };
    let (state, rest) = rest.split_at(rest.find("  ").unwrap_or(rest.len()));
    let code = match state.trim() {
        "computing" | "serving" | "evaluating" => "32",
        "late" | "cut off" => "31",
        _ => "33",
    };
    let bar = rest.find(['█', '░']).and_then(|at| Some((at, at + rest[at..].find(' ')?)));
    let rest = match bar {
        Some((from, to)) => {
            format!("{}{}{}", &rest[..from], paint("36", &rest[from..to]), &rest[to..])
        }
        None => rest.to_owned(),
    };
    format!("{INDENT}{name}  {}{rest}", paint(code, state))
}

/// How many workers and servers have a row of their own; what is left of either takes one more.
fn cut(pulse: &Pulse, rows: usize) -> (usize, usize) {
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
    state: String,
    /// Where it lives; nothing for the controller's own machine.
    machine: String,
    columns: Vec<String>,
    /// Whether it is a sentence that no other row is lined up with.
    free: bool,
}

fn worker(pulse: &WorkerPulse) -> Row {
    let rate = |rate: f64| format!("{} ex/s", grouped(rate.round() as u64));
    let busy = |busy: f64| format!("{} {:>3.0}% busy", bar(busy), 100.0 * busy.clamp(0.0, 1.0));
    let idle = pulse.shards == 0;
    Row {
        name: format!("worker-{}", pulse.worker),
        state: pulse.state.text().into(),
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
        state: pulse.state.text().into(),
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

/// Rows with their columns lined up; the last columns go where there is no room for them.
fn table(rows: &[Row], columns: usize) -> Vec<String> {
    let width = |of: fn(&Row) -> usize| {
        rows.iter().filter(|r| !r.state.is_empty()).map(of).max().unwrap_or(0)
    };
    let (name, state) = (width(|r| length(&r.name)), width(|r| length(&r.state)).max(STATE));
    // There is no such column where every process is on this machine.
    let machine = width(|r| length(&r.machine));
    let lined_up = || rows.iter().filter(|r| !r.free);
    let most = lined_up().map(|r| r.columns.len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..most)
        .map(|i| lined_up().map(|r| r.columns.get(i).map_or(0, |c| length(c))).max().unwrap_or(0))
        .collect();
    let line = |row: &Row, kept: usize| {
        let mut line = format!("{INDENT}{:<name$}", row.name);
        if !row.state.is_empty() {
            line += &format!("  {:<state$}", row.state);
        }
        if machine > 0 && !row.state.is_empty() {
            line += &format!("  {:<machine$}", row.machine);
        }
        for (i, text) in row.columns.iter().take(kept).enumerate() {
            let width = if row.free { 0 } else { widths[i] };
            line += &format!("  {text:>width$}");
        }
        line.trim_end().to_owned()
    };
    let fits = |kept: usize| lined_up().all(|row| length(&line(row, kept)) < columns);
    // Lined-up rows lose the same columns; the others are on their own.
    let together = (0..=most).rev().find(|kept| fits(*kept)).unwrap_or(0);
    let own = |row: &Row| {
        let fits = |kept: &usize| length(&line(row, *kept)) < columns;
        (0..=row.columns.len()).rev().find(fits).unwrap_or(0)
    };
    rows.iter()
        .map(|row| {
            let kept = if row.free { own(row) } else { together };
            line(row, kept).chars().take(columns.saturating_sub(1)).collect()
        })
        .collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests;
