//! Gradient of a 3×3 convolution below relu and a 2×2 max pool.
//!
//! Of each window's four pixels only the largest passes a gradient on, and only where it is
//! positive: at most a quarter of the image between convolution and pool is not zero. These
//! kernels go from the pool's gradient straight to the convolution's, touching nothing else.

use super::simd::{LANES, Simd, kernel};

/// A convolution under a pool; no padding, stride 1.
#[derive(Clone, Copy)]
pub struct Pooled {
    /// Columns of the convolution's input.
    pub width: usize,
    /// Its channels, a multiple of 16.
    pub channels: usize,
    /// Its filters, a multiple of 16.
    pub filters: usize,
    /// Rows of the pool's output.
    pub out_h: usize,
    /// Columns of the pool's output.
    pub out_w: usize,
}

/// Rows of pool windows per pass of the weight gradient: their input stays in the cache.
const BAND: usize = 3;
/// Filters per pass of the input gradient: their weights stay in the cache.
const CHUNK: usize = 32;

/// Scratch of the weight gradient: values and places of one filter's gradients in a band.
pub fn scratch_len(out_w: usize) -> usize {
    2 * BAND * out_w + 2 * LANES
}

kernel! {
    /// Adds one image to `gradients`: of the weights, `[filter][tap][channel]`, and of the bias (may
    /// be null). Per filter, bands of 3 rows of windows, windows in raster order.
    ///
    /// # Safety
    /// Pointers hold what `shape` says; `g` is zero where relu cut; `scratch` as [`scratch_len`].
    pub fn weight_gradient(shape: Pooled, x: *const f32, g: *const f32, which: *const u8, gradients: (*mut f32, *mut f32), scratch: *mut f32) = weight_gradient_body
}

