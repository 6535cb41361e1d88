//! Winograd's minimal filtering F(2×2, 3×3) for 3×3 convolutions of stride 1 (Lavin and Gray,
//! "Fast algorithms for convolutional neural networks", CVPR 2016): 16 products where the direct
//! way takes 36.
//!
//! Tiles are handled in groups of at most 64 in raster order. Transformed tiles lie in 16 planes
//! `[tile][channel]`, each a cache line longer than needed, because planes a power of two apart
//! would share cache sets. Channels are multiples of 16.

#![expect(
    clippy::needless_range_loop,
    reason = "index loops over register arrays read as the maths"
)]

use super::simd::{LANES, Simd, kernel};
use super::tile::{Finish, ONE, Panel, Start, multiply};

/// Tiles per group. Part of the order of additions of weight gradients.
pub const GROUP: usize = 64;

/// Length of one plane of transformed tiles.
pub const fn plane(channels: usize) -> usize {
    GROUP * channels + LANES
}

/// Length of the 16 planes of transformed tiles.
pub const fn planes_len(channels: usize) -> usize {
    16 * plane(channels)
}

/// Where 2×2 output tiles lie on an image of `height` × `width`.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Input rows.
    pub height: usize,
    /// Input columns.
    pub width: usize,
    /// Rows of zeros above the input.
    pub pad_top: usize,
    /// Columns of zeros left of the input.
    pub pad_left: usize,
    /// Output rows.
    pub out_h: usize,
    /// Output columns.
    pub out_w: usize,
}

impl Grid {
    fn across(&self) -> usize {
        self.out_w.div_ceil(2)
    }
    /// Number of tiles.
    pub fn tiles(&self) -> usize {
        self.out_h.div_ceil(2) * self.across()
    }
}

/// What is done to outputs: bias and another tensor added, negatives cut.
#[derive(Clone, Copy)]
pub struct Epilogue {
    /// One value per output channel, or null.
    pub bias: *const f32,
    /// A tensor laid out like the output, or null.
    pub plus: *const f32,
    /// Whether negative outputs become zero.
    pub relu: bool,
}

/// A convolution of one image.
#[derive(Clone, Copy)]
pub struct Winograd {
    /// Where the tiles lie.
    pub grid: Grid,
    /// Input channels.
    pub input_channels: usize,
    /// Output channels.
    pub output_channels: usize,
    /// Scratch for transformed inputs: `planes_len(input_channels)`.
    pub v: *mut f32,
    /// Scratch for transformed outputs: `planes_len(output_channels)`.
    pub m: *mut f32,
}

kernel! {
    /// Output = epilogue(input ∗ weights); `u` are weights transformed by [`transform_weights`].
    ///
    /// # Safety
    /// Pointers hold what `shape` says; `out` may be the epilogue's tensor, but overlaps no other.
    pub fn convolve(shape: Winograd, input: *const f32, u: *const f32, out: *mut f32, epilogue: Epilogue) = convolve_body
}

#[inline(always)]
unsafe fn convolve_body<S: Simd>(
    s: Winograd,
    input: *const f32,
    u: *const f32,
    out: *mut f32,
    epilogue: Epilogue,
) {
    let (ci, co) = (s.input_channels, s.output_channels);
    let tiles = s.grid.tiles();
    for first in (0..tiles).step_by(GROUP) {
        let count = (tiles - first).min(GROUP);
        // SAFETY: tiles first..first+count of the grid; scratch holds a group.
        unsafe {
            transform_inputs::<S>(&s.grid, ci, input, first, count, s.v);
            let ahead = Ahead::new(&s, input, out, first, count);
            for xi in 0..16 {
                ahead.fetch::<S>(xi);
                let panel = Panel {
                    a: s.v.add(xi * plane(ci)),
                    a_row: ci,
                    a_col: 1,
                    a_segment: 0,
                    b: u.add(xi * ci * co),
                    b_row: LANES,
                    b_block: ci * LANES,
                    b_segment: 0,
                    segments: 1,
                    len: ci,
                    c: s.m.add(xi * plane(co)),
                    c_row: co,
                    start: Start::Zero,
                    finish: Finish::Store,
                    relu: false,
                };
                if ci == LANES {
                    multiply::<S, LANES>(panel, count, co, ONE);
                } else {
                    multiply::<S, 0>(panel, count, co, ONE);
                }
            }
            transform_outputs::<S>(&s.grid, co, s.m, first, count, out, epilogue);
        }
    }
}

/// Memory wanted soon, fetched a sixteenth at a time while sums run: the rows this group writes and
/// the rows the next one reads. Asked for all at once they would be waited for; this way they
/// arrive unnoticed (a quarter of the time of large batches).
struct Ahead {
    write: *const f32,
    write_lines: usize,
    read: *const f32,
    read_lines: usize,
}

