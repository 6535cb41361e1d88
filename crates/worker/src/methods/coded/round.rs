//! One round as a worker sees it: commands and peers' messages in, reports and messages out. Pure.
//!
//! Owns what this process has computed and was sent in the round, and what waits for more to come:
//! a group for its products, shares for their group, a sum for its entries. Everything has a name
//! that says what it is, so what comes twice changes nothing, and what comes before its order waits.
//! Never sends or waits itself.

use super::Value;
use planaria_numerics::coding::scalar::{Element, Scalar};
use planaria_numerics::coding::{Slot, product};
use planaria_protocol::message::Trouble;
use planaria_protocol::methods::coded::{
    Coefficient, Command, Effort, Peer, Report, Share, Tallied, ToPeer,
};
use planaria_protocol::planted::{self, Planted};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// Messages that may wait for their round to begin.
const EARLY_MAX: usize = 1 << 12;

/// What is computed with the rows of this worker's slot, and with the labels.
pub trait Arithmetic<E: Element> {
    /// Product 1 of some rows.
    fn multiply(&self, places: &Range<usize>, weights: &[E]) -> Result<Vec<E>, Trouble>;
    /// Decodes the products of `inputs`, applies the slopes, and makes the entries of `outputs`.
    fn decode(
        &mut self,
        places: &Range<usize>,
        inputs: &[Slot],
        outputs: &[Slot],
        products: &[&[E]],
    ) -> Result<(Vec<E>, Tallied), Trouble>;
    /// Product 2: some rows times their entries, added up.
    fn add(&self, places: &Range<usize>, entries: &[E]) -> Result<Vec<E>, Trouble>;
    /// How long what took, since this was last asked.
    fn times(&mut self) -> Times {
        Times::default()
    }
}

/// How long what took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// All but waiting.
    pub busy: Duration,
    /// Of that, decoding and transforming.
    pub decoding: Duration,
    pub waiting: Duration,
}

/// What is to be sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// To the coordinator.
    Tell(Report, Vec<u8>),
    /// To another worker, at this address.
    Send(String, ToPeer, Vec<u8>),
}

/// A round under way.
#[derive(Debug)]
pub struct Round<E: Value> {
    number: Option<u64>,
    own: Slot,
    weights: Vec<E>,
    products: BTreeMap<u32, Vec<E>>,
    /// Products of groups that this worker decodes.
    arrived: BTreeMap<(u32, Slot), Vec<E>>,
    decodes: BTreeMap<u32, Decode>,
    entries: BTreeMap<u32, Entries<E>>,
    /// Shares of groups that are not decoded yet.
    shares: BTreeMap<u32, Vec<Share>>,
    /// For each debt that was paid, what it adds to the gradient.
    paid: BTreeMap<u64, Vec<E>>,
    delivers: Vec<(u64, Vec<u64>)>,
    /// Messages of a round that has not begun here.
    early: Vec<(ToPeer, Vec<u8>)>,
    /// What was done and not told.
    done: Effort,
}

#[derive(Debug)]
struct Decode {
    places: Range<usize>,
    attempt: u64,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    shares: Vec<Share>,
}

/// The entries of a group, output by output.
#[derive(Debug)]
struct Entries<E> {
    places: Range<usize>,
    outputs: Vec<Slot>,
    values: Vec<E>,
}

impl<E: Value> Default for Round<E> {
    /// No round has begun.
    fn default() -> Self {
        Self {
            number: None,
            own: Slot(0),
            weights: Vec::new(),
            products: BTreeMap::new(),
            arrived: BTreeMap::new(),
            decodes: BTreeMap::new(),
            entries: BTreeMap::new(),
            shares: BTreeMap::new(),
            paid: BTreeMap::new(),
            delivers: Vec::new(),
            early: Vec::new(),
            done: Effort::default(),
        }
    }
}

impl<E: Value> Round<E> {
    /// Gives up what is under way.
    pub fn give_up(&mut self) {
        let (done, early) = (self.done, std::mem::take(&mut self.early));
        *self = Self { done, early, ..Self::default() };
    }

    /// Counts the times of what was done.
    pub fn spend(&mut self, times: Times) {
        self.done.busy_seconds += times.busy.as_secs_f64();
        self.done.decode_seconds += times.decoding.as_secs_f64();
        self.done.waiting_seconds += times.waiting.as_secs_f64();
    }

