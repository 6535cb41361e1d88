//! Matrix products for dense layers.

use super::simd::{LANES, Simd, kernel};
use super::tile::{Finish, ONE, Panel, Start, multiply};

/// C (m × n) = start + A (m × k) · B (k × n), C by rows, B by rows within blocks of 16 columns.
#[derive(Clone, Copy)]
pub struct Product {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// A: element (i, k) at `i·a_row + k·a_col`; one of the two strides is 1.
    pub a: *const f32,
    /// Distance between rows of A.
    pub a_row: usize,
    /// Distance between columns of A.
    pub a_col: usize,
    /// B, by rows.
    pub b: *const f32,
    /// Distance between rows of B.
    pub b_row: usize,
    /// Distance between blocks of 16 columns of B (16 when plainly by rows).
    pub b_block: usize,
    /// C, by rows.
    pub c: *mut f32,
    /// Distance between rows of C.
    pub c_row: usize,
    /// What the sums start from.
    pub start: Start,
    /// Whether negative outputs become zero.
    pub relu: bool,
    /// Scratch of at least [`scratch_len`] values.
    pub scratch: *mut f32,
}

/// Terms summed per pass over the output, so that a panel of B stays in the cache.
const K_BLOCK: usize = 256;
/// Row length of packed A; not a multiple of a page, so that rows do not share cache sets.
const PACK_ROW: usize = K_BLOCK + LANES;
/// Rows of A packed together when A is read across.
pub const M_BLOCK: usize = 64;

/// Scratch values a product needs.
pub fn scratch_len(m: usize, k: usize) -> usize {
    (m * PACK_ROW).max(k * M_BLOCK)
}

kernel! {
    /// Computes the product.
    ///
    /// # Safety
    /// Operands hold what the numbers say; C overlaps neither A nor B.
    pub fn product(p: Product) = product_body
}

#[inline(always)]
unsafe fn product_body<S: Simd>(p: Product) {
    // SAFETY: forwarded to the caller.
    unsafe { if p.a_row == 1 && p.a_col != 1 { across::<S>(p) } else { along::<S>(p) } }
}

fn panel(p: &Product) -> Panel {
    Panel {
        a: p.a,
        a_row: p.a_row,
        a_col: p.a_col,
        a_segment: 0,
        b: p.b,
        b_row: p.b_row,
        b_block: p.b_block,
        b_segment: 0,
        segments: 1,
        len: p.k,
        c: p.c,
        c_row: p.c_row,
        start: p.start,
        finish: Finish::Store,
        relu: false,
    }
}

/// Rows of A contiguous along k: blocks of k, the chain going on from the output.
#[inline(always)]
unsafe fn along<S: Simd>(p: Product) {
    // Rows a multiple of a page apart fall into the same cache sets; copies do not.
    let pack = p.a_row.is_multiple_of(1024) && p.m > 4;
    let mut k = 0;
    // SAFETY: every block lies within the operands.
    unsafe {
        loop {
            let len = (p.k - k).min(K_BLOCK);
            let mut t = Panel { len, b: p.b.add(k * p.b_row), ..panel(&p) };
            if pack {
                for row in 0..p.m {
                    let from = p.a.add(row * p.a_row + k);
                    from.copy_to_nonoverlapping(p.scratch.add(row * PACK_ROW), len);
                }
                (t.a, t.a_row) = (p.scratch.cast_const(), PACK_ROW);
            } else {
                t.a = p.a.add(k);
            }
            if k > 0 {
                t.start = Start::Output;
            }
            k += len;
            t.relu = p.relu && k == p.k;
            multiply::<S, 0>(t, p.m, p.n, ONE);
            if k == p.k {
                return;
            }
        }
    }
}

/// A read across (its columns are contiguous): panels of 64 rows, packed by k.
#[inline(always)]
unsafe fn across<S: Simd>(p: Product) {
    // SAFETY: every block lies within the operands.
    unsafe {
        for m in (0..p.m).step_by(M_BLOCK) {
            let rows = (p.m - m).min(M_BLOCK);
            for k in 0..p.k {
                let from = p.a.add(m + k * p.a_col);
                from.copy_to_nonoverlapping(p.scratch.add(k * M_BLOCK), rows);
            }
            let t = Panel {
                a: p.scratch.cast_const(),
                a_row: 1,
                a_col: M_BLOCK,
                c: p.c.add(m * p.c_row),
                relu: p.relu,
                ..panel(&p)
            };
            multiply::<S, 1>(t, rows, p.n, ONE);
        }
    }
}
