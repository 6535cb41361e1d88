//! Product 1 as its sub-blocks come in, and what is done when machines are lost in the middle.
//!
//! Every sub-block that has come is kept, whichever machine sent it and whether or not the sender is still
//! there. What a lost machine had not sent goes to machines outside its groups, sub-block by
//! sub-block: at most the rows it was to compute. Never holds values, only who owes what.

use super::{
    Error, Paused, Precision, Slot, Standing,
    generator::Generator,
    group::{Decoder, Judge, decoder_within},
    plan::{Plan, SubBlock},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// What is made of a sub-block that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    New,
    /// It has come before; the first counts.
    Again,
    /// Its sender is not a member of that group.
    Unasked,
}

/// Which sub-blocks of a plan have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathering {
    groups: Vec<Collected>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Collected {
    places: Range<usize>,
    members: Vec<Slot>,
    came: Vec<bool>,
}

impl Collected {
    fn is_complete(&self) -> bool {
        self.places.is_empty() || self.came.iter().all(|came| *came)
    }

    fn owing(&self) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(|m| !self.came[*m] && !self.is_complete())
    }
}

impl Gathering {
    /// Nothing has come yet.
    pub fn new(plan: &Plan) -> Self {
        let collected = |group: &super::plan::Group| Collected {
            places: group.places.clone(),
            members: group.members.clone(),
            came: vec![false; group.members.len()],
        };
        Self { groups: plan.groups().iter().map(collected).collect() }
    }

    /// A sub-block has come.
    pub fn take(&mut self, sub_block: SubBlock) -> Taken {
        let Some(group) = self.groups.get_mut(sub_block.group) else { return Taken::Unasked };
        match group.members.iter().position(|slot| *slot == sub_block.slot) {
            None => Taken::Unasked,
            Some(m) if group.came[m] => Taken::Again,
            Some(m) => {
                group.came[m] = true;
                Taken::New
            }
        }
    }

    /// What has come of a group is lost: its members owe it again.
    pub fn forget(&mut self, group: usize) {
        if let Some(group) = self.groups.get_mut(group) {
            group.came.fill(false);
        }
    }

    /// Nothing more is wanted of a group.
    pub fn settle(&mut self, group: usize) {
        if let Some(group) = self.groups.get_mut(group) {
            group.came.fill(true);
        }
    }

    /// The members of a group as they are now, in the order they are decoded in.
    pub fn members(&self, group: usize) -> &[Slot] {
        &self.groups[group].members
    }

    /// Places of a group.
    pub fn places(&self, group: usize) -> Range<usize> {
        self.groups[group].places.clone()
    }

    /// Whether everything of a group has come (or it has no places).
    pub fn is_complete(&self, group: usize) -> bool {
        self.groups[group].is_complete()
    }

    /// Whether everything has come.
    pub fn is_finished(&self) -> bool {
        self.groups.iter().all(Collected::is_complete)
    }

    /// What has not come, by group.
    pub fn owing(&self) -> Vec<SubBlock> {
        let groups = self.groups.iter().enumerate();
        groups
            .flat_map(|(group, collected)| {
                collected.owing().map(move |m| SubBlock { group, slot: collected.members[m] })
            })
            .collect()
    }

    /// The decoder of a group as its members are now.
    pub fn decoder<S: Judge>(
        &self,
        generator: &Generator<S>,
        precision: Precision,
        group: usize,
    ) -> Result<Decoder<S>, Error> {
        Ok(decoder_within(generator, self.members(group), precision)?.0)
    }

    /// Gives what machines that are not `alive` owe to others. Returns the new sub-blocks to
    /// compute; nothing is changed when it is paused, or refused because no machine in their place
    /// makes a group that is conditioned well enough.
    pub fn repair<S: Judge>(
        &mut self,
        generator: &Generator<S>,
        precision: Precision,
        alive: &BTreeSet<Slot>,
    ) -> Result<Standing<Vec<SubBlock>>, Error> {
        if self.is_finished() {
            return Ok(Standing::Ready(vec![]));
        }
        if let Some(paused) = Paused::unless_enough(alive.len(), generator.threshold()) {
            return Ok(Standing::Paused(paused));
        }
        let mut repaired = self.clone();
        let mut extra: BTreeMap<Slot, usize> = alive.iter().map(|slot| (*slot, 0)).collect();
        let mut sub_blocks = vec![];
        for (number, group) in repaired.groups.iter_mut().enumerate() {
            let lost: Vec<usize> =
                group.owing().filter(|m| !alive.contains(&group.members[*m])).collect();
            if lost.is_empty() {
                continue;
            }
            group.members = replaced(generator, precision, group, &lost, &extra)?;
            for m in lost {
                let slot = group.members[m];
                *extra.entry(slot).or_default() += group.places.len();
                sub_blocks.push(SubBlock { group: number, slot });
            }
        }
        *self = repaired;
        Ok(Standing::Ready(sub_blocks))
    }
}

/// The group's members with those at `lost` replaced by machines that have the least to do extra,
/// or the next ones where those would be conditioned too badly.
fn replaced<S: Judge>(
    generator: &Generator<S>,
    precision: Precision,
    group: &Collected,
    lost: &[usize],
    extra: &BTreeMap<Slot, usize>,
) -> Result<Vec<Slot>, Error> {
    let mut outside: Vec<(usize, Slot)> = extra
        .iter()
        .filter(|(slot, _)| !group.members.contains(slot))
        .map(|(slot, rows)| (*rows, *slot))
        .collect();
    outside.sort_unstable();
    let mut refusal = None;
    for first in 0..outside.len() {
        let mut members = group.members.clone();
        for (i, m) in lost.iter().enumerate() {
            members[*m] = outside[(first + i) % outside.len()].1;
        }
        match decoder_within(generator, &members, precision) {
            Ok(_) => return Ok(members),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    let members = group.members.clone();
    Err(refusal.unwrap_or(Error::Group { members, threshold: generator.threshold() }))
}