impl Ahead {
    #[inline(always)]
    fn new(s: &Winograd, input: *const f32, out: *const f32, first: usize, count: usize) -> Self {
        let across = s.grid.across();
        let out_row = s.grid.out_w * s.output_channels;
        let in_row = s.grid.width * s.input_channels;
        // The next group starts below this one; after the last, at the next image if there is one.
        let next_row = 2 * ((first + count) / across) + 2;
        let lines = |rows: usize, row: usize| (rows * row / LANES).div_ceil(16);
        Self {
            write: out.wrapping_add(2 * (first / across) * out_row),
            write_lines: lines(2 * count.div_ceil(across), out_row),
            read: input.wrapping_add(next_row * in_row),
            read_lines: lines(2 * GROUP.div_ceil(across), in_row),
        }
    }

    #[inline(always)]
    unsafe fn fetch<S: Simd>(&self, part: usize) {
        // SAFETY: hints, whatever the address.
        unsafe {
            for line in 0..self.write_lines {
                S::prefetch_write(
                    self.write.wrapping_add((part * self.write_lines + line) * LANES),
                );
            }
            for line in 0..self.read_lines {
                S::prefetch(self.read.wrapping_add((part * self.read_lines + line) * LANES));
            }
        }
    }
}

/// Bᵀ d B of tiles `first..first+count`, into rows 0.. of the planes.
#[inline(always)]
unsafe fn transform_inputs<S: Simd>(
    grid: &Grid,
    channels: usize,
    image: *const f32,
    first: usize,
    count: usize,
    v: *mut f32,
) {
    let across = grid.across();
    let mut t = 0;
    while t < count {
        let (ty, tx) = ((first + t) / across, (first + t) % across);
        let run = (count - t).min(across - tx);
        let y = (2 * ty) as isize - grid.pad_top as isize;
        let x = (2 * tx) as isize - grid.pad_left as isize;
        // SAFETY: rows are checked here, columns as they come.
        unsafe {
            let out = v.add(t * channels);
            if y >= 0 && y + 4 <= grid.height as isize {
                input_row::<S, true>(grid, channels, image, (y, x), run, out);
            } else {
                input_row::<S, false>(grid, channels, image, (y, x), run, out);
            }
        }
        t += run;
    }
}

/// A run of tiles side by side. Neighbours share two of their four columns.
#[inline(always)]
unsafe fn input_row<S: Simd, const INSIDE: bool>(
    grid: &Grid,
    channels: usize,
    image: *const f32,
    (y, x): (isize, isize),
    run: usize,
    out: *mut f32,
) {
    let plane = plane(channels);
    for c in (0..channels).step_by(LANES) {
        // SAFETY: only pixels within the image are loaded.
        unsafe {
            let from = image.wrapping_add(c);
            let mut a = input_column::<S, INSIDE>(grid, channels, from, (y, x));
            let mut b = input_column::<S, INSIDE>(grid, channels, from, (y, x + 1));
            for t in 0..run {
                let right = x + 2 * t as isize + 2;
                let e = input_column::<S, INSIDE>(grid, channels, from, (y, right));
                let f = input_column::<S, INSIDE>(grid, channels, from, (y, right + 1));
                for i in 0..4 {
                    let q = out.add(t * channels + c + 4 * i * plane);
                    S::store(q, S::sub(a[i], e[i]));
                    S::store(q.add(plane), S::add(b[i], e[i]));
                    S::store(q.add(2 * plane), S::sub(e[i], b[i]));
                    S::store(q.add(3 * plane), S::sub(b[i], f[i]));
                }
                (a, b) = (e, f);
            }
        }
    }
}

/// Bᵀ of one column of four pixels.
#[inline(always)]
unsafe fn input_column<S: Simd, const INSIDE: bool>(
    grid: &Grid,
    channels: usize,
    image: *const f32,
    (y, x): (isize, isize),
) -> [S::V; 4] {
    // SAFETY: only pixels within the image are loaded.
    unsafe {
        let mut d = [S::zero(); 4];
        if x < 0 || x >= grid.width as isize {
            return d;
        }
        let row = (grid.width * channels) as isize;
        let p = image.wrapping_offset(y * row + x * channels as isize);
        for (i, d) in d.iter_mut().enumerate() {
            let i = i as isize;
            if INSIDE || (y + i >= 0 && y + i < grid.height as isize) {
                *d = S::load(p.wrapping_offset(i * row));
            }
        }
        [S::sub(d[0], d[2]), S::add(d[1], d[2]), S::sub(d[2], d[1]), S::sub(d[1], d[3])]
    }
}

