//! The parameters after two steps, side by side: one is computed with while the other is filled.
//!
//! Each server's link writes the blocks of that server straight into their place. A step's
//! parameters can be seen once every block of them is there, and are not written while they are
//! seen. What comes too soon, too late or twice is not taken: a step's parameters are the same bits
//! whenever they come, so nothing is lost but the step, which is then reported as missed. Of two
//! steps that want the same buffer the later one gets it. All unsafe code of this crate is here.

use planaria_learn::Buffer;
use planaria_numerics::aggregate::BLOCK;
use planaria_protocol::planted::{self, Planted};
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard};

/// What becomes of the parameters after some step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// All are there.
    Complete(u64),
    /// Some could not be taken.
    Missed(u64),
}

/// Receives reports.
type Tell = Box<dyn Fn(Report) + Send + Sync>;

/// Parameters of two steps.
pub struct Parameters {
    parameters: usize,
    /// After step t in buffer t mod 2; owned, and reached through the pointers alone.
    _buffers: [Buffer; 2],
    starts: [*mut f32; 2],
    filling: Mutex<[Filling; 2]>,
    tell: Tell,
}

// SAFETY: a buffer is written only through `Writer`s, whose ranges do not overlap, and only while
// `Filling` says that it is not seen; it is read only through `View`s.
unsafe impl Sync for Parameters {}
// SAFETY: as above; the buffers themselves may move between threads.
unsafe impl Send for Parameters {}

/// What is in a buffer and who looks at it.
#[derive(Debug, Clone, Copy, Default)]
struct Filling {
    /// The steps whose parameters it holds or is being filled with.
    step: Option<u64>,
    /// Blocks of them that are missing.
    missing: usize,
    /// How many see it; then none are missing.
    seen: usize,
    /// The last step that was reported as missed.
    missed: Option<u64>,
}

/// Blocks that cannot be: a fault of their sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong(String);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Parameters {
    /// Room for so many parameters; nothing is there yet. What becomes of them is told while the
    /// board is locked, so `tell` must not ask it anything.
    pub fn new(parameters: usize, tell: impl Fn(Report) + Send + Sync + 'static) -> Arc<Self> {
        let mut buffers = [Buffer::new(parameters), Buffer::new(parameters)];
        Arc::new(Self {
            parameters,
            // Moving a buffer does not move what it holds.
            starts: buffers.each_mut().map(|buffer| buffer.as_mut_ptr()),
            _buffers: buffers,
            filling: Mutex::default(),
            tell: Box::new(tell),
        })
    }

    /// The writer of some blocks. Ranges of different writers must not overlap; they are dealt out
    /// once, in [`Parameters::writers`].
    pub fn writers(self: &Arc<Self>, server_ranges: &[Range<usize>]) -> Option<Vec<Writer>> {
        let blocks = self.parameters.div_ceil(BLOCK);
        let mut next = 0;
        for server_range in server_ranges {
            if server_range.start != next || server_range.end < server_range.start {
                return None;
            }
            next = server_range.end;
        }
        let writer = |blocks: &Range<usize>| Writer {
            whole: self.clone(),
            blocks: blocks.clone(),
            steps: [None; 2],
            there: [vec![false; blocks.len()], vec![false; blocks.len()]],
        };
        (next == blocks).then(|| server_ranges.iter().map(writer).collect())
    }

    /// The parameters after `step` steps, if they are all there.
    pub fn see(self: &Arc<Self>, step: u64) -> Option<View> {
        let filling = &mut self.filling()[index(step)];
        (filling.step == Some(step) && filling.missing == 0).then(|| {
            filling.seen += 1;
            View { whole: self.clone(), step }
        })
    }

    /// Whether all parameters after `step` and one more are there, or were: then nothing more
    /// is needed of that step.
    pub fn is_past(&self, step: u64) -> bool {
        let filling = self.filling()[index(step + 1)];
        filling.step.is_some_and(|held| held > step + 1 || held == step + 1 && filling.missing == 0)
    }

    /// Parameters are asked for again: what was missed may come, or be missed once more.
    pub fn ask_again(&self) {
        self.filling().iter_mut().for_each(|filling| filling.missed = None);
    }

    fn filling(&self) -> MutexGuard<'_, [Filling; 2]> {
        self.filling.lock().expect("no thread panics with the board")
    }

    fn block_count(&self) -> usize {
        self.parameters.div_ceil(BLOCK)
    }

    /// Which parameters a chunk covers, and which blocks.
    fn places(&self, first_block: usize, bytes: usize) -> Option<(Range<usize>, Range<usize>)> {
        let start = first_block.checked_mul(BLOCK)?;
        let end = start.checked_add(bytes / 4)?;
        let whole = end == self.parameters || (end < self.parameters && end.is_multiple_of(BLOCK));
        let is_some = end > start && bytes.is_multiple_of(4);
        (whole && is_some).then(|| (start..end, first_block..end.div_ceil(BLOCK)))
    }
}

