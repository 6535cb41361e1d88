//! `report.html`: the report as one page that needs nothing else and reads well on a phone.
//!
//! Owns the page, and what all pages share. `maud` escapes all text. Never computes a figure.

use crate::audit::Verdict;
use crate::machines::Machines;
use crate::run_dir::metrics::{Line, Span};
use crate::summary::GivenUp;
use crate::traces::chart::{self, Curve, Figure, STEPS, Scale};
use crate::traces::confusion;
use crate::traces::regression;
use crate::traces::report::{BestEpoch, Report};
use crate::traces::timeline::{Kind, Mark, Timeline};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use planaria_recipe::train::Monitor;
use planaria_recipe::train::methods::has_shards;
use planaria_text::number::{amount, bytes, counted, duration, grouped, percent, short};

/// The page of a run whose events make this timeline.
pub fn page(report: &Report, lines: &[Line], timeline: &Timeline, recipe: &str) -> String {
    let mut marks = timeline.marks.clone();
    marks.extend(best(report));
    let strip = timeline.strip();
    let head = html! { @if strip.is_some() { style { (PreEscaped(STRIP_CSS)) } } };
    let body = html! {
        (heading(report))
        (cards(&figures(report)))
        (regression::advice(report))
        (charts(lines, &marks))
        (regression::units(report))
        @if let Some(strip) = &strip { (strip) }
        (regression::predictions(report))
        (confusion::section(report))
        (classes(report))
        (details(report))
        h2 { "Recipe" }
        div.wide { pre { (recipe.trim_end()) } }
        (footer(&report.planaria_version))
    };
    document(&report.run_id, head, body)
}

/// Of the strip of who was there.
pub(super) const STRIP_CSS: &str = include_str!("live.css");

/// A page that needs nothing else; `head` is added to what every page has there.
pub(super) fn document(name: &str, head: Markup, body: Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (name) " · planaria" }
                style { (PreEscaped(include_str!("report.css"))) }
                (head)
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

pub(super) fn footer(version: &str) -> Markup {
    html! { footer { "Written by planaria " (version) "." } }
}

/// A few figures, large, each with what it is.
pub(super) fn cards(figures: &[(String, String)]) -> Markup {
    html! {
        div.cards {
            @for (value, label) in figures {
                div.card { b { (value) } span { (label) } }
            }
        }
    }
}

/// A share as a tick of an axis.
pub(super) fn percent_tick(share: f64) -> String {
    format!("{}%", short((share * 1e6).round() / 1e4))
}

/// Of an accuracy: its axis may reach beyond what that can be.
pub(super) fn accuracy_tick(share: f64) -> String {
    if share > 1.0 + 1e-9 { String::new() } else { percent_tick(share) }
}

/// A time stamp as people read it.
pub(super) fn moment(stamp: &str) -> String {
    stamp.replace('T', " ").replace('Z', " UTC")
}

fn heading(report: &Report) -> Markup {
    html! {
        h1 {
            (report.recipe) " "
            span class={ "badge " (report.outcome.name()) } { (report.outcome.text()) }
        }
        p.sub { (report.run_id) " · " (moment(&report.started)) }
        @if let Some(reason) = &report.reason { p.sub { (reason) } }
        (hint(report.hint.as_deref()))
    }
}

/// What to do about a failure.
pub(super) fn hint(hint: Option<&str>) -> Markup {
    html! { @if let Some(hint) = hint { p.hint { b { "Hint: " } (hint) } } }
}

/// The best epoch, as a mark on the curves.
fn best(report: &Report) -> Option<Mark> {
    let best = report.best.as_ref()?;
    let text = format!("best epoch: {}", best_text(best));
    Some(Mark { step: best.step, kind: Kind::Best, text })
}

/// `7 (accuracy 0.98)`.
fn best_text(best: &BestEpoch) -> String {
    let monitor = match best.monitor {
        Monitor::Loss => "loss",
        Monitor::Accuracy => "accuracy",
    };
    format!("{} ({monitor} {})", best.epoch, short(best.value))
}

