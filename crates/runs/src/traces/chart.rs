//! Curves as inline SVG.
//!
//! Owns axes, ticks and scales. Colours come from the page's style sheet by class name. Never
//! knows what is drawn.

use planaria_text::number::{grouped, short};
use std::fmt::Write;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 210.0;
/// Room for labels on the left, at least, and for each character of a longer one.
const LEFT: f64 = 46.0;
const CHARACTER: f64 = 6.0;
/// Between a label and its line.
const GAP: f64 = 5.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 24.0;
/// Points drawn per curve; more cannot be told apart at this width.
const POINTS_MAX: usize = 400;
/// Ticks that fit beside each other on a logarithmic axis.
const TICKS_MAX: usize = 7;
/// Means drawn over a noisy curve.
const MEANS_MAX: usize = 60;

/// A named curve.
#[derive(Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its class in the style sheet.
    pub class: String,
    /// Whether points are marked.
    pub dots: bool,
    /// Whether values are noisy, so that means are drawn over them.
    pub noisy: bool,
    /// Places along the horizontal axis and values, by place.
    pub points: Vec<(f64, f64)>,
}

/// What runs along the horizontal axis, from zero.
#[derive(Debug, Clone, Copy)]
pub struct Along {
    /// What it counts, such as `step`.
    pub what: &'static str,
    /// A place as text.
    pub text: fn(f64) -> String,
    /// Whether there is nothing between whole numbers.
    pub whole: bool,
}

pub const STEPS: Along =
    Along { what: "step", text: |step| grouped(step.max(0.0).round() as u64), whole: true };

/// How values are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Linear,
    /// From zero, evenly.
    FromZero,
    /// By their logarithm where they are positive and span much.
    Logarithmic,
}

/// The figure, or nothing where no curve has a point.
pub fn figure(
    title: &str,
    along: Along,
    curves: &[Curve],
    scale: Scale,
    tick: fn(f64) -> String,
) -> String {
    let values = || curves.iter().flat_map(|c| &c.points).map(|p| p.1);
    let Some(axis) = Axis::new(values(), scale) else { return String::new() };
    let places = curves.iter().flat_map(|c| &c.points).map(|p| p.0).filter(|x| x.is_finite());
    let last = places.fold(f64::MIN_POSITIVE, f64::max);
    let labels: Vec<(f64, String)> = axis.ticks().into_iter().map(|v| (v, tick(v))).collect();
    let longest = labels.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
    let left = LEFT.max(GAP + CHARACTER * longest as f64);
    let x = |place: f64| left + (WIDTH - left - RIGHT) * (place / last).clamp(0.0, 1.0);
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<figure><figcaption><span>{title}</span>{}</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title} by {}\">",
        legend(curves),
        along.what
    );
    for (value, text) in labels {
        let (y, right) = (axis.y(value), WIDTH - RIGHT);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            left - GAP,
            y + 3.5
        );
    }
    for place in ticks_along(last, along.whole) {
        let anchor = match place / last {
            0.0 => "start",
            share if share > 0.97 => "end",
            _ => "middle",
        };
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            x(place),
            HEIGHT - 8.0,
            (along.text)(place)
        );
    }
    for curve in curves {
        draw(&mut svg, curve, along, &x, &axis);
    }
    svg.push_str("</svg></figure>\n");
    svg
}

fn legend(curves: &[Curve]) -> String {
    if curves.len() < 2 {
        return String::new();
    }
    curves
        .iter()
        .filter(|c| !c.points.is_empty())
        .map(|c| format!("<span class=\"key {}\">{}</span>", c.class, c.name))
        .collect()
}

fn draw(svg: &mut String, curve: &Curve, along: Along, x: &dyn Fn(f64) -> f64, axis: &Axis) {
    let class = &curve.class;
    let count = if curve.noisy { MEANS_MAX } else { POINTS_MAX };
    let means = means(&curve.points, count);
    if means.len() < curve.points.len() {
        let points = path(&thinned(&curve.points), x, axis);
        let _ = write!(svg, "<path class=\"curve faint {class}\" d=\"{points}\"/>");
    }
    if means.len() > 1 {
        let _ = write!(svg, "<path class=\"curve {class}\" d=\"{}\"/>", path(&means, x, axis));
    }
    if !curve.dots && curve.points.len() > 1 {
        return;
    }
    let _ = write!(svg, "<g class=\"dots {class}\">");
    for (place, value) in thinned(&curve.points) {
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.6\"><title>{} {}: {}</title></circle>",
            x(place),
            axis.y(value),
            along.what,
            (along.text)(place),
            short(value)
        );
    }
    svg.push_str("</g>");
}

fn path(points: &[(f64, f64)], x: &dyn Fn(f64) -> f64, axis: &Axis) -> String {
    let mut path = String::new();
    for (place, value) in points {
        let letter = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x(*place), axis.y(*value));
    }
    path
}

/// Every n-th point, the last among them.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stride = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.len().saturating_sub(1);
    let kept = points.iter().enumerate().filter(|(i, _)| (last - i).is_multiple_of(stride));
    kept.map(|(_, point)| *point).collect()
}

/// Means of runs of neighbours, at most `count`, each in the middle of its run.
fn means(points: &[(f64, f64)], count: usize) -> Vec<(f64, f64)> {
    points
        .chunks(points.len().div_ceil(count).max(1))
        .map(|run| {
            let mean = run.iter().map(|p| p.1).sum::<f64>() / run.len() as f64;
            (run[run.len() / 2].0, mean)
        })
        .collect()
}

