//! One iteration over coded data: who multiplies, decodes and adds up, and what a loss in the middle
//! changes. Pure.
//!
//! Owns what has come of both products and what is still owed. It is told what came and who is
//! there, and says what is to be asked of whom ([`Order`]); asking twice changes nothing. Whatever
//! has come is kept, whoever sent it and whether or not the sender is still there. Never updates
//! weights: it ends with a gradient.

use planaria_numerics::coding::{
    Error, Paused, Precision, Slot, Standing,
    gathering::{Gathering, Taken},
    generator::Generator,
    group::Judge,
    owed::{self, Owed},
    plan::{Plan, SubBlock},
    product,
    scalar::Element,
};
use planaria_numerics::digest::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A code, and in which numbers it is computed.
#[derive(Debug, Clone)]
pub struct Code<S> {
    /// What each slot stores.
    pub generator: Generator<S>,
    /// By whose limit groups are judged.
    pub precision: Precision,
}

/// Something to ask of the process in a slot.
#[derive(Debug, Clone, PartialEq)]
pub enum Order<E> {
    /// Multiply these rows by the weights.
    Multiply {
        /// Group of the plan.
        group: usize,
        /// Its places.
        places: Range<usize>,
    },
    /// Decode a group, apply the slopes, and transform them into entries.
    Decode {
        /// Group of the plan.
        group: usize,
        /// Its places.
        places: Range<usize>,
        /// Whose products these are.
        members: Vec<Slot>,
        /// The products, member by member.
        products: Vec<E>,
    },
    /// Multiply these rows by their entries and add them to the sum of this ticket.
    Add {
        /// Which sum.
        ticket: u64,
        /// The rows.
        places: Range<usize>,
        /// For each row an entry per column of weights.
        entries: Vec<E>,
    },
    /// Nothing more comes for this ticket: send its sum.
    Deliver {
        /// Which sum.
        ticket: u64,
    },
}

/// Orders for slots, and whether too few are there for what is left.
pub type Orders<E> = (Vec<(Slot, Order<E>)>, Option<Paused>);

/// What is counted where a group is decoded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    /// Sum of the loss over the rows.
    pub loss_sum: f64,
    /// Rows whose class was right.
    pub correct: u64,
    /// The examples that these rows are.
    pub read: Digest,
    /// For each column of weights the largest slope in fixed point, and the sum of their sizes.
    pub sizes: Vec<(u64, u128)>,
}

/// How much was done, in rows of one product.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rows {
    /// Asked for, in both products.
    pub asked: u64,
    /// Of these, in place of somebody who was lost.
    pub extra: u64,
}

/// An iteration under way.
#[derive(Debug, Clone)]
pub struct Iteration<E: Element> {
    plan: Plan,
    columns: usize,
    gathering: Gathering,
    products: BTreeMap<SubBlock, Vec<E>>,
    /// Sub-blocks that were asked of the process that is there.
    asked: BTreeSet<SubBlock>,
    decoding: Vec<Decoding>,
    debts: Vec<Debt<E>>,
    /// The sum that a slot adds to.
    open: BTreeMap<Slot, u64>,
    /// Sums that were asked for.
    closed: BTreeSet<(Slot, u64)>,
    sums: BTreeMap<(Slot, u64), Vec<E>>,
    tickets: u64,
    counted: BTreeMap<usize, Counted>,
    rows: Rows,
}

/// What became of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decoding {
    Open,
    By(Slot),
    Done,
}

/// Work of product 2 that no sum holds.
#[derive(Debug, Clone)]
struct Debt<E> {
    owed: Owed<E>,
    /// The sum it was sent for, if it was.
    ticket: Option<u64>,
}

