//! Batch normalisation of one image, fused with what stands around it.
//!
//! Lanes run across channels. Sums over one image run in f32 over a few interleaved chains of
//! pixels; images are added in f64.

use super::simd::{LANES, Simd, get, kernel, put};

/// An image as a list of pixels.
#[derive(Clone, Copy)]
pub struct Pixels {
    pub count: usize,
    /// Values per pixel.
    pub channels: usize,
}

/// Passes over all channels block by block of 16; a last block may be part.
macro_rules! blocks {
    ($channels:expr, |$c:ident, $lanes:ident, $tail:ident| $body:block) => {{
        let full = $channels / LANES * LANES;
        for $c in (0..full).step_by(LANES) {
            const $tail: bool = false;
            let $lanes = LANES;
            $body
        }
        if full < $channels {
            const $tail: bool = true;
            let ($c, $lanes) = (full, $channels - full);
            $body
        }
    }};
}
pub(crate) use blocks;

/// Passes over all channels in groups of `NC` blocks of 16 (4, 2 or 1), so that a pixel's lines are
/// read together; a last block may be part.
macro_rules! groups {
    ($channels:expr, |$c:ident, $lanes:ident, $nc:ident, $tail:ident| $body:block) => {{
        let full = $channels / LANES;
        let mut block = 0;
        while block + 4 <= full {
            const $nc: usize = 4;
            const $tail: bool = false;
            let ($c, $lanes) = (block * LANES, LANES);
            $body
            block += 4;
        }
        while block + 2 <= full {
            const $nc: usize = 2;
            const $tail: bool = false;
            let ($c, $lanes) = (block * LANES, LANES);
            $body
            block += 2;
        }
        while block < full {
            const $nc: usize = 1;
            const $tail: bool = false;
            let ($c, $lanes) = (block * LANES, LANES);
            $body
            block += 1;
        }
        if full * LANES < $channels {
            const $nc: usize = 1;
            const $tail: bool = true;
            let ($c, $lanes) = (full * LANES, $channels - full * LANES);
            $body
        }
    }};
}

#[inline(always)]
unsafe fn add_to_f64<S: Simd>(sums: *mut f64, v: S::V, lanes: usize) {
    let mut values = [0f32; LANES];
    // SAFETY: `sums` holds `lanes` values.
    unsafe {
        S::store(values.as_mut_ptr(), v);
        for (i, x) in values.iter().enumerate().take(lanes) {
            *sums.add(i) += f64::from(*x);
        }
    }
}

kernel! {
    /// Adds one image's sums and sums of squares per channel, counted from `origin`: a value near
    /// the mean keeps squares small, so that their difference loses nothing. Four chains of pixels.
    ///
    /// # Safety
    /// Pointers hold what `pixels` says.
    pub fn sums(pixels: Pixels, z: *const f32, origin: *const f32, sum: *mut f64, square: *mut f64) = sums_body
}

#[inline(always)]
unsafe fn sums_body<S: Simd>(
    pixels: Pixels,
    z: *const f32,
    origin: *const f32,
    sum: *mut f64,
    square: *mut f64,
) {
    blocks!(pixels.channels, |c, lanes, TAIL| {
        // SAFETY: channels c..c+lanes of every pixel.
        unsafe {
            let mut a = [S::zero(); 4];
            let mut b = [S::zero(); 4];
            let origin = get::<S, TAIL>(origin.add(c), lanes);
            let mut p = z.add(c);
            let mut left = pixels.count;
            while left >= 4 {
                for u in 0..4 {
                    let v =
                        S::sub(get::<S, TAIL>(p.wrapping_add(u * pixels.channels), lanes), origin);
                    a[u] = S::add(a[u], v);
                    b[u] = S::fma(v, v, b[u]);
                }
                p = p.wrapping_add(4 * pixels.channels);
                left -= 4;
            }
            for u in 0..left {
                let v = S::sub(get::<S, TAIL>(p.wrapping_add(u * pixels.channels), lanes), origin);
                a[u] = S::add(a[u], v);
                b[u] = S::fma(v, v, b[u]);
            }
            let total = |x: [S::V; 4]| S::add(S::add(x[0], x[1]), S::add(x[2], x[3]));
            add_to_f64::<S>(sum.add(c), total(a), lanes);
            add_to_f64::<S>(square.add(c), total(b), lanes);
        }
    });
}

/// What is added before the activation.
#[derive(Clone, Copy)]
pub enum Addend {
    None,
    Image(*const f32),
    /// Another image, scaled and shifted per channel.
    Scaled(*const f32, *const f32, *const f32),
}

kernel! {
    /// y = relu?(z · scale + shift + addend), `affine` being (scale, shift) per channel.
    ///
    /// # Safety
    /// Pointers hold what `pixels` says; `y` may be `z`.
    pub fn apply(pixels: Pixels, z: *const f32, affine: (*const f32, *const f32), addend: Addend, relu: bool, y: *mut f32) = apply_body
}