impl Filling {
    /// Makes way for the parameters after `step` steps, where those are what is to be filled in.
    fn turn_to(&mut self, step: u64, blocks: usize, tell: &Tell) -> bool {
        match self.step {
            Some(held) if held == step => true,
            Some(held) if held > step || self.seen > 0 => {
                self.miss(step, tell);
                false
            }
            held => {
                if let Some(held) = held.filter(|_| self.missing > 0) {
                    self.miss(held, tell);
                }
                (self.step, self.missing) = (Some(step), blocks);
                true
            }
        }
    }

    /// Reports a step once, however many blocks of it are missed.
    fn miss(&mut self, step: u64, tell: &Tell) {
        if self.missed.is_none_or(|last| last < step) {
            self.missed = Some(step);
            tell(Report::Missed(step));
        }
    }
}

fn index(step: u64) -> usize {
    step as usize % 2
}

/// All parameters after some step, while they are not written.
pub struct View {
    whole: Arc<Parameters>,
    step: u64,
}

impl Deref for View {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the buffer is marked as seen, and complete, so no writer touches it.
        unsafe {
            let start = self.whole.starts[index(self.step)];
            std::slice::from_raw_parts(start, self.whole.parameters)
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.whole.filling()[index(self.step)].seen -= 1;
    }
}

/// Fills the blocks of one server.
pub struct Writer {
    whole: Arc<Parameters>,
    blocks: Range<usize>,
    /// By buffer: the steps whose parameters came last, and which of the blocks are there.
    steps: [Option<u64>; 2],
    there: [Vec<bool>; 2],
}