    /// Begins a round, in this slot.
    pub fn begin(
        &mut self,
        number: u64,
        own: Slot,
        weights: Vec<E>,
        rows: &mut impl Arithmetic<E>,
    ) -> Result<Vec<Answer>, Trouble> {
        let (done, early) = (self.done, std::mem::take(&mut self.early));
        *self = Self { number: Some(number), own, weights, done, ..Self::default() };
        let mut answers = Vec::new();
        for (message, bulk) in early {
            answers.extend(self.receive(message, bulk, rows)?);
        }
        Ok(answers)
    }

    /// Does what is asked for, as far as it can be done.
    pub fn order(
        &mut self,
        order: Command,
        rows: &mut impl Arithmetic<E>,
    ) -> Result<Vec<Answer>, Trouble> {
        let mut answers = Vec::new();
        let own = self.number;
        match order {
            Command::Multiply { round, group, places, to } if own == Some(round) => {
                let places = narrow(&places)?;
                if !self.products.contains_key(&group) {
                    self.done.rows += places.len() as u64;
                    let product = rows.multiply(&places, &self.weights)?;
                    self.products.insert(group, product);
                }
                answers.push(Answer::Tell(Report::Multiplied { round, group }, Vec::new()));
                self.send_product(round, group, to, &mut answers);
            }
            Command::Decode { round, group, places, attempt, inputs, outputs, shares }
                if own == Some(round) && !self.entries.contains_key(&group) =>
            {
                let slots = |names: Vec<u16>| names.into_iter().map(Slot).collect();
                let (inputs, outputs) = (slots(inputs), slots(outputs));
                let decode = Decode { places: narrow(&places)?, attempt, inputs, outputs, shares };
                self.decodes.insert(group, decode);
            }
            Command::Share { round, group, shares } if own == Some(round) => {
                self.shares.entry(group).or_default().extend(shares);
            }
            Command::Deliver { round, ticket, debts } if own == Some(round) => {
                self.delivers.push((ticket, debts));
            }
            _ => return Ok(answers),
        }
        self.go_on(rows, &mut answers)?;
        Ok(answers)
    }

    /// Takes in what another worker has sent.
    pub fn receive(
        &mut self,
        message: ToPeer,
        bulk: Vec<u8>,
        rows: &mut impl Arithmetic<E>,
    ) -> Result<Vec<Answer>, Trouble> {
        let mut answers = Vec::new();
        let is_old = self.number.is_some_and(|own| message.round() < own);
        let is_taken = is_old && planted::is(Planted::MessageOfOldRound);
        if self.number != Some(message.round()) && !is_taken {
            self.wait_for_round(message, bulk);
            return Ok(answers);
        }
        // A message that cannot be read is dropped: its sender is found faulty elsewhere.
        let Some(values) = E::take(&bulk) else { return Ok(answers) };
        match message {
            ToPeer::Product { round, group, slot } => {
                let round = if is_taken { self.number.unwrap_or(round) } else { round };
                self.arrive(round, group, Slot(slot), values, &mut answers);
            }
            ToPeer::Entries { debt, places, .. } => {
                self.pay(debt, &narrow(&places)?, &values, rows)?;
            }
        }
        self.go_on(rows, &mut answers)?;
        Ok(answers)
    }

    /// Keeps a message of a round that is still to begin; the newest alone.
    fn wait_for_round(&mut self, message: ToPeer, bulk: Vec<u8>) {
        let round = message.round();
        let newest = self.early.iter().map(|(message, _)| message.round()).max().unwrap_or(0);
        if self.number.is_some_and(|own| round < own) || round < newest {
            return;
        }
        if round > newest {
            self.early.clear();
        }
        if self.early.len() < EARLY_MAX {
            self.early.push((message, bulk));
        }
    }

    fn send_product(&mut self, round: u64, group: u32, to: Peer, answers: &mut Vec<Answer>) {
        let Some(product) = self.products.get(&group) else { return };
        if Slot(to.slot) == self.own {
            let (own, product) = (self.own, product.clone());
            return self.arrive(round, group, own, product, answers);
        }
        let message = ToPeer::Product { round, group, slot: self.own.0 };
        answers.push(self.done_sending(to.address, message, E::bytes(&self.products[&group])));
    }

    fn done_sending(&mut self, address: String, message: ToPeer, bulk: Vec<u8>) -> Answer {
        self.done.sent_bytes += bulk.len() as u64;
        Answer::Send(address, message, bulk)
    }

    fn arrive(
        &mut self,
        round: u64,
        group: u32,
        slot: Slot,
        values: Vec<E>,
        answers: &mut Vec<Answer>,
    ) {
        self.arrived.insert((group, slot), values);
        let arrived = Report::Arrived { round, group, slot: slot.0 };
        answers.push(Answer::Tell(arrived, Vec::new()));
    }

