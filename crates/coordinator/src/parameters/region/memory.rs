//! A region's bytes, and the pieces of them that threads have alone. All unsafe code of a server.

use super::layout::{Run, THIRD};
use planaria_numerics::aggregate::{self, BLOCK};
use planaria_numerics::checksum::Checksum;
use planaria_numerics::optimizer::SLOTS_MAX;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory from this on asks for huge pages.
const HUGE_BYTES: usize = 2 << 20;

/// Mapped bytes, zero at first.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    /// The file they are of.
    pub(super) path: Option<PathBuf>,
    /// Server and number, where they outlive the process without a file.
    pub(super) shared: Option<(u32, u64)>,
    /// Told before every write, where a simulation wants to know.
    pub(super) watch: Option<Watch>,
}

/// Called before every write that another process may find.
#[derive(Clone)]
pub struct Watch(pub(super) Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

// SAFETY: the bytes are reached through pieces, each of which has its own alone, and atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// The process's own.
    pub(super) fn private(bytes: usize) -> io::Result<Self> {
        let start = map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        if bytes >= HUGE_BYTES {
            prefer_huge_pages(start, bytes);
        }
        Ok(Self { start, bytes, path: None, shared: None, watch: None })
    }

    /// A new file's. All of it is allocated: a full disk shows here, and not as a fault later.
    pub(super) fn file(path: &Path, bytes: usize) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let mapped = allocate(&file, bytes)
            .and_then(|()| map(bytes, libc::MAP_SHARED, file.as_raw_fd()))
            .inspect_err(|_| {
                // The error in hand matters more than one from cleaning up.
                let _ = std::fs::remove_file(path);
            });
        Ok(Self {
            start: mapped?,
            bytes,
            path: Some(path.to_path_buf()),
            shared: None,
            watch: None,
        })
    }

    /// Something is about to be written.
    pub(super) fn touch(&self) {
        if let Some(Watch(watch)) = &self.watch {
            watch();
        }
    }

    /// In bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// A number: a mark of the header, or the sum of a block.
    pub(super) fn mark(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "a number is in bounds");
        // SAFETY: in bounds, aligned because the mapping is, and only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Copies bytes out, which others may be changing.
    pub(super) fn read(&self, from: usize, into: &mut [u8]) {
        assert!(from + into.len() <= self.bytes, "read in bounds");
        // SAFETY: in bounds, and `into` is other memory. The marks tell whether bytes changed
        // meanwhile; such bytes are not used.
        unsafe {
            let from = self.start.as_ptr().add(from);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
    }

    /// Bytes, to be written before any piece of them is handed out.
    pub(super) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.bytes, "bytes in bounds");
        // SAFETY: in bounds, and borrowed mutably: no other has a share in the memory.
        unsafe {
            let start = self.start.as_ptr().add(range.start);
            std::slice::from_raw_parts_mut(start, range.len())
        }
    }

    /// Whether values of a slot, of which no piece is held, are those after so many steps.
    pub(super) fn is_whole(&mut self, run: &Run, at: usize, step: u64) -> bool {
        // SAFETY: borrowed mutably: no other has a share in the memory.
        let values = unsafe { slot(self, run, at) };
        is_summed(self, run, at, &values, step)
    }

    /// # Safety
    /// They must not be written meanwhile.
    unsafe fn values(&self, at: usize, len: usize) -> &[f32] {
        debug_assert!(at.is_multiple_of(4) && at + 4 * len <= self.bytes, "values in bounds");
        // SAFETY: in bounds and aligned by the layout; the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at).cast(), len) }
    }

    /// # Safety
    /// They must not be used by others meanwhile.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that it is alone")]
    unsafe fn values_mut(&self, at: usize, len: usize) -> &mut [f32] {
        debug_assert!(at.is_multiple_of(4) && at + 4 * len <= self.bytes, "values in bounds");
        // SAFETY: in bounds and aligned by the layout; the caller is alone with them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(at).cast(), len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `private` or `file` with this length; all pieces keep it alive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn map(bytes: usize, flags: i32, file: i32) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, which overlaps nothing.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, file, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("memory was mapped at address 0"))
}

#[cfg(target_os = "linux")]
fn allocate(file: &File, bytes: usize) -> io::Result<()> {
    let len = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open through the call.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(not(target_os = "linux"))]