#[inline(always)]
unsafe fn apply_body<S: Simd>(
    pixels: Pixels,
    z: *const f32,
    (scale, shift): (*const f32, *const f32),
    addend: Addend,
    relu: bool,
    y: *mut f32,
) {
    // SAFETY: forwarded to the caller.
    unsafe {
        match (addend, relu) {
            (Addend::None, false) => each::<S>(pixels, z, scale, shift, y, |_, v, _| v),
            (Addend::None, true) => {
                each::<S>(pixels, z, scale, shift, y, |_, v, _| S::max(v, S::zero()));
            }
            (Addend::Image(r), _) => each::<S>(pixels, z, scale, shift, y, |at, v, lanes| {
                let v = S::add(v, get_any::<S>(r.wrapping_add(at), lanes));
                if relu { S::max(v, S::zero()) } else { v }
            }),
            (Addend::Scaled(r, s, t), _) => {
                each::<S>(pixels, z, scale, shift, y, |at, v, lanes| {
                    let c = at % pixels.channels;
                    let r = get_any::<S>(r.wrapping_add(at), lanes);
                    let (s, t) = (get_any::<S>(s.add(c), lanes), get_any::<S>(t.add(c), lanes));
                    let v = S::add(v, S::fma(r, s, t));
                    if relu { S::max(v, S::zero()) } else { v }
                });
            }
        }
    }
}

#[inline(always)]
unsafe fn get_any<S: Simd>(p: *const f32, lanes: usize) -> S::V {
    // SAFETY: forwarded to the caller.
    unsafe { if lanes == LANES { S::load(p) } else { S::load_part(p, lanes) } }
}

/// y = f(offset, z · scale + shift, lanes) for every pixel.
#[inline(always)]
unsafe fn each<S: Simd>(
    pixels: Pixels,
    z: *const f32,
    scale: *const f32,
    shift: *const f32,
    y: *mut f32,
    f: impl Fn(usize, S::V, usize) -> S::V,
) {
    groups!(pixels.channels, |c, lanes, NC, TAIL| {
        // SAFETY: NC blocks of channels from c of every pixel.
        unsafe {
            let s = constants::<S, NC, TAIL>(scale.add(c), lanes);
            let t = constants::<S, NC, TAIL>(shift.add(c), lanes);
            for i in 0..pixels.count {
                for b in 0..NC {
                    let at = i * pixels.channels + c + b * LANES;
                    let v = S::fma(get::<S, TAIL>(z.add(at), lanes), s[b], t[b]);
                    put::<S, TAIL>(y.add(at), f(at, v, lanes), lanes);
                }
            }
        }
    });
}

/// Values of `NC` blocks of channels.
#[inline(always)]
unsafe fn constants<S: Simd, const NC: usize, const TAIL: bool>(
    p: *const f32,
    lanes: usize,
) -> [S::V; NC] {
    // SAFETY: forwarded to the caller.
    unsafe {
        let mut values = [S::zero(); NC];
        for (b, v) in values.iter_mut().enumerate() {
            *v = get::<S, TAIL>(p.add(b * LANES), lanes);
        }
        values
    }
}

/// A normalised tensor whose backward sums are wanted.
#[derive(Clone, Copy)]
pub struct Reduce {
    /// The tensor before normalisation.
    pub z: *const f32,
    /// Its mean per channel.
    pub mean: *const f32,
    /// Sums of the gradient.
    pub sum: *mut f64,
    /// Sums of gradient × (z − mean).
    pub product: *mut f64,
}

kernel! {
    /// Cuts the gradient where `y` (if not null) is not positive, in place, and adds the sums that
    /// the backward pass of one normalisation (or two that were added) needs. Two chains of pixels.
    ///
    /// # Safety
    /// Pointers hold what `pixels` says.
    pub fn reduce(pixels: Pixels, g: *mut f32, y: *const f32, first: Reduce, second: Option<Reduce>) = reduce_body
}

#[inline(always)]
unsafe fn reduce_body<S: Simd>(
    pixels: Pixels,
    g: *mut f32,
    y: *const f32,
    first: Reduce,
    second: Option<Reduce>,
) {
    // SAFETY: forwarded to the caller.
    unsafe {
        match (y.is_null(), second) {
            (false, None) => reduce_kind::<S, true, false>(pixels, g, y, first, first),
            (true, None) => reduce_kind::<S, false, false>(pixels, g, y, first, first),
            (false, Some(s)) => reduce_kind::<S, true, true>(pixels, g, y, first, s),
            (true, Some(s)) => reduce_kind::<S, false, true>(pixels, g, y, first, s),
        }
    }
}

