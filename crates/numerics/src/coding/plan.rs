//! Who computes which rows: groups of the threshold's many members, together all places once.
//!
//! A *place* is a row of what slots store (see [`super::blocks`]). Owns plans and what can be
//! counted on them. Which order of the machines is good is [`super::ring`]'s to say.

use super::{Error, Paused, Slot, Standing};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, ops::Range};

/// Some places, and the machines that compute them: as many as the threshold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Places that its members compute.
    pub places: Range<usize>,
    /// Who computes them, in the order in which they are decoded.
    pub members: Vec<Slot>,
}

/// One member's share of a group: a row of products comes from each. What it comes to follows from
/// the weights, the slot and the group's places, so it stays good when the plan changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SubBlock {
    /// Number of the group in its plan.
    pub group: usize,
    pub slot: Slot,
}

/// Groups that cover the places of an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    threshold: usize,
    places: Range<usize>,
    ring: Vec<Slot>,
    groups: Vec<Group>,
}

impl Plan {
    /// The cyclic plan: as many groups as machines, of equally many places (one more or less), each
    /// of the next `threshold` machines around the ring (Yang and others 2018).
    pub fn cyclic(
        threshold: usize,
        places: Range<usize>,
        ring: &[Slot],
    ) -> Result<Standing<Self>, Error> {
        if let Some(paused) = check(threshold, &places, ring)? {
            return Ok(Standing::Paused(paused));
        }
        let count = ring.len();
        let bound = |j: usize| places.start + j * places.len() / count;
        let groups = (0..count)
            .map(|j| Group {
                places: bound(j)..bound(j + 1),
                members: (0..threshold).map(|i| ring[(j + i) % count]).collect(),
            })
            .collect();
        Ok(Standing::Ready(Self { threshold, places, ring: ring.to_vec(), groups }))
    }

    /// A plan of groups that were made otherwise; they follow each other and end where they should.
    pub(super) fn of_groups(threshold: usize, ring: Vec<Slot>, groups: Vec<Group>) -> Self {
        let end = groups.last().map_or(0, |group| group.places.end);
        let start = groups.first().map_or(end, |group| group.places.start);
        Self { threshold, places: start..end, ring, groups }
    }

    /// Members of each group.
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// All places of the plan: those of a batch, or all there are.
    pub fn places(&self) -> Range<usize> {
        self.places.clone()
    }

    /// The machines, in ring order.
    pub fn ring(&self) -> &[Slot] {
        &self.ring
    }

    /// The groups, by places ascending. Their positions here are their numbers.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// What `slot` computes, by places ascending.
    pub fn share(&self, slot: Slot) -> impl Iterator<Item = (SubBlock, Range<usize>)> {
        let groups = self.groups.iter().enumerate();
        groups
            .filter(move |(_, g)| g.members.contains(&slot))
            .map(move |(group, g)| (SubBlock { group, slot }, g.places.clone()))
    }

    /// How many rows `slot` computes.
    pub fn load(&self, slot: Slot) -> usize {
        self.share(slot).map(|(_, places)| places.len()).sum()
    }

    /// The places that `slot` computes, joined where they touch.
    pub fn places_of(&self, slot: Slot) -> Vec<Range<usize>> {
        let mut joined: Vec<Range<usize>> = vec![];
        for (_, places) in self.share(slot).filter(|(_, places)| !places.is_empty()) {
            match joined.last_mut() {
                Some(last) if last.end == places.start => last.end = places.end,
                _ => joined.push(places),
            }
        }
        joined
    }
}

/// An error for what is no ring or has no places, and whether it is too short.
fn check(threshold: usize, places: &Range<usize>, ring: &[Slot]) -> Result<Option<Paused>, Error> {
    if threshold == 0 || places.is_empty() {
        return Err(Error::NoRows);
    }
    if ring.iter().collect::<BTreeSet<_>>().len() != ring.len() {
        return Err(Error::Group { members: ring.to_vec(), threshold });
    }
    Ok(Paused::unless_enough(ring.len(), threshold))
}