/// Aᵀ m A of tiles `first..first+count`, with the epilogue.
#[inline(always)]
unsafe fn transform_outputs<S: Simd>(
    grid: &Grid,
    channels: usize,
    m: *const f32,
    first: usize,
    count: usize,
    out: *mut f32,
    e: Epilogue,
) {
    let across = grid.across();
    let plane = plane(channels);
    let (mut ty, mut tx) = (first / across, first % across);
    for t in 0..count {
        let rows = (grid.out_h - 2 * ty).min(2);
        let cols = (grid.out_w - 2 * tx).min(2);
        for c in (0..channels).step_by(LANES) {
            // SAFETY: stores only to the rows and columns that the output has.
            unsafe {
                let p = m.add(t * channels + c);
                let mut a = [[S::zero(); 4]; 2];
                for j in 0..4 {
                    let at = |i: usize| S::load(p.add((4 * i + j) * plane));
                    let (m0, m1, m2, m3) = (at(0), at(1), at(2), at(3));
                    a[0][j] = S::add(m0, S::add(m1, m2));
                    a[1][j] = S::sub(S::sub(m1, m2), m3);
                }
                let bias = if e.bias.is_null() { S::zero() } else { S::load(e.bias.add(c)) };
                for (i, a) in a.iter().enumerate().take(rows) {
                    let y = [S::add(a[0], S::add(a[1], a[2])), S::sub(S::sub(a[1], a[2]), a[3])];
                    for (j, y) in y.into_iter().enumerate().take(cols) {
                        let at = ((2 * ty + i) * grid.out_w + 2 * tx + j) * channels + c;
                        let mut v = S::add(y, bias);
                        if !e.plus.is_null() {
                            v = S::add(v, S::load(e.plus.add(at)));
                        }
                        if e.relu {
                            v = S::max(v, S::zero());
                        }
                        S::store(out.add(at), v);
                    }
                }
            }
        }
        tx += 1;
        if tx == across {
            (ty, tx) = (ty + 1, 0);
        }
    }
}

kernel! {
    /// Adds one image to the weight gradient `du` in the transformed domain. Tiles gather in the
    /// scratch until a group is full; returns how many wait there now (given the number before).
    ///
    /// # Safety
    /// Pointers hold what `shape` says, `du` 16 × input × output channels; `waiting` is what the
    /// last call returned, 0 at first.
    pub fn weight_gradient(shape: Winograd, input: *const f32, gradient: *const f32, du: *mut f32, waiting: usize) -> usize = weight_gradient_body
}

#[inline(always)]
unsafe fn weight_gradient_body<S: Simd>(
    s: Winograd,
    input: *const f32,
    gradient: *const f32,
    du: *mut f32,
    mut waiting: usize,
) -> usize {
    let tiles = s.grid.tiles();
    let mut first = 0;
    while first < tiles {
        let count = (tiles - first).min(GROUP - waiting);
        // SAFETY: rows waiting..waiting+count of the scratch are free.
        unsafe {
            let (ci, co) = (s.input_channels, s.output_channels);
            transform_inputs::<S>(&s.grid, ci, input, first, count, s.v.add(waiting * ci));
            transform_gradients::<S>(&s.grid, co, gradient, first, count, s.m.add(waiting * co));
            waiting += count;
            first += count;
            if waiting == GROUP {
                add_group::<S>(&s, du, GROUP);
                waiting = 0;
            }
        }
    }
    waiting
}

/// A dy Aᵀ of tiles `first..first+count`.
#[inline(always)]
unsafe fn transform_gradients<S: Simd>(
    grid: &Grid,
    channels: usize,
    gradient: *const f32,
    first: usize,
    count: usize,
    m: *mut f32,
) {
    let across = grid.across();
    let plane = plane(channels);
    let (mut ty, mut tx) = (first / across, first % across);
    for t in 0..count {
        let rows = (grid.out_h - 2 * ty).min(2);
        let cols = (grid.out_w - 2 * tx).min(2);
        for c in (0..channels).step_by(LANES) {
            // SAFETY: loads only the rows and columns that the gradient has.
            unsafe {
                let at = |i: usize, j: usize| {
                    if i < rows && j < cols {
                        S::load(
                            gradient.add(((2 * ty + i) * grid.out_w + 2 * tx + j) * channels + c),
                        )
                    } else {
                        S::zero()
                    }
                };
                let mut a = [[S::zero(); 2]; 4];
                for j in 0..2 {
                    let (y0, y1) = (at(0, j), at(1, j));
                    a[0][j] = y0;
                    a[1][j] = S::add(y0, y1);
                    a[2][j] = S::sub(y0, y1);
                    a[3][j] = S::sub(S::zero(), y1);
                }
                for (i, a) in a.iter().enumerate() {
                    let q = m.add(t * channels + c + 4 * i * plane);
                    S::store(q, a[0]);
                    S::store(q.add(plane), S::add(a[0], a[1]));
                    S::store(q.add(2 * plane), S::sub(a[0], a[1]));
                    S::store(q.add(3 * plane), S::sub(S::zero(), a[1]));
                }
            }
        }
        tx += 1;
        if tx == across {
            (ty, tx) = (ty + 1, 0);
        }
    }
}

