//! What changes when one plan follows another: which rows change hands, and how many need not have.
//!
//! Nothing that is stored moves: a machine holds all places of its slot. What it saves is work that
//! a machine has begun, and, for one that has just come, rows it would have to have first.
//! Transition waste is as Dau and others (2019) count it. Never chooses a plan.

use super::{Slot, plan::Plan};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// What one machine keeps, begins and ceases to compute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub slot: Slot,
    /// Places that it had and has.
    pub kept: Vec<Range<usize>>,
    /// Places that are new to it.
    pub taken: Vec<Range<usize>>,
    /// Places that it no longer computes.
    pub dropped: Vec<Range<usize>>,
}

/// The changes of every machine that is in one of the plans, by slot.
pub fn changes(before: &Plan, after: &Plan) -> Vec<Change> {
    let slots: BTreeSet<Slot> = before.ring().iter().chain(after.ring()).copied().collect();
    let change = |slot| {
        let (old, new) = (before.places_of(slot), after.places_of(slot));
        let kept = common(&old, &new);
        Change { slot, taken: without(&new, &kept), dropped: without(&old, &kept), kept }
    };
    slots.into_iter().map(change).collect()
}

/// Rows that machines in both plans take or drop beyond what their loads must change by.
pub fn waste(before: &Plan, after: &Plan) -> usize {
    let held = Held::of(before);
    let new = after.ring().iter().map(|slot| (*slot, after.places_of(*slot)));
    held.waste_to(new)
}

/// Rows that come to other machines, and those of them that need not have. A machine whose load grows
/// must take rows; what it takes beyond that, it drops elsewhere. So [`waste`] counts each such row
/// twice, when it is taken and when another is dropped for it.
pub fn moved(before: &Plan, after: &Plan) -> (usize, usize) {
    let changes = changes(before, after);
    let taken = changes.iter().map(|change| length(&change.taken)).sum();
    (taken, waste(before, after) / 2)
}

/// A slot for a machine that comes: one whose rows it still has (it downloads nothing), or else
/// the lowest that is free (systematic slots first, which need no decoding).
pub fn seat(machines: usize, taken: &BTreeSet<Slot>, kept: &[Slot]) -> Option<Slot> {
    let free = |slot: &Slot| slot.index() < machines && !taken.contains(slot);
    kept.iter().copied().find(free).or_else(|| (0..machines as u16).map(Slot).find(free))
}

/// The places that each machine of a plan computes.
pub(super) struct Held(BTreeMap<Slot, Vec<Range<usize>>>);

impl Held {
    pub(super) fn of(plan: &Plan) -> Self {
        Self(plan.ring().iter().map(|slot| (*slot, plan.places_of(*slot))).collect())
    }

    /// The waste of going to the cyclic plan of `ring`, whose machines have neighbouring groups.
    pub(super) fn waste_to_ring(
        &self,
        ring: &[Slot],
        threshold: usize,
        places: &Range<usize>,
    ) -> usize {
        let count = ring.len();
        let bound = |j: usize| places.start + j * places.len() / count;
        self.waste_to(ring.iter().enumerate().map(|(i, slot)| {
            // Member i has the groups i + 1 − threshold ..= i, around the ring.
            let ranges = if i + 1 >= threshold {
                vec![bound(i + 1 - threshold)..bound(i + 1), 0..0]
            } else {
                vec![places.start..bound(i + 1), bound(i + 1 + count - threshold)..places.end]
            };
            (*slot, ranges)
        }))
    }

    fn waste_to(&self, new: impl Iterator<Item = (Slot, Vec<Range<usize>>)>) -> usize {
        new.filter_map(|(slot, new)| {
            let old = self.0.get(&slot)?;
            let kept = length(&common(old, &new));
            let (old, new) = (length(old), length(&new));
            Some(old + new - 2 * kept - old.abs_diff(new))
        })
        .sum()
    }
}

fn length(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(|range| range.len()).sum()
}

/// Places in both lists.
fn common(a: &[Range<usize>], b: &[Range<usize>]) -> Vec<Range<usize>> {
    let pairs =
        a.iter().flat_map(|a| b.iter().map(move |b| a.start.max(b.start)..a.end.min(b.end)));
    pairs.filter(|range| range.start < range.end).collect()
}

/// Places of `all` that are not in `some`, of which each lies in one range of `all`, ascending.
fn without(all: &[Range<usize>], some: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut left = vec![];
    for range in all {
        let mut from = range.start;
        for gap in some.iter().filter(|s| range.start <= s.start && s.end <= range.end) {
            left.push(from..gap.start);
            from = gap.end;
        }
        left.push(from..range.end);
    }
    left.retain(|range| !range.is_empty());
    left
}
