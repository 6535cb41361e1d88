//! One vector type of 16 lanes on every processor.
//!
//! Kernels are written once against [`Simd`] and compiled three times. Lanes always run across
//! output elements and never along a sum, and every fused multiply-add rounds once, so the three
//! give the same bits.

/// Instruction sets the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// 512-bit vectors and 32 registers.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 256-bit vectors with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Isa {
    /// The fastest this processor has.
    pub fn detect() -> Self {
        Self::all()[0]
    }

    /// All this processor has, fastest first.
    pub fn all() -> Vec<Self> {
        let mut found = vec![];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
            {
                found.push(Self::Avx512);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                found.push(Self::Avx2);
            }
        }
        found.push(Self::Portable);
        found
    }

    /// Name for reports.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "cpu-avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "cpu-avx2",
            Self::Portable => "cpu-portable",
        }
    }
}

/// Lanes of a vector.
pub const LANES: usize = 16;

/// Sixteen f32 side by side.
///
/// # Safety
/// An implementation's methods do what their texts say, lane by lane, rounded once.
///
/// Every method may only be called on a processor that has the instruction set, with pointers
/// valid for the lanes they touch.
#[expect(clippy::missing_safety_doc, reason = "the trait's text covers all methods")]
pub unsafe trait Simd: Copy {
    type V: Copy;
    /// As the value that names it.
    const ISA: Isa;
    /// Whether 32 registers hold a whole vector each (larger tiles pay off).
    const WIDE: bool;
    /// The same value in all lanes.
    unsafe fn splat(x: f32) -> Self::V;
    /// Loads 16 lanes.
    unsafe fn load(p: *const f32) -> Self::V;
    /// Stores 16 lanes.
    unsafe fn store(p: *mut f32, v: Self::V);
    /// Loads the first `n` lanes, the others are zero.
    unsafe fn load_part(p: *const f32, n: usize) -> Self::V;
    /// Stores the first `n` lanes.
    unsafe fn store_part(p: *mut f32, v: Self::V, n: usize);
    /// a + b
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// a − b
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// a · b
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// a · b + c, rounded once
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// a if a > b, else b
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// v where x > 0, else zero
    unsafe fn keep_positive(x: Self::V, v: Self::V) -> Self::V;

