//! The parameters after two steps, side by side: one is computed with while the other is filled.
//!
//! Each server's link writes the blocks of that server straight into their place. A step's
//! parameters can be seen once every block of them is there, and are not written while they are
//! seen. All unsafe code of this crate is here.

use planaria_learn::kernels::buffer::Buffer;
use planaria_numerics::aggregate::BLOCK;
use std::ops::{Deref, Range};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Parameters of two steps.
pub struct Board {
    parameters: usize,
    /// After step t in buffer t mod 2; owned, and reached through the pointers alone.
    _buffers: [Buffer; 2],
    starts: [*mut f32; 2],
    filling: Mutex<Filling>,
    changed: Condvar,
}

// SAFETY: a buffer is written only through `Writer`s, whose ranges do not overlap, and only while
// `Filling` says that nobody sees it; it is read only through `View`s.
unsafe impl Sync for Board {}
// SAFETY: as above; the buffers themselves may move between threads.
unsafe impl Send for Board {}

/// What is there and who looks at it.
#[derive(Debug)]
struct Filling {
    /// By buffer: the steps whose parameters it is being filled with, and blocks that are missing.
    buffers: [(u64, usize); 2],
    /// By buffer: how many see it.
    seen: [usize; 2],
    /// By buffer: blocks being written this moment.
    writing: [usize; 2],
    /// Why nothing more will come.
    closed: Option<String>,
}

/// What went wrong with the board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// Nothing more will come.
    Closed(String),
    /// Blocks came out of turn.
    OutOfTurn(String),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Closed(why) | Self::OutOfTurn(why)) = self;
        f.write_str(why)
    }
}

impl Board {
    /// Room for so many parameters; nothing is there yet.
    pub fn new(parameters: usize) -> Arc<Self> {
        let filling =
            Filling { buffers: [(u64::MAX, 0); 2], seen: [0; 2], writing: [0; 2], closed: None };
        let mut buffers = [Buffer::new(parameters), Buffer::new(parameters)];
        Arc::new(Self {
            parameters,
            // Moving a buffer does not move what it holds.
            starts: buffers.each_mut().map(|buffer| buffer.as_mut_ptr()),
            _buffers: buffers,
            filling: Mutex::new(filling),
            changed: Condvar::new(),
        })
    }

    /// The writer of some blocks. Ranges of different writers must not overlap; they are dealt out
    /// once, in [`Board::writers`].
    pub fn writers(self: &Arc<Self>, shelves: &[Range<usize>]) -> Option<Vec<Writer>> {
        let blocks = self.parameters.div_ceil(BLOCK);
        let mut next = 0;
        for shelf in shelves {
            if shelf.start != next || shelf.end < shelf.start {
                return None;
            }
            next = shelf.end;
        }
        let writer = |blocks: &Range<usize>| Writer {
            board: self.clone(),
            blocks: blocks.clone(),
            steps: [u64::MAX; 2],
            there: [vec![false; blocks.len()], vec![false; blocks.len()]],
        };
        (next == blocks).then(|| shelves.iter().map(writer).collect())
    }

    /// Whether all parameters after `step` steps are there.
    pub fn has(&self, step: u64) -> bool {
        self.filling().buffers[index(step)] == (step, 0)
    }

    /// Waits until the parameters after `step` steps are all there.
    pub fn view(&self, step: u64) -> Result<View<'_>, Broken> {
        let mut filling = self.filling();
        // A network without parameters has nothing to wait for.
        while self.parameters > 0 && filling.buffers[index(step)] != (step, 0) {
            if let Some(why) = &filling.closed {
                return Err(Broken::Closed(why.clone()));
            }
            filling = self.changed.wait(filling).expect("no thread panics with the board");
        }
        filling.seen[index(step)] += 1;
        Ok(View { board: self, step })
    }

    /// Nothing more will come; whoever waits is let go.
    pub fn close(&self, why: &str) {
        self.filling().closed.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    /// Why nothing more will come, if so.
    pub fn closed(&self) -> Option<String> {
        self.filling().closed.clone()
    }

    fn filling(&self) -> MutexGuard<'_, Filling> {
        self.filling.lock().expect("no thread panics with the board")
    }

    fn block_count(&self) -> usize {
        self.parameters.div_ceil(BLOCK)
    }
}

fn index(step: u64) -> usize {
    step as usize % 2
}

/// All parameters after some step, while they are not written.
pub struct View<'a> {
    board: &'a Board,
    step: u64,
}

impl Deref for View<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the buffer is marked as seen, and complete, so no writer touches it.
        unsafe {
            let start = self.board.starts[index(self.step)];
            std::slice::from_raw_parts(start, self.board.parameters)
        }
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        self.board.filling().seen[index(self.step)] -= 1;
    }
}

/// Fills the blocks of one server.
pub struct Writer {
    board: Arc<Board>,
    blocks: Range<usize>,
    /// By buffer: the step being filled, and which of the blocks are there.
    steps: [u64; 2],
    there: [Vec<bool>; 2],
}

