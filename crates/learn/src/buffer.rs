//! Memory for kernels: zeroed f32, aligned so that no vector crosses a cache line, large buffers on
//! huge pages where the system has them (fewer address look-ups: worth a few percent).

#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Bytes in a cache line.
const LINE: usize = 64;
/// Bytes in a huge page.
const HUGE: usize = 2 << 20;

/// A zeroed f32 buffer aligned to 64 bytes.
pub struct Buffer {
    start: NonNull<f32>,
    len: usize,
}

// SAFETY: a buffer owns its memory, as a Vec does.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({})", self.len())
    }
}

impl Buffer {
    /// `len` zeros.
    pub fn new(len: usize) -> Self {
        if len == 0 {
            return Self { start: NonNull::dangling(), len };
        }
        let layout = layout(len);
        // SAFETY: the layout has a size; all of it is written before it is read.
        unsafe {
            let Some(start) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            if layout.align() == HUGE {
                prefer_huge_pages(start, layout.size());
            }
            start.write_bytes(0, layout.size());
            Self { start: start.cast(), len }
        }
    }
}

fn layout(len: usize) -> Layout {
    let bytes = len.checked_mul(size_of::<f32>()).expect("a buffer fits the address space");
    let align = if bytes >= HUGE / 4 { HUGE } else { LINE };
    Layout::from_size_align(bytes.next_multiple_of(align), align)
        .expect("a buffer fits the address space")
}

#[cfg(target_os = "linux")]
unsafe fn prefer_huge_pages(start: NonNull<u8>, bytes: usize) {
    // SAFETY: advice on memory just allocated; refusing it changes nothing.
    let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
unsafe fn prefer_huge_pages(_start: NonNull<u8>, _bytes: usize) {}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout(self.len)) };
        }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: `start` holds `len` floats that were set to zero.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl From<&[f32]> for Buffer {
    fn from(values: &[f32]) -> Self {
        let mut buffer = Self::new(values.len());
        buffer.copy_from_slice(values);
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_and_aligned() {
        for len in [0, 1, 16, 1000, HUGE / 4, HUGE] {
            let mut b = Buffer::new(len);
            assert_eq!(b.len(), len);
            assert!(len == 0 || (b.as_ptr() as usize).is_multiple_of(LINE));
            assert!(b.iter().all(|v| *v == 0.0));
            b.fill(1.0);
        }
    }
}
