//! `live.html`: a run on many machines while it trains, as a page that shows itself anew.
//!
//! Owns what is remembered of pulses and events for it: who is there, what each has computed, and a
//! strip of who was there at each step. Pure; whoever asks writes the file. Never asks the clock.

use crate::frame::Frame;
use crate::notices::{Notice, Notices};
use crate::number::{duration, grouped, loss, percent};
use crate::run_dir::metrics::Line;
use crate::summary::Summary;
use crate::traces::html::{self, escape};
use planaria_protocol::event::{Activity, Doing, Event, Pulse, What, WorkerPulse};
use planaria_protocol::message::Agent;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

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
    /// Something happened.
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
        let refresh = match self.summary.ended {
            None => "<meta http-equiv=\"refresh\" content=\"1\">\n",
            Some(_) => "",
        };
        let style = format!("{}</style>\n{refresh}</head>", include_str!("live.css"));
        let mut html = html::head(run_id).replacen("</style>\n</head>", &style, 1);
        self.heading(&mut html, run_id);
        self.cards(&mut html, lines.last());
        self.machines(&mut html);
        self.strip(&mut html);
        self.happened(&mut html);
        html::charts(&mut html, lines);
        html.push_str("</main>\n</body>\n</html>\n");
        html
    }

    fn heading(&self, html: &mut String, run_id: &str) {
        let phase = self.pulse.phase.as_str();
        let (class, text) = match &self.summary.ended {
            Some(ended) => (ended.outcome.name(), ended.outcome.text()),
            None if self.summary.paused.is_some() => ("failed", phase),
            None if self.pulse.activity == Activity::Training => ("completed", "training"),
            None => ("interrupted", phase),
        };
        let report = match &self.summary.ended {
            Some(_) => " · <a href=\"report.html\">report</a>",
            None => "",
        };
        let _ = write!(
            html,
            "<h1>{} <span class=\"badge {}\">{}</span></h1>\n<p class=\"sub\">{}{report}</p>\n",
            escape(&self.frame.name),
            escape(class),
            escape(text),
            escape(run_id)
        );
    }

    fn cards(&self, html: &mut String, last: Option<&Line>) {
        let (pulse, frame) = (&self.pulse, &self.frame);
        // An epoch that has just begun has no figures yet.
        let accuracy = pulse.accuracy.or_else(|| last.and_then(|line| line.accuracy));
        let mean = pulse.loss.or_else(|| last.and_then(|line| line.loss));
        let ready = self.workers.values().filter(|w| w.presence() == Some(Presence::Ready));
        let lost: u64 = self.workers.values().map(|w| w.lost).sum();
        let wanted = self.workers.values().filter(|w| !w.is_released).count();
        let is_waiting = self.summary.ended.is_some() || self.summary.paused.is_some();
        let figures = [
            Some((format!("{}/{}", grouped(pulse.step), grouped(frame.steps)), "steps")),
            Some((format!("{} of {wanted}", ready.count()), "machines ready")),
            Some((grouped(lost), "times a machine was lost")),
            accuracy.map(|v| (percent(v), "accuracy while training")),
            self.summary.f1().map(|v| (percent(v), "F1 of the positive class, final weights")),
            mean.map(|v| (loss(v), "loss while training")),
            pulse.seconds_left.filter(|_| !is_waiting).map(|s| (duration(s), "left")),
        ];
        html.push_str("<div class=\"cards\">\n");
        for (value, label) in figures.into_iter().flatten() {
            let value = escape(&value);
            let _ = writeln!(html, "<div class=\"card\"><b>{value}</b><span>{label}</span></div>");
        }
        html.push_str("</div>\n");
    }

    fn machines(&self, html: &mut String) {
        let counts_rows = self.workers.values().any(|w| w.pulse.rows.is_some());
        let work =
            if counts_rows { "<th>rows computed</th><th>rows/s</th>" } else { "<th>shards</th>" };
        let slot = if counts_rows { "<th>slot</th>" } else { "" };
        let _ = writeln!(
            html,
            "<h2>Machines</h2>\n<div class=\"wide\"><table><thead><tr><th>worker</th>\
             <th>state</th>{slot}{work}<th>busy</th><th>lost</th></tr></thead><tbody>"
        );
        for (number, worker) in &self.workers {
            let pulse = &worker.pulse;
            let (state, class) = match worker.presence() {
                Some(presence) => (presence.text(), presence.class()),
                None if worker.is_released => ("released", "fetching"),
                None => ("starting", "fetching"),
            };
            let machine = pulse.machine.as_deref().map_or_else(String::new, |m| format!(" on {m}"));
            let rate = pulse.examples_per_second.map_or_else(String::new, |r| grouped(r as u64));
            let work = match counts_rows {
                true => format!(
                    "<td>{}</td><td>{}</td><td>{rate}</td>",
                    pulse.slot.map_or_else(|| "–".into(), |slot| slot.to_string()),
                    grouped(worker.rows())
                ),
                false => format!("<td>{}</td>", pulse.shards),
            };
            let busy = pulse.busy.map_or_else(String::new, |busy| format!("{:.0}%", 100.0 * busy));
            let _ = writeln!(
                html,
                "<tr><td>worker-{number}{}</td><td><span class=\"state {class}\">{state}</span></td>\
                 {work}<td>{busy}</td><td>{}×</td></tr>",
                escape(&machine),
                worker.lost
            );
        }
        html.push_str("</tbody></table></div>\n");
    }

    fn strip(&self, html: &mut String) {
        let (columns, rows) = (self.columns(), self.workers.len());
        let (left, top) = (66.0, 10.0);
        let width = 960.0_f64;
        let cell = ((width - left) / columns as f64).min(3.0 * CELL.0);
        let height = top + rows as f64 * (CELL.1 + 2.0) + 16.0;
        let _ = writeln!(
            html,
            "<h2>Who was there at each step</h2>\n<figure><svg class=\"strip\" role=\"img\" \
             viewBox=\"0 0 {width} {height}\" aria-label=\"who was there at each step\">"
        );
        for column in &self.paused {
            let x = left + *column as f64 * cell;
            let _ = writeln!(
                html,
                "<rect class=\"paused\" x=\"{x:.1}\" y=\"0\" width=\"{cell:.1}\" height=\"6\"/>"
            );
        }
        for (row, (number, worker)) in self.workers.iter().enumerate() {
            let y = top + row as f64 * (CELL.1 + 2.0);
            let _ = writeln!(html, "<text x=\"0\" y=\"{:.1}\">worker-{number}</text>", y + 11.0);
            for (first, count, presence) in runs(&worker.strip) {
                let (x, w) = (left + first as f64 * cell, count as f64 * cell);
                let _ = writeln!(
                    html,
                    "<rect class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" \
                     height=\"{}\"/>",
                    presence.class(),
                    CELL.1
                );
            }
        }
        let end = left + columns as f64 * cell;
        let _ = writeln!(
            html,
            "<text x=\"{left}\" y=\"{0:.1}\">step 1</text>\
             <text x=\"{end:.1}\" y=\"{0:.1}\" text-anchor=\"end\">{1}</text></svg></figure>",
            height - 3.0,
            grouped(self.frame.steps)
        );
        html.push_str("<p class=\"note\">");
        for presence in [Presence::Ready, Presence::Fetching, Presence::Late, Presence::Lost] {
            let (class, text) = (presence.class(), presence.text());
            let _ = write!(html, "<span class=\"state {class}\">{text}</span> ");
        }
        if !self.paused.is_empty() {
            html.push_str("<span class=\"state paused\">paused: too few machines</span>");
        }
        html.push_str("</p>\n");
    }

    fn happened(&self, html: &mut String) {
        if self.news.is_empty() {
            return;
        }
        html.push_str("<h2>What happened last</h2>\n<div class=\"wide\"><dl>\n");
        for (seconds, text) in &self.news {
            let (at, text) = (duration(*seconds), escape(text));
            let _ = writeln!(html, "<dt>{at}</dt><dd>{text}</dd>");
        }
        html.push_str("</dl></div>\n");
    }
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