#[inline(always)]
unsafe fn reduce_kind<S: Simd, const MASK: bool, const TWO: bool>(
    pixels: Pixels,
    g: *mut f32,
    y: *const f32,
    first: Reduce,
    second: Reduce,
) {
    groups!(pixels.channels, |c, lanes, NC, TAIL| {
        // SAFETY: NC blocks of channels from c of every pixel.
        unsafe {
            let m1 = constants::<S, NC, TAIL>(first.mean.add(c), lanes);
            let m2 = constants::<S, NC, TAIL>(second.mean.add(c), lanes);
            let zero = [[S::zero(); NC]; 2];
            let (mut sum, mut p1, mut p2) = (zero, zero, zero);
            let mut i = 0;
            while i < pixels.count {
                for u in 0..2 {
                    if i + u == pixels.count {
                        break;
                    }
                    for b in 0..NC {
                        let at = (i + u) * pixels.channels + c + b * LANES;
                        let mut v = get::<S, TAIL>(g.add(at), lanes);
                        if MASK {
                            v = S::keep_positive(get::<S, TAIL>(y.add(at), lanes), v);
                            put::<S, TAIL>(g.add(at), v, lanes);
                        }
                        sum[u][b] = S::add(sum[u][b], v);
                        let z = get::<S, TAIL>(first.z.add(at), lanes);
                        p1[u][b] = S::fma(v, S::sub(z, m1[b]), p1[u][b]);
                        if TWO {
                            let z = get::<S, TAIL>(second.z.add(at), lanes);
                            p2[u][b] = S::fma(v, S::sub(z, m2[b]), p2[u][b]);
                        }
                    }
                }
                i += 2;
            }
            for b in 0..NC {
                let at = c + b * LANES;
                let total = S::add(sum[0][b], sum[1][b]);
                add_to_f64::<S>(first.sum.add(at), total, lanes);
                add_to_f64::<S>(first.product.add(at), S::add(p1[0][b], p1[1][b]), lanes);
                if TWO {
                    add_to_f64::<S>(second.sum.add(at), total, lanes);
                    add_to_f64::<S>(second.product.add(at), S::add(p2[0][b], p2[1][b]), lanes);
                }
            }
        }
    });
}

kernel! {
    /// dz = g · a + (z · b + c), `abc` per channel: the input gradient of a normalisation.
    ///
    /// # Safety
    /// Pointers hold what `pixels` says; `dz` may be `g`.
    pub fn input_gradient(pixels: Pixels, g: *const f32, z: *const f32, abc: (*const f32, *const f32, *const f32), dz: *mut f32) = input_gradient_body
}

#[inline(always)]
unsafe fn input_gradient_body<S: Simd>(
    pixels: Pixels,
    g: *const f32,
    z: *const f32,
    (a, b, k): (*const f32, *const f32, *const f32),
    dz: *mut f32,
) {
    groups!(pixels.channels, |c, lanes, NC, TAIL| {
        // SAFETY: NC blocks of channels from c of every pixel.
        unsafe {
            let a = constants::<S, NC, TAIL>(a.add(c), lanes);
            let b = constants::<S, NC, TAIL>(b.add(c), lanes);
            let k = constants::<S, NC, TAIL>(k.add(c), lanes);
            for i in 0..pixels.count {
                for j in 0..NC {
                    let at = i * pixels.channels + c + j * LANES;
                    let z = S::fma(get::<S, TAIL>(z.add(at), lanes), b[j], k[j]);
                    let v = S::fma(get::<S, TAIL>(g.add(at), lanes), a[j], z);
                    put::<S, TAIL>(dz.add(at), v, lanes);
                }
            }
        }
    });
}

kernel! {
    /// Adds one image's sum per channel to `sum`. Four chains of pixels.
    ///
    /// # Safety
    /// Pointers hold what `pixels` says.
    pub fn channel_sums(pixels: Pixels, g: *const f32, sum: *mut f32) = channel_sums_body
}

#[inline(always)]
unsafe fn channel_sums_body<S: Simd>(pixels: Pixels, g: *const f32, sum: *mut f32) {
    blocks!(pixels.channels, |c, lanes, TAIL| {
        // SAFETY: channels c..c+lanes of every pixel.
        unsafe {
            let mut a = [S::zero(); 4];
            let mut i = 0;
            while i < pixels.count {
                for (u, a) in a.iter_mut().enumerate() {
                    if i + u < pixels.count {
                        let v = get::<S, TAIL>(g.add((i + u) * pixels.channels + c), lanes);
                        *a = S::add(*a, v);
                    }
                }
                i += 4;
            }
            let total = S::add(S::add(a[0], a[1]), S::add(a[2], a[3]));
            let s = sum.add(c);
            put::<S, TAIL>(s, S::add(get::<S, TAIL>(s, lanes), total), lanes);
        }
    });
}