fn allocate(mut file: &File, bytes: usize) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), bytes as u64), &mut file).map(drop)
}

#[cfg(target_os = "linux")]
fn prefer_huge_pages(start: NonNull<u8>, bytes: usize) {
    // SAFETY: advice on memory just mapped; refusing it changes nothing.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages(_start: NonNull<u8>, _bytes: usize) {}

/// Values of one slot.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    pub parameters: &'a [f32],
    optimizer: [&'a [f32]; SLOTS_MAX],
    slots: usize,
}

impl<'a> Slot<'a> {
    pub fn optimizer(&self) -> &[&'a [f32]] {
        &self.optimizer[..self.slots]
    }

    /// The sum of a block of these values, which are those after so many steps.
    fn sum(&self, block: Range<usize>, step: u64) -> u64 {
        let mut sum = Checksum::new(step);
        sum.add(&self.parameters[block.clone()]);
        self.optimizer().iter().for_each(|values| sum.add(&values[block.clone()]));
        sum.finish()
    }
}

/// Values of one slot, to be written.
#[derive(Debug)]
pub struct SlotMut<'a> {
    pub parameters: &'a mut [f32],
    optimizer: [&'a mut [f32]; SLOTS_MAX],
    slots: usize,
}

impl<'a> SlotMut<'a> {
    pub fn optimizer(&mut self) -> &mut [&'a mut [f32]] {
        &mut self.optimizer[..self.slots]
    }

    /// Parameters and the optimizer's numbers together.
    pub fn parts(&mut self) -> (&mut [f32], &mut [&'a mut [f32]]) {
        (self.parameters, &mut self.optimizer[..self.slots])
    }

    /// Copies another's values.
    pub fn copy_from(&mut self, other: &Slot<'_>) {
        self.parameters.copy_from_slice(other.parameters);
        for (to, from) in self.optimizer().iter_mut().zip(other.optimizer()) {
            to.copy_from_slice(from);
        }
    }
}

/// A run of values in the first two slots, which are its own.
#[derive(Debug)]
pub struct Piece {
    memory: Arc<Memory>,
    run: Run,
}

impl Piece {
    /// Only pieces that share nothing may be in use at a time.
    pub(super) fn new(memory: Arc<Memory>, run: Run) -> Self {
        Self { memory, run }
    }

    /// Values of each.
    pub fn len(&self) -> usize {
        self.run.len
    }

    pub fn is_empty(&self) -> bool {
        self.run.len == 0
    }

    /// The values after so many steps.
    pub fn after(&self, step: u64) -> Slot<'_> {
        // SAFETY: the piece has these values alone, and is borrowed.
        unsafe { slot(&self.memory, &self.run, (step % 2) as usize) }
    }

    /// The values after so many steps, to be written.
    pub fn after_mut(&mut self, step: u64) -> SlotMut<'_> {
        self.memory.touch();
        // SAFETY: the piece has these values alone, and is borrowed mutably.
        unsafe { slot_mut(&self.memory, &self.run, (step % 2) as usize) }
    }

    /// Notes the sum of a block of the values after so many steps: they are what they should be.
    pub fn seal_block(&mut self, step: u64, block: usize) {
        self.memory.touch();
        let range = block * BLOCK..((block + 1) * BLOCK).min(self.run.len);
        let sum = self.after(step).sum(range, step);
        let at = self.run.sum((step % 2) as usize, block);
        // A reader that sees the mark that is set after it sees it.
        self.memory.mark(at).store(sum, Ordering::Relaxed);
    }

    /// Notes the sums of all blocks.
    pub fn seal(&mut self, step: u64) {
        (0..self.run.len.div_ceil(BLOCK)).for_each(|block| self.seal_block(step, block));
    }

    /// Whether the values after so many steps are what they were.
    pub fn is_whole(&self, step: u64) -> bool {
        is_summed(&self.memory, &self.run, (step % 2) as usize, &self.after(step), step)
    }

    /// The values before and after a step.
    pub fn step(&mut self, step: u64) -> (Slot<'_>, SlotMut<'_>) {
        self.memory.touch();
        let (before, after) = ((step % 2) as usize, ((step + 1) % 2) as usize);
        // SAFETY: as above; the two slots are apart.
        unsafe { (slot(&self.memory, &self.run, before), slot_mut(&self.memory, &self.run, after)) }
    }
}

