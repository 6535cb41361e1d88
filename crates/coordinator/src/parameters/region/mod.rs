//! Where a server's values live, so that another process can go on from them.
//!
//! A header with marks, then three slots: the values after step t are in slot t mod 2 of the first
//! two, and the third is the copy that a checkpoint is written from. A slot is written only while
//! no mark names it, and a mark is set only when its slot is whole: at whatever instant a process
//! is killed, what the marks name is what it should be. Every block of a slot has a sum, which is
//! compared before it is used again. The memory is a file's, whose pages outlive the process, or
//! the process's own where no file can be made.
//!
//! Owns layout, marks, files and all unsafe code of a server. Never knows what a step is for.

mod layout;
mod memory;
mod old;

use memory::Watch;
pub use memory::{Piece, Slot, SlotMut, Third};

use super::Log;
use layout::{APPLIED, COMMITTED, Layout, SNAPSHOT, THIRD};
use memory::Memory;
use old::{Fields, Old, Opened, unreadable};
use planaria_numerics::aggregate::BLOCK;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

const MAGIC: u64 = u64::from_le_bytes(*b"PLNSLOTS");
const VERSION: u64 = 2;
/// Times that an old region whose marks move is copied again.
const TRIES: usize = 8;

/// What a region belongs to: nothing is believed that says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The run: whatever makes its bits what they are.
    pub tag: [u8; 32],
    /// The boot of the machine, see [`boot_id`]: after another, a file may be half written.
    pub boot: [u8; 16],
}

/// How much a region holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Blocks, counted over all servers.
    pub blocks: Range<u32>,
    /// Parameters in them.
    pub parameters: usize,
    /// Slots of the optimizer, each as long as the parameters.
    pub optimizer: usize,
    /// Values of the network's state, on the server that keeps it.
    pub state: usize,
}

/// Where regions are made, and found again.
#[derive(Debug, Clone)]
pub enum Backing {
    /// Files of this folder.
    Folder(PathBuf),
    /// The process's own memory, which ends with it.
    Memory,
    /// Memory that outlives its users: a folder of simulated machines.
    Shared(Shared),
}

/// Memory in place of files, shared by all clones.
#[derive(Debug, Clone, Default)]
pub struct Shared {
    all: Arc<Mutex<Vec<Arc<Memory>>>>,
    watch: Option<Watch>,
}

impl Shared {
    /// The same memory for a process that is watched: the call comes before every write that
    /// another process may find, and may end the process by unwinding.
    pub fn watched(&self, watch: impl Fn() + Send + Sync + 'static) -> Self {
        Self { all: self.all.clone(), watch: Some(Watch(Arc::new(watch))) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Memory>>> {
        self.all.lock().expect("no thread panics with the list")
    }
}

/// Where a server's regions are, and what they belong to.
#[derive(Debug, Clone)]
pub struct Place {
    /// Number of the server.
    pub index: u32,
    /// Its run and boot.
    pub identity: Identity,
    pub backing: Backing,
}

/// The boot of this machine.
pub fn boot_id() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    number.map(u128::to_be_bytes).ok_or_else(|| io::Error::other(format!("`{text}` is no boot id")))
}

/// Which steps' values a region holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marked {
    pub committed: Option<u64>,
    /// Steps applied: the committed ones, or one more.
    pub applied: Option<u64>,
    /// Steps of the copy.
    pub snapshot: Option<u64>,
}

impl Marked {
    /// The slots they name, and the steps whose values those hold.
    fn slots(&self) -> impl Iterator<Item = (usize, u64)> + use<> {
        let Self { committed, applied, snapshot } = *self;
        let applied = applied.filter(|_| applied != committed);
        let two =
            [committed, applied].into_iter().flatten().map(|step| ((step % 2) as usize, step));
        two.chain(snapshot.map(|step| (THIRD, step)))
    }
}

/// Memory of a process or of a file; see the module.
#[derive(Debug)]
pub struct Region {
    memory: Arc<Memory>,
    shape: Shape,
    place: Place,
}

/// A region taken apart: no two pieces share a value.
#[derive(Debug)]
pub struct Pieces {
    pub marks: Marks,
    /// The first two slots, cut into runs of parameters.
    pub runs: Vec<Piece>,
    /// The state in the first two slots.
    pub state: Piece,
    /// The third slot.
    pub third: Third,
}

impl Region {
    /// A new region with no marks. Where no file can be made it is memory, and the log says so.
    pub fn make(place: &Place, shape: Shape, log: &Log) -> io::Result<Self> {
        let memory = blank(place, &shape, log)?;
        Ok(Self::publish(place, shape, memory))
    }

    fn publish(place: &Place, shape: Shape, mut memory: Memory) -> Self {
        let place = place.clone();
        let Backing::Shared(shared) = &place.backing else {
            return Self { memory: Arc::new(memory), shape, place };
        };
        let mut all = shared.lock();
        let newest = all.iter().filter_map(|m| m.shared).map(|(_, serial)| serial).max();
        memory.shared = Some((place.index, 1 + newest.unwrap_or(0)));
        let memory = Arc::new(memory);
        all.push(memory.clone());
        drop(all);
        Self { memory, shape, place }
    }

