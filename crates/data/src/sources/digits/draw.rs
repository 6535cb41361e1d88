//! Draws one digit: jittered strokes, an affine and an elastic distortion, a pen, blur and noise.
//!
//! Only additions, products, square roots and `libm` are used, one after another in a fixed order,
//! so the same stream draws the same bytes on every machine.

use super::strokes::{DIGITS, Stroke};
use planaria_numerics::random::Stream;

/// Pixels along one side of an image.
pub const SIDE: usize = 28;
/// Pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;

/// Pieces that a curve between two key points is cut into.
const PIECES: usize = 5;
/// Knots of the elastic field along one side.
const KNOTS: usize = 5;

type Canvas = [f32; PIXELS];
type Point = (f32, f32);

/// Draws `digit` (0 to 9) into `out` with the numbers of `random`.
pub fn draw(digit: usize, random: &mut Stream, out: &mut [u8; PIXELS]) {
    let mut canvas = [0.0; PIXELS];
    let styles = DIGITS[digit];
    let style = styles[random.below(styles.len() as u64) as usize];
    let hand = Hand::new(random);
    for stroke in style {
        write(stroke, &hand, random, &mut canvas);
    }
    if random.uniform() < 0.12 {
        stray(random, &mut canvas);
    }
    blur(random.uniform_in(0.0, 0.22), &mut canvas);
    develop(&canvas, random, out);
}

/// How this one digit is written: everything that is drawn once for an image.
struct Hand {
    /// Rows of the map from the centred unit square to pixels: x, y, constant.
    map: [[f32; 3]; 2],
    /// Displacements at the knots of a coarse grid over the image, in pixels.
    elastic: [[Point; KNOTS]; KNOTS],
    /// How far key points stray, in the unit square.
    jitter: f32,
    /// Half the pen's width in pixels.
    pen: f32,
    /// How much the pen's half width changes along a stroke, in pixels.
    pressure: f32,
}

impl Hand {
    fn new(random: &mut Stream) -> Self {
        let turn = 0.15 * random.normal().clamp(-2.2, 2.2);
        let slant = 0.2 * random.normal().clamp(-2.2, 2.2);
        let width = random.uniform_in(10.0, 16.5);
        let height = random.uniform_in(15.5, 20.5);
        let (sin, cos) = (libm::sinf(turn), libm::cosf(turn));
        let centre = SIDE as f32 / 2.0;
        let (dx, dy) = (random.uniform_in(-2.1, 2.1), random.uniform_in(-2.1, 2.1));
        // Scale, then slant (x −= slant·y), then turn, then move.
        let map = [
            [cos * width, (-cos * slant - sin) * height, centre + dx],
            [sin * width, (-sin * slant + cos) * height, centre + dy],
        ];
        let bend = random.uniform_in(0.3, 1.05);
        let mut elastic = [[(0.0, 0.0); KNOTS]; KNOTS];
        for knot in elastic.iter_mut().flatten() {
            *knot = (bend * random.normal(), bend * random.normal());
        }
        Self {
            map,
            elastic,
            jitter: random.uniform_in(0.01, 0.04),
            pen: random.uniform_in(0.75, 1.65),
            pressure: random.uniform_in(0.0, 0.3),
        }
    }

    /// Where a point of the unit square falls on the image.
    fn place(&self, (x, y): Point) -> Point {
        let (x, y) = (x - 0.5, y - 0.5);
        let at = |row: &[f32; 3]| row[0] * x + row[1] * y + row[2];
        let (px, py) = (at(&self.map[0]), at(&self.map[1]));
        let (ex, ey) = self.displacement(px, py);
        (px + ex, py + ey)
    }

    /// The elastic field at a pixel, by linear interpolation between knots.
    fn displacement(&self, x: f32, y: f32) -> Point {
        let scale = (KNOTS - 1) as f32 / SIDE as f32;
        let limit = (KNOTS - 1) as f32 - 0.001;
        let (gx, gy) = ((x * scale).clamp(0.0, limit), (y * scale).clamp(0.0, limit));
        let (column, row) = (gx as usize, gy as usize);
        let (fx, fy) = (smooth(gx - column as f32), smooth(gy - row as f32));
        let mix = |a: Point, b: Point, f: f32| (a.0 + (b.0 - a.0) * f, a.1 + (b.1 - a.1) * f);
        let [above, below] = [&self.elastic[row], &self.elastic[row + 1]];
        mix(
            mix(above[column], above[column + 1], fx),
            mix(below[column], below[column + 1], fx),
            fy,
        )
    }
}

/// Eases 0..1 so that pieces of the field join without a kink.
fn smooth(t: f32) -> f32 {
    t * t * (3.0 - 2.0 * t)
}