fn figures(report: &Report) -> Vec<(String, String)> {
    let part = report.evaluated_on.as_deref().unwrap_or("");
    let mut figures: Vec<(String, String)> = Vec::new();
    let mut add = |value: Option<String>, label: String| {
        figures.extend(value.map(|value| (value, label)));
    };
    add(report.accuracy.map(percent), format!("{part} accuracy"));
    match &report.positive {
        Some(positive) => {
            add(Some(percent(positive.f1)), format!("{part} F1 of `{}`", positive.class));
        }
        None => add(report.f1.map(percent), format!("{part} F1, mean over classes")),
    }
    add(report.rmse.map(amount), format!("{part} RMSE"));
    add(report.mae.map(amount), format!("{part} MAE"));
    add(report.r2.map(short), format!("{part} R²"));
    let units = if report.target_scale.is_some() { ", of the standardised label" } else { "" };
    add(report.loss.map(short), format!("{part} loss{units}"));
    add(
        report.examples_per_second.map(|s| grouped(s.round() as u64)),
        "examples per second".into(),
    );
    add(Some(duration(report.seconds_training)), "training time".into());
    let plural = if report.epochs == 1 { "epoch" } else { "epochs" };
    add(Some(report.epochs.to_string()), format!("{plural}, {}", counted(report.steps, "step")));
    add(Some(grouped(report.parameters as u64)), "parameters".into());
    figures
}

