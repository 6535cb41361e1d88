//! Values in and out of a store as a whole: when it begins, for workers that enter, and for
//! checkpoints.

use super::super::chunk::{CHUNK, CHUNK_BLOCKS};
use super::super::region::{Marked, Shape, Third};
use super::{Reach, Store};
use crate::parameters::chunk::Turn;
use std::cmp::Ordering;
use std::sync::Arc;

/// Copies of a chunk's parameters, to be sent.
#[derive(Debug, Default)]
pub struct Copied {
    /// Those after the step that was asked for.
    pub parameters: Vec<f32>,
    /// Those after the step that follows, if the chunk has come so far: a worker that asks now was
    /// not handed them.
    pub next: Vec<f32>,
}

impl Store {
    /// Begins with the values after `step` steps: parameters, each optimizer slot, and the state.
    pub fn begin_with(
        &self,
        step: u64,
        parameters: &[f32],
        optimizer: &[Vec<f32>],
        state: &[f32],
    ) -> Result<(), String> {
        let Shape { parameters: count, optimizer: slots, .. } = self.settings.shape(0);
        let fits = parameters.len() == count
            && optimizer.len() == slots
            && optimizer.iter().all(|slot| slot.len() == count);
        if !fits {
            return Err(format!(
                "values that fit {count} parameters with {slots} slots are needed"
            ));
        }
        self.close();
        self.marks.clear();
        for (index, chunk) in self.chunks.iter().enumerate() {
            let mut values = chunk.values();
            let range = index * CHUNK..index * CHUNK + values.piece.len();
            let mut slot = values.piece.after_mut(step);
            slot.parameters.copy_from_slice(&parameters[range.clone()]);
            for (to, from) in slot.optimizer().iter_mut().zip(optimizer) {
                to.copy_from_slice(&from[range.clone()]);
            }
            values.piece.seal(step);
        }
        if let Some(mut tally) = self.tally() {
            tally.load(step, state)?;
        }
        self.marks.go_on(step);
        self.open_at(step);
        Ok(())
    }

    /// Begins with the values after `step` steps that the region holds.
    pub fn begin_kept(&self, step: u64) -> Result<(), String> {
        self.close();
        let marked = self.marks.read();
        if ![marked.committed, marked.applied].contains(&Some(step)) {
            let held = match (marked.committed, marked.applied) {
                (Some(c), Some(a)) if a != c => format!("those after {c} and {a}"),
                (Some(c), _) => format!("those after {c}"),
                _ => "none".into(),
            };
            return Err(format!(
                "the values after {step} steps are not kept here: there are {held}"
            ));
        }
        self.marks.go_on(step);
        self.open_at(step);
        Ok(())
    }

    /// Compares what is marked with its sums, while nothing is taken in. Where it is not what it
    /// was, nothing is marked any more; says which.
    pub fn compare(&self) -> Result<(), String> {
        let Marked { committed, applied, snapshot } = self.marks.read();
        let is_whole = |step: u64| {
            self.chunks.iter().all(|chunk| chunk.values().piece.is_whole(step))
                && self.tally().is_none_or(|tally| tally.piece().is_whole(step))
        };
        let third = self.third.lock().expect("no thread panics with the copy").clone();
        let mut both = [committed, applied].into_iter().flatten();
        let damaged = both.find(|step| !is_whole(*step));
        let damaged = damaged.or(snapshot.filter(|step| !third.is_whole(*step)));
        match damaged {
            None => Ok(()),
            Some(step) => {
                self.marks.clear();
                Err(format!("the values after {step} steps do not match their sums"))
            }
        }
    }

    /// First block of a chunk; copies its parameters after `step` steps, and says whether they
    /// still were those: no more steps than these are committed. Copies, so that no thread waits for
    /// the peer that they are sent to.
    pub fn parameters(
        &self,
        chunk: usize,
        Turn { era, step }: Turn,
        into: &mut Copied,
    ) -> (usize, Reach) {
        into.parameters.clear();
        into.next.clear();
        let values = self.chunks[chunk].values();
        into.parameters.extend_from_slice(values.piece.after(step).parameters);
        if values.updated == Some(Turn { era, step }) {
            into.next.extend_from_slice(values.piece.after(step + 1).parameters);
        }
        drop(values);
        (self.first_block(chunk), self.still(era, step))
    }

    /// A copy of the state after `step` steps, as [`Store::parameters`] gives it.
    pub fn state(&self, era: u64, step: u64) -> Option<(Vec<f32>, Reach)> {
        let state = self.tally()?.state(step).to_vec();
        Some((state, self.still(era, step)))
    }

    /// A chunk is written over only after the commit of the step that follows.
    pub(super) fn still(&self, era: u64, step: u64) -> Reach {
        let gate = self.gate();
        match (gate.is_closed || gate.era != era, gate.step.cmp(&step)) {
            (true, _) | (_, Ordering::Less) => Reach::Over,
            (_, Ordering::Equal) => Reach::There,
            (_, Ordering::Greater) => Reach::Gone,
        }
    }

    /// The copy of the values after `step` steps: the one that is kept, or a new one of those that
    /// are committed.
    pub fn snapshot(&self, step: u64) -> Result<Arc<Third>, String> {
        let mut third = self.third.lock().expect("no thread panics with the copy");
        let Marked { snapshot, .. } = self.marks.read();
        if snapshot == Some(step) {
            return Ok(third.clone());
        }
        if self.still(self.era(), step) != Reach::There {
            return Err(format!("the values after {step} steps are not the last ones"));
        }
        let Some(copy) = Arc::get_mut(&mut third) else {
            return Err("an earlier copy is still being written".into());
        };
        self.marks.set_snapshot(None);
        let (mut to, state) = copy.values_mut();
        for (index, chunk) in self.chunks.iter().enumerate() {
            let values = chunk.values();
            let from = values.piece.after(step);
            let range = index * CHUNK..index * CHUNK + from.parameters.len();
            let (parameters, optimizer) = to.parts();
            parameters[range.clone()].copy_from_slice(from.parameters);
            for (to, from) in optimizer.iter_mut().zip(from.optimizer()) {
                to[range.clone()].copy_from_slice(from);
            }
        }
        if let Some(tally) = self.tally() {
            state.copy_from_slice(tally.state(step));
            copy.seal_state_from(step, tally.piece());
        }
        for (index, chunk) in self.chunks.iter().enumerate() {
            copy.seal_from(step, index * CHUNK_BLOCKS, &chunk.values().piece);
        }
        self.marks.set_snapshot(Some(step));
        Ok(third.clone())
    }
}
