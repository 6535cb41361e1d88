//! Work and memory handed out to threads in numbered parts.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Numbered pieces of work that threads share. A thread takes its own share first, the same pieces
/// every time, because their memory is in its cache; then what others have not come to yet.
pub struct Claims {
    /// The round in which each piece was last taken.
    taken: Vec<AtomicUsize>,
}

impl Claims {
    /// `count` pieces of work, rounds counted from 1.
    pub fn new(count: usize) -> Self {
        Self { taken: (0..count).map(|_| AtomicUsize::new(0)).collect() }
    }

    /// Calls `work` for each piece that `thread` of `threads` gets in this round.
    pub fn share(&self, round: usize, thread: usize, threads: usize, mut work: impl FnMut(usize)) {
        let count = self.taken.len();
        let own = thread * count / threads;
        for piece in (own..count).chain(0..own) {
            if self.taken[piece].swap(round, Ordering::Relaxed) != round {
                work(piece);
            }
        }
    }
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
