//! `live.html`: a run on many machines while it trains, as a page that shows itself anew.
//!
//! Owns what is remembered of pulses and events for it: who is there, what each has computed, and a
//! strip of who was there at each step. Pure; the caller writes the file. Never asks the clock.

use crate::frame::Frame;
use crate::notices::{Notice, Notices};
use crate::run_dir::metrics::Line;
use crate::summary::Summary;
use crate::traces::html::{cards, charts, document};
use maud::{Markup, PreEscaped, html};
use planaria_protocol::event::{Activity, Doing, Event, Pulse, What, WorkerPulse};
use planaria_protocol::message::Agent;
use planaria_text::number::{duration, grouped, loss, out_of, percent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Columns of the strip at most; each is one step or several.
const COLUMNS_MAX: u64 = 150;
/// Workers that have a row.
const ROWS_MAX: usize = 64;
/// Lines of what happened last.
const NEWS_MAX: usize = 10;
/// Width and height of a cell of the strip.
const CELL: (f64, f64) = (6.0, 14.0);

/// How a worker was there; of several in one column the last of these shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Presence {
    Ready,
    Fetching,
    Late,
    Lost,
}

impl Presence {
    /// Of a worker that does this; one that is started again was there before.
    fn of(doing: Doing, was_there: bool) -> Option<Self> {
        match doing {
            Doing::Starting => was_there.then_some(Self::Lost),
            Doing::Late => Some(Self::Late),
            Doing::Computing
            | Doing::Evaluating
            | Doing::Standby
            | Doing::Ready
            | Doing::Serving
            | Doing::Leaving => Some(Self::Ready),
            Doing::GettingReady | Doing::Entering | Doing::FetchingRows | Doing::CutOff => {
                Some(Self::Fetching)
            }
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Fetching => "fetching",
            Self::Late => "not waited for",
            Self::Lost => "lost",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Fetching => "fetching",
            Self::Late => "late",
            Self::Lost => "lost",
        }
    }
}

/// A worker as it is remembered.
#[derive(Debug, Default)]
struct Seen {
    pulse: WorkerPulse,
    /// It is not wanted any more.
    is_released: bool,
    was_there: bool,
    /// Rows of processes before the one that is there.
    rows_before: u64,
    lost: u64,
    /// By column of the strip.
    strip: BTreeMap<u64, Presence>,
}

impl Seen {
    fn rows(&self) -> u64 {
        self.rows_before + self.pulse.rows.unwrap_or(0)
    }

    fn presence(&self) -> Option<Presence> {
        if self.is_released {
            return None;
        }
        Presence::of(self.pulse.state, self.was_there)
    }

    fn mark(&mut self, column: u64, presence: Presence) {
        let cell = self.strip.entry(column).or_insert(presence);
        *cell = presence.max(*cell);
    }
}

/// A run as the page shows it.
#[derive(Debug, Default)]
pub struct Live {
    summary: Summary,
    frame: Frame,
    pulse: Pulse,
    workers: BTreeMap<u32, Seen>,
    /// Columns in which the run waited for machines.
    paused: BTreeSet<u64>,
    news: VecDeque<(f64, String)>,
    notices: Notices,
}

impl Live {
    pub fn take(&mut self, event: &Event) {
        self.summary.take(event);
        // Who joins, and what each computes, has a place of its own.
        let is_shown = matches!(event.what, What::Joined { .. } | What::Dealt { .. });
        match self.notices.of(event) {
            Some(Notice::Plain(text)) if !is_shown => self.tell(event.seconds, text),
            Some(Notice::Note(text)) => self.tell(event.seconds, text),
            _ => {}
        }
        if let What::Started(_) = &event.what {
            self.frame = self.summary.frame();
        }
        if let What::Lost { agent, .. } = &event.what
            && let Some(Agent::Worker(number)) = Agent::named(agent)
        {
            let column = self.column(self.pulse.step);
            if let Some(worker) = self.workers.get_mut(&number) {
                worker.lost += 1;
                worker.mark(column, Presence::Lost);
            }
        }
    }

