//! How much of the data may stay in memory. What does not fit is read again where it is.
//!
//! One budget holds for all data of a process. It changes how fast examples are read, never what
//! they are.

use planaria_store::memory;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The share of the memory that a process may use: networks and optimizers need room too, and
/// several workers may run on one machine.
const SHARE: u64 = 8;
/// Where the system tells nothing.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// Memory for data.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u64,
    used: AtomicU64,
}

impl Memory {
    /// What this process may use: an eighth of the machine's memory or of the limit on it.
    pub fn of_process() -> Self {
        static OF_PROCESS: OnceLock<Memory> = OnceLock::new();
        OF_PROCESS
            .get_or_init(|| Self::limited(memory::usable_bytes().unwrap_or(UNKNOWN_BYTES) / SHARE))
            .clone()
    }

    pub fn limited(bytes: u64) -> Self {
        Self(Arc::new(Shared { limit: bytes, used: AtomicU64::new(0) }))
    }

    /// The whole budget, in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    pub fn left(&self) -> u64 {
        self.0.limit.saturating_sub(self.0.used.load(Ordering::Relaxed))
    }

    /// Room for so many bytes, until what is returned is dropped; nothing if there is not as much.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reserved> {
        let mut reserved = self.nothing();
        reserved.grow(bytes).then_some(reserved)
    }

    /// No room yet, to be grown.
    pub(crate) fn nothing(&self) -> Reserved {
        Reserved { memory: self.clone(), bytes: 0 }
    }
}

/// A part of a budget.
#[derive(Debug)]
pub(crate) struct Reserved {
    memory: Memory,
    bytes: u64,
}

impl Reserved {
    /// Makes this `bytes` in all; false, and unchanged, if there is no room.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let limit = self.memory.0.limit;
        let fits = |used: u64| used.checked_add(more).filter(|sum| *sum <= limit);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let grown = self.memory.0.used.fetch_update(set, fetch, fits).is_ok();
        self.bytes += if grown { more } else { 0 };
        grown
    }

    /// Gives back all but `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.memory.0.used.fetch_sub(less, Ordering::Relaxed);
        self.bytes -= less;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.memory.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_once_and_comes_back() {
        let memory = Memory::limited(100);
        let mut first = memory.reserve(60).unwrap();
        assert!(memory.reserve(41).is_none());
        assert!(!first.grow(101) && first.grow(70));
        let second = memory.reserve(30).unwrap();
        assert_eq!(memory.left(), 0);
        drop(first);
        assert_eq!(memory.left(), 70);
        drop(second);
        assert_eq!(memory.left(), 100);
    }
}