impl Writer {
    /// Takes in blocks of the parameters after `step` steps: `read` fills them.
    pub fn fill<E: From<Broken>>(
        &mut self,
        step: u64,
        first_block: usize,
        bytes: usize,
        read: impl FnOnce(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let board = &*self.board;
        let wrong = |what: String| E::from(Broken::OutOfTurn(what));
        let start = first_block * BLOCK;
        let end = start + bytes / 4;
        let whole =
            end == board.parameters || (end < board.parameters && end.is_multiple_of(BLOCK));
        let blocks = first_block..end.div_ceil(BLOCK);
        let own = self.blocks.contains(&blocks.start) && blocks.end <= self.blocks.end;
        if !own || !whole || !bytes.is_multiple_of(4) {
            return Err(wrong(format!(
                "{bytes} bytes from block {first_block} on are not its own"
            )));
        }
        let at = index(step);
        if self.steps[at] != step {
            self.steps[at] = step;
            self.there[at].fill(false);
        }
        let there =
            &mut self.there[at][blocks.start - self.blocks.start..blocks.end - self.blocks.start];
        if there.contains(&true) {
            return Err(wrong(format!("parameters after step {step} came twice")));
        }
        {
            let mut filling = board.filling();
            if filling.buffers[at].0 != step {
                if filling.seen[at] > 0 || filling.writing[at] > 0 {
                    return Err(wrong(format!("parameters after step {step} came too soon")));
                }
                let before = filling.buffers[at].0;
                if before != u64::MAX && step < before {
                    return Err(wrong(format!("parameters after step {step} came too late")));
                }
                filling.buffers[at] = (step, board.block_count());
            }
            filling.writing[at] += blocks.len();
        }
        // SAFETY: the range belongs to this writer alone (`&mut self`, and ranges do not overlap);
        // the buffer is incomplete, so nobody sees it.
        let values =
            unsafe { std::slice::from_raw_parts_mut(board.starts[at].add(start), end - start) };
        let filled = read(values);
        let mut filling = board.filling();
        filling.writing[at] -= blocks.len();
        filled?;
        there.fill(true);
        filling.buffers[at].1 -= blocks.len();
        if filling.buffers[at].1 == 0 {
            board.changed.notify_all();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(
        writer: &mut Writer,
        step: u64,
        block: usize,
        value: f32,
        len: usize,
    ) -> Result<(), Broken> {
        writer.fill(step, block, len * 4, |values| {
            values.fill(value);
            Ok(())
        })
    }

    #[test]
    fn a_step_is_seen_when_every_block_is_there() {
        let board = Board::new(2 * BLOCK + 10);
        let mut writers = board.writers(&[0..1, 1..3]).unwrap();
        fill(&mut writers[0], 0, 0, 1.0, BLOCK).unwrap();
        assert!(!board.has(0));
        fill(&mut writers[1], 0, 1, 2.0, BLOCK + 10).unwrap();
        let view = board.view(0).unwrap();
        assert_eq!((view[0], view[BLOCK], view[2 * BLOCK + 9]), (1.0, 2.0, 2.0));
        // The next step fills the other buffer; the one after it would write what is seen.
        fill(&mut writers[0], 1, 0, 3.0, BLOCK).unwrap();
        assert!(matches!(fill(&mut writers[0], 2, 0, 4.0, BLOCK), Err(Broken::OutOfTurn(_))));
        assert_eq!(view[0], 1.0);
    }

    #[test]
    fn blocks_of_others_halves_and_doubles_are_refused() {
        let board = Board::new(2 * BLOCK);
        assert!(board.writers(std::slice::from_ref(&(0..1))).is_none());
        assert!(board.writers(&[0..1, 0..2]).is_none());
        let mut writers = board.writers(&[0..1, 1..2]).unwrap();
        assert!(fill(&mut writers[0], 0, 1, 1.0, BLOCK).is_err());
        assert!(fill(&mut writers[0], 0, 0, 1.0, BLOCK / 2).is_err());
        fill(&mut writers[0], 0, 0, 1.0, BLOCK).unwrap();
        fill(&mut writers[0], 0, 0, 1.0, BLOCK).unwrap_err();
        // Nor after a block of another step.
        fill(&mut writers[0], 1, 0, 1.0, BLOCK).unwrap();
        fill(&mut writers[0], 0, 0, 1.0, BLOCK).unwrap_err();
        assert!(!board.has(0));
        // The last block may be short, and is then not to be overfilled.
        let short = Board::new(10);
        let mut writers = short.writers(std::slice::from_ref(&(0..1))).unwrap();
        fill(&mut writers[0], 0, 0, 1.0, BLOCK).unwrap_err();
        fill(&mut writers[0], 0, 0, 1.0, 10).unwrap();
    }

    #[test]
    fn a_closed_board_lets_everyone_go() {
        let board = Board::new(10);
        let waiting = board.clone();
        let thread = std::thread::spawn(move || waiting.view(3).map(|_| ()));
        board.close("server-0 went away");
        assert_eq!(thread.join().unwrap(), Err(Broken::Closed("server-0 went away".into())));
    }
}
