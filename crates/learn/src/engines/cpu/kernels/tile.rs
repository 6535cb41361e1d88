//! The micro-kernel under every matrix product and convolution: a small tile of outputs held in
//! registers while a sum runs.
//!
//! Each output is one chain of fused multiply-adds over k in ascending order, whatever the tile's
//! size, so blocking never changes bits.

#![expect(
    clippy::needless_range_loop,
    reason = "index loops over register arrays read as the maths"
)]

#[cfg(target_arch = "x86_64")]
use super::simd::{Avx2, Avx512};
use super::simd::{Isa, LANES, Portable, Simd, get, put};

/// What the sum starts from.
#[derive(Clone, Copy)]
pub enum Start {
    Zero,
    /// One value per output column.
    Bias(*const f32),
    /// What the output holds: the chain goes on.
    Output,
}

/// What becomes of the sum.
#[derive(Clone, Copy)]
pub enum Finish {
    Store,
    /// Added to what the output holds.
    Add,
    /// Stored after adding another tensor laid out like the output.
    StorePlus(*const f32),
}

/// Rows of A against columns of B. `segments` runs of `len` terms make up k.
///
/// A's element (row, k) is at `row·a_row + segment·a_segment + k·a_col`; B's column block `j` of 16
/// at `j·b_block + segment·b_segment + k·b_row`; the output's (row, column) at `row·c_row + column`.
#[derive(Clone, Copy)]
pub struct Panel {
    pub a: *const f32,
    /// Distance between rows of A.
    pub a_row: usize,
    /// Distance between terms of A.
    pub a_col: usize,
    /// Distance between segments of A.
    pub a_segment: usize,
    pub b: *const f32,
    /// Distance between terms of B.
    pub b_row: usize,
    /// Distance between 16-column blocks of B.
    pub b_block: usize,
    /// Distance between segments of B.
    pub b_segment: usize,
    pub segments: usize,
    /// Terms per segment.
    pub len: usize,
    pub c: *mut f32,
    /// Distance between output rows.
    pub c_row: usize,
    /// What the sums start from.
    pub start: Start,
    /// What becomes of the sums.
    pub finish: Finish,
    /// Whether negative outputs become zero.
    pub relu: bool,
}

impl Panel {
    #[inline(always)]
    unsafe fn down(self, rows: usize) -> Self {
        // SAFETY: the caller stays within the operands' rows.
        unsafe { self.shift(rows * self.a_row, rows * self.c_row) }
    }

    #[inline(always)]
    unsafe fn shift(self, a: usize, c: usize) -> Self {
        // SAFETY: the caller stays within the operands.
        unsafe {
            Self {
                a: self.a.add(a),
                c: self.c.add(c),
                finish: match self.finish {
                    Finish::StorePlus(p) => Finish::StorePlus(p.add(c)),
                    other => other,
                },
                ..self
            }
        }
    }

    #[inline(always)]
    unsafe fn right(self, blocks: usize) -> Self {
        // SAFETY: the caller stays within the operands' columns.
        unsafe {
            Self {
                b: self.b.add(blocks * self.b_block),
                c: self.c.add(blocks * LANES),
                start: match self.start {
                    Start::Bias(p) => Start::Bias(p.add(blocks * LANES)),
                    other => other,
                },
                finish: match self.finish {
                    Finish::StorePlus(p) => Finish::StorePlus(p.add(blocks * LANES)),
                    other => other,
                },
                ..self
            }
        }
    }
}

/// A panel repeated down an image: the next band is `a_step` and `c_step` further on.
#[derive(Clone, Copy)]
pub struct Bands {
    pub count: usize,
    /// Distance in A.
    pub a_step: usize,
    /// Distance in the output.
    pub c_step: usize,
}

pub const ONE: Bands = Bands { count: 1, a_step: 0, c_step: 0 };