    /// x where a > b, else y
    unsafe fn select_greater(a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// Stores the first `n` lanes, small whole numbers, as bytes.
    unsafe fn store_bytes(p: *mut u8, v: Self::V, n: usize);

    /// Of 16 values, picks those that are not zero and whose class is `class`, in order: the values
    /// and their numbers counted from `base`. Returns how many. Both outputs have room for 16.
    #[inline(always)]
    unsafe fn gather_class(
        values: *const f32,
        classes: *const u8,
        class: u8,
        base: i32,
        out: *mut f32,
        numbers: *mut i32,
    ) -> usize {
        let mut n = 0;
        for i in 0..LANES {
            // SAFETY: 16 values, classes and outputs.
            unsafe {
                let v = *values.add(i);
                *out.add(n) = v;
                *numbers.add(n) = base + i as i32;
                n += usize::from(v != 0.0 && *classes.add(i) == class);
            }
        }
        n
    }

    /// Asks for the cache line at `p`, to be read soon. Any address will do.
    #[inline(always)]
    unsafe fn prefetch(_p: *const f32) {}
    /// Asks for the cache line at `p`, to be written soon. Any address will do.
    #[inline(always)]
    unsafe fn prefetch_write(_p: *const f32) {}

    /// All lanes zero.
    #[inline(always)]
    unsafe fn zero() -> Self::V {
        // SAFETY: as for every method of this trait.
        unsafe { Self::splat(0.0) }
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Isa, LANES, Simd};
    use std::arch::x86_64::*;

    /// AVX-512: one register per vector.
    #[derive(Clone, Copy)]
    pub struct Avx512;

    #[inline(always)]
    fn mask(n: usize) -> __mmask16 {
        ((1u32 << n.min(LANES)) - 1) as __mmask16
    }

    // SAFETY: each method is one instruction of the sets `Isa::detect` asks for.
    #[expect(
        clippy::undocumented_unsafe_blocks,
        reason = "the trait's contract covers all of them"
    )]
    unsafe impl Simd for Avx512 {
        type V = __m512;
        const ISA: Isa = Isa::Avx512;
        const WIDE: bool = true;
        #[inline(always)]
        unsafe fn splat(x: f32) -> __m512 {
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> __m512 {
            unsafe { _mm512_loadu_ps(p) }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: __m512) {
            unsafe { _mm512_storeu_ps(p, v) }
        }
        #[inline(always)]
        unsafe fn load_part(p: *const f32, n: usize) -> __m512 {
            unsafe { _mm512_maskz_loadu_ps(mask(n), p) }
        }
        #[inline(always)]
        unsafe fn store_part(p: *mut f32, v: __m512, n: usize) {
            unsafe { _mm512_mask_storeu_ps(p, mask(n), v) }
        }
        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn sub(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_sub_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn mul(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_mul_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn max(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_max_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn keep_positive(x: __m512, v: __m512) -> __m512 {
            unsafe {
                let m = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_setzero_ps());
                _mm512_maskz_mov_ps(m, v)
            }
        }
        #[inline(always)]
        unsafe fn select_greater(a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
            unsafe { _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), x) }
        }
        #[inline(always)]
        unsafe fn gather_class(
            values: *const f32,
            classes: *const u8,
            class: u8,
            base: i32,
            out: *mut f32,
            numbers: *mut i32,
        ) -> usize {
            unsafe {
                let v = _mm512_loadu_ps(values);
                let alive = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(v, _mm512_setzero_ps());
                let classes = _mm_loadu_si128(classes.cast());
                let chosen = alive & _mm_cmpeq_epi8_mask(classes, _mm_set1_epi8(class as i8));
                let steps = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
                let number = _mm512_add_epi32(steps, _mm512_set1_epi32(base));
                _mm512_storeu_ps(out, _mm512_maskz_compress_ps(chosen, v));
                _mm512_storeu_si512(numbers.cast(), _mm512_maskz_compress_epi32(chosen, number));
                chosen.count_ones() as usize
            }
        }
        #[inline(always)]
        unsafe fn prefetch(p: *const f32) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
        #[inline(always)]
        unsafe fn prefetch_write(p: *const f32) {
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(p.cast()) }
        }
        #[inline(always)]
        unsafe fn store_bytes(p: *mut u8, v: __m512, n: usize) {
            unsafe {
                _mm512_mask_cvtepi32_storeu_epi8(p.cast(), mask(n), _mm512_cvtps_epi32(v));
            }
        }
    }

    /// AVX2 with FMA: two registers per vector.
    #[derive(Clone, Copy)]
    pub struct Avx2;

    /// Sliding window of lane masks: eight set, then eight clear.
    static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    #[inline(always)]
    unsafe fn half_mask(n: usize) -> __m256i {
        // SAFETY: n ≤ 8, so eight values lie behind the pointer.
        unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - n.min(8)).cast()) }
    }

    macro_rules! both {
        ($f:ident, $($a:expr),+) => { unsafe { [$f($($a[0]),+), $f($($a[1]),+)] } };
    }

    // SAFETY: each method is instructions of the sets `Isa::detect` asks for.
    #[expect(
        clippy::undocumented_unsafe_blocks,
        reason = "the trait's contract covers all of them"
    )]
    unsafe impl Simd for Avx2 {
        type V = [__m256; 2];
        const ISA: Isa = Isa::Avx2;
        const WIDE: bool = false;
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self::V {
            unsafe { [_mm256_set1_ps(x); 2] }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self::V {
            unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: Self::V) {
            unsafe {
                _mm256_storeu_ps(p, v[0]);
                _mm256_storeu_ps(p.add(8), v[1]);
            }
        }
        #[inline(always)]
        unsafe fn load_part(p: *const f32, n: usize) -> Self::V {
            unsafe {
                [
                    _mm256_maskload_ps(p, half_mask(n)),
                    _mm256_maskload_ps(p.wrapping_add(8), half_mask(n.saturating_sub(8))),
                ]
            }
        }
        #[inline(always)]
        unsafe fn store_part(p: *mut f32, v: Self::V, n: usize) {
            unsafe {
                _mm256_maskstore_ps(p, half_mask(n), v[0]);
                _mm256_maskstore_ps(p.wrapping_add(8), half_mask(n.saturating_sub(8)), v[1]);
            }
        }
        #[inline(always)]
        unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
            both!(_mm256_add_ps, a, b)
        }
        #[inline(always)]
        unsafe fn sub(a: Self::V, b: Self::V) -> Self::V {
            both!(_mm256_sub_ps, a, b)
        }
        #[inline(always)]
        unsafe fn mul(a: Self::V, b: Self::V) -> Self::V {
            both!(_mm256_mul_ps, a, b)
        }
        #[inline(always)]
        unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            both!(_mm256_fmadd_ps, a, b, c)
        }
        #[inline(always)]
        unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
            both!(_mm256_max_ps, a, b)
        }
        #[inline(always)]
        unsafe fn keep_positive(x: Self::V, v: Self::V) -> Self::V {
            unsafe {
                let z = _mm256_setzero_ps();
                [
                    _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(x[0], z), v[0]),
                    _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(x[1], z), v[1]),
                ]
            }
        }
        #[inline(always)]
        unsafe fn select_greater(a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V {
            unsafe {
                [
                    _mm256_blendv_ps(y[0], x[0], _mm256_cmp_ps::<_CMP_GT_OQ>(a[0], b[0])),
                    _mm256_blendv_ps(y[1], x[1], _mm256_cmp_ps::<_CMP_GT_OQ>(a[1], b[1])),
                ]
            }
        }
        #[inline(always)]
        unsafe fn prefetch(p: *const f32) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
        #[inline(always)]
        unsafe fn prefetch_write(p: *const f32) {
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(p.cast()) }
        }
        #[inline(always)]
        unsafe fn store_bytes(p: *mut u8, v: Self::V, n: usize) {
            unsafe {
                let mut whole = [0i32; LANES];
                _mm256_storeu_si256(whole.as_mut_ptr().cast(), _mm256_cvtps_epi32(v[0]));
                _mm256_storeu_si256(whole.as_mut_ptr().add(8).cast(), _mm256_cvtps_epi32(v[1]));
                for (i, w) in whole.iter().enumerate().take(n) {
                    *p.add(i) = *w as u8;
                }
            }
        }
    }
}

