//! Faults on purpose in the shells themselves: tests plant one, and the simulation must find it.
//!
//! Only builds with debug assertions can have one, and only in the thread that planted it. In others
//! the question is answered by the compiler.

/// Something that a shell must not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// The coordinator commits a step before the record of it is written.
    CommitBeforeRecord,
    /// A server marks a step as applied before its values are written.
    MarkBeforeValues,
    /// A worker of a synchronous run takes the first parameters of a step that come for all of them.
    FirstBlocksForAll,
    /// A worker of a coded run takes what was meant for an earlier round.
    MessageOfOldRound,
}

#[cfg(debug_assertions)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in this thread, or takes it away.
#[cfg(debug_assertions)]
pub fn plant(fault: Option<Planted>) {
    PLANTED.set(fault);
}

/// Whether this fault is planted.
#[cfg(debug_assertions)]
pub fn is(fault: Planted) -> bool {
    PLANTED.get() == Some(fault)
}

/// Whether this fault is planted: none is.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn is(_fault: Planted) -> bool {
    false
}
