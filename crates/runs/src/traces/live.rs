//! `live.html`: a run on many machines while it trains, as a page that shows itself anew.
//!
//! Owns what is remembered of pulses and events for it: who is there, what each has computed, and a
//! strip of who was there at each step. Pure; the caller writes the file. Never asks the clock.

use crate::frame::Frame;
use crate::notices::{Notice, Notices};
use crate::run_dir::metrics::Line;
use crate::summary::Summary;
use crate::traces::html::{STRIP_CSS, cards, charts, document, hint};
use crate::traces::strip::{self, Presence, ROWS_MAX, Row};
use crate::traces::timeline::Timeline;
use maud::{Markup, PreEscaped, html};
use planaria_protocol::event::{Activity, Doing, Event, Pulse, What, WorkerPulse};
use planaria_protocol::message::Agent;
use planaria_text::number::{duration, grouped, loss, out_of, percent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Lines of what happened last.
const NEWS_MAX: usize = 10;
/// How a worker that does this is there; one that is started again was there before.
fn presence(doing: Doing, was_there: bool) -> Option<Presence> {
    match doing {
        Doing::Starting => was_there.then_some(Presence::Lost),
        Doing::Late => Some(Presence::Late),
        Doing::Computing
        | Doing::Evaluating
        | Doing::Standby
        | Doing::Ready
        | Doing::Serving
        | Doing::Leaving => Some(Presence::Ready),
        Doing::GettingReady | Doing::Entering | Doing::FetchingRows | Doing::CutOff => {
            Some(Presence::Fetching)
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
    /// Of the strip.
    row: Row,
}

impl Seen {
    fn rows(&self) -> u64 {
        self.rows_before + self.pulse.rows.unwrap_or(0)
    }

    fn presence(&self) -> Option<Presence> {
        if self.is_released {
            return None;
        }
        presence(self.pulse.state, self.was_there)
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
    timeline: Timeline,
}

impl Live {
    pub fn take(&mut self, event: &Event) {
        self.summary.take(event);
        self.timeline.take(event);
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
                worker.row.mark(column, Presence::Lost);
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
                presence.into_iter().for_each(|presence| seen.row.mark(column, presence));
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
        strip::column(step, self.frame.steps)
    }

    fn tell(&mut self, seconds: f64, text: String) {
        self.news.push_front((seconds, text));
        self.news.truncate(NEWS_MAX);
    }

    /// The page; `lines` are the run's metrics.
    pub fn page(&self, run_id: &str, lines: &[Line]) -> String {
        let head = html! {
            style { (PreEscaped(STRIP_CSS)) }
            @if self.summary.ended.is_none() { meta http-equiv="refresh" content="1"; }
        };
        let body = html! {
            (self.heading(run_id))
            (cards(&self.figures(lines.last())))
            @if !self.workers.is_empty() {
                (self.machines())
                (self.strip())
            }
            (self.happened())
            (charts(lines, &self.timeline.marks))
        };
        document(run_id, head, body)
    }

    fn heading(&self, run_id: &str) -> Markup {
        let phase = self.pulse.phase.as_str();
        let ended = self.summary.ended.as_ref();
        let (class, text) = match ended {
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
            @if let Some(reason) = ended.and_then(|ended| ended.reason.as_deref()) {
                p.sub { (reason) }
            }
            (hint(ended.and_then(|ended| ended.trouble.as_ref()?.hint.as_deref())))
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
            Some((format!("{} of {wanted}", ready.count()), "workers ready")),
            Some((grouped(lost), "times a worker was lost")),
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
            h2 { "Workers" }
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
        let rows = self.workers.iter().map(|(number, worker)| (*number, &worker.row));
        strip::drawing(self.frame.steps, rows, &self.paused)
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

#[cfg(test)]
mod tests;
