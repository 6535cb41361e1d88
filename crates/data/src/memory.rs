//! A hint to the processor: shuffled rows of a large table are not in its caches, and waiting for
//! them takes longer than scaling them.

/// Bytes that caches load at once.
const LINE_BYTES: usize = 64;
/// Lines asked for; in longer rows the processor sees by itself what comes next.
const LINES_MAX: usize = 64;

/// Asks for values that will be read soon. It changes nothing else, and does nothing where the
/// processor has no such instruction here.
pub fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in values.chunks((LINE_BYTES / size_of::<T>().max(1)).max(1)).take(LINES_MAX) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of every x86-64 processor, and a prefetch of any address,
        // here one inside `values`, neither faults nor changes memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, LINE_BYTES, LINES_MAX);
}