    fn pay(
        &mut self,
        debt: u64,
        places: &Range<usize>,
        entries: &[E],
        rows: &impl Arithmetic<E>,
    ) -> Result<(), Trouble> {
        if !self.paid.contains_key(&debt) {
            self.done.rows += places.len() as u64;
            self.paid.insert(debt, rows.add(places, entries)?);
        }
        Ok(())
    }

    /// Does what could not be done before.
    fn go_on(
        &mut self,
        rows: &mut impl Arithmetic<E>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Trouble> {
        let Some(round) = self.number else { return Ok(()) };
        let is_ready = |(group, decode): &(&u32, &Decode)| {
            decode.inputs.iter().all(|input| self.arrived.contains_key(&(**group, *input)))
        };
        let ready: Vec<u32> =
            self.decodes.iter().filter(is_ready).map(|(group, _)| *group).collect();
        for group in ready {
            self.decode(round, group, rows, answers)?;
        }
        let groups: BTreeSet<u32> = self.shares.keys().copied().collect();
        for group in groups {
            if self.entries.contains_key(&group) {
                self.share(round, group, rows, answers)?;
            }
        }
        self.deliver(round, answers);
        Ok(())
    }

    fn decode(
        &mut self,
        round: u64,
        group: u32,
        rows: &mut impl Arithmetic<E>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Trouble> {
        let Some(decode) = self.decodes.remove(&group) else { return Ok(()) };
        let Decode { places, attempt, inputs, outputs, shares } = decode;
        let products: Vec<&[E]> = inputs
            .iter()
            .filter_map(|input| self.arrived.get(&(group, *input)))
            .map(Vec::as_slice)
            .collect();
        let (values, counted) = rows.decode(&places, &inputs, &outputs, &products)?;
        self.entries.insert(group, Entries { places, outputs, values });
        self.shares.entry(group).or_default().extend(shares);
        // Entries are sent before it is told that they are.
        self.share(round, group, rows, answers)?;
        let done = std::mem::take(&mut self.done);
        let told = Report::Decoded { round, group, attempt, counted, done };
        answers.push(Answer::Tell(told, Vec::new()));
        Ok(())
    }

    fn share(
        &mut self,
        round: u64,
        group: u32,
        rows: &impl Arithmetic<E>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Trouble> {
        for share in self.shares.remove(&group).unwrap_or_default() {
            let Some(entries) = self.entries.get(&group) else { return Ok(()) };
            let at = entries.outputs.iter().position(|output| output.0 == share.of);
            let coefficient = E::Scalar::from_wire(share.coefficient);
            let (Some(at), Some(coefficient)) = (at, coefficient) else {
                return Err(Trouble::new("the coordinator wants entries that there are not"));
            };
            let length = entries.values.len() / entries.outputs.len().max(1);
            let mut values = entries.values[at * length..][..length].to_vec();
            if coefficient != E::Scalar::ONE {
                product::scale_entries(coefficient, &mut values);
            }
            let (places, debt) = (entries.places.clone(), share.debt);
            if Slot(share.to.slot) == self.own {
                self.pay(debt, &places, &values, rows)?;
                continue;
            }
            let places = places.start as u64..places.end as u64;
            let message = ToPeer::Entries { round, debt, places };
            answers.push(self.done_sending(share.to.address, message, E::bytes(&values)));
        }
        Ok(())
    }

    fn deliver(&mut self, round: u64, answers: &mut Vec<Answer>) {
        let is_paid =
            |(_, debts): &(u64, Vec<u64>)| debts.iter().all(|debt| self.paid.contains_key(debt));
        let (due, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.delivers).into_iter().partition(is_paid);
        self.delivers = waiting;
        for (ticket, debts) in due {
            let parts: Vec<&[E]> = debts.iter().map(|debt| self.paid[debt].as_slice()).collect();
            let mut sum = vec![E::default(); parts.first().map_or(0, |part| part.len())];
            product::total(&parts, &mut sum);
            let done = std::mem::take(&mut self.done);
            let bulk = E::bytes(&sum);
            answers.push(Answer::Tell(Report::Sum { round, ticket, done }, bulk));
        }
    }
}

fn narrow(places: &Range<u64>) -> Result<Range<usize>, Trouble> {
    match (usize::try_from(places.start), usize::try_from(places.end)) {
        (Ok(start), Ok(end)) if start <= end => Ok(start..end),
        _ => Err(Trouble::new(format!("there are no places {places:?}"))),
    }
}
