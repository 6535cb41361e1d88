//! `report.html`: the report as one page that needs nothing else and reads well on a phone.
//!
//! Owns the page. All text that comes from users is escaped. Never computes a figure.

use crate::number::{bytes, counted, duration, grouped, percent, short};
use crate::run_dir::metrics::{Line, Span};
use crate::traces::chart::{Curve, STEPS, Scale, figure};
use crate::traces::report::Report;
use planaria_recipe::train::Monitor;
use planaria_recipe::train::methods::has_shards;
use std::fmt::Write;

/// Classes up to which the whole confusion matrix is shown.
const MATRIX_CLASSES_MAX: usize = 40;
/// Confusions listed.
const CONFUSIONS_MAX: usize = 8;

/// The page.
pub fn page(report: &Report, lines: &[Line], recipe: &str) -> String {
    let mut html = head(&report.run_id);
    heading(&mut html, report);
    cards(&mut html, report);
    charts(&mut html, lines);
    confusion(&mut html, report);
    classes(&mut html, report);
    details(&mut html, report);
    let _ = write!(
        html,
        "<h2>Recipe</h2>\n<div class=\"wide\"><pre>{}</pre></div>\n\
         <footer>Written by planaria {}.</footer>\n</main>\n</body>\n</html>\n",
        escape(recipe.trim_end()),
        escape(&report.planaria_version)
    );
    html
}

/// The beginning of a page that needs nothing else.
pub(super) fn head(name: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{name} · planaria</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n",
        name = escape(name),
        css = include_str!("report.css"),
    )
}

/// A share as a tick of an axis.
pub(super) fn percent_tick(share: f64) -> String {
    format!("{}%", short((share * 1e6).round() / 1e4))
}

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn heading(html: &mut String, report: &Report) {
    let class = report.outcome.name();
    let _ = write!(
        html,
        "<h1>{} <span class=\"badge {class}\">{}</span></h1>\n<p class=\"sub\">{} · {}</p>\n",
        escape(&report.recipe),
        report.outcome.text(),
        escape(&report.run_id),
        escape(&report.started.replace('T', " ").replace('Z', " UTC")),
    );
    if let Some(reason) = &report.reason {
        let _ = writeln!(html, "<p class=\"sub\">{}</p>", escape(reason));
    }
}

fn cards(html: &mut String, report: &Report) {
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
    add(report.mse.map(short), format!("{part} mean squared error"));
    add(report.mae.map(short), format!("{part} mean absolute error"));
    add(report.loss.map(short), format!("{part} loss"));
    add(
        report.examples_per_second.map(|s| grouped(s.round() as u64)),
        "examples per second".into(),
    );
    add(Some(duration(report.seconds_training)), "training time".into());
    let plural = if report.epochs == 1 { "epoch" } else { "epochs" };
    add(Some(report.epochs.to_string()), format!("{plural}, {} steps", grouped(report.steps)));
    add(Some(grouped(report.parameters as u64)), "parameters".into());
    html.push_str("<div class=\"cards\">\n");
    for (value, label) in figures {
        let _ = writeln!(
            html,
            "<div class=\"card\"><b>{}</b><span>{}</span></div>",
            escape(&value),
            escape(&label)
        );
    }
    html.push_str("</div>\n");
}

/// Curves of what was measured while the run trained.
pub(super) fn charts(html: &mut String, lines: &[Line]) {
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
    let figures = [
        figure(
            "Loss",
            STEPS,
            &[train(true, |l| l.loss), validation(|l| l.validation_loss)],
            Scale::Logarithmic,
            short,
        ),
        figure(
            "Accuracy",
            STEPS,
            &[train(true, |l| l.accuracy), validation(|l| l.validation_accuracy)],
            Scale::Linear,
            percent_tick,
        ),
        figure(
            "Examples per second",
            STEPS,
            &[train(true, |l| l.examples_per_second)],
            Scale::FromZero,
            |v| grouped(v.max(0.0).round() as u64),
        ),
        figure(
            "Learning rate",
            STEPS,
            &[train(false, |l| Some(f64::from(l.learning_rate)))],
            Scale::FromZero,
            short,
        ),
    ]
    .concat();
    if !figures.is_empty() {
        let _ = write!(
            html,
            "<h2>Curves</h2>\n<div class=\"charts\">\n{figures}</div>\n\
             <p class=\"note\">By step. Training figures were taken while the weights were changing; \
             validation follows each epoch.</p>\n"
        );
    }
}

fn confusion(html: &mut String, report: &Report) {
    if report.confusion.is_empty() {
        return;
    }
    let part = report.evaluated_on.as_deref().unwrap_or("");
    let _ = writeln!(html, "<h2>Confusion matrix</h2>");
    if report.confusion.len() <= MATRIX_CLASSES_MAX {
        html.push_str("<div class=\"wide\"><table class=\"heat\"><thead><tr><th></th>");
        for class in &report.per_class {
            let _ = write!(html, "<th scope=\"col\">{}</th>", escape(&class.class));
        }
        html.push_str("</tr></thead><tbody>\n");
        for (truth, row) in report.confusion.iter().enumerate() {
            matrix_row(html, report, truth, row);
        }
        html.push_str("</tbody></table></div>\n");
    }
    let _ = writeln!(
        html,
        "<p class=\"note\">{} {} examples; rows are true classes, columns predicted ones.{}</p>",
        grouped(report.evaluated_examples),
        escape(part),
        escape(&confusions(report))
    );
}