#[inline(always)]
unsafe fn add_group<S: Simd>(s: &Winograd, du: *mut f32, count: usize) {
    let (ci, co) = (s.input_channels, s.output_channels);
    for xi in 0..16 {
        // SAFETY: the scratch holds `count` tiles.
        unsafe {
            let panel = Panel {
                a: s.v.add(xi * plane(ci)),
                a_row: 1,
                a_col: ci,
                a_segment: 0,
                b: s.m.add(xi * plane(co)),
                b_row: co,
                b_block: LANES,
                b_segment: 0,
                segments: 1,
                len: count,
                c: du.add(xi * ci * co),
                c_row: co,
                start: Start::Zero,
                finish: Finish::Add,
                relu: false,
            };
            multiply::<S, 1>(panel, ci, co, ONE);
        }
    }
}

kernel! {
    /// Adds the tiles still waiting, turns `du` back into the weight gradient `dw`
    /// (`[3][3][input][output]`, overwritten) and clears `du`.
    ///
    /// # Safety
    /// As for [`weight_gradient`].
    pub fn finish_weight_gradient(shape: Winograd, du: *mut f32, waiting: usize, dw: *mut f32) = finish_body
}

#[inline(always)]
unsafe fn finish_body<S: Simd>(s: Winograd, du: *mut f32, waiting: usize, dw: *mut f32) {
    let size = s.input_channels * s.output_channels;
    // SAFETY: forwarded to the caller.
    unsafe {
        if waiting > 0 {
            add_group::<S>(&s, du, waiting);
        }
        let half = S::splat(0.5);
        for q in (0..size).step_by(LANES) {
            let mut a = [[S::zero(); 4]; 3];
            for j in 0..4 {
                let u = |i: usize| S::load(du.add((4 * i + j) * size + q));
                let (u0, u1, u2, u3) = (u(0), u(1), u(2), u(3));
                let (sum, difference) =
                    (S::mul(half, S::add(u1, u2)), S::mul(half, S::sub(u1, u2)));
                a[0][j] = S::add(u0, sum);
                a[1][j] = difference;
                a[2][j] = S::add(sum, u3);
            }
            for (i, a) in a.iter().enumerate() {
                let (sum, difference) =
                    (S::mul(half, S::add(a[1], a[2])), S::mul(half, S::sub(a[1], a[2])));
                let o = dw.add(3 * i * size + q);
                S::store(o, S::add(a[0], sum));
                S::store(o.add(size), difference);
                S::store(o.add(2 * size), S::add(sum, a[3]));
            }
        }
        du.write_bytes(0, 16 * size);
    }
}

kernel! {
    /// G w Gᵀ: weights `[3][3][input][output]` to `u` `[16][output/16][input][16]`.
    ///
    /// # Safety
    /// Pointers hold 9 and 16 × `input` × `output` values.
    pub fn transform_weights(weights: *const f32, input: usize, output: usize, u: *mut f32) = transform_weights_body
}

#[inline(always)]
unsafe fn transform_weights_body<S: Simd>(
    weights: *const f32,
    input: usize,
    output: usize,
    u: *mut f32,
) {
    let size = input * output;
    for ci in 0..input {
        for co in (0..output).step_by(LANES) {
            // SAFETY: tap (i, j) of the weights between input ci and outputs co..co+16.
            unsafe {
                let half = S::splat(0.5);
                let mut a = [[S::zero(); 3]; 4];
                for j in 0..3 {
                    let w = |i: usize| S::load(weights.add((3 * i + j) * size + ci * output + co));
                    let (g0, g1, g2) = (w(0), w(1), w(2));
                    let ends = S::add(g0, g2);
                    a[0][j] = g0;
                    a[1][j] = S::mul(half, S::add(ends, g1));
                    a[2][j] = S::mul(half, S::sub(ends, g1));
                    a[3][j] = g2;
                }
                for (i, a) in a.iter().enumerate() {
                    let ends = S::add(a[0], a[2]);
                    let o = u.add(4 * i * size + co * input + ci * LANES);
                    S::store(o, a[0]);
                    S::store(o.add(size), S::mul(half, S::add(ends, a[1])));
                    S::store(o.add(2 * size), S::mul(half, S::sub(ends, a[1])));
                    S::store(o.add(3 * size), a[2]);
                }
            }
        }
    }
}