    /// What an earlier process has left, copied to a new region, which the other cannot touch even
    /// if it still lives. What cannot be believed is ignored, and the log says why. Everything old
    /// is removed once its values are in a file again, or cannot be believed any more.
    pub fn adopt(place: &Place, fits: impl Fn(&Shape) -> bool, log: &Log) -> Option<Self> {
        let olds = match old::all(place) {
            Ok(olds) => olds,
            Err(error) => {
                log(&format!("cannot look for what an earlier server has left: {error}"));
                return None;
            }
        };
        let mut useless = Vec::new();
        for old in &olds {
            match Self::copy(place, old, &fits, log) {
                Ok(region) => {
                    // In memory alone, they would be lost with this process.
                    if region.outlives_process() {
                        olds.iter().for_each(|old| old.remove(place));
                    }
                    return Some(region);
                }
                Err(Unused::Never(why)) => {
                    log(&format!("ignoring `{}`: {why}", old.name()));
                    useless.push(old);
                }
                Err(Unused::Now(why)) => log(&format!("leaving `{}`: {why}", old.name())),
            }
        }
        useless.iter().for_each(|old| old.remove(place));
        None
    }

    /// Whether another process finds it.
    fn outlives_process(&self) -> bool {
        self.memory.path.is_some() || self.memory.shared.is_some()
    }

    fn copy(
        place: &Place,
        old: &Old,
        fits: &impl Fn(&Shape) -> bool,
        log: &Log,
    ) -> Result<Self, Unused> {
        let opened = old.open(&place.identity, place.index)?;
        let shape = opened.shape()?;
        if !fits(&shape) {
            return Err("it holds other parameters than this run has".to_string().into());
        }
        let layout = Layout::new(&shape);
        if opened.bytes()? != layout.bytes as u64 {
            return Err("it does not have the length that it names".to_string().into());
        }
        check(opened.marked()?)?;
        let memory = blank(place, &shape, log);
        let mut memory =
            memory.map_err(|e| Unused::Now(format!("there is no memory for it: {e}")))?;
        let copied = copy_marked(&opened, &layout, &mut memory).map_err(Unused::Now);
        let whole = copied.and_then(|marked| {
            compare(&mut memory, &layout, &shape, marked)?;
            Ok(marked)
        });
        match whole {
            Ok(marked) => {
                // The last is what makes the others count: killed before it, nothing is here and
                // the old one still is; killed after it, everything is.
                set(&memory, SNAPSHOT, marked.snapshot);
                set(&memory, APPLIED, marked.applied);
                set(&memory, COMMITTED, marked.committed);
                Ok(Self::publish(place, shape, memory))
            }
            Err(why) => {
                if let Some(path) = &memory.path {
                    // The error in hand matters more than one from cleaning up.
                    let _ = fs::remove_file(path);
                }
                Err(why)
            }
        }
    }

    /// How much it holds.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Takes it apart, the parameters into runs of so many, which are whole blocks.
    pub fn into_pieces(self, run: usize) -> Pieces {
        let layout = Layout::new(&self.shape);
        let count = self.shape.parameters;
        assert!(run.is_multiple_of(BLOCK) || run >= count, "runs are whole blocks");
        let piece = |run| Piece::new(self.memory.clone(), run);
        let starts = (0..count).step_by(run);
        let runs = starts.map(|from| piece(layout.run(from, run.min(count - from)))).collect();
        let state = piece(layout.state());
        let third = Third::new(self.memory.clone(), layout.run(0, count), layout.state());
        Pieces { marks: self.marks(), runs, state, third }
    }

    fn marks(&self) -> Marks {
        Marks { memory: self.memory.clone(), place: self.place.clone() }
    }
}

/// Why a region that was found is not used.
enum Unused {
    /// It cannot be believed, now or ever.
    Never(String),
    /// It could not be copied; another process may be able to.
    Now(String),
}

impl From<String> for Unused {
    fn from(why: String) -> Self {
        Self::Never(why)
    }
}

/// Copies the slots that marks name, with nothing that was written over meanwhile.
fn copy_marked(from: &Opened, layout: &Layout, into: &mut Memory) -> Result<Marked, String> {
    for _ in 0..TRIES {
        let marked = from.marked()?;
        if check(marked).is_err() {
            // They are moving.
            continue;
        }
        for (slot, _) in marked.slots() {
            let range = layout.slot(slot);
            from.read(range.start, into.bytes_mut(range)).map_err(unreadable)?;
        }
        // A thread that still writes there moves a mark before it touches what that named.
        if from.marked()? == marked {
            return Ok(marked);
        }
    }
    Err("another process is writing to it".into())
}

