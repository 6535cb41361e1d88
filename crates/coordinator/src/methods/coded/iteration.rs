//! One iteration over coded data: who multiplies, decodes and adds up, and what a loss in the middle
//! changes. Pure.
//!
//! Owns what has come of both products and what is still owed. It is told what came and who is
//! there, and says what is to be asked of whom ([`Order`]); asking twice changes nothing. Products
//! and entries go from worker to worker, so it holds none of them: only who has what. Never updates
//! weights: it ends with a gradient.
//!
//! Every group has a decoder, outside the group where there are enough workers: then no single loss
//! takes a product away that was sent. A lost decoder's groups are decoded by another from the
//! products that the members still have. Entries of a group that was decoded stay those of the
//! members it had then, even if another member is asked to decode it again; so what members have
//! added up stays good.

use super::arithmetic::{Arithmetic, Bits};
use planaria_numerics::coding::{
    Error, Paused, Slot, Standing,
    gathering::{Gathering, Taken},
    plan::{Group, Plan, SubBlock},
};
use planaria_numerics::digest::Digest;
use planaria_numerics::exact_sum::ExactSum;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Something to ask of the process in a slot.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Multiply these rows by the weights, unless that was done, and send them.
    Multiply {
        /// Group of the plan.
        group: usize,
        places: Range<usize>,
        to: Slot,
    },
    /// When the products are there, decode a group, apply the slopes, and send entries.
    Decode {
        /// Group of the plan.
        group: usize,
        places: Range<usize>,
        /// Which order this is.
        attempt: u64,
        inputs: Vec<Slot>,
        outputs: Vec<Slot>,
        shares: Vec<Share>,
    },
    /// Send entries of a group that is decoded, or will be.
    Share {
        /// Group of the plan.
        group: usize,
        shares: Vec<Share>,
    },
    /// When the entries of these debts have come, send the sum of all.
    Deliver { ticket: u64, debts: Vec<u64> },
}

/// Entries that a worker gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    pub of: Slot,
    pub coefficient: Bits,
    pub to: Slot,
    /// The debt that they settle.
    pub debt: u64,
}

/// Orders for slots, and whether too few are there for what is left.
pub type Orders = (Vec<(Slot, Order)>, Option<Paused>);

/// What is counted where a group is decoded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    /// Sum of the loss over the rows.
    pub loss_sum: ExactSum,
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
    /// Of these, in place of a lost worker.
    pub extra: u64,
}

/// An iteration under way.
#[derive(Debug, Clone)]
pub struct Iteration {
    plan: Plan,
    /// The coefficient one.
    one: Bits,
    gathering: Gathering,
    /// Sub-blocks that the process that is there was asked for, and for whom.
    asked: BTreeMap<SubBlock, Slot>,
    /// Sub-blocks that the process that is there has, or is about to have.
    asked_once: BTreeSet<SubBlock>,
    /// Those that it has said to have.
    multiplied: BTreeSet<SubBlock>,
    decoding: Vec<Decoding>,
    debts: Vec<Debt>,
    /// Sums that were asked for.
    closed: BTreeSet<(Slot, u64)>,
    /// Those that have come, as they travel.
    sums: BTreeMap<(Slot, u64), Vec<u8>>,
    /// Tickets, debts and attempts are told apart by numbers that are given once.
    numbers: u64,
    counted: BTreeMap<usize, Counted>,
    rows: Rows,
}

/// What became of a group.
#[derive(Debug, Clone, Default)]
struct Decoding {
    stage: Stage,
    decoder: Option<Slot>,
    /// Orders that the decoder was given: by their numbers, inputs and debts for each output.
    attempts: BTreeMap<u64, Attempt>,
    /// Whose entries there are, once it was decoded.
    outputs: Vec<Slot>,
}

#[derive(Debug, Clone, PartialEq)]
struct Attempt {
    inputs: Vec<Slot>,
    outputs: Vec<(Slot, u64)>,
    /// Outputs whose process was lost since: what is sent to it comes nowhere.
    lost: BTreeSet<Slot>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// The decoder has all entries.
    Done,
    /// It was decoded, but who had its entries is lost while some may be needed.
    Again,
}

