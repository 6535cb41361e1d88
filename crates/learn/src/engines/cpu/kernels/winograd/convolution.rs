//! Convolution by tiles of 4×4 outputs and 6×6 inputs: F(4×4, 3×3).

#![expect(
    clippy::needless_range_loop,
    reason = "index loops over register arrays read as the maths"
)]

use super::{CONVOLUTION_ELEMENTS, Epilogue, GROUP, Grid, Winograd, plane};
use crate::engines::cpu::kernels::simd::{LANES, Simd, kernel};
use crate::engines::cpu::kernels::tile::{Finish, ONE, Panel, Start, multiply};

/// Outputs along a tile's side.
const SIZE: usize = 4;
/// Inputs along a tile's side.
const SPAN: usize = 6;

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
    let tiles = s.grid.tiles(SIZE);
    for first in (0..tiles).step_by(GROUP) {
        let count = (tiles - first).min(GROUP);
        // SAFETY: tiles first..first+count of the grid; scratch holds a group.
        unsafe {
            transform_inputs::<S>(&s.grid, ci, input, first, count, s.v);
            let ahead = Ahead::new(&s, input, out, first, count);
            for xi in 0..CONVOLUTION_ELEMENTS {
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

/// Memory wanted soon, fetched a part at a time while sums run: the rows this group writes and
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
        let across = s.grid.across(SIZE);
        let out_row = s.grid.out_w * s.output_channels;
        let in_row = s.grid.width * s.input_channels;
        // The next group starts below this one; after the last, at the next image if there is one.
        let next_row = SIZE * ((first + count) / across) + SIZE;
        let lines = |rows: usize, row: usize| (rows * row / LANES).div_ceil(CONVOLUTION_ELEMENTS);
        Self {
            write: out.wrapping_add(SIZE * (first / across) * out_row),
            write_lines: lines(SIZE * count.div_ceil(across), out_row),
            read: input.wrapping_add(next_row * in_row),
            read_lines: lines(SIZE * GROUP.div_ceil(across), in_row),
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
    let across = grid.across(SIZE);
    let mut t = 0;
    while t < count {
        let (ty, tx) = ((first + t) / across, (first + t) % across);
        let run = (count - t).min(across - tx);
        let (y, x) = grid.corner(SIZE, (ty, tx));
        // SAFETY: rows are checked here, columns as they come.
        unsafe {
            let out = v.add(t * channels);
            if grid.has_row(y) && grid.has_row(y + SPAN as isize - 1) {
                input_row::<S, true>(grid, channels, image, (y, x), run, out);
            } else {
                input_row::<S, false>(grid, channels, image, (y, x), run, out);
            }
        }
        t += run;
    }
}

/// A run of tiles side by side. Neighbours share two of their six columns.
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
            let mut columns = [[S::zero(); SPAN]; SPAN];
            for j in 0..2 {
                columns[j + SIZE] =
                    input_column::<S, INSIDE>(grid, channels, from, (y, x + j as isize));
            }
            for t in 0..run {
                columns[0] = columns[SIZE];
                columns[1] = columns[SIZE + 1];
                for j in 2..SPAN {
                    let x = x + (SIZE * t + j) as isize;
                    columns[j] = input_column::<S, INSIDE>(grid, channels, from, (y, x));
                }
                for i in 0..SPAN {
                    let row = transform_input::<S>([
                        columns[0][i],
                        columns[1][i],
                        columns[2][i],
                        columns[3][i],
                        columns[4][i],
                        columns[5][i],
                    ]);
                    let q = out.add(t * channels + c + SPAN * i * plane);
                    for j in 0..SPAN {
                        S::store(q.add(j * plane), row[j]);
                    }
                }
            }
        }
    }
}

/// Bᵀ of one column of six pixels.
#[inline(always)]
unsafe fn input_column<S: Simd, const INSIDE: bool>(
    grid: &Grid,
    channels: usize,
    image: *const f32,
    (y, x): (isize, isize),
) -> [S::V; SPAN] {
    // SAFETY: only pixels within the image are loaded.
    unsafe {
        let mut d = [S::zero(); SPAN];
        if !grid.has_column(x) {
            return d;
        }
        let row = (grid.width * channels) as isize;
        let p = image.wrapping_offset(y * row + x * channels as isize);
        for i in 0..SPAN {
            if INSIDE || grid.has_row(y + i as isize) {
                d[i] = S::load(p.wrapping_offset(i as isize * row));
            }
        }
        transform_input::<S>(d)
    }
}