/// Writes one stroke: a Catmull–Rom curve through its jittered points.
fn write(stroke: Stroke, hand: &Hand, random: &mut Stream, canvas: &mut Canvas) {
    let mut points = [(0.0, 0.0); 16];
    let points = &mut points[..stroke.len()];
    for (point, &(x, y)) in points.iter_mut().zip(stroke) {
        *point = (x + hand.jitter * random.normal(), y + hand.jitter * random.normal());
    }
    let last = points.len() - 1;
    let mut pen = hand.pen + hand.pressure * random.uniform_in(-1.0, 1.0);
    let mut from = hand.place(points[0]);
    for i in 0..last {
        let before = points[i.saturating_sub(1)];
        let after = points[(i + 2).min(last)];
        let pen_next = hand.pen + hand.pressure * random.uniform_in(-1.0, 1.0);
        for piece in 1..=PIECES {
            let t = piece as f32 / PIECES as f32;
            let to = hand.place(curve(before, points[i], points[i + 1], after, t));
            ink(from, to, (pen + (pen_next - pen) * t).max(0.5), canvas);
            from = to;
        }
        pen = pen_next;
    }
}

/// Point at `t` of the uniform Catmull–Rom curve from `b` to `c`.
fn curve(a: Point, b: Point, c: Point, d: Point, t: f32) -> Point {
    let axis = |a: f32, b: f32, c: f32, d: f32| {
        let linear = c - a;
        let square = 2.0 * a - 5.0 * b + 4.0 * c - d;
        let cube = 3.0 * (b - c) + d - a;
        0.5 * (2.0 * b + t * (linear + t * (square + t * cube)))
    };
    (axis(a.0, b.0, c.0, d.0), axis(a.1, b.1, c.1, d.1))
}

/// Inks a straight piece: each pixel keeps the most ink it got, falling off over one pixel at the
/// pen's edge.
fn ink(from: Point, to: Point, pen: f32, canvas: &mut Canvas) {
    let reach = pen + 0.5;
    let range = |a: f32, b: f32| {
        let low = (a.min(b) - reach).clamp(0.0, SIDE as f32) as usize;
        let high = (a.max(b) + reach + 1.0).clamp(0.0, SIDE as f32) as usize;
        low..high
    };
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let inverse = 1.0 / (dx * dx + dy * dy).max(1e-6);
    for row in range(from.1, to.1) {
        let y = row as f32 + 0.5 - from.1;
        for column in range(from.0, to.0) {
            let x = column as f32 + 0.5 - from.0;
            let along = ((x * dx + y * dy) * inverse).clamp(0.0, 1.0);
            let (ox, oy) = (x - along * dx, y - along * dy);
            let cover = (reach - (ox * ox + oy * oy).sqrt()).clamp(0.0, 1.0);
            let pixel = &mut canvas[row * SIDE + column];
            *pixel = pixel.max(cover);
        }
    }
}

/// A short line that does not belong to the digit.
fn stray(random: &mut Stream, canvas: &mut Canvas) {
    let mut place = || random.uniform_in(1.0, SIDE as f32 - 1.0);
    let from = (place(), place());
    let to = (from.0 + 0.25 * (place() - 14.0), from.1 + 0.25 * (place() - 14.0));
    ink(from, to, 0.6, canvas);
}

/// Blurs by [side, 1 − 2·side, side] along rows, then along columns.
fn blur(side: f32, canvas: &mut Canvas) {
    let middle = 1.0 - 2.0 * side;
    let mut half = [0.0; PIXELS];
    for (to, from) in half.chunks_exact_mut(SIDE).zip(canvas.chunks_exact(SIDE)) {
        to[0] = middle * from[0] + side * from[1];
        to[SIDE - 1] = middle * from[SIDE - 1] + side * from[SIDE - 2];
        for i in 1..SIDE - 1 {
            to[i] = middle * from[i] + side * (from[i - 1] + from[i + 1]);
        }
    }
    let empty = [0.0; SIDE];
    for row in 0..SIDE {
        let line = |r: usize| &half[r * SIDE..(r + 1) * SIDE];
        let above = if row == 0 { &empty[..] } else { line(row - 1) };
        let below = if row == SIDE - 1 { &empty[..] } else { line(row + 1) };
        let here = line(row);
        for (i, to) in canvas[row * SIDE..(row + 1) * SIDE].iter_mut().enumerate() {
            *to = middle * here[i] + side * (above[i] + below[i]);
        }
    }
}

/// Turns ink into bytes: contrast, background, and noise that differs in strength by image.
fn develop(canvas: &Canvas, random: &mut Stream, out: &mut [u8; PIXELS]) {
    let contrast = random.uniform_in(150.0, 265.0);
    let background = random.uniform_in(-12.0, 14.0);
    // Each byte of a draw is one uniform number; two make a triangle.
    let noise = random.uniform_in(0.0, 0.16);
    for (to, from) in out.chunks_exact_mut(2).zip(canvas.chunks_exact(2)) {
        let [a, b, c, d] = random.next_u32().to_le_bytes().map(f32::from);
        to[0] = (background + contrast * from[0] + noise * (a + b - 255.0)) as u8;
        to[1] = (background + contrast * from[1] + noise * (c + d - 255.0)) as u8;
    }
}