/// The third slot.
#[derive(Debug)]
pub struct Third {
    memory: Arc<Memory>,
    values: Run,
    state: Run,
}

impl Third {
    /// Only one may be in use at a time.
    pub(super) fn new(memory: Arc<Memory>, values: Run, state: Run) -> Self {
        Self { memory, values, state }
    }

    /// Its values, and the state.
    pub fn values(&self) -> (Slot<'_>, &[f32]) {
        // SAFETY: it has these values alone, and is borrowed.
        unsafe {
            let state = slot(&self.memory, &self.state, THIRD);
            (slot(&self.memory, &self.values, THIRD), state.parameters)
        }
    }

    /// Takes over the sums of the values after so many steps that were copied from a piece, from
    /// this block on: what goes wrong on the way is seen as well.
    pub fn seal_from(&mut self, step: u64, first_block: usize, piece: &Piece) {
        take_sums(&self.memory, &self.values, first_block, piece, step);
    }

    /// The same for the state.
    pub fn seal_state_from(&mut self, step: u64, piece: &Piece) {
        take_sums(&self.memory, &self.state, 0, piece, step);
    }

    /// Whether it is what it was: a copy of the values after so many steps.
    pub fn is_whole(&self, step: u64) -> bool {
        // SAFETY: it has these values alone, and is borrowed.
        let state = unsafe { slot(&self.memory, &self.state, THIRD) };
        is_summed(&self.memory, &self.values, THIRD, &self.values().0, step)
            && is_summed(&self.memory, &self.state, THIRD, &state, step)
    }

    /// Its values, and the state, to be written.
    pub fn values_mut(&mut self) -> (SlotMut<'_>, &mut [f32]) {
        self.memory.touch();
        // SAFETY: it has these values alone, and is borrowed mutably; the two are apart.
        unsafe {
            let state = slot_mut(&self.memory, &self.state, THIRD);
            (slot_mut(&self.memory, &self.values, THIRD), state.parameters)
        }
    }
}

/// Whether every block of a slot's values has the sum that was noted.
fn is_summed(memory: &Memory, run: &Run, at: usize, values: &Slot<'_>, step: u64) -> bool {
    aggregate::blocks(run.len).enumerate().all(|(block, range)| {
        memory.mark(run.sum(at, block)).load(Ordering::Relaxed) == values.sum(range, step)
    })
}

/// Copies the sums of a piece's values after so many steps to those of the copy.
fn take_sums(memory: &Memory, run: &Run, first_block: usize, piece: &Piece, step: u64) {
    for block in 0..piece.run.len.div_ceil(BLOCK) {
        let from = piece.memory.mark(piece.run.sum((step % 2) as usize, block));
        let to = memory.mark(run.sum(THIRD, first_block + block));
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// # Safety
/// They must not be written meanwhile.
unsafe fn slot<'a>(memory: &'a Memory, run: &Run, slot: usize) -> Slot<'a> {
    let offset = slot * run.slot_bytes;
    // SAFETY: the caller's promise; the layout keeps runs in bounds and apart.
    let values = |at: usize| unsafe { memory.values(at + offset, run.len) };
    let mut optimizer: [&[f32]; SLOTS_MAX] = [&[]; SLOTS_MAX];
    for (view, at) in optimizer.iter_mut().zip(&run.optimizer[..run.slots]) {
        *view = values(*at);
    }
    Slot { parameters: values(run.parameters), optimizer, slots: run.slots }
}

/// # Safety
/// They must not be used by others meanwhile.
unsafe fn slot_mut<'a>(memory: &'a Memory, run: &Run, slot: usize) -> SlotMut<'a> {
    let offset = slot * run.slot_bytes;
    // SAFETY: the caller's promise; each section is asked for once.
    let values = |at: usize| unsafe { memory.values_mut(at + offset, run.len) };
    let mut optimizer: [&mut [f32]; SLOTS_MAX] = Default::default();
    for (view, at) in optimizer.iter_mut().zip(&run.optimizer[..run.slots]) {
        *view = values(*at);
    }
    SlotMut { parameters: values(run.parameters), optimizer, slots: run.slots }
}