/// Bᵀ d:
/// ```text
/// 4  0 −5  0  1  0
/// 0 −4 −4  1  1  0
/// 0  4 −4 −1  1  0
/// 0 −2 −1  2  1  0
/// 0  2 −1 −2  1  0
/// 0  4  0 −5  0  1
/// ```
#[inline(always)]
unsafe fn transform_input<S: Simd>(d: [S::V; SPAN]) -> [S::V; SPAN] {
    // SAFETY: the caller's processor has S.
    unsafe {
        let (four, five, two) = (S::splat(4.0), S::splat(-5.0), S::splat(2.0));
        let (minus_four, minus_two) = (S::splat(-4.0), S::splat(-2.0));
        let even = S::fma(minus_four, d[2], d[4]);
        let odd = S::fma(minus_four, d[1], d[3]);
        let near = S::sub(d[4], d[2]);
        let far = S::sub(d[3], d[1]);
        [
            S::fma(four, d[0], S::fma(five, d[2], d[4])),
            S::add(even, odd),
            S::sub(even, odd),
            S::fma(two, far, near),
            S::fma(minus_two, far, near),
            S::fma(four, d[1], S::fma(five, d[3], d[5])),
        ]
    }
}

/// Aᵀ m:
/// ```text
/// 1  1  1  1  1  0
/// 0  1 −1  2 −2  0
/// 0  1  1  4  4  0
/// 0  1 −1  8 −8  1
/// ```
#[inline(always)]
unsafe fn transform_output<S: Simd>(m: [S::V; SPAN]) -> [S::V; SIZE] {
    // SAFETY: the caller's processor has S.
    unsafe {
        let (two, four, eight) = (S::splat(2.0), S::splat(4.0), S::splat(8.0));
        let (sum_1, sum_2) = (S::add(m[1], m[2]), S::add(m[3], m[4]));
        let (difference_1, difference_2) = (S::sub(m[1], m[2]), S::sub(m[3], m[4]));
        [
            S::add(m[0], S::add(sum_1, sum_2)),
            S::fma(two, difference_2, difference_1),
            S::fma(four, sum_2, sum_1),
            S::add(S::fma(eight, difference_2, difference_1), m[5]),
        ]
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
    let across = grid.across(SIZE);
    let plane = plane(channels);
    let (mut ty, mut tx) = (first / across, first % across);
    for t in 0..count {
        let rows = (grid.out_h - SIZE * ty).min(SIZE);
        let cols = (grid.out_w - SIZE * tx).min(SIZE);
        for c in (0..channels).step_by(LANES) {
            // SAFETY: stores only to the rows and columns that the output has.
            unsafe {
                let p = m.add(t * channels + c);
                let mut a = [[S::zero(); SPAN]; SIZE];
                for j in 0..SPAN {
                    let mut column = [S::zero(); SPAN];
                    for i in 0..SPAN {
                        column[i] = S::load(p.add((SPAN * i + j) * plane));
                    }
                    let column = transform_output::<S>(column);
                    for i in 0..SIZE {
                        a[i][j] = column[i];
                    }
                }
                let bias = if e.bias.is_null() { S::zero() } else { S::load(e.bias.add(c)) };
                for i in 0..rows {
                    let y = transform_output::<S>(a[i]);
                    let at = ((SIZE * ty + i) * grid.out_w + SIZE * tx) * channels + c;
                    for j in 0..cols {
                        let at = at + j * channels;
                        let mut v = S::add(y[j], bias);
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
    /// G w Gᵀ: weights `[3][3][input][output]` to `u` `[36][output/16][input][16]`.
    ///
    /// # Safety
    /// Pointers hold 9 and 36 × `input` × `output` values.
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
                let mut a = [[S::zero(); 3]; SPAN];
                for j in 0..3 {
                    let at = weights.add(j * size + ci * output + co);
                    let (row_1, row_2) = (at.add(3 * size), at.add(6 * size));
                    let column = [S::load(at), S::load(row_1), S::load(row_2)];
                    let column = transform_weight::<S>(column);
                    for i in 0..SPAN {
                        a[i][j] = column[i];
                    }
                }
                for i in 0..SPAN {
                    let row = transform_weight::<S>(a[i]);
                    let o = u.add(SPAN * i * size + co * input + ci * LANES);
                    for j in 0..SPAN {
                        S::store(o.add(j * size), row[j]);
                    }
                }
            }
        }
    }
}

/// G g:
/// ```text
///   1/4     0    0
///  −1/6  −1/6 −1/6
///  −1/6   1/6 −1/6
///  1/24  1/12  1/6
///  1/24 −1/12  1/6
///     0     0    1
/// ```
#[inline(always)]
unsafe fn transform_weight<S: Simd>(g: [S::V; 3]) -> [S::V; SPAN] {
    // SAFETY: the caller's processor has S.
    unsafe {
        let sixth = S::splat(-1.0 / 6.0);
        let ends = S::add(g[0], g[2]);
        let outer = S::fma(S::splat(1.0 / 24.0), g[0], S::mul(S::splat(1.0 / 6.0), g[2]));
        let middle = S::mul(S::splat(1.0 / 12.0), g[1]);
        [
            S::mul(S::splat(0.25), g[0]),
            S::mul(sixth, S::add(ends, g[1])),
            S::mul(sixth, S::sub(ends, g[1])),
            S::add(outer, middle),
            S::sub(outer, middle),
            g[2],
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::engines::cpu::kernels::simd::Isa;
    use planaria_numerics::random::{Purpose, Stream};
    use std::ptr::null;

    /// Relative distance of a convolution of random numbers from the same in f64.
    fn distance(isa: Isa, size: usize, pad: usize, ci: usize, co: usize) -> f64 {
        let mut stream = Stream::new(3, Purpose::Test, size as u64, ci as u64);
        let mut draw = |n: usize| (0..n).map(|_| stream.normal()).collect::<Vec<f32>>();
        let (x, w) = (draw(size * size * ci), draw(9 * ci * co));
        let out = size + 2 * pad - 2;
        let grid =
            Grid { height: size, width: size, pad_top: pad, pad_left: pad, out_h: out, out_w: out };
        let (mut v, mut m) = (Buffer::new(36 * plane(ci)), Buffer::new(36 * plane(co)));
        let (mut u, mut y) = (Buffer::new(36 * ci * co), Buffer::new(out * out * co));
        let shape = Winograd {
            grid,
            input_channels: ci,
            output_channels: co,
            v: v.as_mut_ptr(),
            m: m.as_mut_ptr(),
        };
        let none = Epilogue { bias: null(), plus: null(), relu: false };
        // SAFETY: the buffers have the shape's sizes.
        unsafe {
            transform_weights(isa, w.as_ptr(), ci, co, u.as_mut_ptr());
            convolve(isa, shape, x.as_ptr(), u.as_ptr(), y.as_mut_ptr(), none);
        }
        let (mut error, mut total) = (0f64, 0f64);
        for (at, found) in y.iter().enumerate() {
            let (pixel, o) = (at / co, at % co);
            let mut wanted = 0f64;
            for (k, w) in w.chunks_exact(co).enumerate() {
                let (tap, i) = (k / ci, k % ci);
                let row = (pixel / out + tap / 3) as isize - pad as isize;
                let column = (pixel % out + tap % 3) as isize - pad as isize;
                if grid.has_row(row) && grid.has_column(column) {
                    let at = (row as usize * size + column as usize) * ci + i;
                    wanted += f64::from(x[at]) * f64::from(w[o]);
                }
            }
            error += {
                let d = f64::from(*found) - wanted;
                d * d
            };
            total += wanted * wanted;
        }
        (error / total).sqrt()
    }

    #[test]
    fn few_bits_are_lost() {
        for isa in Isa::all() {
            for (size, pad, ci, co) in
                [(8, 1, 64, 64), (13, 1, 16, 32), (26, 0, 32, 64), (5, 2, 16, 16)]
            {
                let d = distance(isa, size, pad, ci, co);
                assert!(d < 2e-6, "{} {size}×{size} {ci}→{co}: {d:.1e}", isa.name());
            }
        }
    }
}
