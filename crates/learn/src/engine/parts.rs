//! Work and memory handed out to threads in numbered parts.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Draws the next number below `limit`.
pub fn draw(next: &AtomicUsize, limit: usize) -> Option<usize> {
    let n = next.fetch_add(1, Ordering::Relaxed);
    (n < limit).then_some(n)
}

/// A slice whose parts are written by different threads.
pub struct Parts<'a, T> {
    cells: &'a [UnsafeCell<T>],
    size: usize,
}

// SAFETY: parts are handed out by unsafe functions whose callers keep threads apart.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// Cut into parts of `size`.
    pub fn new(slice: &'a mut [T], size: usize) -> Self {
        // SAFETY: UnsafeCell<T> has T's layout, and the slice is borrowed mutably.
        let cells = unsafe { &*(std::ptr::from_mut(slice) as *const [UnsafeCell<T>]) };
        Self { cells, size: size.max(1) }
    }

    /// Number of parts.
    pub fn len(&self) -> usize {
        self.cells.len().div_ceil(self.size)
    }

    /// The whole slice.
    ///
    /// # Safety
    /// Nobody writes meanwhile.
    pub unsafe fn all(&self) -> &[T] {
        // SAFETY: as the caller promises.
        unsafe { &*(std::ptr::from_ref(self.cells) as *const [T]) }
    }

    /// One part.
    ///
    /// # Safety
    /// Nobody else uses part `index` meanwhile.
    #[expect(clippy::mut_from_ref, reason = "the caller keeps threads apart")]
    pub unsafe fn part(&self, index: usize) -> &mut [T] {
        let from = index * self.size;
        let to = (from + self.size).min(self.cells.len());
        // SAFETY: as the caller promises.
        unsafe { self.range(from..to) }
    }

    /// Any range.
    ///
    /// # Safety
    /// Nobody else uses the range meanwhile.
    #[expect(clippy::mut_from_ref, reason = "the caller keeps threads apart")]
    pub unsafe fn range(&self, range: Range<usize>) -> &mut [T] {
        let cells = &self.cells[range];
        // SAFETY: UnsafeCell allows writing through a shared reference; the caller keeps others off.
        unsafe { std::slice::from_raw_parts_mut(cells.as_ptr().cast_mut().cast(), cells.len()) }
    }
}