    /// Where the run is.
    pub fn pulse(&mut self, pulse: &Pulse) {
        let from = match pulse.step >= self.pulse.step {
            true => self.column(self.pulse.step),
            false => self.column(pulse.step),
        };
        let columns = from..=self.column(pulse.step);
        for worker in pulse.workers.iter().take(ROWS_MAX) {
            let seen = self.workers.entry(worker.worker).or_default();
            if worker.rows < seen.pulse.rows {
                seen.rows_before += seen.pulse.rows.unwrap_or(0);
            }
            seen.pulse = worker.clone();
            let presence = seen.presence();
            seen.was_there |= presence == Some(Presence::Ready);
            for column in columns.clone() {
                presence.into_iter().for_each(|presence| seen.mark(column, presence));
            }
        }
        for (number, seen) in &mut self.workers {
            seen.is_released = !pulse.workers.iter().any(|w| w.worker == *number);
        }
        self.workers.retain(|_, seen| seen.was_there || !seen.is_released);
        if self.summary.paused.is_some() {
            self.paused.insert(*columns.end());
        }
        self.pulse = pulse.clone();
    }

    /// The column of the strip that a step is in.
    fn column(&self, step: u64) -> u64 {
        let steps = self.frame.steps.max(1);
        step.min(steps - 1) * self.columns() / steps
    }

    fn columns(&self) -> u64 {
        self.frame.steps.clamp(1, COLUMNS_MAX)
    }

    fn tell(&mut self, seconds: f64, text: String) {
        self.news.push_front((seconds, text));
        self.news.truncate(NEWS_MAX);
    }

    /// The page; `lines` are the run's metrics.
    pub fn page(&self, run_id: &str, lines: &[Line]) -> String {
        let head = html! {
            style { (PreEscaped(include_str!("live.css"))) }
            @if self.summary.ended.is_none() { meta http-equiv="refresh" content="1"; }
        };
        let body = html! {
            (self.heading(run_id))
            (cards(&self.figures(lines.last())))
            (self.machines())
            (self.strip())
            (self.happened())
            (charts(lines))
        };
        document(run_id, head, body)
    }

    fn heading(&self, run_id: &str) -> Markup {
        let phase = self.pulse.phase.as_str();
        let (class, text) = match &self.summary.ended {
            Some(ended) => (ended.outcome.name(), ended.outcome.text()),
            None if self.summary.paused.is_some() => ("failed", phase),
            None if self.pulse.activity == Activity::Training => ("completed", "training"),
            None => ("interrupted", phase),
        };
        html! {
            h1 { (self.frame.name) " " span class={ "badge " (class) } { (text) } }
            p.sub {
                (run_id)
                @if self.summary.ended.is_some() { " · " a href="report.html" { "report" } }
            }
        }
    }

    fn figures(&self, last: Option<&Line>) -> Vec<(String, String)> {
        let (pulse, frame) = (&self.pulse, &self.frame);
        // An epoch that has just begun has no figures yet.
        let accuracy = pulse.accuracy.or_else(|| last.and_then(|line| line.accuracy));
        let mean = pulse.loss.or_else(|| last.and_then(|line| line.loss));
        let ready = self.workers.values().filter(|w| w.presence() == Some(Presence::Ready));
        let lost: u64 = self.workers.values().map(|w| w.lost).sum();
        let wanted = self.workers.values().filter(|w| !w.is_released).count();
        let is_waiting = self.summary.ended.is_some() || self.summary.paused.is_some();
        let figures = [
            Some((out_of(pulse.step, frame.steps), "steps")),
            Some((format!("{} of {wanted}", ready.count()), "machines ready")),
            Some((grouped(lost), "times a machine was lost")),
            accuracy.map(|v| (percent(v), "accuracy while training")),
            self.summary.f1().map(|v| (percent(v), "F1 of the positive class, final weights")),
            mean.map(|v| (loss(v), "loss while training")),
            pulse.seconds_left.filter(|_| !is_waiting).map(|s| (duration(s), "left")),
        ];
        figures.into_iter().flatten().map(|(value, label)| (value, label.into())).collect()
    }

