//! Weight gradients from tiles of 2×2 output gradients and 4×4 inputs.

#![expect(
    clippy::needless_range_loop,
    reason = "index loops over register arrays read as the maths"
)]

use super::{GROUP, Grid, WEIGHT_ELEMENTS, Winograd, plane};
use crate::engines::cpu::kernels::simd::{LANES, Simd, kernel};
use crate::engines::cpu::kernels::tile::{Finish, ONE, Panel, Start, multiply};

/// Outputs along a tile's side.
const SIZE: usize = 2;

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
    let tiles = s.grid.tiles(SIZE);
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
    let across = grid.across(SIZE);
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
    for xi in 0..WEIGHT_ELEMENTS {
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
        if !grid.has_column(x) {
            return d;
        }
        let row = (grid.width * channels) as isize;
        let p = image.wrapping_offset(y * row + x * channels as isize);
        for (i, d) in d.iter_mut().enumerate() {
            let i = i as isize;
            if INSIDE || grid.has_row(y + i) {
                *d = S::load(p.wrapping_offset(i * row));
            }
        }
        [S::sub(d[0], d[2]), S::add(d[1], d[2]), S::sub(d[2], d[1]), S::sub(d[1], d[3])]
    }
}