/// Work of product 2 that no sum holds: rows of a slot, times its share of entries.
#[derive(Debug, Clone, Copy)]
struct Debt {
    share: Share,
    group: usize,
    /// The decoder that was told of it.
    told: Option<Slot>,
    /// The sum it belongs to, once that is asked for.
    ticket: Option<u64>,
    /// Whether its rows are counted.
    is_counted: bool,
}

impl Iteration {
    /// Nothing has come yet.
    pub fn new(plan: Plan, code: &dyn Arithmetic) -> Self {
        let stage = |places: &Range<usize>| match places.is_empty() {
            true => Stage::Done,
            false => Stage::Open,
        };
        let decoding =
            |group: &Group| Decoding { stage: stage(&group.places), ..Decoding::default() };
        Self {
            gathering: Gathering::new(&plan),
            asked: BTreeMap::new(),
            asked_once: BTreeSet::new(),
            multiplied: BTreeSet::new(),
            decoding: plan.groups().iter().map(decoding).collect(),
            debts: Vec::new(),
            closed: BTreeSet::new(),
            sums: BTreeMap::new(),
            numbers: 0,
            counted: BTreeMap::new(),
            rows: Rows::default(),
            one: code.one(),
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

    /// The process in a slot is gone, or is not waited for any longer: what it was asked, and what
    /// it had, is to be asked of others, or of the machine that comes in its place.
    pub fn lost(&mut self, slot: Slot) {
        self.asked.retain(|sub_block, to| sub_block.slot != slot && *to != slot);
        self.asked_once.retain(|sub_block| sub_block.slot != slot);
        self.multiplied.retain(|sub_block| sub_block.slot != slot);
        self.closed.retain(|(of, _)| *of != slot);
        for debt in &mut self.debts {
            if debt.share.to == slot {
                (debt.ticket, debt.told, debt.is_counted) = (None, None, false);
            }
            if debt.told == Some(slot) {
                debt.told = None;
            }
        }
        for group in 0..self.decoding.len() {
            let decoding = &mut self.decoding[group];
            decoding.attempts.values_mut().for_each(|attempt| {
                attempt.lost.insert(slot);
            });
            if decoding.decoder != Some(slot) {
                continue;
            }
            decoding.decoder = None;
            decoding.attempts.clear();
            let is_owed = self.debts.iter().any(|debt| debt.group == group);
            match decoding.stage {
                Stage::Done if !is_owed => continue,
                Stage::Done => decoding.stage = Stage::Again,
                Stage::Open | Stage::Again => {}
            }
            self.gathering.forget(group);
        }
    }

    /// A slot has multiplied its rows of a group; they are on their way.
    pub fn multiplied(&mut self, group: usize, slot: Slot) {
        let sub_block = SubBlock { group, slot };
        if self.asked.contains_key(&sub_block) {
            self.multiplied.insert(sub_block);
        }
    }

    /// `by`, who decodes the group, has a sub-block of product 1. False where no member waits for it.
    pub fn arrived(&mut self, group: usize, slot: Slot, by: Slot) -> bool {
        let decodes = self.decoding.get(group).is_some_and(|d| d.decoder == Some(by));
        decodes && self.gathering.take(SubBlock { group, slot }) == Taken::New
    }

    /// `by` has decoded a group, and its entries are on their way. False where no member waits for it.
    pub fn decoded(&mut self, group: usize, attempt: u64, by: Slot, counted: Counted) -> bool {
        let Some(decoding) = self.decoding.get_mut(group) else { return false };
        if decoding.decoder != Some(by) || decoding.stage == Stage::Done {
            return false;
        }
        let Some(attempt) = decoding.attempts.remove(&attempt) else { return false };
        if decoding.stage == Stage::Open {
            decoding.outputs = attempt.outputs.iter().map(|(slot, _)| *slot).collect();
            let debt = |(slot, debt): (Slot, u64)| Debt {
                share: Share { of: slot, coefficient: self.one, to: slot, debt },
                group,
                told: Some(by).filter(|_| !attempt.lost.contains(&slot)),
                ticket: None,
                is_counted: false,
            };
            self.debts.extend(attempt.outputs.iter().copied().map(debt));
            self.counted.insert(group, counted);
        }
        decoding.stage = Stage::Done;
        decoding.attempts.clear();
        self.gathering.settle(group);
        true
    }

    /// A sum of product 2 has come. False where it is not waited for.
    pub fn sum(&mut self, slot: Slot, ticket: u64, values: Vec<u8>) -> bool {
        if !self.closed.remove(&(slot, ticket)) {
            return false;
        }
        self.debts.retain(|debt| debt.share.to != slot || debt.ticket != Some(ticket));
        self.sums.insert((slot, ticket), values);
        for group in 0..self.decoding.len() {
            let is_owed = self.debts.iter().any(|debt| debt.group == group);
            if self.decoding[group].stage == Stage::Again && !is_owed {
                self.decoding[group].stage = Stage::Done;
                self.gathering.settle(group);
            }
        }
        true
    }

    /// Whether everything has come.
    pub fn is_finished(&self) -> bool {
        self.decoding.iter().all(|d| d.stage != Stage::Open) && self.debts.is_empty()
    }

    /// The sums, and what was counted, once everything has come: in the order of slots and groups,
    /// whatever came first.
    pub fn finish(self) -> (Vec<Vec<u8>>, Counted) {
        let mut all = Counted::default();
        for counted in self.counted.values() {
            all.loss_sum.combine(&counted.loss_sum);
            all.correct += counted.correct;
            all.read = all.read.combine(counted.read);
            all.sizes.resize(all.sizes.len().max(counted.sizes.len()), (0, 0));
            for (all, own) in all.sizes.iter_mut().zip(&counted.sizes) {
                *all = (all.0.max(own.0), all.1.saturating_add(own.1));
            }
        }
        (self.sums.into_values().collect(), all)
    }

    /// Slots that are waited for.
    pub fn waiting_for(&self) -> BTreeSet<Slot> {
        let asked = self.wanted().filter(|sub_block| self.asked.contains_key(sub_block));
        // What was multiplied is held up by the member that is to have it.
        let asked = asked.map(|sub_block| match self.multiplied.contains(&sub_block) {
            true => self.asked[&sub_block],
            false => sub_block.slot,
        });
        let groups = self.decoding.iter().enumerate();
        let decoders = groups.filter(|(group, decoding)| {
            decoding.stage != Stage::Done && self.gathering.is_complete(*group)
        });
        let decoders = decoders.filter_map(|(_, decoding)| decoding.decoder);
        // Who waits for entries of a group that is being decoded is not to blame.
        let is_blamed =
            |debt: &&Debt| debt.ticket.is_some() && self.decoding[debt.group].stage == Stage::Done;
        let debtors = self.debts.iter().filter(is_blamed).map(|debt| debt.share.to);
        asked.chain(decoders).chain(debtors).collect()
    }

    /// What is to be asked of those who are there and was not yet. Paused where too few are for
    /// what is left.
    pub fn orders(
        &mut self,
        code: &dyn Arithmetic,
        alive: &BTreeSet<Slot>,
    ) -> Result<Orders, Error> {
        let mut orders = Vec::new();
        if self.is_finished() {
            return Ok((orders, None));
        }
        self.appoint(alive);
        let mut paused = self.multiply(code, alive, &mut orders)?;
        self.decode(alive, &mut orders);
        paused = self.hand_on(code, alive)?.or(paused);
        self.share(alive, &mut orders);
        self.deliver(alive, &mut orders);
        if alive.is_empty() {
            paused = Paused::unless_enough(0, code.threshold());
        }
        Ok((orders, paused))
    }

    /// Every group that is to be decoded gets a decoder: one outside the group, with the fewest.
    fn appoint(&mut self, alive: &BTreeSet<Slot>) {
        for group in 0..self.decoding.len() {
            let decoding = &self.decoding[group];
            if decoding.stage == Stage::Done || decoding.decoder.is_some() {
                continue;
            }
            let members = self.gathering.members(group);
            let load = |slot: &Slot| {
                let busy = self.decoding.iter().filter(|d| d.decoder == Some(*slot)).count();
                (members.contains(slot), busy, *slot)
            };
            self.decoding[group].decoder = alive.iter().copied().min_by_key(load);
        }
    }

    /// Sub-blocks that a decoder waits for.
    fn wanted(&self) -> impl Iterator<Item = SubBlock> {
        let is_wanted = |sub_block: &SubBlock| self.decoding[sub_block.group].stage != Stage::Done;
        self.gathering.owing().into_iter().filter(is_wanted)
    }

    /// Product 1: what lost machines owe goes to others, and what no member was asked for is asked.
    fn multiply(
        &mut self,
        code: &dyn Arithmetic,
        alive: &BTreeSet<Slot>,
        orders: &mut Vec<(Slot, Order)>,
    ) -> Result<Option<Paused>, Error> {
        let is_short = self.wanted().any(|sub_block| !alive.contains(&sub_block.slot));
        let paused = match is_short {
            false => None,
            true => match code.repair(&mut self.gathering, alive)? {
                Standing::Paused(paused) => Some(paused),
                Standing::Ready(instead) => {
                    let rows = |s: &SubBlock| self.gathering.places(s.group).len() as u64;
                    self.rows.extra += instead.iter().map(rows).sum::<u64>();
                    None
                }
            },
        };
        for sub_block in self.wanted().collect::<Vec<_>>() {
            let SubBlock { group, slot } = sub_block;
            let Some(to) = self.decoding[group].decoder else { continue };
            if !alive.contains(&slot) || self.asked.get(&sub_block) == Some(&to) {
                continue;
            }
            self.asked.insert(sub_block, to);
            let places = self.gathering.places(group);
            if self.asked_once.insert(sub_block) {
                self.rows.asked += places.len() as u64;
            }
            orders.push((slot, Order::Multiply { group, places, to }));
        }
        Ok(paused)
    }

    /// Decoders hear whose products to wait for, and again when that has changed.
    fn decode(&mut self, alive: &BTreeSet<Slot>, orders: &mut Vec<(Slot, Order)>) {
        for group in 0..self.decoding.len() {
            let decoding = &mut self.decoding[group];
            let (Some(decoder), false) = (decoding.decoder, decoding.stage == Stage::Done) else {
                continue;
            };
            let inputs = self.gathering.members(group).to_vec();
            if decoding.attempts.values().next_back().is_some_and(|last| last.inputs == inputs) {
                continue;
            }
            self.numbers += 1;
            let attempt = self.numbers;
            let outputs: Vec<(Slot, u64)> = match decoding.stage {
                // Its debts are known, and told one by one.
                Stage::Again | Stage::Done => Vec::new(),
                Stage::Open => {
                    let first = self.numbers;
                    self.numbers += inputs.len() as u64;
                    inputs.iter().copied().zip(first + 1..).collect()
                }
            };
            let coefficient = self.one;
            let share = |(slot, debt)| Share { of: slot, coefficient, to: slot, debt };
            // A lost member has left its product; its entries will be others' debts.
            let (there, lost): (Vec<_>, Vec<_>) =
                outputs.iter().copied().partition(|(slot, _)| alive.contains(slot));
            let lost = lost.into_iter().map(|(slot, _)| slot).collect();
            let shares = there.into_iter().map(share).collect();
            let names = match decoding.stage {
                Stage::Open => inputs.clone(),
                Stage::Again | Stage::Done => decoding.outputs.clone(),
            };
            let order = Attempt { inputs: inputs.clone(), outputs, lost };
            decoding.attempts.insert(attempt, order);
            let places = self.gathering.places(group);
            let order = Order::Decode { group, places, attempt, inputs, outputs: names, shares };
            orders.push((decoder, order));
        }
    }

    /// Product 2: what lost machines owe goes to others, in shares of the same rows.
    fn hand_on(
        &mut self,
        code: &dyn Arithmetic,
        alive: &BTreeSet<Slot>,
    ) -> Result<Option<Paused>, Error> {
        let is_lost = |debt: &Debt| !alive.contains(&debt.share.to);
        if !self.debts.iter().any(is_lost) {
            return Ok(None);
        }
        let mut paused = None;
        for debt in std::mem::take(&mut self.debts) {
            if !is_lost(&debt) {
                self.debts.push(debt);
                continue;
            }
            let Share { of, coefficient, to, .. } = debt.share;
            match code.make_up(to, coefficient, alive)? {
                Standing::Paused(short) => {
                    paused = Some(short);
                    self.debts.push(debt);
                }
                Standing::Ready(shares) => {
                    let rows = self.gathering.places(debt.group).len();
                    self.rows.extra += (shares.len() * rows) as u64;
                    for (to, coefficient) in shares {
                        let share = Share { of, coefficient, to, debt: 0 };
                        self.owe(code, debt.group, share)?;
                    }
                }
            }
        }
        Ok(paused)
    }

    /// Notes a debt; one of the same entries that no member was told of takes it in.
    fn owe(&mut self, code: &dyn Arithmetic, group: usize, share: Share) -> Result<(), Error> {
        let alike = |debt: &&mut Debt| {
            (debt.group, debt.share.of, debt.share.to) == (group, share.of, share.to)
                && (debt.told, debt.ticket) == (None, None)
        };
        if let Some(debt) = self.debts.iter_mut().find(alike) {
            // The number stood for the old coefficient.
            self.numbers += 1;
            debt.share.debt = self.numbers;
            debt.share.coefficient = code.plus(debt.share.coefficient, share.coefficient)?;
            return Ok(());
        }
        self.numbers += 1;
        let share = Share { debt: self.numbers, ..share };
        self.debts.push(Debt { share, group, told: None, ticket: None, is_counted: false });
        Ok(())
    }

    /// Decoders hear of debts that they were not told of.
    fn share(&mut self, alive: &BTreeSet<Slot>, orders: &mut Vec<(Slot, Order)>) {
        let mut shares: BTreeMap<(Slot, usize), Vec<Share>> = BTreeMap::new();
        for debt in self.debts.iter_mut().filter(|debt| alive.contains(&debt.share.to)) {
            if !std::mem::replace(&mut debt.is_counted, true) {
                self.rows.asked += self.gathering.places(debt.group).len() as u64;
            }
            let Some(decoder) = self.decoding[debt.group].decoder else { continue };
            if debt.told.replace(decoder) != Some(decoder) {
                shares.entry((decoder, debt.group)).or_default().push(debt.share);
            }
        }
        for ((decoder, group), shares) in shares {
            orders.push((decoder, Order::Share { group, shares }));
        }
    }

    /// A sum is asked for when nothing more is expected for it.
    fn deliver(&mut self, alive: &BTreeSet<Slot>, orders: &mut Vec<(Slot, Order)>) {
        for slot in alive.iter().copied() {
            let is_due = |debt: &Debt| debt.share.to == slot && debt.ticket.is_none();
            if !self.debts.iter().any(is_due) || self.expects(slot) {
                continue;
            }
            self.numbers += 1;
            let ticket = self.numbers;
            let mut debts = Vec::new();
            for debt in self.debts.iter_mut().filter(|debt| is_due(debt)) {
                debt.ticket = Some(ticket);
                debts.push(debt.share.debt);
            }
            self.closed.insert((slot, ticket));
            orders.push((slot, Order::Deliver { ticket, debts }));
        }
    }

    /// Whether entries of a group that was not decoded yet will come for a slot.
    fn expects(&self, slot: Slot) -> bool {
        let open = self.decoding.iter().enumerate().filter(|(_, d)| d.stage == Stage::Open);
        open.into_iter().any(|(group, _)| self.gathering.members(group).contains(&slot))
    }
}

#[cfg(test)]
mod tests;
