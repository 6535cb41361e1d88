//! Pooling of one image. Lanes run across channels; windows in raster order.

use super::norm::blocks;
use super::simd::{LANES, Simd, get, kernel, put};
use planaria_recipe::shape::Window;

/// A pool over one image.
#[derive(Debug, Clone, Copy)]
pub struct Pool {
    /// Where the windows lie.
    pub window: Window,
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

impl Pool {
    /// Rows and columns of the input inside window (oy, ox).
    #[inline(always)]
    fn covered(&self, oy: usize, ox: usize) -> (usize, usize, usize, usize) {
        let w = &self.window;
        let (top, left) = (oy * w.stride_h, ox * w.stride_w);
        (
            top.saturating_sub(w.pad_top),
            (top + w.kernel_h).saturating_sub(w.pad_top).min(self.height),
            left.saturating_sub(w.pad_left),
            (left + w.kernel_w).saturating_sub(w.pad_left).min(self.width),
        )
    }
}

kernel! {
    /// Largest value of each window, and which of the window's covered pixels it was (the first
    /// one, counted over the covered pixels in raster order).
    ///
    /// # Safety
    /// Pointers hold what `pool` says.
    pub fn max(pool: Pool, x: *const f32, y: *mut f32, which: *mut u8) = max_body
}

#[inline(always)]
unsafe fn max_body<S: Simd>(pool: Pool, x: *const f32, y: *mut f32, which: *mut u8) {
    for oy in 0..pool.window.out_h {
        for ox in 0..pool.window.out_w {
            let (y0, y1, x0, x1) = pool.covered(oy, ox);
            let out = (oy * pool.window.out_w + ox) * pool.channels;
            blocks!(pool.channels, |c, lanes, TAIL| {
                // SAFETY: covered pixels lie within the image.
                unsafe {
                    let first = x.add((y0 * pool.width + x0) * pool.channels + c);
                    let mut best = get::<S, TAIL>(first, lanes);
                    let mut at = S::zero();
                    let mut number = 0.0;
                    for iy in y0..y1 {
                        for ix in x0..x1 {
                            let p = x.add((iy * pool.width + ix) * pool.channels + c);
                            let v = get::<S, TAIL>(p, lanes);
                            at = S::select_greater(v, best, S::splat(number), at);
                            best = S::select_greater(v, best, v, best);
                            number += 1.0;
                        }
                    }
                    put::<S, TAIL>(y.add(out + c), best, lanes);
                    S::store_bytes(which.add(out + c), at, lanes);
                }
            });
        }
    }
}

/// Gradient of [`max`]: zero but where the largest values were.
///
/// # Safety
/// Pointers hold what `pool` says.
pub unsafe fn max_gradient(pool: Pool, g: *const f32, which: *const u8, dx: *mut f32) {
    // SAFETY: `which` names covered pixels, which lie within the image.
    unsafe {
        dx.write_bytes(0, pool.height * pool.width * pool.channels);
        for oy in 0..pool.window.out_h {
            for ox in 0..pool.window.out_w {
                let (y0, _, x0, x1) = pool.covered(oy, ox);
                let out = (oy * pool.window.out_w + ox) * pool.channels;
                for c in 0..pool.channels {
                    let k = usize::from(*which.add(out + c));
                    let (iy, ix) = (y0 + k / (x1 - x0), x0 + k % (x1 - x0));
                    *dx.add((iy * pool.width + ix) * pool.channels + c) += *g.add(out + c);
                }
            }
        }
    }
}

kernel! {
    /// Mean of each window's covered pixels.
    ///
    /// # Safety
    /// Pointers hold what `pool` says.
    pub fn average(pool: Pool, x: *const f32, y: *mut f32) = average_body
}

#[inline(always)]
unsafe fn average_body<S: Simd>(pool: Pool, x: *const f32, y: *mut f32) {
    for oy in 0..pool.window.out_h {
        for ox in 0..pool.window.out_w {
            let (y0, y1, x0, x1) = pool.covered(oy, ox);
            let share = 1.0 / ((y1 - y0) * (x1 - x0)) as f32;
            let out = (oy * pool.window.out_w + ox) * pool.channels;
            blocks!(pool.channels, |c, lanes, TAIL| {
                // SAFETY: covered pixels lie within the image.
                unsafe {
                    let mut sum = S::zero();
                    for iy in y0..y1 {
                        for ix in x0..x1 {
                            let p = x.add((iy * pool.width + ix) * pool.channels + c);
                            sum = S::add(sum, get::<S, TAIL>(p, lanes));
                        }
                    }
                    put::<S, TAIL>(y.add(out + c), S::mul(sum, S::splat(share)), lanes);
                }
            });
        }
    }
}

kernel! {
    /// Gradient of [`average`].
    ///
    /// # Safety
    /// Pointers hold what `pool` says.
    pub fn average_gradient(pool: Pool, g: *const f32, dx: *mut f32) = average_gradient_body
}

#[inline(always)]
unsafe fn average_gradient_body<S: Simd>(pool: Pool, g: *const f32, dx: *mut f32) {
    // SAFETY: covered pixels lie within the image.
    unsafe { dx.write_bytes(0, pool.height * pool.width * pool.channels) };
    for oy in 0..pool.window.out_h {
        for ox in 0..pool.window.out_w {
            let (y0, y1, x0, x1) = pool.covered(oy, ox);
            let share = 1.0 / ((y1 - y0) * (x1 - x0)) as f32;
            let out = (oy * pool.window.out_w + ox) * pool.channels;
            blocks!(pool.channels, |c, lanes, TAIL| {
                // SAFETY: as above.
                unsafe {
                    let v = S::mul(get::<S, TAIL>(g.add(out + c), lanes), S::splat(share));
                    for iy in y0..y1 {
                        for ix in x0..x1 {
                            let p = dx.add((iy * pool.width + ix) * pool.channels + c);
                            put::<S, TAIL>(p, S::add(get::<S, TAIL>(p, lanes), v), lanes);
                        }
                    }
                }
            });
        }
    }
}