/// Curves of what was measured while the run trained, and what happened meanwhile.
pub(super) fn charts(lines: &[Line], marks: &[Mark]) -> Markup {
    let points = |span: Span, of: fn(&Line) -> Option<f64>| -> Vec<(f64, f64)> {
        let of_span = lines.iter().filter(|l| l.span == span);
        of_span.filter_map(|l| Some((l.step as f64, of(l)?))).collect()
    };
    let train = |noisy, of| Curve {
        name: "training".into(),
        class: "train".into(),
        dots: false,
        noisy,
        points: points(Span::Steps, of),
    };
    let validation = |of| Curve {
        name: "validation".into(),
        class: "val".into(),
        dots: true,
        noisy: false,
        points: points(Span::Epoch, of),
    };
    let across: Vec<chart::Mark> = marks
        .iter()
        .map(|mark| chart::Mark {
            place: mark.step as f64,
            class: mark.kind.class(),
            text: mark.text.clone(),
        })
        .collect();
    let figure = |title, curves: &[Curve], scale, tick| {
        Figure { title, along: STEPS, curves, marks: &across, scale, tick }.draw()
    };
    let speed = |value: f64| grouped(value.max(0.0).round() as u64);
    let figures: Vec<Markup> = [
        figure(
            "Loss",
            &[train(true, |l| l.loss), validation(|l| l.validation_loss)],
            Scale::Logarithmic,
            short,
        ),
        figure(
            "Accuracy",
            &[train(true, |l| l.accuracy), validation(|l| l.validation_accuracy)],
            Scale::Linear,
            accuracy_tick,
        ),
        figure("RMSE", &[validation(|l| l.validation_rmse)], Scale::Logarithmic, amount),
        figure(
            "Examples per second",
            &[train(true, |l| l.examples_per_second)],
            Scale::FromZero,
            speed,
        ),
        figure(
            "Learning rate",
            &[train(false, |l| Some(f64::from(l.learning_rate)))],
            Scale::FromZero,
            short,
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    html! {
        @if !figures.is_empty() {
            h2 { "Curves" }
            div.charts { @for figure in &figures { (figure) } }
            @if !marks.is_empty() {
                p.note {
                    @for kind in [Kind::Best, Kind::Lost, Kind::Resumed] {
                        @if marks.iter().any(|mark| mark.kind == kind) {
                            span class={ "key mark " (kind.class()) } { (kind.text()) } " "
                        }
                    }
                }
            }
            p.note {
                "By step. Training figures were taken while the weights were changing; \
                 validation follows each epoch. Point at a curve, or at a mark, to read it."
            }
        }
    }
}

fn classes(report: &Report) -> Markup {
    if report.per_class.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Classes" }
        div.wide {
            table {
                thead {
                    tr { th { "class" } th { "precision" } th { "recall" } th { "F1" } th { "examples" } }
                }
                tbody {
                    @for class in &report.per_class {
                        tr {
                            td { (class.class) }
                            td { (percent(class.precision)) }
                            td { (percent(class.recall)) }
                            td {
                                (percent(class.f1))
                                span.bar { i style={ "width:" (format!("{:.0}", 100.0 * class.f1)) "%" } {} }
                            }
                            td { (grouped(class.support)) }
                        }
                    }
                }
            }
        }
    }
}

fn details(report: &Report) -> Markup {
    let mut rows: Vec<(&str, String)> = vec![
        (
            "method",
            match has_shards(&report.method) {
                true => {
                    let (shards, batch) = (counted(report.shards as u64, "shard"), report.batch);
                    format!("{}, {shards} of batch {}", report.method, grouped(batch as u64))
                }
                false => format!("{}, batch {}", report.method, grouped(report.batch as u64)),
            },
        ),
        ("engine", format!("{}, {}", report.engine, counted(report.threads as u64, "thread"))),
        ("seed", report.seed.to_string()),
        ("examples seen", grouped(report.examples)),
        (
            "each example once per epoch",
            if report.samples_exactly_once { "yes, by count" } else { "no" }.into(),
        ),
        ("exactly once, by audit", by_audit(report).into()),
        ("total time", duration(report.seconds_total)),
    ];
    let mut add = |label, value: Option<String>| rows.extend(value.map(|value| (label, value)));
    add(
        "processes",
        (report.workers > 0).then(|| {
            let workers = counted(report.workers.into(), "worker");
            format!("{workers}, {}", counted(report.servers.into(), "server"))
        }),
    );
    add(
        "survived",
        (report.processes_lost > 0 || report.superseded_steps > 0).then(|| survived(report)),
    );
    for GivenUp { machine, reason } in &report.machines_given_up {
        let reason = reason.lines().next().unwrap_or_default();
        add("given up", Some(format!("{machine}: {reason}")));
    }
    add(
        "positive class",
        report.positive.as_ref().map(|p| {
            let (precision, recall) = (percent(p.precision), percent(p.recall));
            let (class, f1) = (&p.class, percent(p.f1));
            format!("{class}: F1 {f1}, precision {precision}, recall {recall}")
        }),
    );
    add("efficiency through losses", report.efficiency.map(percent));
    add("first step after", report.seconds_to_first_step.map(duration));
    add("steps per second", report.steps_per_second.map(short));
    add("peak memory", report.peak_memory_bytes.map(bytes));
    add("best epoch", report.best.as_ref().map(best_text));
    add("resumed", (report.resumes > 0).then(|| counted(report.resumes, "time")));
    add("weights SHA-256", report.weights_sha256.clone());
    html! {
        h2 { "Run" }
        div.wide {
            dl { @for (label, value) in rows { dt { (label) } dd { (value) } } }
        }
    }
}

/// What the audit says, as `audit` does.
fn by_audit(report: &Report) -> &'static str {
    match (report.exactly_once, report.verdict) {
        (true, _) => "yes",
        (false, Some(Verdict::No) | None) => "no",
        // Events are missing, of these steps or of later ones.
        (false, _) => "not proven",
    }
}

