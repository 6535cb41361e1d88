//! `scaling.json` and `scaling.html`: the same training with more and more workers.
//!
//! Owns the documents' fields and how speed-up follows from times. Never trains.

use crate::run_dir::metrics::Line;
use crate::traces::chart::{Along, Curve, Figure, STEPS, Scale};
use crate::traces::html::{accuracy_tick, document, footer, moment, percent_tick};
use crate::traces::report::Report;
use maud::{Markup, html};
use planaria_text::number::{counted, duration, grouped, percent, short};
use serde::{Deserialize, Serialize};

/// Classes of the style sheet for curves, used in turn.
const CLASSES: [&str; 6] = ["train", "val", "c2", "c3", "c4", "c5"];
/// Seconds along an axis.
const SECONDS: Along = Along { what: "second", text: |s| format!("{} s", short(s)), whole: false };
/// Workers along an axis.
const WORKERS: Along = Along { what: "workers", text: short, whole: true };

/// `scaling.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// The recipe's name.
    pub recipe: String,
    /// Version that wrote this.
    pub planaria_version: String,
    /// When it began, UTC.
    pub started: String,
    /// Cores of the machine.
    pub cores: usize,
    /// Whether every run was done.
    pub complete: bool,
    /// Whether all runs ended with the same weights, bit for bit.
    pub same_weights: bool,
    /// Whether they should have; coded sums of floats differ in their last bits.
    pub bits_promised: bool,
    /// The runs, in the order they were done.
    pub runs: Vec<Run>,
}

/// A run of the study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The run's folder.
    pub folder: String,
    /// Workers that computed; 1 where the run is one process.
    pub workers: u32,
    /// Server processes; 0 where the run is one process.
    pub servers: u32,
    /// Threads that computed, of all workers.
    pub threads: usize,
    /// Seconds of taking steps.
    pub seconds_training: f64,
    /// Seconds of everything.
    pub seconds_total: f64,
    pub examples_per_second: Option<f64>,
    /// How many times as fast as the first run, by time of training.
    pub speed_up: f64,
    /// Speed-up for each time that workers were multiplied by.
    pub efficiency: f64,
    /// Accuracy of the final weights.
    pub accuracy: Option<f64>,
    /// Loss of the final weights.
    pub loss: Option<f64>,
    /// Hash of the final weights, if there are any.
    pub weights_sha256: Option<String>,
    /// Whether they are the first run's.
    pub same_weights: bool,
    /// Figures of each epoch.
    pub curves: Vec<Line>,
}

impl Study {
    /// Nothing done yet.
    pub fn new(recipe: &str, started: String, cores: usize) -> Self {
        Self {
            recipe: recipe.to_owned(),
            planaria_version: env!("CARGO_PKG_VERSION").into(),
            started,
            cores,
            complete: false,
            same_weights: true,
            bits_promised: true,
            runs: Vec::new(),
        }
    }

    /// Adds a run that was done, with so many workers asked for.
    pub fn push(&mut self, workers: u32, folder: String, report: &Report) {
        let seconds = report.seconds_training;
        let first = self.runs.first();
        let speed_up = first.map_or(1.0, |first| first.seconds_training / seconds);
        let more = first.map_or(1.0, |first| f64::from(workers) / f64::from(first.workers));
        let same = first.is_none_or(|first| first.weights_sha256 == report.weights_sha256);
        self.same_weights &= same;
        self.bits_promised &= report.bits_promised;
        self.runs.push(Run {
            folder,
            workers,
            servers: report.servers,
            threads: report.threads,
            seconds_training: seconds,
            seconds_total: report.seconds_total,
            examples_per_second: report.examples_per_second,
            speed_up,
            efficiency: speed_up / more,
            accuracy: report.accuracy,
            loss: report.loss,
            weights_sha256: report.weights_sha256.clone(),
            same_weights: same,
            curves: report.curves.clone(),
        });
    }