/// The vertical axis.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, scale: Scale) -> Option<Self> {
        let finite = values.filter(|v| v.is_finite());
        let low = finite.clone().fold(f64::INFINITY, f64::min);
        let high = finite.fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return None;
        }
        let logarithmic = scale == Scale::Logarithmic && low > 0.0 && high / low > 20.0;
        if logarithmic {
            return Some(Self { low: libm::log(low), high: libm::log(high), logarithmic });
        }
        let low = if scale == Scale::FromZero { low.min(0.0) } else { low };
        let room = if high > low { 0.04 * (high - low) } else { 0.05 * high.abs().max(1e-9) };
        let bottom = if scale == Scale::FromZero || low == 0.0 { low } else { low - room };
        Some(Self { low: bottom, high: high + room, logarithmic })
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.logarithmic { libm::log(value.max(f64::MIN_POSITIVE)) } else { value };
        let share = (value - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return nice_ticks(self.low, self.high, 5);
        }
        let decades = |factors: &[f64]| {
            let mut ticks = Vec::new();
            let first = (self.low / std::f64::consts::LN_10).floor() as i32;
            let last = (self.high / std::f64::consts::LN_10).ceil() as i32;
            for exponent in first..=last {
                for factor in factors {
                    let tick = factor * libm::pow(10.0, f64::from(exponent));
                    if (self.low..=self.high).contains(&libm::log(tick)) {
                        ticks.push(tick);
                    }
                }
            }
            ticks
        };
        let few = decades(&[1.0, 2.0, 5.0]);
        if few.len() <= TICKS_MAX {
            return few;
        }
        let powers = decades(&[1.0]);
        let stride = powers.len().div_ceil(TICKS_MAX).max(1);
        powers.into_iter().step_by(stride).collect()
    }
}

/// Round numbers from `low` to `high`, about `count` of them (Heckbert, "Nice numbers for graph
/// labels", Graphics Gems 1990).
pub(super) fn nice_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let rough = (high - low) / count as f64;
    if !(rough.is_finite() && rough > 0.0) {
        return vec![low];
    }
    let power = libm::pow(10.0, libm::log10(rough).floor());
    let step = match rough / power {
        f if f < 1.5 => power,
        f if f < 3.5 => 2.0 * power,
        f if f < 7.5 => 5.0 * power,
        _ => 10.0 * power,
    };
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).take(20).map(|i| i as f64 * step).collect()
}

/// Round places along the horizontal axis.
fn ticks_along(last: f64, whole: bool) -> Vec<f64> {
    let mut ticks = nice_ticks(0.0, last, 4);
    ticks.retain(|t| !whole || t.fract() == 0.0);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        let (name, class) = ("train".into(), "train".into());
        Curve { name, class, dots: true, noisy: true, points: points.to_vec() }
    }

    #[test]
    fn ticks_are_round() {
        let texts = |low, high| nice_ticks(low, high, 5).into_iter().map(short).collect::<Vec<_>>();
        assert_eq!(texts(0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(texts(0.93, 0.99), ["0.93", "0.94", "0.95", "0.96", "0.97", "0.98", "0.99"]);
        assert_eq!(nice_ticks(3.0, 3.0, 5), [3.0]);
        assert_eq!(ticks_along(2.0, true), [0.0, 1.0, 2.0]);
        assert_eq!(ticks_along(2.1, false), [0.0, 0.5, 1.0, 1.5, 2.0]);
    }

    #[test]
    fn odd_curves_do_not_break_the_figure() {
        assert_eq!(figure("loss", STEPS, &[curve(&[])], Scale::Linear, short), "");
        assert_eq!(figure("loss", STEPS, &[curve(&[(1.0, f64::NAN)])], Scale::Linear, short), "");
        for points in [&[(0.0, 0.0)][..], &[(1.0, 5.0), (2.0, 5.0)], &[(1.0, 1e-9), (1e19, 1e30)]] {
            for scale in [Scale::Linear, Scale::FromZero, Scale::Logarithmic] {
                let svg = figure("loss", STEPS, &[curve(points)], scale, short);
                assert!(svg.contains("</svg>") && !svg.contains("NaN"), "{svg}");
            }
        }
    }

    #[test]
    fn long_labels_have_their_room() {
        let whole = |value: f64| grouped(value as u64);
        let points = [(1.0, 400_000.0), (2.0, 1_200_000.0)];
        let svg = figure("speed", STEPS, &[curve(&points)], Scale::FromZero, whole);
        // Nine characters: the label ends at 54 and begins in the figure.
        assert!(svg.contains("<text x=\"54.0\"") && svg.contains(">1,200,000</text>"), "{svg}");
        let svg = figure("loss", STEPS, &[curve(&[(1.0, 0.5)])], Scale::FromZero, short);
        assert!(svg.contains("<text x=\"41.0\""), "{svg}");
    }

    #[test]
    fn a_loss_that_ran_away_has_few_ticks() {
        let values = [1.0, 1e30].into_iter();
        let ticks = Axis::new(values, Scale::Logarithmic).unwrap().ticks();
        let texts: Vec<String> = ticks.into_iter().map(short).collect();
        assert_eq!(texts, ["1", "100000", "1e10", "1e15", "1e20", "1e25", "1e30"]);
    }

    #[test]
    fn long_curves_are_thinned() {
        let points: Vec<_> = (0..100_000).map(|i| (f64::from(i), f64::from(i))).collect();
        let svg = figure("loss", STEPS, &[curve(&points)], Scale::Linear, short);
        assert!(svg.len() < 100_000, "{} bytes", svg.len());
    }
}
