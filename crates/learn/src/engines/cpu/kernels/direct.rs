//! Direct convolution of one image: forward, input gradient and weight gradient.
//!
//! The input lies in a padded image, so that a kernel row is one contiguous run of
//! `kernel width × channels` terms; sums run over kernel rows, then along the run.

use super::simd::{LANES, Simd, kernel};
use super::tile::{Bands, Finish, ONE, Panel, Start, multiply};

/// A convolution of one padded image.
#[derive(Clone, Copy)]
pub struct Direct {
    /// Padded input image.
    pub input: *const f32,
    /// Values per padded input row.
    pub input_row: usize,
    /// Values from one output's window to the next along a row.
    pub step_x: usize,
    /// Values from one output row's window to the next.
    pub step_y: usize,
    pub rows: usize,
    /// Kernel columns × channels.
    pub run: usize,
    pub out_h: usize,
    pub out_w: usize,
    pub channels: usize,
    /// Values from one output row to the next.
    pub out_row: usize,
    /// Values from one output pixel to the next.
    pub out_pixel: usize,
    /// Values from one tap and channel of the weight gradient to the next.
    pub weight_row: usize,
}

kernel! {
    /// Output = finish(start + input ∗ weights). Weights come packed by [`pack`]; with input
    /// gradients the "output" is the gradient image.
    ///
    /// # Safety
    /// Pointers hold what `shape` says; `out` overlaps nothing else (but may be `finish`'s tensor).
    pub fn convolve(shape: Direct, weights: *const f32, out: *mut f32, start: Start, finish: Finish, relu: bool) = convolve_body
}

#[inline(always)]
unsafe fn convolve_body<S: Simd>(
    s: Direct,
    weights: *const f32,
    out: *mut f32,
    start: Start,
    finish: Finish,
    relu: bool,
) {
    let panel = Panel {
        a: s.input,
        a_row: s.step_x,
        a_col: 1,
        a_segment: s.input_row,
        b: weights,
        b_row: LANES,
        b_block: s.rows * s.run * LANES,
        b_segment: s.run * LANES,
        segments: s.rows,
        len: s.run,
        c: out,
        c_row: s.out_pixel,
        start,
        finish,
        relu,
    };
    let bands = Bands { count: s.out_h, a_step: s.step_y, c_step: s.out_row };
    // SAFETY: forwarded to the caller.
    unsafe { multiply::<S, 0>(panel, s.out_w, s.channels, bands) }
}

kernel! {
    /// Adds one image's weight gradient: per kernel tap, the sum over pixels in raster order.
    /// `gradient` is laid out as the output.
    ///
    /// # Safety
    /// Pointers hold what `shape` says.
    pub fn weight_gradient(shape: Direct, gradient: *const f32, weights: *mut f32) = weight_gradient_body
}

#[inline(always)]
unsafe fn weight_gradient_body<S: Simd>(s: Direct, gradient: *const f32, weights: *mut f32) {
    for row in 0..s.rows {
        // SAFETY: kernel row `row` of the input and of the weights.
        unsafe {
            let panel = Panel {
                a: s.input.add(row * s.input_row),
                a_row: 1,
                a_col: s.step_x,
                a_segment: s.step_y,
                b: gradient,
                b_row: s.out_pixel,
                b_block: LANES,
                b_segment: s.out_row,
                segments: s.out_h,
                len: s.out_w,
                c: weights.add(row * s.run * s.weight_row),
                c_row: s.weight_row,
                start: Start::Zero,
                finish: Finish::Add,
                relu: false,
            };
            multiply::<S, 1>(panel, s.run, s.channels, ONE);
        }
    }
}

/// Length of a pack of `terms` × `columns` weights.
pub fn pack_len(terms: usize, columns: usize) -> usize {
    terms * columns.next_multiple_of(LANES)
}

/// Packs `terms` rows of `columns` weights into blocks of 16 columns, zeros beyond.
/// `weight(term, column)` gives each.
pub fn pack(
    terms: usize,
    columns: usize,
    weight: impl Fn(usize, usize) -> f32,
    packed: &mut [f32],
) {
    for (block, out) in packed.chunks_exact_mut(terms * LANES).enumerate() {
        let first = block * LANES;
        let lanes = (columns - first).min(LANES);
        for (term, out) in out.chunks_exact_mut(LANES).enumerate() {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = if lane < lanes { weight(term, first + lane) } else { 0.0 };
            }
        }
    }
}

/// Copies an image into the middle of a padded one whose border is zero already.
///
/// # Safety
/// Pointers hold `height` rows of `row` values, and as many rows `padded_row` apart.
pub unsafe fn copy_rows(
    from: *const f32,
    to: *mut f32,
    height: usize,
    row: usize,
    padded_row: usize,
) {
    for y in 0..height {
        // SAFETY: row y of both images.
        unsafe { from.add(y * row).copy_to_nonoverlapping(to.add(y * padded_row), row) };
    }
}