fn matrix_row(html: &mut String, report: &Report, truth: usize, row: &[u64]) {
    let support: u64 = row.iter().sum::<u64>().max(1);
    let _ = write!(html, "<tr><th scope=\"row\">{}</th>", escape(&report.per_class[truth].class));
    for (predicted, count) in row.iter().enumerate() {
        let share = *count as f64 / support as f64;
        // Mistakes are rare in a good network: a few per cent must already be seen.
        let (colour, strength) = if truth == predicted {
            ("good", 0.12 + 0.5 * share)
        } else {
            ("bad", (0.1 + 4.0 * share).min(0.75))
        };
        let _ = match count {
            0 => write!(html, "<td class=\"zero\">0</td>"),
            count => write!(
                html,
                "<td style=\"background:rgb(var(--{colour})/{strength:.2})\" title=\"{} taken for {}: {} ({})\">{count}</td>",
                escape(&report.per_class[truth].class),
                escape(&report.per_class[predicted].class),
                grouped(*count),
                percent(share),
            ),
        };
    }
    html.push_str("</tr>\n");
}

/// The commonest mistakes as a sentence.
fn confusions(report: &Report) -> String {
    let mut pairs: Vec<(u64, usize, usize)> = Vec::new();
    for (truth, row) in report.confusion.iter().enumerate() {
        let wrong = row.iter().enumerate().filter(|(p, n)| *p != truth && **n > 0);
        pairs.extend(wrong.map(|(predicted, n)| (*n, truth, predicted)));
    }
    pairs.sort_by_key(|(n, truth, predicted)| (std::cmp::Reverse(*n), *truth, *predicted));
    pairs.truncate(CONFUSIONS_MAX);
    if pairs.is_empty() {
        return " No mistakes.".into();
    }
    let name = |class: usize| &report.per_class[class].class;
    let list: Vec<String> = pairs
        .iter()
        .map(|(n, truth, predicted)| format!("{} for {} ({n})", name(*truth), name(*predicted)))
        .collect();
    format!(" Most often mistaken: {}.", list.join(", "))
}

fn classes(html: &mut String, report: &Report) {
    if report.per_class.is_empty() {
        return;
    }
    html.push_str(
        "<h2>Classes</h2>\n<div class=\"wide\"><table><thead><tr><th>class</th><th>precision</th>\
         <th>recall</th><th>F1</th><th>examples</th></tr></thead><tbody>\n",
    );
    for class in &report.per_class {
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}<span class=\"bar\"><i style=\"width:{:.0}%\"></i></span></td><td>{}</td></tr>",
            escape(&class.class),
            percent(class.precision),
            percent(class.recall),
            percent(class.f1),
            100.0 * class.f1,
            grouped(class.support),
        );
    }
    html.push_str("</tbody></table></div>\n");
}

fn details(html: &mut String, report: &Report) {
    let mut rows: Vec<(&str, String)> = vec![
        (
            "method",
            match has_shards(&report.method) {
                true => {
                    format!("{}, {} shards of batch {}", report.method, report.shards, report.batch)
                }
                false => format!("{}, batch {}", report.method, grouped(report.batch as u64)),
            },
        ),
        ("engine", format!("{}, {} threads", report.engine, report.threads)),
        ("seed", report.seed.to_string()),
        ("examples seen", grouped(report.examples)),
        (
            "each example once per epoch",
            if report.samples_exactly_once { "yes, by count" } else { "no" }.into(),
        ),
        ("exactly once, by audit", if report.exactly_once { "yes" } else { "no" }.into()),
        ("total time", duration(report.seconds_total)),
    ];
    let mut add = |label, value: Option<String>| rows.extend(value.map(|value| (label, value)));
    add(
        "processes",
        (report.workers > 0)
            .then(|| format!("{} workers, {} servers", report.workers, report.servers)),
    );
    add(
        "survived",
        (report.machines_lost > 0 || report.superseded_steps > 0).then(|| survived(report)),
    );
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
    add(
        "best epoch",
        report.best.as_ref().map(|best| {
            let monitor = match best.monitor {
                Monitor::Loss => "loss",
                Monitor::Accuracy => "accuracy",
            };
            format!("{} ({monitor} {})", best.epoch, short(best.value))
        }),
    );
    add("resumed", (report.resumes > 0).then(|| format!("{}×", report.resumes)));
    add("weights SHA-256", report.weights_sha256.clone());
    html.push_str("<h2>Run</h2>\n<div class=\"wide\"><dl>\n");
    for (label, value) in rows {
        let _ = writeln!(html, "<dt>{label}</dt><dd>{}</dd>", escape(&value));
    }
    html.push_str("</dl></div>\n");
}

/// What was lost, and what became of it.
fn survived(report: &Report) -> String {
    format!(
        "{} lost, {} joined, {} computed again, {} taken again",
        counted(report.machines_lost, "machine"),
        grouped(report.machines_joined),
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
        let html = page(&report, &lines, "name: <script>alert('x')</script>");
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
    fn a_run_without_any_figure_still_has_a_page() {
        let mut report = crate::traces::report::tests::sample();
        report.per_class.clear();
        report.confusion.clear();
        report.accuracy = None;
        let html = page(&report, &[], "");
        assert!(!html.contains("Curves") && !html.contains("Confusion"));
    }
}