impl<E: Element> Iteration<E>
where
    E::Scalar: Judge,
{
    /// Nothing has come yet. Products have so many `columns` of weights.
    pub fn new(plan: Plan, columns: usize) -> Self {
        let state = |places: &Range<usize>| match places.is_empty() {
            true => Decoding::Done,
            false => Decoding::Open,
        };
        Self {
            columns,
            gathering: Gathering::new(&plan),
            products: BTreeMap::new(),
            asked: BTreeSet::new(),
            decoding: plan.groups().iter().map(|group| state(&group.places)).collect(),
            debts: Vec::new(),
            open: BTreeMap::new(),
            closed: BTreeSet::new(),
            sums: BTreeMap::new(),
            tickets: 0,
            counted: BTreeMap::new(),
            rows: Rows::default(),
            plan,
        }
    }

    /// Who computes which rows, losses left out.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What was asked for so far.
    pub fn rows(&self) -> Rows {
        self.rows
    }

    /// The process in a slot is gone, or is not waited for any longer: what it was asked is to be
    /// asked of others, or of whoever comes in its place.
    pub fn lost(&mut self, slot: Slot) {
        self.asked.retain(|sub_block| sub_block.slot != slot);
        self.open.remove(&slot);
        self.closed.retain(|(of, _)| *of != slot);
        for decoding in self.decoding.iter_mut().filter(|d| **d == Decoding::By(slot)) {
            *decoding = Decoding::Open;
        }
        for debt in self.debts.iter_mut().filter(|debt| debt.owed.slot == slot) {
            debt.ticket = None;
        }
    }

    /// A sub-block of product 1 has come. False where it is not one that is waited for.
    pub fn product(&mut self, group: usize, slot: Slot, values: Vec<E>) -> bool {
        let sub_block = SubBlock { group, slot };
        let expected = self.plan.groups().get(group).map(|g| g.places.len() * self.columns);
        if expected != Some(values.len()) || self.gathering.take(sub_block) != Taken::New {
            return false;
        }
        self.products.insert(sub_block, values);
        true
    }

    /// A group was decoded; the entries of its members, member by member. False where nobody waits
    /// for it.
    pub fn decoded(&mut self, group: usize, entries: &[E], counted: Counted) -> bool {
        let is_open = self.decoding.get(group).is_some_and(|d| *d != Decoding::Done);
        if !is_open || !self.gathering.is_complete(group) {
            return false;
        }
        let (places, members) = (self.gathering.places(group), self.gathering.members(group));
        let length = places.len() * self.columns;
        if entries.len() != length * members.len() {
            return false;
        }
        for (slot, entries) in members.iter().zip(entries.chunks_exact(length)) {
            let (slot, places, entries) = (*slot, places.clone(), entries.to_vec());
            self.debts.push(Debt { owed: Owed { slot, places, entries }, ticket: None });
        }
        self.decoding[group] = Decoding::Done;
        self.counted.insert(group, counted);
        // Nothing will be decoded from them again.
        self.products.retain(|sub_block, _| sub_block.group != group);
        true
    }

    /// A sum of product 2 has come. False where it is not waited for.
    pub fn sum(&mut self, slot: Slot, ticket: u64, values: Vec<E>) -> bool {
        if !self.closed.remove(&(slot, ticket)) {
            return false;
        }
        self.debts.retain(|debt| debt.owed.slot != slot || debt.ticket != Some(ticket));
        self.sums.insert((slot, ticket), values);
        true
    }

    /// Whether everything has come.
    pub fn is_finished(&self) -> bool {
        self.decoding.iter().all(|d| *d == Decoding::Done) && self.debts.is_empty()
    }

    /// The sum of all, and what was counted, once everything has come: in the order of slots and
    /// groups, whatever came first.
    pub fn finish(self, length: usize) -> (Vec<E>, Counted) {
        let parts: Vec<&[E]> = self.sums.values().map(Vec::as_slice).collect();
        let mut total = vec![E::default(); length];
        product::total(&parts, &mut total);
        let mut all = Counted::default();
        for counted in self.counted.values() {
            all.loss_sum += counted.loss_sum;
            all.correct += counted.correct;
            all.read = all.read.combine(counted.read);
            all.sizes.resize(all.sizes.len().max(counted.sizes.len()), (0, 0));
            for (all, own) in all.sizes.iter_mut().zip(&counted.sizes) {
                *all = (all.0.max(own.0), all.1.saturating_add(own.1));
            }
        }
        (total, all)
    }

    /// Slots that are waited for.
    pub fn waiting_for(&self) -> BTreeSet<Slot> {
        let decoders = self.decoding.iter().filter_map(|decoding| match decoding {
            Decoding::By(slot) => Some(*slot),
            _ => None,
        });
        let debtors = self.debts.iter().filter(|debt| debt.ticket.is_some());
        let debtors = debtors.map(|debt| debt.owed.slot);
        let asked = self.gathering.owing().into_iter().filter(|s| self.asked.contains(s));
        let asked = asked.map(|sub_block| sub_block.slot);
        // Who waits for entries of a group that is not decoded is not to blame.
        let is_blamed = |slot: &Slot| !self.expects(*slot);
        asked.chain(decoders).chain(debtors.filter(is_blamed)).collect()
    }

    /// What is to be asked of those who are there and was not yet. Paused where too few are for
    /// what is left.
    pub fn orders(
        &mut self,
        code: &Code<E::Scalar>,
        alive: &BTreeSet<Slot>,
    ) -> Result<Orders<E>, Error> {
        let mut orders = Vec::new();
        let mut paused = self.multiply(code, alive, &mut orders)?;
        self.decode(alive, &mut orders);
        paused = self.hand_on(code, alive)?.or(paused);
        self.add(alive, &mut orders);
        if alive.is_empty() && !self.is_finished() {
            paused = Paused::unless_enough(0, code.generator.threshold());
        }
        Ok((orders, paused))
    }

    /// Product 1: what lost machines owe goes to others, and what nobody was asked is asked.
    fn multiply(
        &mut self,
        code: &Code<E::Scalar>,
        alive: &BTreeSet<Slot>,
        orders: &mut Vec<(Slot, Order<E>)>,
    ) -> Result<Option<Paused>, Error> {
        let owing = self.gathering.owing();
        let is_short = owing.iter().any(|sub_block| !alive.contains(&sub_block.slot));
        let paused = match is_short {
            false => None,
            true => match self.gathering.repair(&code.generator, code.precision, alive)? {
                Standing::Paused(paused) => Some(paused),
                Standing::Ready(instead) => {
                    let rows = |s: &SubBlock| self.gathering.places(s.group).len() as u64;
                    self.rows.extra += instead.iter().map(rows).sum::<u64>();
                    None
                }
            },
        };
        for sub_block in self.gathering.owing() {
            let SubBlock { group, slot } = sub_block;
            if alive.contains(&slot) && self.asked.insert(sub_block) {
                let places = self.gathering.places(group);
                self.rows.asked += places.len() as u64;
                orders.push((slot, Order::Multiply { group, places }));
            }
        }
        Ok(paused)
    }

    /// Groups that are complete go to one who decodes them: a member, of those there are the one
    /// with the fewest groups.
    fn decode(&mut self, alive: &BTreeSet<Slot>, orders: &mut Vec<(Slot, Order<E>)>) {
        for group in 0..self.decoding.len() {
            if self.decoding[group] != Decoding::Open || !self.gathering.is_complete(group) {
                continue;
            }
            let members = self.gathering.members(group).to_vec();
            let load = |slot: &Slot| {
                let busy = self.decoding.iter().filter(|d| **d == Decoding::By(*slot)).count();
                (!members.contains(slot), busy, *slot)
            };
            let Some(slot) = alive.iter().copied().min_by_key(load) else { return };
            let place = |slot: &Slot| self.products.get(&SubBlock { group, slot: *slot });
            let products: Vec<E> = members.iter().filter_map(place).flatten().copied().collect();
            self.decoding[group] = Decoding::By(slot);
            let places = self.gathering.places(group);
            orders.push((slot, Order::Decode { group, places, members, products }));
        }
    }

    /// Product 2: what lost machines owe goes to others, in shares of the same rows.
    fn hand_on(
        &mut self,
        code: &Code<E::Scalar>,
        alive: &BTreeSet<Slot>,
    ) -> Result<Option<Paused>, Error> {
        let is_lost = |debt: &Debt<E>| !alive.contains(&debt.owed.slot);
        if !self.debts.iter().any(is_lost) {
            return Ok(None);
        }
        let (mut paused, mut unsent) = (None, Vec::new());
        let mut kept = Vec::with_capacity(self.debts.len());
        for debt in &self.debts {
            if !is_lost(debt) {
                match debt.ticket {
                    Some(_) => kept.push(debt.clone()),
                    None => unsent.push(debt.owed.clone()),
                }
                continue;
            }
            match debt.owed.hand_on(&code.generator, code.precision, alive)? {
                Standing::Paused(short) => {
                    paused = Some(short);
                    kept.push(Debt { ticket: None, ..debt.clone() });
                }
                Standing::Ready(shares) => {
                    self.rows.extra += (shares.len() * debt.owed.places.len()) as u64;
                    unsent.extend(shares);
                }
            }
        }
        let merged = owed::merged(unsent).into_iter();
        kept.extend(merged.map(|owed| Debt { owed, ticket: None }));
        self.debts = kept;
        Ok(paused)
    }

    /// Entries go out as they are known; a sum is asked for when nothing more is expected for it.
    fn add(&mut self, alive: &BTreeSet<Slot>, orders: &mut Vec<(Slot, Order<E>)>) {
        for debt in &mut self.debts {
            let slot = debt.owed.slot;
            if debt.ticket.is_some() || !alive.contains(&slot) {
                continue;
            }
            let ticket = *self.open.entry(slot).or_insert_with(|| {
                self.tickets += 1;
                self.tickets
            });
            debt.ticket = Some(ticket);
            let Owed { places, entries, .. } = debt.owed.clone();
            self.rows.asked += places.len() as u64;
            orders.push((slot, Order::Add { ticket, places, entries }));
        }
        let closing = self.open.keys().copied().filter(|slot| !self.expects(*slot));
        for slot in closing.collect::<Vec<Slot>>() {
            if let Some(ticket) = self.open.remove(&slot) {
                self.closed.insert((slot, ticket));
                orders.push((slot, Order::Deliver { ticket }));
            }
        }
    }

    /// Whether entries of a group that is not decoded yet will come for a slot.
    fn expects(&self, slot: Slot) -> bool {
        let groups = self.decoding.iter().enumerate().filter(|(_, d)| **d != Decoding::Done);
        groups.into_iter().any(|(group, _)| self.gathering.members(group).contains(&slot))
    }
}

#[cfg(test)]
mod tests;