#[inline(always)]
unsafe fn weight_gradient_body<S: Simd>(
    s: Pooled,
    x: *const f32,
    g: *const f32,
    which: *const u8,
    (dw, db): (*mut f32, *mut f32),
    scratch: *mut f32,
) {
    let row = s.width * s.channels;
    let offsets = [0, s.channels, row, row + s.channels];
    let values = scratch;
    // SAFETY: `which` is below 4; a window's pixels and taps lie within the input.
    unsafe {
        let places = scratch.add(BAND * s.out_w + LANES).cast::<u32>();
        for band in (0..s.out_h).step_by(BAND) {
            let rows = (s.out_h - band).min(BAND);
            for filter in 0..s.filters {
                let mut n = 0;
                let mut sum = 0f32;
                for y in band..band + rows {
                    for ox in 0..s.out_w {
                        let at = (y * s.out_w + ox) * s.filters + filter;
                        let v = *g.add(at);
                        let corner = 2 * y * row + 2 * ox * s.channels;
                        *values.add(n) = v;
                        *places.add(n) = (corner + offsets[usize::from(*which.add(at) & 3)]) as u32;
                        sum += v;
                        n += usize::from(v != 0.0);
                    }
                }
                if !db.is_null() {
                    *db.add(filter) += sum;
                }
                let dw = dw.add(filter * 9 * s.channels);
                let list = List { values, places, n };
                let mut c = 0;
                if S::WIDE {
                    while c + 2 * LANES <= s.channels {
                        taps::<S, 3, 2>(list, x.add(c), row, s.channels, dw.add(c));
                        c += 2 * LANES;
                    }
                }
                while c < s.channels {
                    for ky in 0..3 {
                        let dw = dw.add(ky * 3 * s.channels + c);
                        taps::<S, 1, 1>(list, x.add(ky * row + c), row, s.channels, dw);
                    }
                    c += LANES;
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct List {
    values: *const f32,
    places: *const u32,
    n: usize,
}

/// `ROWS` kernel rows of 3 taps, `NB` blocks of channels: dw += Σ value · x[place + tap].
#[inline(always)]
unsafe fn taps<S: Simd, const ROWS: usize, const NB: usize>(
    list: List,
    x: *const f32,
    row: usize,
    channels: usize,
    dw: *mut f32,
) {
    // SAFETY: forwarded to the caller.
    unsafe {
        let mut acc = [[[S::zero(); NB]; 3]; ROWS];
        for i in 0..list.n {
            let v = S::splat(*list.values.add(i));
            let p = x.add(*list.places.add(i) as usize);
            for (ky, acc) in acc.iter_mut().enumerate() {
                for (kx, acc) in acc.iter_mut().enumerate() {
                    for (b, acc) in acc.iter_mut().enumerate() {
                        let at = p.add(ky * row + kx * channels + b * LANES);
                        *acc = S::fma(v, S::load(at), *acc);
                    }
                }
            }
        }
        for (ky, acc) in acc.iter().enumerate() {
            for (kx, acc) in acc.iter().enumerate() {
                for (b, acc) in acc.iter().enumerate() {
                    let q = dw.add((ky * 3 + kx) * channels + b * LANES);
                    S::store(q, S::add(S::load(q), *acc));
                }
            }
        }
    }
}

/// Length of the weights packed by [`pack`].
pub fn pack_len(channels: usize, filters: usize) -> usize {
    9 * channels * filters
}

/// Packs weights `[tap][channel][filter]` as `[channel / 16][filter][tap][16]`.
pub fn pack(weights: &[f32], channels: usize, filters: usize, packed: &mut [f32]) {
    for (at, out) in packed.chunks_exact_mut(LANES).enumerate() {
        let (block, filter, tap) = (at / 9 / filters, at / 9 % filters, at % 9);
        for (lane, out) in out.iter_mut().enumerate() {
            *out = weights[(tap * channels + block * LANES + lane) * filters + filter];
        }
    }
}

kernel! {
    /// dx = input gradient of one image. Per input pixel: chunks of 32 filters, windows in raster
    /// order, by position in the window, filters ascending.
    ///
    /// # Safety
    /// Pointers hold what `shape` says; `weights` as packed by [`pack`]; `dx` has `height` rows.
    pub fn input_gradient(shape: Pooled, g: *const f32, which: *const u8, weights: *const f32, dx: *mut f32, height: usize) = input_gradient_body
}

#[inline(always)]
unsafe fn input_gradient_body<S: Simd>(
    s: Pooled,
    g: *const f32,
    which: *const u8,
    weights: *const f32,
    dx: *mut f32,
    height: usize,
) {
    // SAFETY: windows' 4×4 patches lie within the input.
    unsafe {
        dx.write_bytes(0, height * s.width * s.channels);
        let mut entries = Entries::new();
        for first in (0..s.filters).step_by(CHUNK) {
            let count = (s.filters - first).min(CHUNK);
            for y in 0..s.out_h {
                for x in 0..s.out_w {
                    let at = (y * s.out_w + x) * s.filters + first;
                    entries.n = [0; 4];
                    for f in (0..count).step_by(LANES) {
                        let (g, which) = (g.add(at + f), which.add(at + f));
                        for position in 0..4 {
                            entries.n[position] += S::gather_class(
                                g,
                                which,
                                position as u8,
                                f as i32,
                                entries.values[position].as_mut_ptr().add(entries.n[position]),
                                entries.filters[position].as_mut_ptr().add(entries.n[position]),
                            );
                        }
                    }
                    for c in (0..s.channels).step_by(LANES) {
                        let w = weights.add((c * s.filters + first * LANES) * 9);
                        let p = dx.add((2 * y * s.width + 2 * x) * s.channels + c);
                        patch::<S>(&entries, w, p, s.width * s.channels, s.channels);
                    }
                }
            }
        }
    }
}

/// Gradients that are not zero, by position in the window.
struct Entries {
    values: [[f32; CHUNK + LANES]; 4],
    filters: [[i32; CHUNK + LANES]; 4],
    n: [usize; 4],
}

impl Entries {
    #[inline(always)]
    fn new() -> Self {
        Self { values: [[0.0; CHUNK + LANES]; 4], filters: [[0; CHUNK + LANES]; 4], n: [0; 4] }
    }
}

/// Adds one window's gradients to the 4×4 pixels they reach, 16 channels.
#[inline(always)]
unsafe fn patch<S: Simd>(e: &Entries, w: *const f32, p: *mut f32, row: usize, pixel: usize) {
    // SAFETY: forwarded to the caller.
    unsafe {
        if S::WIDE {
            let mut acc = [S::zero(); 16];
            for (t, acc) in acc.iter_mut().enumerate() {
                *acc = S::load(p.add(t / 4 * row + t % 4 * pixel));
            }
            position::<S, 0>(&mut acc, e, w);
            position::<S, 1>(&mut acc, e, w);
            position::<S, 2>(&mut acc, e, w);
            position::<S, 3>(&mut acc, e, w);
            for (t, acc) in acc.iter().enumerate() {
                S::store(p.add(t / 4 * row + t % 4 * pixel), *acc);
            }
        } else {
            patch_row::<S, 0>(e, w, p, pixel);
            patch_row::<S, 1>(e, w, p.add(row), pixel);
            patch_row::<S, 2>(e, w, p.add(2 * row), pixel);
            patch_row::<S, 3>(e, w, p.add(3 * row), pixel);
        }
    }
}

/// All entries at position `Q`, whole patch in registers.
#[inline(always)]
unsafe fn position<S: Simd, const Q: usize>(acc: &mut [S::V; 16], e: &Entries, w: *const f32) {
    for i in 0..e.n[Q] {
        // SAFETY: entries name filters of the chunk.
        unsafe {
            let v = S::splat(e.values[Q][i]);
            let w = w.add(e.filters[Q][i] as usize * 9 * LANES);
            for k in 0..9 {
                let t = (k / 3 + Q / 2) * 4 + k % 3 + Q % 2;
                acc[t] = S::fma(v, S::load(w.add(k * LANES)), acc[t]);
            }
        }
    }
}

/// One row of the patch, for processors with few registers.
#[inline(always)]
unsafe fn patch_row<S: Simd, const R: usize>(
    e: &Entries,
    w: *const f32,
    p: *mut f32,
    pixel: usize,
) {
    // SAFETY: forwarded to the caller.
    unsafe {
        let mut acc = [S::zero(); 4];
        for (t, acc) in acc.iter_mut().enumerate() {
            *acc = S::load(p.add(t * pixel));
        }
        row_position::<S, R, 0>(&mut acc, e, w);
        row_position::<S, R, 1>(&mut acc, e, w);
        row_position::<S, R, 2>(&mut acc, e, w);
        row_position::<S, R, 3>(&mut acc, e, w);
        for (t, acc) in acc.iter().enumerate() {
            S::store(p.add(t * pixel), *acc);
        }
    }
}

#[inline(always)]
unsafe fn row_position<S: Simd, const R: usize, const Q: usize>(
    acc: &mut [S::V; 4],
    e: &Entries,
    w: *const f32,
) {
    if R < Q / 2 || R > Q / 2 + 2 {
        return;
    }
    let ky = R - Q / 2;
    for i in 0..e.n[Q] {
        // SAFETY: entries name filters of the chunk.
        unsafe {
            let v = S::splat(e.values[Q][i]);
            let w = w.add((e.filters[Q][i] as usize * 9 + ky * 3) * LANES);
            for kx in 0..3 {
                let t = kx + Q % 2;
                acc[t] = S::fma(v, S::load(w.add(kx * LANES)), acc[t]);
            }
        }
    }
}