/// What was lost, and what became of it.
fn survived(report: &Report) -> String {
    let machines = Machines {
        processes_lost: report.processes_lost,
        processes_joined: report.processes_joined,
        machines_lost: report.machines_lost,
        machines_joined: report.machines_joined,
        ..Machines::default()
    };
    format!(
        "{}; {} computed again, {} taken again",
        machines.moves(),
        counted(report.recomputed_shards, "shard"),
        counted(report.superseded_steps, "step")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::metrics::tests::line;

    #[test]
    fn the_page_stands_alone_and_escapes_what_users_wrote() {
        let report = crate::traces::report::tests::sample();
        let lines = [line(Span::Steps, 5, 1), line(Span::Steps, 10, 1), line(Span::Epoch, 10, 1)];
        let html = page(&report, &lines, &Timeline::default(), "name: <script>alert('x')</script>");
        assert!(html.contains("viewport") && html.contains("prefers-color-scheme:dark"));
        assert!(html.contains("net &lt;b&gt;") && html.contains("cat &amp; dog"));
        assert!(!html.contains("<script") && !html.contains("http"), "nothing from elsewhere");
        for title in ["Loss", "Accuracy", "Examples per second", "Learning rate", "Confusion"] {
            assert!(html.contains(title), "{title} is missing");
        }
        assert!(html.contains("<dt>each example once per epoch</dt><dd>yes, by count</dd>"));
        assert!(html.contains("1 for cat &amp; dog (1)"), "the commonest mistake is named");
    }

    #[test]
    fn the_audits_verdict_is_told_as_the_audit_tells_it() {
        let mut report = crate::traces::report::tests::sample();
        for (exactly_once, verdict, expect) in [
            (true, Some(Verdict::Yes), "yes"),
            (false, Some(Verdict::Incomplete), "not proven"),
            (false, Some(Verdict::No), "no"),
            (false, None, "no"),
        ] {
            (report.exactly_once, report.verdict) = (exactly_once, verdict);
            let row = format!("<dt>exactly once, by audit</dt><dd>{expect}</dd>");
            assert!(page(&report, &[], &Timeline::default(), "").contains(&row), "{verdict:?}");
        }
    }

    #[test]
    fn a_run_without_any_figure_still_has_a_page() {
        let mut report = crate::traces::report::tests::sample();
        report.per_class.clear();
        report.confusion.clear();
        report.accuracy = None;
        let html = page(&report, &[], &Timeline::default(), "");
        assert!(!html.contains("Curves") && !html.contains("Confusion"));
    }

    #[test]
    fn marks_hints_and_what_was_lost_are_on_the_page() {
        let mut report = crate::traces::report::tests::sample();
        report.outcome = crate::outcome::Outcome::Failed;
        report.reason = Some("training failed at step 7: the loss is NaN".into());
        report.hint = Some("lower the <learning rate>".into());
        (report.workers, report.servers, report.threads) = (1, 2, 1);
        (report.processes_lost, report.processes_joined, report.resumes) = (1, 1, 1);
        let (monitor, value) = (Monitor::Accuracy, 0.98);
        report.best = Some(BestEpoch { monitor, value, epoch: 2, step: 10 });
        let mark = |step, kind, text: &str| Mark { step, kind, text: text.into() };
        let mut timeline = Timeline::default();
        timeline.marks =
            vec![mark(5, Kind::Lost, "worker-0 was lost"), mark(7, Kind::Resumed, "resumed")];
        let lines = [line(Span::Steps, 5, 1), line(Span::Steps, 10, 1), line(Span::Epoch, 10, 1)];
        let html = page(&report, &lines, &timeline, "");
        for expect in [
            "<p class=\"hint\"><b>Hint: </b>lower the &lt;learning rate&gt;</p>",
            "<title>best epoch: 2 (accuracy 0.98)</title>",
            "<title>worker-0 was lost</title>",
            "class=\"key mark lost\">a process or machine was lost<",
            "<dt>resumed</dt><dd>1 time</dd>",
            "<dt>processes</dt><dd>1 worker, 2 servers</dd>",
            "<dd>1 process lost, 1 joined; 0 shards computed again, 0 steps taken again</dd>",
            "cpu-portable, 1 thread<",
        ] {
            assert!(html.contains(expect), "`{expect}` is missing in {html}");
        }
        assert!(!html.contains("1 machine"), "a process is no machine: {html}");
    }
}
