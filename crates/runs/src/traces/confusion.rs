//! The confusion matrix of a page: a table of few classes, a heat map of many.
//!
//! Never computes a figure but shares of a row.

use crate::traces::report::Report;
use maud::{Markup, html};
use planaria_text::number::{grouped, percent};
use planaria_text::paint::{shortened, width};

/// Classes up to which each count is shown as a number.
const TABLE_CLASSES_MAX: usize = 12;
/// Classes of a heat map; of more, a cell is smaller than a point.
const MAP_CLASSES_MAX: usize = 300;
/// Names beside a heat map.
const NAMES_MAX: usize = 50;
/// Columns of a name beside a heat map, at most.
const NAME_COLUMNS_MAX: usize = 14;
/// Width and height of a heat map's cells, and of a character of a name.
const MAP: f64 = 600.0;
const CHARACTER: f64 = 6.2;
/// Confusions listed.
const CONFUSIONS_MAX: usize = 8;

pub fn section(report: &Report) -> Markup {
    let classes = report.confusion.len();
    if classes == 0 {
        return html! {};
    }
    html! {
        h2 { "Confusion matrix" }
        @if classes <= TABLE_CLASSES_MAX {
            (table(report))
        } @else if classes <= MAP_CLASSES_MAX {
            (map(report))
        }
        p.note {
            (grouped(report.evaluated_examples)) " " (report.evaluated_on.as_deref().unwrap_or(""))
            " examples; rows are true classes, columns predicted ones." (confusions(report))
        }
    }
}

fn table(report: &Report) -> Markup {
    html! {
        div.wide {
            table.heat {
                thead {
                    tr { th {} @for class in &report.per_class { th scope="col" { (class.class) } } }
                }
                tbody {
                    @for (truth, row) in report.confusion.iter().enumerate() {
                        tr {
                            th scope="row" { (name(report, truth)) }
                            @for predicted in 0..row.len() { (table_cell(report, truth, predicted)) }
                        }
                    }
                }
            }
        }
    }
}

fn table_cell(report: &Report, truth: usize, predicted: usize) -> Markup {
    let Some(cell) = Cell::of(report, truth, predicted) else { return html! { td.zero { "0" } } };
    let style = format!("background:{}", cell.colour);
    html! { td style=(style) title=(cell.title) { (cell.count) } }
}

/// A cell that some examples are in.
struct Cell {
    count: u64,
    colour: String,
    title: String,
}

impl Cell {
    fn of(report: &Report, truth: usize, predicted: usize) -> Option<Self> {
        let row = &report.confusion[truth];
        let count = row[predicted];
        let share = count as f64 / row.iter().sum::<u64>().max(1) as f64;
        // Mistakes are rare in a good network: a few per cent must already be seen.
        let (colour, strength) = match truth == predicted {
            true => ("good", 0.12 + 0.5 * share),
            false => ("bad", (0.1 + 4.0 * share).min(0.75)),
        };
        let names = [truth, predicted].map(|class| name(report, class));
        let of = format!("{} ({})", grouped(count), percent(share));
        let title = match truth == predicted {
            true => format!("{} recognised: {of}", names[0]),
            false => format!("{} taken for {}: {of}", names[0], names[1]),
        };
        let colour = format!("rgb(var(--{colour})/{strength:.2})");
        (count > 0).then_some(Self { count, colour, title })
    }
}

fn map(report: &Report) -> Markup {
    let classes = report.confusion.len();
    let cell = MAP / classes as f64;
    let stride = classes.div_ceil(NAMES_MAX);
    let named: Vec<(usize, String)> = (0..classes)
        .step_by(stride)
        .map(|class| (class, shortened(name(report, class), NAME_COLUMNS_MAX)))
        .collect();
    let longest = named.iter().map(|(_, name)| width(name)).max().unwrap_or(0);
    let margin = 8.0 + CHARACTER * longest as f64;
    let middle = |class: usize| margin + (class as f64 + 0.5) * cell;
    let size = margin + MAP + 2.0;
    let cells = (0..classes).flat_map(|t| (0..classes).map(move |p| (t, p)));
    html! {
        div.wide {
            svg.map viewBox={ "0 0 " (tenth(size)) " " (tenth(size)) } role="img"
                aria-label="confusion matrix as a heat map" {
                rect.frame x=(tenth(margin)) y=(tenth(margin)) width=(MAP) height=(MAP) {}
                @for (class, name) in &named {
                    @let at = middle(*class);
                    text x=(tenth(margin - 4.0)) y=(tenth(at + 3.5)) text-anchor="end" { (name) }
                    text transform={
                        "translate(" (tenth(at + 3.5)) " " (tenth(margin - 4.0)) ") rotate(-90)"
                    } { (name) }
                }
                @for (truth, predicted) in cells {
                    @if let Some(found) = Cell::of(report, truth, predicted) {
                        rect x=(hundredth(margin + predicted as f64 * cell))
                            y=(hundredth(margin + truth as f64 * cell))
                            width=(hundredth(cell)) height=(hundredth(cell))
                            style={ "fill:" (found.colour) } { title { (found.title) } }
                    }
                }
            }
        }
    }
}

fn name(report: &Report, class: usize) -> &str {
    report.per_class.get(class).map_or("", |class| class.class.as_str())
}

fn tenth(length: f64) -> String {
    format!("{length:.1}")
}

fn hundredth(length: f64) -> String {
    format!("{length:.2}")
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
    let list: Vec<String> = pairs
        .iter()
        .map(|(n, truth, predicted)| {
            format!("{} for {} ({n})", name(report, *truth), name(report, *predicted))
        })
        .collect();
    format!(" Most often mistaken: {}.", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_learn::scores::ClassScores;

    /// A report with so many classes, the first of which is taken for the last now and then.
    fn report(classes: usize) -> Report {
        let mut report = crate::traces::report::tests::sample();
        let class = |n: usize| ClassScores {
            class: format!("class <{n}>"),
            precision: 1.0,
            recall: 1.0,
            f1: 1.0,
            support: 10,
        };
        report.per_class = (0..classes).map(class).collect();
        let row = |n: usize| (0..classes).map(|p| if p == n { 7 } else { 0 }).collect();
        report.confusion = (0..classes).map(row).collect();
        report.confusion[0][classes - 1] = 3;
        report
    }

    #[test]
    fn few_classes_are_a_table_and_many_a_heat_map() {
        let few = section(&report(12)).into_string();
        assert!(few.contains("<td style") && !few.contains("<svg"), "{few}");
        let many = section(&report(13)).into_string();
        assert!(!many.contains("<td") && many.contains("<svg"), "{many}");
        assert_eq!(many.matches("<title>").count(), 14, "cells without examples are not drawn");
        let title = "class &lt;0&gt; taken for class &lt;12&gt;: 3 (30.00%)";
        assert!(many.contains(&format!("<title>{title}</title>")), "{many}");
        assert!(many.contains("Most often mistaken: class &lt;0&gt; for class &lt;12&gt; (3)."));
    }

    #[test]
    fn of_very_many_classes_some_are_named_and_of_too_many_none_drawn() {
        let many = section(&report(100)).into_string();
        assert_eq!(many.matches("rotate(-90)").count(), 50, "{many}");
        let most = section(&report(301)).into_string();
        assert!(!most.contains("<svg") && most.contains("Most often mistaken"), "{most}");
    }
}