/// Plain Rust: the compiler makes of it what the target has.
#[derive(Clone, Copy)]
pub struct Portable;

#[inline(always)]
fn lanes(f: impl Fn(usize) -> f32) -> [f32; LANES] {
    std::array::from_fn(f)
}

// SAFETY: plain Rust on in-bounds lanes.
unsafe impl Simd for Portable {
    type V = [f32; LANES];
    const ISA: Isa = Isa::Portable;
    const WIDE: bool = false;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::V {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::V {
        // SAFETY: the caller's pointer holds 16 lanes.
        unsafe { p.cast::<Self::V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::V) {
        // SAFETY: the caller's pointer holds 16 lanes.
        unsafe { p.cast::<Self::V>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self::V {
        // SAFETY: only the first n lanes are touched.
        lanes(|i| if i < n { unsafe { *p.add(i) } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut f32, v: Self::V, n: usize) {
        for (i, x) in v.iter().enumerate().take(n) {
            // SAFETY: only the first n lanes are touched.
            unsafe { *p.add(i) = *x };
        }
    }
    #[inline(always)]
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        lanes(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn keep_positive(x: Self::V, v: Self::V) -> Self::V {
        lanes(|i| if x[i] > 0.0 { v[i] } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn select_greater(a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V {
        lanes(|i| if a[i] > b[i] { x[i] } else { y[i] })
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, v: Self::V, n: usize) {
        for (i, x) in v.iter().enumerate().take(n) {
            // SAFETY: only the first n bytes are touched.
            unsafe { *p.add(i) = *x as u8 };
        }
    }
}

/// Loads 16 lanes, or the first `lanes` of them.
#[inline(always)]
pub(crate) unsafe fn get<S: Simd, const TAIL: bool>(p: *const f32, lanes: usize) -> S::V {
    // SAFETY: forwarded to the caller.
    unsafe { if TAIL { S::load_part(p, lanes) } else { S::load(p) } }
}

/// Stores 16 lanes, or the first `lanes` of them.
#[inline(always)]
pub(crate) unsafe fn put<S: Simd, const TAIL: bool>(p: *mut f32, v: S::V, lanes: usize) {
    // SAFETY: forwarded to the caller.
    unsafe { if TAIL { S::store_part(p, v, lanes) } else { S::store(p, v) } }
}

/// Declares a kernel: a function that takes the instruction set first and runs the generic body
/// compiled for it.
macro_rules! kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident) => {
        $(#[$meta])*
        $vis unsafe fn $name(isa: $crate::engines::cpu::kernels::simd::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
            unsafe fn avx512($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller vouches for the pointers; the features are enabled here.
                unsafe { $body::<$crate::engines::cpu::kernels::simd::Avx512>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: as above.
                unsafe { $body::<$crate::engines::cpu::kernels::simd::Avx2>($($arg),*) }
            }
            // SAFETY: `Isa` values come from `Isa::all`, which asks the processor.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    $crate::engines::cpu::kernels::simd::Isa::Avx512 => avx512($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::engines::cpu::kernels::simd::Isa::Avx2 => avx2($($arg),*),
                    $crate::engines::cpu::kernels::simd::Isa::Portable => {
                        $body::<$crate::engines::cpu::kernels::simd::Portable>($($arg),*)
                    }
                }
            }
        }
    };
}
pub(crate) use kernel;
