//! Curves as inline SVG.
//!
//! Owns axes, ticks and scales, marks across the curves, and the values that show where one points.
//! Colours come from the page's style sheet by class name. Never knows what is drawn.

use maud::{Markup, html};
use planaria_text::number::grouped;
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
/// Means drawn over a noisy curve, and places at which values show.
const MEANS_MAX: usize = 60;
/// Width within which marks are one, and in which one shows what it is about.
const MARK: f64 = 6.0;
/// Texts of a mark that stands for many.
const MARK_TEXTS_MAX: usize = 6;

/// A figure of curves.
#[derive(Debug, Clone, Copy)]
pub struct Figure<'a> {
    pub title: &'a str,
    pub along: Along,
    pub curves: &'a [Curve],
    /// Across the curves, by place.
    pub marks: &'a [Mark],
    pub scale: Scale,
    /// A value as text.
    pub tick: fn(f64) -> String,
}

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

/// A line across a figure, for something that happened at a place.
#[derive(Debug, Clone)]
pub struct Mark {
    pub place: f64,
    /// Its class in the style sheet.
    pub class: &'static str,
    pub text: String,
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

/// Where places and values are in the drawing.
struct Plane {
    left: f64,
    /// The last place.
    last: f64,
    axis: Axis,
}

impl Plane {
    fn x(&self, place: f64) -> f64 {
        self.left + (WIDTH - self.left - RIGHT) * (place / self.last).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        self.axis.y(value)
    }
}

impl Figure<'_> {
    /// The figure, or nothing where no curve has a point.
    pub fn draw(&self) -> Option<Markup> {
        let values = || self.curves.iter().flat_map(|c| &c.points).map(|p| p.1);
        let axis = Axis::new(values(), self.scale)?;
        let places = self.curves.iter().flat_map(|c| &c.points).map(|p| p.0);
        let last = places.filter(|x| x.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
        let labels: Vec<(f64, String)> =
            axis.ticks().into_iter().map(|v| (v, (self.tick)(v))).collect();
        let longest = labels.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
        let left = LEFT.max(GAP + CHARACTER * longest as f64);
        let plane = Plane { left, last, axis };
        Some(html! {
            figure {
                figcaption { span { (self.title) } (legend(self.curves)) }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img"
                    aria-label={ (self.title) " by " (self.along.what) } {
                    (grid(&plane, &labels))
                    (places_below(&plane, self.along))
                    @for mark in joined(self.marks, &plane) { (line_across(&mark, &plane)) }
                    @for curve in self.curves { (drawn(curve, &plane)) }
                    (self.pointed(&plane))
                    @for mark in joined(self.marks, &plane) { (told(&mark, &plane)) }
                }
            }
        })
    }

    /// Values that show where one points: a column for each place, from halfway to the one before
    /// to halfway to the next.
    fn pointed(&self, plane: &Plane) -> Markup {
        let drawn: Vec<Vec<(f64, f64)>> = self.curves.iter().map(shown).collect();
        let longest = drawn.iter().max_by_key(|points| points.len());
        let places: Vec<f64> = longest.map_or_else(Vec::new, |points| {
            means(points, MEANS_MAX).into_iter().map(|(place, _)| place).collect()
        });
        let xs: Vec<f64> = places.iter().map(|place| plane.x(*place)).collect();
        let halfway = |i: usize| (xs[i] + xs[i + 1]) / 2.0;
        html! {
            @for (i, place) in places.iter().enumerate() {
                @let from = if i == 0 { plane.left } else { halfway(i - 1) };
                @let to = if i + 1 == xs.len() { WIDTH - RIGHT } else { halfway(i) };
                @let near = (to - from).max(1.0) / (WIDTH - plane.left - RIGHT) * plane.last;
                @let (x, anchor) = beside(xs[i]);
                g.at {
                    rect x=(tenth(from)) y=(TOP) width=(tenth(to - from))
                        height=(HEIGHT - TOP - BOTTOM) {}
                    path d={ "M" (tenth(xs[i])) " " (TOP) "V" (HEIGHT - BOTTOM) } {}
                    text x=(tenth(x)) y=(TOP + 10.0) text-anchor=(anchor) {
                        (self.along.what) " " ((self.along.text)(*place))
                    }
                    @for (line, (name, value)) in self.values(&drawn, *place, near).iter().enumerate() {
                        text x=(tenth(x)) y=(TOP + 23.0 + 13.0 * line as f64) text-anchor=(anchor) {
                            (name) " " ((self.tick)(*value))
                        }
                    }
                }
            }
        }
    }

    /// The values of all curves at a place, as far as they have one so near.
    fn values(&self, drawn: &[Vec<(f64, f64)>], place: f64, near: f64) -> Vec<(&str, f64)> {
        let nearest = |points: &[(f64, f64)]| {
            let distance = |point: &(f64, f64)| (point.0 - place).abs();
            let nearest = points.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
            let gap = points.windows(2).map(|two| two[1].0 - two[0].0).fold(near, f64::max);
            (distance(nearest) <= gap).then_some(nearest.1)
        };
        let named = self.curves.iter().zip(drawn);
        named.filter_map(|(curve, points)| Some((curve.name.as_str(), nearest(points)?))).collect()
    }
}

/// Where text about a place stands, and which end of it.
fn beside(x: f64) -> (f64, &'static str) {
    if x < WIDTH / 2.0 { (x + GAP, "start") } else { (x - GAP, "end") }
}

fn grid(plane: &Plane, labels: &[(f64, String)]) -> Markup {
    html! {
        @for (value, text) in labels {
            @let y = plane.y(*value);
            path.grid d={ "M" (plane.left) " " (tenth(y)) "H" (WIDTH - RIGHT) } {}
            text x=(tenth(plane.left - GAP)) y=(tenth(y + 3.5)) text-anchor="end" { (text) }
        }
    }
}

fn places_below(plane: &Plane, along: Along) -> Markup {
    let anchor = |place: f64| match place / plane.last {
        0.0 => "start",
        share if share > 0.97 => "end",
        _ => "middle",
    };
    html! {
        @for place in ticks_along(plane.last, along.whole) {
            text x=(tenth(plane.x(place))) y=(HEIGHT - 8.0) text-anchor=(anchor(place)) {
                ((along.text)(place))
            }
        }
    }
}

fn legend(curves: &[Curve]) -> Markup {
    html! {
        @if curves.len() > 1 {
            @for curve in curves.iter().filter(|c| !c.points.is_empty()) {
                span class={ "key " (curve.class) } { (curve.name) }
            }
        }
    }
}

fn drawn(curve: &Curve, plane: &Plane) -> Markup {
    let shown = shown(curve);
    html! {
        @if shown.len() < curve.points.len() {
            path class={ "curve faint " (curve.class) } d=(path(&thinned(&curve.points), plane)) {}
        }
        @if shown.len() > 1 {
            path class={ "curve " (curve.class) } d=(path(&shown, plane)) {}
        }
        @if curve.dots || curve.points.len() == 1 {
            g class={ "dots " (curve.class) } {
                @for (place, value) in thinned(&curve.points) {
                    circle cx=(tenth(plane.x(place))) cy=(tenth(plane.y(value))) r="2.6" {}
                }
            }
        }
    }
}

/// The points of a curve as it is drawn.
fn shown(curve: &Curve) -> Vec<(f64, f64)> {
    means(&curve.points, if curve.noisy { MEANS_MAX } else { POINTS_MAX })
}

/// Marks that can be told apart: those of one class that are too close are one.
fn joined(marks: &[Mark], plane: &Plane) -> Vec<Mark> {
    let mut joined: Vec<(Mark, usize)> = Vec::new();
    for mark in marks.iter().filter(|mark| mark.place.is_finite()) {
        let is_close = |other: &Mark| {
            other.class == mark.class && (plane.x(other.place) - plane.x(mark.place)).abs() < MARK
        };
        match joined.iter_mut().find(|(other, _)| is_close(other)) {
            Some((other, texts)) => {
                *texts += 1;
                if *texts <= MARK_TEXTS_MAX {
                    other.text += &format!("\n{}", mark.text);
                }
            }
            None => joined.push((mark.clone(), 1)),
        }
    }
    for (mark, texts) in &mut joined {
        if *texts > MARK_TEXTS_MAX {
            mark.text += &format!("\n… and {} more", grouped((*texts - MARK_TEXTS_MAX) as u64));
        }
    }
    joined.into_iter().map(|(mark, _)| mark).collect()
}

fn line_across(mark: &Mark, plane: &Plane) -> Markup {
    let x = tenth(plane.x(mark.place));
    html! { path class={ "mark " (mark.class) } d={ "M" (x) " " (TOP) "V" (HEIGHT - BOTTOM) } {} }
}

/// What a mark is about, where one points at it. Above what shows values, and only its lower end, so
/// that values show there too.
fn told(mark: &Mark, plane: &Plane) -> Markup {
    let (x, below) = (plane.x(mark.place), HEIGHT - BOTTOM);
    html! {
        g class={ "flag " (mark.class) } {
            path d={ "M" (tenth(x)) " " (below - 7.0) "l4 7h-8z" } {}
            rect x=(tenth(x - MARK)) y=(below - 3.0 * MARK) width=(2.0 * MARK) height=(3.0 * MARK) {
                title { (mark.text) }
            }
        }
    }
}

/// A length of the drawing.
fn tenth(length: f64) -> String {
    format!("{length:.1}")
}

fn path(points: &[(f64, f64)], plane: &Plane) -> String {
    let mut path = String::new();
    for (place, value) in points {
        let letter = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", plane.x(*place), plane.y(*value));
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
    use planaria_text::number::short;

    fn curve(points: &[(f64, f64)]) -> Curve {
        let (name, class) = ("train".into(), "train".into());
        Curve { name, class, dots: true, noisy: true, points: points.to_vec() }
    }

    fn drawn(curves: &[Curve], marks: &[Mark], scale: Scale, tick: fn(f64) -> String) -> String {
        let figure = Figure { title: "loss", along: STEPS, curves, marks, scale, tick };
        figure.draw().map(maud::PreEscaped::into_string).unwrap_or_default()
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
        assert_eq!(drawn(&[curve(&[])], &[], Scale::Linear, short), "");
        assert_eq!(drawn(&[curve(&[(1.0, f64::NAN)])], &[], Scale::Linear, short), "");
        for points in [&[(0.0, 0.0)][..], &[(1.0, 5.0), (2.0, 5.0)], &[(1.0, 1e-9), (1e19, 1e30)]] {
            for scale in [Scale::Linear, Scale::FromZero, Scale::Logarithmic] {
                let svg = drawn(&[curve(points)], &[], scale, short);
                assert!(svg.contains("</svg>") && !svg.contains("NaN"), "{svg}");
            }
        }
    }

    #[test]
    fn long_labels_have_their_room() {
        let whole = |value: f64| grouped(value as u64);
        let points = [(1.0, 400_000.0), (2.0, 1_200_000.0)];
        let svg = drawn(&[curve(&points)], &[], Scale::FromZero, whole);
        // Nine characters: the label ends at 54 and begins in the figure.
        assert!(svg.contains("<text x=\"54.0\"") && svg.contains(">1,200,000</text>"), "{svg}");
        let svg = drawn(&[curve(&[(1.0, 0.5)])], &[], Scale::FromZero, short);
        assert!(svg.contains("<text x=\"41.0\""), "{svg}");
    }

    #[test]
    fn values_of_all_curves_show_where_one_points() {
        let train = curve(&[(10.0, 0.5), (20.0, 0.25), (30.0, 0.125)]);
        let validation = Curve { name: "valid".into(), ..curve(&[(10.0, 0.75)]) };
        let svg = drawn(&[train, validation], &[], Scale::Linear, short);
        let columns: Vec<&str> = svg.split("<g class=\"at\">").skip(1).collect();
        assert_eq!(columns.len(), 3, "{svg}");
        for expect in [">step 10<", ">train 0.5<", ">valid 0.75<"] {
            assert!(columns[0].contains(expect), "{expect} in {}", columns[0]);
        }
        assert!(columns[2].contains(">train 0.125<") && !columns[2].contains("valid"), "{svg}");
    }

    #[test]
    fn marks_are_escaped_and_those_that_are_close_are_one() {
        let points: Vec<_> = (0..1000).map(|i| (f64::from(i), 1.0)).collect();
        let mark = |place: f64, text: &str| Mark { place, class: "lost", text: text.into() };
        let mut marks = vec![mark(900.0, "far")];
        marks.extend((0..9).map(|i| mark(f64::from(i), "<b>")));
        let svg = drawn(&[curve(&points)], &marks, Scale::Linear, short);
        assert_eq!(svg.matches("class=\"flag lost\"").count(), 2, "{svg}");
        let close = ["&lt;b&gt;"; 6].join("\n") + "\n… and 3 more";
        assert!(svg.contains(&format!("<title>{close}</title>")), "{svg}");
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
        let svg = drawn(&[curve(&points)], &[], Scale::Linear, short);
        assert!(svg.len() < 100_000, "{} bytes", svg.len());
    }
}