/// Whether what was copied has the sums that were noted when it was written.
fn compare(
    memory: &mut Memory,
    layout: &Layout,
    shape: &Shape,
    marked: Marked,
) -> Result<(), String> {
    let (values, state) = (layout.run(0, shape.parameters), layout.state());
    for (slot, step) in marked.slots() {
        if !memory.is_whole(&values, slot, step) || !memory.is_whole(&state, slot, step) {
            return Err(format!(
                "its values after {step} steps do not match their sums: bytes were changed"
            ));
        }
    }
    Ok(())
}

/// Memory of a region that was not looked at yet.
fn blank(place: &Place, shape: &Shape, log: &Log) -> io::Result<Memory> {
    let bytes = Layout::new(shape).bytes;
    let mut memory = match &place.backing {
        Backing::Memory => Memory::private(bytes)?,
        Backing::Shared(shared) => {
            let mut memory = Memory::private(bytes)?;
            memory.watch = shared.watch.clone();
            memory
        }
        Backing::Folder(folder) => match file(folder, place, bytes) {
            Ok(memory) => memory,
            Err(error) => {
                log(&format!(
                    "cannot keep {bytes} bytes of values in a file of `{}` ({error}): they are in \
                     memory alone, and losing this server will go back to the last checkpoint",
                    folder.display()
                ));
                Memory::private(bytes)?
            }
        },
    };
    let fields = Fields::encode(place.index, &place.identity, shape);
    memory.bytes_mut(0..fields.len()).copy_from_slice(&fields);
    Ok(memory)
}

/// A new file, newer than all others of the server.
fn file(folder: &Path, place: &Place, bytes: usize) -> io::Result<Memory> {
    let newest = old::all(place)?.first().map_or(0, |old| old.serial);
    let serial = newest.checked_add(1);
    let serial = serial.ok_or_else(|| io::Error::other("there is no higher number for it"))?;
    Memory::file(&folder.join(old::name(place.index, serial)), bytes)
}

/// Whether marks say what marks can say.
fn check(marked: Marked) -> Result<(), String> {
    match marked {
        Marked { committed: None, .. } => Err("no whole step is in it".into()),
        Marked { committed: Some(c), applied: Some(a), .. } if a == c || a == c + 1 => Ok(()),
        _ => Err(format!("its marks make no sense: {marked:?}")),
    }
}

/// A region's marks. What was written before a mark is set is there when the mark is; what is
/// written after a mark is taken away cannot be there while it still is.
#[derive(Debug)]
pub struct Marks {
    memory: Arc<Memory>,
    place: Place,
}

impl Marks {
    /// What they say.
    pub fn read(&self) -> Marked {
        let read = |at| self.memory.mark(at).load(Ordering::Acquire);
        marked(read(COMMITTED), read(APPLIED), read(SNAPSHOT))
    }

    /// The values after so many steps are whole.
    pub fn set_applied(&self, step: u64) {
        self.store(APPLIED, Some(step));
    }

    /// So many steps are committed; their values were applied.
    pub fn set_committed(&self, step: u64) {
        self.store(COMMITTED, Some(step));
    }

    /// What the third slot is a copy of; nothing before it is written.
    pub fn set_snapshot(&self, step: Option<u64>) {
        self.store(SNAPSHOT, step);
    }

    /// Nothing is whole.
    pub fn clear(&self) {
        [APPLIED, COMMITTED, SNAPSHOT].into_iter().for_each(|at| self.store(at, None));
    }

    /// Goes on from `step`, which must be committed or applied: nothing else is named any more.
    pub fn go_on(&self, step: u64) {
        self.store(COMMITTED, Some(step));
        self.store(APPLIED, Some(step));
    }

    fn store(&self, at: usize, step: Option<u64>) {
        set(&self.memory, at, step);
    }

    /// Removes the region's file: no server is to go on from it. Its memory stays.
    pub fn remove(&self) {
        if let Some(path) = &self.memory.path {
            // It may be gone already, and what is left is ignored by the next server.
            let _ = fs::remove_file(path);
        }
        if let Backing::Shared(shared) = &self.place.backing {
            shared.lock().retain(|memory| !Arc::ptr_eq(memory, &self.memory));
        }
    }
}

/// Sets a mark, or takes it away.
fn set(memory: &Memory, at: usize, step: Option<u64>) {
    memory.touch();
    memory.mark(at).store(step.map_or(0, |s| s + 1), Ordering::Release);
    // What follows must not come before it, not even by the compiler's hand.
    fence(Ordering::SeqCst);
}

/// Marks as they are kept: a step more, and 0 for none.
fn marked(committed: u64, applied: u64, snapshot: u64) -> Marked {
    let step = |mark: u64| mark.checked_sub(1);
    // Between two marks that are set one after the other, the first counts for both.
    let applied = if committed == 0 { 0 } else { applied.max(committed) };
    Marked { committed: step(committed), applied: step(applied), snapshot: step(snapshot) }
}