    /// The document as text.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a study has string keys only");
        text.push('\n');
        text
    }

    /// The runs as a table of text.
    pub fn table(&self) -> String {
        let mut rows = vec![HEAD.map(String::from)];
        rows.extend(self.runs.iter().map(cells));
        let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        let line = |row: &[String; COLUMNS]| {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
            cells.collect::<Vec<_>>().join("  ") + "\n"
        };
        rows.iter().map(line).collect()
    }

    /// What a reader should know beside the figures.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.complete {
            remarks.push("The study was stopped before every run was done.".into());
        }
        let most = self.runs.iter().map(|run| run.threads).max().unwrap_or(0);
        if most > self.cores {
            remarks.push(format!(
                "This machine has {}: {} cannot be faster than {}.",
                counted(self.cores as u64, "core"),
                counted(most as u64, "thread"),
                self.cores
            ));
        }
        if self.runs.len() > 1 {
            remarks.push(match (self.same_weights, self.bits_promised) {
                (true, _) => "Every run ended with the same weights, bit for bit.".into(),
                (false, true) => "The runs did not end with the same weights.".into(),
                (false, false) => "Weights differ in their last bits, as sums of floats do that \
                                   depend on who took part."
                    .into(),
            });
        }
        remarks
    }

    pub fn page(&self) -> String {
        let (class, state) =
            if self.complete { ("completed", "completed") } else { ("interrupted", "stopped") };
        let body = html! {
            h1 {
                (self.recipe) " on more workers "
                span class={ "badge " (class) } { (state) }
            }
            p.sub { (moment(&self.started)) }
            h2 { "Runs" }
            div.wide {
                table {
                    thead { tr { @for name in HEAD { th { (name) } } } }
                    tbody {
                        @for run in &self.runs { tr { @for cell in cells(run) { td { (cell) } } } }
                    }
                }
            }
            @for remark in self.remarks() { p.note { (remark) } }
            h2 { "Curves" }
            div.charts { (self.figures()) }
            p.note {
                "Speed-up is by time of taking steps, against the first run. \
                 Accuracy is of the validation part after each epoch, else of training; against steps \
                 the curves of runs with the same weights lie on each other."
            }
            (footer(&self.planaria_version))
        };
        document(&format!("{} scaling", self.recipe), html! {}, body)
    }

    fn figures(&self) -> Markup {
        let Some(first) = self.runs.first() else { return html! {} };
        let curve = |name: &str, class: &str, points: Vec<(f64, f64)>| Curve {
            name: name.into(),
            class: class.into(),
            dots: class != "ideal",
            noisy: false,
            points,
        };
        let by_workers = |of: fn(&Run) -> f64| -> Vec<(f64, f64)> {
            let mut points: Vec<_> =
                self.runs.iter().map(|run| (f64::from(run.workers), of(run))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points
        };
        let most = self.runs.iter().map(|run| run.workers).max().unwrap_or(1);
        let ends = [first.workers, most].map(f64::from);
        let ideal = ends.map(|n| (n, n / f64::from(first.workers))).to_vec();
        let of_runs = |along: fn(&Line) -> f64| -> Vec<Curve> {
            let curves = self.runs.iter().zip(CLASSES.iter().cycle());
            curves
                .map(|(run, class)| {
                    let point = |line: &Line| {
                        let accuracy = line.validation_accuracy.or(line.accuracy);
                        accuracy.map(|accuracy| (along(line), accuracy))
                    };
                    let points = run.curves.iter().filter_map(point).collect();
                    curve(&name(run), class, points)
                })
                .collect()
        };
        let figure = |title, along, curves: &[Curve], scale, tick| {
            Figure { title, along, curves, marks: &[], scale, tick }.draw()
        };
        let figures = [
            figure(
                "Speed-up",
                WORKERS,
                &[
                    curve("measured", "train", by_workers(|run| run.speed_up)),
                    curve("ideal", "ideal", ideal),
                ],
                Scale::FromZero,
                |v| format!("{}×", short(v)),
            ),
            figure(
                "Efficiency",
                WORKERS,
                &[
                    curve("measured", "val", by_workers(|run| run.efficiency)),
                    curve("ideal", "ideal", ends.map(|n| (n, 1.0)).to_vec()),
                ],
                Scale::FromZero,
                percent_tick,
            ),
            figure(
                "Accuracy by time",
                SECONDS,
                &of_runs(|line| line.seconds),
                Scale::Linear,
                accuracy_tick,
            ),
            figure(
                "Accuracy by step",
                STEPS,
                &of_runs(|line| line.step as f64),
                Scale::Linear,
                accuracy_tick,
            ),
        ];
        html! { @for figure in figures.iter().flatten() { (figure) } }
    }
}

/// Columns of the table.
const COLUMNS: usize = 9;
const HEAD: [&str; COLUMNS] = [
    "workers",
    "servers",
    "threads",
    "training",
    "examples/s",
    "speed-up",
    "efficiency",
    "accuracy",
    "same weights",
];

fn cells(run: &Run) -> [String; COLUMNS] {
    [
        run.workers.to_string(),
        run.servers.to_string(),
        run.threads.to_string(),
        duration(run.seconds_training),
        run.examples_per_second.map_or_else(String::new, |v| grouped(v.round() as u64)),
        format!("{:.2}×", run.speed_up),
        format!("{:.0}%", 100.0 * run.efficiency),
        run.accuracy.map_or_else(String::new, percent),
        if run.same_weights { "✓ yes" } else { "✗ no" }.into(),
    ]
}

fn name(run: &Run) -> String {
    counted(run.workers.into(), "worker")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study() -> Study {
        let mut report = crate::traces::report::tests::sample();
        let mut study = Study::new("net <b>", "2025-01-01T00:00:00Z".into(), 2);
        study.push(1, "1-worker".into(), &report);
        report.seconds_training /= 1.6;
        (report.servers, report.threads) = (1, 4);
        study.push(2, "2-workers".into(), &report);
        report.weights_sha256 = Some("other".into());
        study.push(4, "4-workers".into(), &report);
        study
    }

    #[test]
    fn speed_up_is_against_the_first_run() {
        assert_eq!(
            study().table(),
            "workers  servers  threads  training  examples/s  speed-up  efficiency  accuracy  same weights\n\
             \u{20}     1        0        2     2.0 s         320     1.00×        100%    66.67%         ✓ yes\n\
             \u{20}     2        1        4     1.2 s         320     1.60×         80%    66.67%         ✓ yes\n\
             \u{20}     4        1        4     1.2 s         320     1.60×         40%    66.67%          ✗ no\n"
        );
        let remarks = study().remarks().join(" ");
        for expect in ["stopped before every run", "has 2 cores: 4 threads", "did not end with"] {
            assert!(remarks.contains(expect), "{remarks}");
        }
    }

    #[test]
    fn the_documents_read_back_and_stand_alone() {
        let study = study();
        assert_eq!(serde_json::from_str::<Study>(&study.to_json()).unwrap(), study);
        let html = study.page();
        assert!(html.contains("net &lt;b&gt;") && !html.contains("NaN"));
        assert!(!html.contains("<script") && !html.contains("http"), "nothing from elsewhere");
        for title in ["Speed-up", "Efficiency", "Accuracy by time", "Accuracy by step", "ideal"] {
            assert!(html.contains(title), "{title} is missing");
        }
        assert!(!Study::new("x", String::new(), 1).page().contains("<figure"));
    }
}