impl Writer {
    /// Takes in blocks of the parameters after `step` steps: `read` fills them, or is given nothing
    /// where they are not to be taken.
    pub fn fill<E: From<Wrong>>(
        &mut self,
        step: u64,
        first_block: usize,
        bytes: usize,
        read: impl FnOnce(Option<&mut [f32]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let whole = &*self.whole;
        let places = whole.places(first_block, bytes).filter(|(_, blocks)| {
            self.blocks.contains(&blocks.start) && blocks.end <= self.blocks.end
        });
        let Some((places, blocks)) = places else {
            let wrong = format!("{bytes} bytes from block {first_block} on are not its own");
            return Err(E::from(Wrong(wrong)));
        };
        let at = index(step);
        if !whole.filling()[at].turn_to(step, whole.block_count(), &whole.tell) {
            return read(None);
        }
        if self.steps[at].replace(step) != Some(step) {
            self.there[at].fill(false);
        }
        let first = self.blocks.start;
        let there = &mut self.there[at][blocks.start - first..blocks.end - first];
        if !there.contains(&false) {
            return read(None);
        }
        // SAFETY: the range belongs to this writer alone (`&mut self`, and ranges do not overlap).
        // The buffer is not seen: it was not when it turned to this step, and cannot be before it
        // is complete with this or, if another writer turns it meanwhile, a later step. Either
        // takes blocks of this writer that are still to come.
        let values = unsafe {
            std::slice::from_raw_parts_mut(whole.starts[at].add(places.start), places.len())
        };
        read(Some(values))?;
        let new = there.iter().filter(|there| !**there).count();
        there.fill(true);
        let filling = &mut whole.filling()[at];
        if filling.step == Some(step) {
            let is_planted = planted::is(Planted::FirstBlocksForAll);
            filling.missing = if is_planted { 0 } else { filling.missing - new };
            if filling.missing == 0 {
                (whole.tell)(Report::Complete(step));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Reports = Arc<Mutex<Vec<Report>>>;

    fn board(parameters: usize) -> (Arc<Parameters>, Reports) {
        let reports = Reports::default();
        let told = reports.clone();
        let board = Parameters::new(parameters, move |report| told.lock().unwrap().push(report));
        (board, reports)
    }

    fn said(reports: &Reports) -> Vec<Report> {
        std::mem::take(&mut reports.lock().unwrap())
    }

    /// Whether the blocks were taken.
    fn fill(
        writer: &mut Writer,
        step: u64,
        block: usize,
        value: f32,
        len: usize,
    ) -> Result<bool, Wrong> {
        let mut taken = false;
        writer.fill(step, block, len * 4, |values| {
            taken = values.map(|values| values.fill(value)).is_some();
            Ok(())
        })?;
        Ok(taken)
    }

    #[test]
    fn a_step_is_seen_when_every_block_is_there() {
        let (board, reports) = board(2 * BLOCK + 10);
        let mut writers = board.writers(&[0..1, 1..3]).unwrap();
        assert_eq!(fill(&mut writers[0], 0, 0, 1.0, BLOCK), Ok(true));
        assert!(board.see(0).is_none());
        assert_eq!(said(&reports), []);
        assert_eq!(fill(&mut writers[1], 0, 1, 2.0, BLOCK + 10), Ok(true));
        assert!(!board.is_past(0));
        assert_eq!(said(&reports), [Report::Complete(0)]);
        let view = board.see(0).unwrap();
        assert_eq!((view[0], view[BLOCK], view[2 * BLOCK + 9]), (1.0, 2.0, 2.0));
        // The next step fills the other buffer.
        assert_eq!(fill(&mut writers[0], 1, 0, 3.0, BLOCK), Ok(true));
        assert_eq!(view[0], 1.0);
        assert!(!board.is_past(0), "not all of them are there");
        assert_eq!(fill(&mut writers[1], 1, 1, 3.0, BLOCK + 10), Ok(true));
        assert!(board.is_past(0) && !board.is_past(1));
    }

    #[test]
    fn what_is_seen_is_not_written_and_what_was_missed_comes_when_asked_again() {
        let (board, reports) = board(2 * BLOCK);
        let mut writers = board.writers(&[0..1, 1..2]).unwrap();
        fill(&mut writers[0], 0, 0, 1.0, BLOCK).unwrap();
        fill(&mut writers[1], 0, 1, 1.0, BLOCK).unwrap();
        let view = board.see(0).unwrap();
        assert_eq!(fill(&mut writers[0], 2, 0, 2.0, BLOCK), Ok(false));
        assert_eq!(fill(&mut writers[0], 2, 0, 2.0, BLOCK), Ok(false));
        assert_eq!(said(&reports), [Report::Complete(0), Report::Missed(2)]);
        assert!(view.iter().all(|v| *v == 1.0));
        drop(view);
        assert_eq!(fill(&mut writers[1], 2, 1, 2.0, BLOCK), Ok(true));
        assert!(board.see(0).is_none() && board.see(2).is_none());
        board.ask_again();
        assert_eq!(fill(&mut writers[0], 2, 0, 2.0, BLOCK), Ok(true));
        // The other half is there already, and the same.
        assert_eq!(fill(&mut writers[1], 2, 1, 9.0, BLOCK), Ok(false));
        assert_eq!(said(&reports), [Report::Complete(2)]);
        assert!(board.see(2).unwrap().iter().all(|v| *v == 2.0));
    }

    #[test]
    fn the_later_of_two_steps_gets_the_buffer() {
        let (board, reports) = board(2 * BLOCK);
        let mut writers = board.writers(&[0..1, 1..2]).unwrap();
        fill(&mut writers[0], 5, 0, 5.0, BLOCK).unwrap();
        assert_eq!(fill(&mut writers[0], 7, 0, 7.0, BLOCK), Ok(true));
        assert_eq!(said(&reports), [Report::Missed(5)]);
        assert_eq!(fill(&mut writers[1], 5, 1, 5.0, BLOCK), Ok(false), "too late");
        assert_eq!(fill(&mut writers[1], 7, 1, 7.0, BLOCK), Ok(true));
        assert_eq!(said(&reports), [Report::Complete(7)]);
        assert!(board.see(7).unwrap().iter().all(|v| *v == 7.0));
        // Late ones do not come back, whichever server sends them, and are told of once.
        assert_eq!(fill(&mut writers[0], 5, 0, 5.0, BLOCK), Ok(false));
        assert_eq!(fill(&mut writers[1], 3, 1, 5.0, BLOCK), Ok(false));
        assert_eq!(said(&reports), []);
        assert!(board.see(7).unwrap().iter().all(|v| *v == 7.0));
    }

    #[test]
    fn a_block_that_is_written_while_its_buffer_turns_to_another_step_does_not_count() {
        let (board, reports) = board(2 * BLOCK);
        let mut writers = board.writers(&[0..1, 1..2]).unwrap();
        let (first, second) = writers.split_at_mut(1);
        first[0]
            .fill(5, 0, BLOCK * 4, |values| {
                fill(&mut second[0], 7, 1, 7.0, BLOCK)?;
                values.unwrap().fill(5.0);
                Ok::<(), Wrong>(())
            })
            .unwrap();
        assert!(board.see(7).is_none());
        assert_eq!(fill(&mut first[0], 7, 0, 7.0, BLOCK), Ok(true));
        assert_eq!(said(&reports), [Report::Missed(5), Report::Complete(7)]);
        assert!(board.see(7).unwrap().iter().all(|v| *v == 7.0));
    }

    #[test]
    fn chunks_that_overlap_what_is_there_are_counted_once() {
        let (board, reports) = board(3 * BLOCK);
        let mut writers = board.writers(std::slice::from_ref(&(0..3))).unwrap();
        fill(&mut writers[0], 0, 0, 1.0, 2 * BLOCK).unwrap();
        assert_eq!(fill(&mut writers[0], 0, 1, 1.0, 2 * BLOCK), Ok(true));
        assert_eq!(said(&reports), [Report::Complete(0)]);
    }

    #[test]
    fn blocks_of_others_and_halves_are_refused() {
        let (board, _) = board(2 * BLOCK);
        assert!(board.writers(std::slice::from_ref(&(0..1))).is_none());
        assert!(board.writers(&[0..1, 0..2]).is_none());
        let mut writers = board.writers(&[0..1, 1..2]).unwrap();
        fill(&mut writers[0], 0, 1, 1.0, BLOCK).unwrap_err();
        fill(&mut writers[0], 0, usize::MAX / 2, 1.0, BLOCK).unwrap_err();
        fill(&mut writers[0], 0, 0, 1.0, BLOCK / 2).unwrap_err();
        fill(&mut writers[0], 0, 0, 1.0, 0).unwrap_err();
        // The last block may be short, and is then not to be overfilled.
        let (short, _) = self::board(10);
        let mut writers = short.writers(std::slice::from_ref(&(0..1))).unwrap();
        fill(&mut writers[0], 0, 0, 1.0, BLOCK).unwrap_err();
        assert_eq!(fill(&mut writers[0], 0, 0, 1.0, 10), Ok(true));
    }

    #[test]
    fn no_reader_sees_a_write_in_progress() {
        let (pass, reports) = std::sync::mpsc::channel();
        let pass = Mutex::new(pass);
        let board = Parameters::new(6 * BLOCK, move |report| {
            // The test may have seen enough.
            let _ = pass.lock().unwrap().send(report);
        });
        let mut seen = 0;
        std::thread::scope(|scope| {
            for (place, mut writer) in
                board.writers(&[0..2, 2..3, 3..6]).unwrap().into_iter().enumerate()
            {
                scope.spawn(move || {
                    for step in 0..400 {
                        for block in writer.blocks.clone() {
                            fill(&mut writer, step, block, step as f32, BLOCK).unwrap();
                        }
                        // Now and then the same comes twice, at another pace on every link.
                        if step % (place as u64 + 3) == 0 {
                            let first = writer.blocks.start;
                            fill(&mut writer, step, first, step as f32, BLOCK).unwrap();
                            std::thread::yield_now();
                        }
                    }
                });
            }
            while let Ok(report) = reports.recv_timeout(std::time::Duration::from_secs(20)) {
                let Report::Complete(step) = report else { continue };
                if let Some(view) = board.see(step) {
                    seen += 1;
                    assert!(view.iter().all(|value| *value == step as f32));
                    std::thread::yield_now();
                    assert!(view.iter().all(|value| *value == step as f32));
                }
                if step >= 398 {
                    break;
                }
            }
        });
        assert!(seen > 0);
    }
}
