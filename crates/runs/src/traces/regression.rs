//! What a report shows of numbers to predict: each predicted one against the true one, and what to
//! try where predictions say nothing.
//!
//! Draws from the report alone. Never counts.

use crate::outcome::against_the_mean;
use crate::traces::chart::nice_ticks;
use crate::traces::report::Report;
use maud::{Markup, PreEscaped, html};
use planaria_learn::scores::numbers::Pair;
use planaria_numerics::regression::TargetScale;
use planaria_text::number::{amount, grouped};
use std::fmt::Write;

/// The picture is a square of this size, with room for labels on the left and below.
const SIZE: f64 = 400.0;
const LEFT: f64 = 62.0;
const BOTTOM: f64 = 36.0;
const EDGE: f64 = 10.0;
/// Between a label and its line.
const GAP: f64 = 5.0;

/// What to try where predictions say no more than the mean.
pub(super) fn advice(report: &Report) -> Markup {
    let advice = report.errors().and_then(|errors| against_the_mean(&errors));
    html! { @if let Some(advice) = advice { p.note { "The result is " (advice) "." } } }
}

/// What losses are of, where these are in no units of the user's.
pub(super) fn units(report: &Report) -> Markup {
    html! {
        @if let Some(TargetScale { mean, std }) = report.target_scale {
            p.note {
                "Losses are of the standardised label: (label \u{2212} " (amount(mean)) ") / "
                (amount(std)) ". Errors are in the label's own units."
            }
        }
    }
}

/// Predicted numbers against the true ones.
pub(super) fn predictions(report: &Report) -> Markup {
    let Some(axis) = Axis::of(&report.predictions) else { return html! {} };
    html! {
        h2 { "Predicted against true" }
        figure.square {
            figcaption { span { (examples(report)) } span.key.ideal { "exact" } }
            (PreEscaped(picture(&report.predictions, &axis)))
        }
    }
}

/// Whose predictions are shown.
fn examples(report: &Report) -> String {
    let part = report.evaluated_on.as_deref().unwrap_or("scored");
    let shown = report.predictions.len() as u64;
    match shown < report.evaluated_examples {
        true => {
            format!("{} of {} {part} examples", grouped(shown), grouped(report.evaluated_examples))
        }
        false => format!("{} {part} examples", grouped(shown)),
    }
}

/// Both axes: they show the same numbers, so that what is right lies on the diagonal.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of(pairs: &[Pair]) -> Option<Self> {
        let numbers = || pairs.iter().flat_map(|Pair(truth, predicted)| [*truth, *predicted]);
        let low = numbers().map(f64::from).fold(f64::INFINITY, f64::min);
        let high = numbers().map(f64::from).fold(f64::NEG_INFINITY, f64::max);
        let room = if high > low { 0.04 * (high - low) } else { 0.05 * high.abs().max(1e-9) };
        (low <= high).then_some(Self { low: low - room, high: high + room })
    }

    fn share(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (SIZE - LEFT - EDGE) * self.share(value)
    }

    fn y(&self, value: f64) -> f64 {
        SIZE - BOTTOM - (SIZE - BOTTOM - EDGE) * self.share(value)
    }
}

fn picture(pairs: &[Pair], axis: &Axis) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {SIZE} {SIZE}\" role=\"img\" aria-label=\"predicted against true\">"
    );
    grid(&mut svg, axis);
    let (low, high) = (axis.low, axis.high);
    let _ = write!(
        svg,
        "<path class=\"curve ideal\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/><g class=\"dots val cloud\">",
        axis.x(low),
        axis.y(low),
        axis.x(high),
        axis.y(high)
    );
    for Pair(truth, predicted) in pairs {
        let (truth, predicted) = (f64::from(*truth), f64::from(*predicted));
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\"><title>true {}, predicted {}</title></circle>",
            axis.x(truth),
            axis.y(predicted),
            amount(truth),
            amount(predicted)
        );
    }
    svg.push_str("</g></svg>");
    svg
}

fn grid(svg: &mut String, axis: &Axis) {
    for value in nice_ticks(axis.low, axis.high, 4) {
        let (x, y, text) = (axis.x(value), axis.y(value), amount(value));
        let (right, bottom) = (SIZE - EDGE, SIZE - BOTTOM);
        // The last one ends at the edge, however long it is.
        let is_last = x > SIZE - LEFT;
        let (at, anchor) = if is_last { (right + EDGE - 1.0, "end") } else { (x, "middle") };
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}M{x:.1} {EDGE}V{bottom}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>",
            LEFT - GAP,
            y + 3.5,
            bottom + 13.0
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">true</text>\
         <text x=\"{:.1}\" y=\"{:.1}\">predicted</text>",
        SIZE - EDGE,
        SIZE - 6.0,
        LEFT + GAP,
        EDGE + 8.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::html::page;
    use crate::traces::report::tests::sample;
    use crate::traces::timeline::Timeline;

    fn report(pairs: &[(f32, f32)], r2: f64) -> Report {
        let mut report = sample();
        report.predictions = pairs.iter().map(|(truth, output)| Pair(*truth, *output)).collect();
        (report.rmse, report.mae, report.r2) = (Some(31_204.4), Some(20_000.0), Some(r2));
        report
    }

    #[test]
    fn predictions_are_drawn_with_their_numbers() {
        let mut report = report(&[(50_000.0, 60_000.0), (400_000.0, 380_000.0)], 0.8);
        report.evaluated_examples = 2000;
        report.target_scale = Some(TargetScale { mean: 210_000.0, std: 80_000.0 });
        let html = page(&report, &[], &Timeline::default(), "");
        assert!(html.contains("<title>true 50,000, predicted 60,000</title>"), "{html}");
        assert!(html.contains("2 of 2,000 test examples"), "{html}");
        assert!(html.contains("label \u{2212} 210,000) / 80,000"), "{html}");
        assert!(html.contains("<b>31,204</b><span>test RMSE</span>"), "{html}");
        assert!(!html.contains("no better than"), "{html}");
    }

    #[test]
    fn a_result_that_says_nothing_is_told() {
        let html = page(&report(&[], -0.5), &[], &Timeline::default(), "");
        assert!(html.contains("The result is no better than always predicting the mean"), "{html}");
        assert!(!html.contains("Predicted against true"), "there is nothing to draw");
    }

    #[test]
    fn one_number_over_and_over_still_has_a_picture() {
        for value in [0.0, 7.0, -3.0e30] {
            let svg = predictions(&report(&[(value, value)], 0.0)).into_string();
            assert!(svg.contains("<circle") && !svg.contains("NaN"), "{svg}");
        }
    }
}