/// All `m` rows and `n` columns of every band. `STEP` is `a_row` where it is known (1: A is read
/// across, its terms `a_col` apart; else terms lie side by side), 0 where it is not.
///
/// One function for each instruction set and step, which all kernels call: their tiles are compiled
/// once.
///
/// # Safety
/// The processor has `S`; the panel's pointers hold what its numbers say, for every band.
#[inline(always)]
pub unsafe fn multiply<S: Simd, const STEP: usize>(panel: Panel, m: usize, n: usize, bands: Bands) {
    // SAFETY: forwarded to the caller.
    unsafe {
        match S::ISA {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::<STEP>(&panel, m, n, bands),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::<STEP>(&panel, m, n, bands),
            Isa::Portable => portable::<STEP>(&panel, m, n, bands),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
#[inline(never)]
unsafe fn avx512<const STEP: usize>(panel: &Panel, m: usize, n: usize, bands: Bands) {
    // SAFETY: forwarded to the caller; the features are enabled here.
    unsafe { blocks::<Avx512, STEP>(*panel, m, n, bands) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
unsafe fn avx2<const STEP: usize>(panel: &Panel, m: usize, n: usize, bands: Bands) {
    // SAFETY: forwarded to the caller; the features are enabled here.
    unsafe { blocks::<Avx2, STEP>(*panel, m, n, bands) }
}

#[inline(never)]
unsafe fn portable<const STEP: usize>(panel: &Panel, m: usize, n: usize, bands: Bands) {
    // SAFETY: forwarded to the caller.
    unsafe { blocks::<Portable, STEP>(*panel, m, n, bands) }
}

/// Column blocks are the outer loop, so that their part of B stays in the cache over all bands.
#[inline(always)]
unsafe fn blocks<S: Simd, const STEP: usize>(panel: Panel, m: usize, n: usize, bands: Bands) {
    let full = n / LANES;
    let mut block = 0;
    // SAFETY: forwarded to the caller.
    unsafe {
        if S::WIDE {
            while block + 2 <= full {
                columns::<S, 2, STEP, false>(panel.right(block), m, LANES, bands);
                block += 2;
            }
        }
        while block < full {
            columns::<S, 1, STEP, false>(panel.right(block), m, LANES, bands);
            block += 1;
        }
        if n > full * LANES {
            columns::<S, 1, STEP, true>(panel.right(block), m, n - full * LANES, bands);
        }
    }
}

/// All bands of `NB` column blocks.
#[inline(always)]
unsafe fn columns<S: Simd, const NB: usize, const STEP: usize, const TAIL: bool>(
    panel: Panel,
    m: usize,
    lanes: usize,
    bands: Bands,
) {
    for band in 0..bands.count {
        // SAFETY: forwarded to the caller.
        unsafe {
            let panel = panel.shift(band * bands.a_step, band * bands.c_step);
            rows::<S, NB, STEP, TAIL>(panel, m, lanes);
        }
    }
}

/// All rows of one band.
#[inline(always)]
unsafe fn rows<S: Simd, const NB: usize, const STEP: usize, const TAIL: bool>(
    panel: Panel,
    m: usize,
    lanes: usize,
) {
    let mut row = 0;
    // SAFETY: forwarded to the caller.
    unsafe {
        if S::WIDE && NB == 1 && STEP > 1 {
            // Known steps need no register each, so that twice the rows fit.
            while row + 16 <= m {
                tile::<S, 16, NB, STEP, TAIL>(panel.down(row), lanes);
                row += 16;
            }
        }
        if S::WIDE {
            while row + 8 <= m {
                tile::<S, 8, NB, STEP, TAIL>(panel.down(row), lanes);
                row += 8;
            }
        }
        while row + 4 <= m {
            tile::<S, 4, NB, STEP, TAIL>(panel.down(row), lanes);
            row += 4;
        }
        if row + 2 <= m {
            tile::<S, 2, NB, STEP, TAIL>(panel.down(row), lanes);
            row += 2;
        }
        if row < m {
            tile::<S, 1, NB, STEP, TAIL>(panel.down(row), lanes);
        }
    }
}

#[inline(always)]
unsafe fn tile<S: Simd, const MR: usize, const NB: usize, const STEP: usize, const TAIL: bool>(
    t: Panel,
    lanes: usize,
) {
    // SAFETY: the caller's panel covers MR rows and NB blocks.
    unsafe {
        let mut acc = [[S::zero(); NB]; MR];
        match t.start {
            Start::Zero => {}
            Start::Bias(p) => {
                for b in 0..NB {
                    let v = get::<S, TAIL>(p.add(b * LANES), lanes);
                    for row in acc.iter_mut() {
                        row[b] = v;
                    }
                }
            }
            Start::Output => {
                for (r, row) in acc.iter_mut().enumerate() {
                    for (b, v) in row.iter_mut().enumerate() {
                        *v = get::<S, TAIL>(t.c.add(r * t.c_row + b * LANES), lanes);
                    }
                }
            }
        }
        for segment in 0..t.segments {
            let mut a = t.a.wrapping_add(segment * t.a_segment);
            let mut b = t.b.wrapping_add(segment * t.b_segment);
            for _ in 0..t.len {
                let mut w = [S::zero(); NB];
                for (j, v) in w.iter_mut().enumerate() {
                    *v = get::<S, TAIL>(b.wrapping_add(j * t.b_block), lanes);
                }
                for r in 0..MR {
                    let step = if STEP == 0 { t.a_row } else { STEP };
                    let x = S::splat(*a.wrapping_add(r * step));
                    for j in 0..NB {
                        acc[r][j] = S::fma(x, w[j], acc[r][j]);
                    }
                }
                a = a.wrapping_add(if STEP == 1 { t.a_col } else { 1 });
                b = b.wrapping_add(t.b_row);
            }
        }
        finish::<S, MR, NB, TAIL>(t, acc, lanes);
    }
}

#[inline(always)]
unsafe fn finish<S: Simd, const MR: usize, const NB: usize, const TAIL: bool>(
    t: Panel,
    mut acc: [[S::V; NB]; MR],
    lanes: usize,
) {
    // SAFETY: as for `tile`.
    unsafe {
        for r in 0..MR {
            for b in 0..NB {
                let at = r * t.c_row + b * LANES;
                let mut v = acc[r][b];
                match t.finish {
                    Finish::Store => {}
                    Finish::Add => v = S::add(get::<S, TAIL>(t.c.add(at), lanes), v),
                    Finish::StorePlus(p) => v = S::add(v, get::<S, TAIL>(p.add(at), lanes)),
                }
                if t.relu {
                    v = S::max(v, S::zero());
                }
                acc[r][b] = v;
            }
        }
        for r in 0..MR {
            for b in 0..NB {
                let at = t.c.add(r * t.c_row + b * LANES);
                put::<S, TAIL>(at, acc[r][b], lanes);
            }
        }
    }
}
