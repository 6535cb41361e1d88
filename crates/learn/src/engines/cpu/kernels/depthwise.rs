//! Depthwise convolution of one padded image: one filter per channel, lanes across channels.

use super::norm::blocks;
use super::simd::{LANES, Simd, get, kernel, put};

/// A depthwise convolution.
#[derive(Clone, Copy)]
pub struct Depthwise {
    pub channels: usize,
    /// Columns of the padded input.
    pub padded_w: usize,
    /// Kernel rows and columns.
    pub kernel: (usize, usize),
    /// Strides down and along.
    pub stride: (usize, usize),
    /// Output rows and columns.
    pub out: (usize, usize),
}

impl Depthwise {
    #[inline(always)]
    fn at(&self, oy: usize, ox: usize, ky: usize, kx: usize) -> usize {
        ((oy * self.stride.0 + ky) * self.padded_w + ox * self.stride.1 + kx) * self.channels
    }
}

kernel! {
    /// Output = relu?(bias + input ∗ weights), weights `[rows][columns][channels]`; bias may be null.
    ///
    /// # Safety
    /// Pointers hold what `shape` says.
    pub fn convolve(shape: Depthwise, x: *const f32, weights: *const f32, bias: *const f32, relu: bool, y: *mut f32) = convolve_body
}

#[inline(always)]
unsafe fn convolve_body<S: Simd>(
    s: Depthwise,
    x: *const f32,
    weights: *const f32,
    bias: *const f32,
    relu: bool,
    y: *mut f32,
) {
    blocks!(s.channels, |c, lanes, TAIL| {
        // SAFETY: window (oy, ox) lies within the padded image.
        unsafe {
            let b = if bias.is_null() { S::zero() } else { get::<S, TAIL>(bias.add(c), lanes) };
            for oy in 0..s.out.0 {
                for ox in 0..s.out.1 {
                    let mut sum = b;
                    for ky in 0..s.kernel.0 {
                        for kx in 0..s.kernel.1 {
                            let v = get::<S, TAIL>(x.add(s.at(oy, ox, ky, kx) + c), lanes);
                            let w = weights.add((ky * s.kernel.1 + kx) * s.channels + c);
                            sum = S::fma(v, get::<S, TAIL>(w, lanes), sum);
                        }
                    }
                    if relu {
                        sum = S::max(sum, S::zero());
                    }
                    put::<S, TAIL>(y.add((oy * s.out.1 + ox) * s.channels + c), sum, lanes);
                }
            }
        }
    });
}

kernel! {
    /// Adds one image's weight gradient, pixels in raster order.
    ///
    /// # Safety
    /// Pointers hold what `shape` says.
    pub fn weight_gradient(shape: Depthwise, x: *const f32, g: *const f32, dw: *mut f32) = weight_gradient_body
}

#[inline(always)]
unsafe fn weight_gradient_body<S: Simd>(s: Depthwise, x: *const f32, g: *const f32, dw: *mut f32) {
    blocks!(s.channels, |c, lanes, TAIL| {
        for ky in 0..s.kernel.0 {
            for kx in 0..s.kernel.1 {
                // SAFETY: window (oy, ox) lies within the padded image.
                unsafe {
                    let mut sum = S::zero();
                    for oy in 0..s.out.0 {
                        for ox in 0..s.out.1 {
                            let v = get::<S, TAIL>(x.add(s.at(oy, ox, ky, kx) + c), lanes);
                            let g = g.add((oy * s.out.1 + ox) * s.channels + c);
                            sum = S::fma(v, get::<S, TAIL>(g, lanes), sum);
                        }
                    }
                    let w = dw.add((ky * s.kernel.1 + kx) * s.channels + c);
                    put::<S, TAIL>(w, S::add(get::<S, TAIL>(w, lanes), sum), lanes);
                }
            }
        }
    });
}

kernel! {
    /// Input gradient into a padded image, which is cleared first.
    ///
    /// # Safety
    /// Pointers hold what `shape` says; `dx` has `padded_h` padded rows.
    pub fn input_gradient(shape: Depthwise, g: *const f32, weights: *const f32, dx: *mut f32, padded_h: usize) = input_gradient_body
}

#[inline(always)]
unsafe fn input_gradient_body<S: Simd>(
    s: Depthwise,
    g: *const f32,
    weights: *const f32,
    dx: *mut f32,
    padded_h: usize,
) {
    // SAFETY: the caller's image.
    unsafe { dx.write_bytes(0, padded_h * s.padded_w * s.channels) };
    blocks!(s.channels, |c, lanes, TAIL| {
        // SAFETY: window (oy, ox) lies within the padded image.
        unsafe {
            for oy in 0..s.out.0 {
                for ox in 0..s.out.1 {
                    let v = get::<S, TAIL>(g.add((oy * s.out.1 + ox) * s.channels + c), lanes);
                    for ky in 0..s.kernel.0 {
                        for kx in 0..s.kernel.1 {
                            let p = dx.add(s.at(oy, ox, ky, kx) + c);
                            let w = weights.add((ky * s.kernel.1 + kx) * s.channels + c);
                            let sum = S::fma(v, get::<S, TAIL>(w, lanes), get::<S, TAIL>(p, lanes));
                            put::<S, TAIL>(p, sum, lanes);
                        }
                    }
                }
            }
        }
    });
}