    fn machines(&self) -> Markup {
        let counts_rows = self.workers.values().any(|w| w.pulse.rows.is_some());
        html! {
            h2 { "Machines" }
            div.wide {
                table {
                    thead {
                        tr {
                            th { "worker" } th { "state" }
                            @if counts_rows {
                                th { "slot" } th { "rows computed" } th { "rows/s" }
                            } @else {
                                th { "shards" }
                            }
                            th { "busy" } th { "lost" }
                        }
                    }
                    tbody {
                        @for (number, worker) in &self.workers {
                            (machine_row(*number, worker, counts_rows))
                        }
                    }
                }
            }
        }
    }

    fn strip(&self) -> Markup {
        let (columns, rows) = (self.columns(), self.workers.len());
        let (left, top) = (66.0, 10.0);
        let width = 960.0_f64;
        let cell = ((width - left) / columns as f64).min(3.0 * CELL.0);
        let height = top + rows as f64 * (CELL.1 + 2.0) + 16.0;
        let end = left + columns as f64 * cell;
        let below = tenth(height - 3.0);
        html! {
            h2 { "Who was there at each step" }
            figure {
                svg.strip role="img" viewBox={ "0 0 " (width) " " (height) }
                    aria-label="who was there at each step" {
                    @for column in &self.paused {
                        rect.paused x=(tenth(left + *column as f64 * cell)) y="0"
                            width=(tenth(cell)) height="6" {}
                    }
                    @for (row, (number, worker)) in self.workers.iter().enumerate() {
                        @let y = top + row as f64 * (CELL.1 + 2.0);
                        text x="0" y=(tenth(y + 11.0)) { "worker-" (number) }
                        @for (first, count, presence) in runs(&worker.strip) {
                            rect class=(presence.class()) x=(tenth(left + first as f64 * cell))
                                y=(tenth(y)) width=(tenth(count as f64 * cell)) height=(CELL.1) {}
                        }
                    }
                    text x=(left) y=(below) { "step 1" }
                    text x=(tenth(end)) y=(below) text-anchor="end" { (grouped(self.frame.steps)) }
                }
            }
            p.note {
                @for presence in [Presence::Ready, Presence::Fetching, Presence::Late, Presence::Lost] {
                    span class={ "state " (presence.class()) } { (presence.text()) } " "
                }
                @if !self.paused.is_empty() {
                    span class="state paused" { "paused: too few machines" }
                }
            }
        }
    }

    fn happened(&self) -> Markup {
        html! {
            @if !self.news.is_empty() {
                h2 { "What happened last" }
                div.wide {
                    dl {
                        @for (seconds, text) in &self.news {
                            dt { (duration(*seconds)) } dd { (text) }
                        }
                    }
                }
            }
        }
    }
}

fn machine_row(number: u32, worker: &Seen, counts_rows: bool) -> Markup {
    let pulse = &worker.pulse;
    let (state, class) = match worker.presence() {
        Some(presence) => (presence.text(), presence.class()),
        None if worker.is_released => ("released", "fetching"),
        None => ("starting", "fetching"),
    };
    html! {
        tr {
            td {
                "worker-" (number)
                @if let Some(machine) = &pulse.machine { " on " (machine) }
            }
            td { span class={ "state " (class) } { (state) } }
            @if counts_rows {
                td { @match pulse.slot { Some(slot) => { (slot) }, None => { "–" } } }
                td { (grouped(worker.rows())) }
                td { @if let Some(rate) = pulse.examples_per_second { (grouped(rate as u64)) } }
            } @else {
                td { (pulse.shards) }
            }
            td { @if let Some(busy) = pulse.busy { (format!("{:.0}%", 100.0 * busy)) } }
            td { (worker.lost) "×" }
        }
    }
}

/// A length of a drawing.
fn tenth(length: f64) -> String {
    format!("{length:.1}")
}

/// Neighbouring columns of the same kind: the first, how many, and which.
fn runs(strip: &BTreeMap<u64, Presence>) -> Vec<(u64, u64, Presence)> {
    let mut runs: Vec<(u64, u64, Presence)> = Vec::new();
    for (column, presence) in strip {
        match runs.last_mut() {
            Some((first, count, last)) if *last == *presence && *first + *count == *column => {
                *count += 1;
            }
            _ => runs.push((*column, 1, *presence)),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
