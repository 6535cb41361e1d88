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
        self.share_first(self.taken.len(), round, (thread, threads), &mut work);
    }

    /// [`Self::share`] of the first `count` pieces alone.
    pub fn share_first(
        &self,
        count: usize,
        round: usize,
        (thread, threads): (usize, usize),
        mut work: impl FnMut(usize),
    ) {
        let own = thread * count / threads;
        for piece in (own..count).chain(0..own) {
            if self.take(round, piece) {
                work(piece);
            }
        }
    }

    /// Whether the piece is the caller's in this round: the first who asks gets it.
    pub fn take(&self, round: usize, piece: usize) -> bool {
        self.taken[piece].swap(round, Ordering::Relaxed) != round
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
    /// No thread writes meanwhile.
    pub unsafe fn all(&self) -> &[T] {
        // SAFETY: as the caller promises.
        unsafe { &*(std::ptr::from_ref(self.cells) as *const [T]) }
    }

    /// A range of the slice as a slice of its own.
    pub fn view(&self, range: Range<usize>) -> Parts<'a, T> {
        Parts { cells: &self.cells[range], size: self.size }
    }

    /// Any range, to read.
    ///
    /// # Safety
    /// No thread writes to the range meanwhile.
    pub unsafe fn read(&self, range: Range<usize>) -> &'a [T] {
        let cells = &self.cells[range];
        // SAFETY: UnsafeCell<T> has T's layout; the caller keeps writers off.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// One part.
    ///
    /// # Safety
    /// No other thread uses part `index` meanwhile.
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
    /// No other thread uses the range meanwhile.
    #[expect(clippy::mut_from_ref, reason = "the caller keeps threads apart")]
    pub unsafe fn range(&self, range: Range<usize>) -> &mut [T] {
        let cells = &self.cells[range];
        // SAFETY: UnsafeCell allows writing through a shared reference; the caller keeps others off.
        unsafe { std::slice::from_raw_parts_mut(cells.as_ptr().cast_mut().cast(), cells.len()) }
    }
}
