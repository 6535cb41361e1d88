//! A small data set, and processes of workers that compute with it as real ones do.

use crate::methods::coded::*;
use crate::run::course::{Course, Setup};
use planaria_learn::linear::{Batches, Model, Plain, Stepping, Weights};
use planaria_numerics::coding::blocks::{Blocks, Encoder, Rows};
use planaria_numerics::coding::exact::{DataScale, Residue};
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::coding::group::Decoder;
use planaria_numerics::coding::product;
use planaria_numerics::random::{Purpose, Stream};
use planaria_protocol::launch::Facts;
use planaria_protocol::methods::coded::{
    Coefficient, Effort, Report, Share, Tallied, ToPeer, Travel,
};
use planaria_protocol::state::State;
use planaria_recipe::Recipe;
use planaria_recipe::shape::Shape;
use planaria_recipe::train::LinearPrecision;
use std::collections::VecDeque;

pub const ROWS: usize = 37;
pub const FEATURES: usize = 4;

pub fn recipe(threshold: usize, machines: usize, batch: usize) -> Recipe {
    serde_json::from_value(serde_json::json!({
        "name": "lab", "data": {"train": "none", "validation": null},
        "model": {"layers": [{"Dense": {"units": 1}}]},
        "train": {
            "epochs": 4, "batch": batch, "loss": "squared_hinge", "method": "coded", "l2": 0.01,
            "optimizer": {"sgd": {"learning_rate": 0.05, "momentum": 0.5}},
            "coded": {"threshold": threshold, "machines": machines, "precision": "exact"},
        },
    }))
    .expect("a recipe")
}

pub fn facts() -> Facts {
    Facts {
        input: Shape::Vector(FEATURES),
        classes: 2,
        examples: ROWS as u64,
        digest: (0..ROWS as u64).collect(),
        validation: 0,
        test: 0,
        parameters: FEATURES as u64 + 1,
        marks: Vec::new(),
        coding: None,
    }
}

/// The data, and what every machine can compute of it.
pub struct Lab {
    pub recipe: Recipe,
    pub model: Model,
    pub generator: Generator<Residue>,
    pub blocks: Blocks,
    pub stored: Vec<Vec<Residue>>,
    pub features: Vec<f32>,
    pub targets: Vec<f64>,
}

impl Lab {
    pub fn new(threshold: usize, machines: usize, batch: usize) -> Self {
        let recipe = recipe(threshold, machines, batch);
        let model = Model::of(&recipe, Shape::Vector(FEATURES), &[]).unwrap();
        let mut draws = Stream::new(5, Purpose::Code, 0, 0);
        let features: Vec<f32> =
            (0..ROWS * FEATURES).map(|_| draws.below(7) as f32 - 3.0).collect();
        let targets = (0..ROWS).map(|_| if draws.below(2) == 0 { 1.0 } else { -1.0 }).collect();
        let generator = Generator::cauchy(threshold, machines).unwrap();
        let blocks = Blocks::new(ROWS, threshold).unwrap();
        let wide = planaria_learn::linear::plain::with_ones(FEATURES, model.width(), &features);
        let wide: Vec<f64> = wide.iter().map(|v| f64::from(*v)).collect();
        let fixed = DataScale(1).to_fixed(model.width(), &wide).unwrap();
        let stored = generator.slots().map(|slot| {
            let places = 0..blocks.height();
            let mut encoder =
                Encoder::new(&generator, slot, blocks, model.width(), places).unwrap();
            encoder.push(0, &Rows::Dense { width: model.width(), values: &fixed }).unwrap();
            encoder.finish().unwrap()
        });
        let stored = stored.collect();
        Self { recipe, model, generator, blocks, stored, features, targets }
    }

    /// One machine, plain rows.
    pub fn reference(&self) -> Weights {
        let stepping = Stepping::of(&self.recipe);
        let mut weights = Weights::start(&self.model, &stepping);
        let batches = Batches::of(&self.recipe.train, ROWS).unwrap();
        let mut plain = Plain::new(&self.model, LinearPrecision::Exact, DataScale(1), true);
        plain.push(&self.features, &self.targets).unwrap();
        let setup = Setup::of(&self.recipe, &facts());
        let course = Course::new(setup.clone(), State::default());
        for step in 0..setup.steps() {
            let batch = (step % setup.steps_per_epoch) as usize;
            let summed =
                plain.sum(&self.model, &weights.values, &batches, batch, &mut |_| None).unwrap();
            let rate = course.learning_rate(step);
            let rows = summed.outcome.rows;
            weights.step(&self.model, &stepping, step, rate, rows, &summed.sums).unwrap();
        }
        weights
    }

    pub fn rows(&self, slot: Slot, places: &std::ops::Range<u64>) -> &[Residue] {
        let width = self.model.width();
        &self.stored[slot.index()][places.start as usize * width..places.end as usize * width]
    }

    /// Decodes the products of `inputs`, and makes the entries of `outputs`.
    pub fn decode(
        &self,
        places: &std::ops::Range<u64>,
        inputs: &[u16],
        outputs: &[u16],
        products: &[&[Residue]],
    ) -> (Vec<Residue>, Tallied) {
        let decoder = |members: &[u16]| {
            let members: Vec<Slot> = members.iter().map(|slot| Slot(*slot)).collect();
            Decoder::new(&self.generator, &members).unwrap()
        };
        let places = places.start as usize..places.end as usize;
        let mut blocks = vec![Residue::default(); products.len() * places.len()];
        decoder(inputs).decode(products, &mut blocks);
        let mut tallied = Tallied::default();
        for (block, values) in blocks.chunks_exact_mut(places.len()).enumerate() {
            let rows = self.blocks.data_rows(block, &places);
            let mut wide = vec![0.0; rows.len()];
            <Residue as planaria_learn::linear::number::Number>::products(
                DataScale(1),
                &values[..rows.len()],
                &mut wide,
            );
            let outcome = self.model.judge(&mut wide, &self.targets[rows.clone()]);
            tallied.loss_sum.combine(&outcome.loss_sum);
            tallied.read.extend(rows.clone().map(|row| row as u64));
            let slopes = planaria_numerics::coding::exact::slopes_to_fixed(1, &wide).unwrap();
            values.fill(Residue::default());
            values[..rows.len()].copy_from_slice(&slopes);
        }
        let mut entries = vec![Residue::default(); blocks.len()];
        decoder(outputs).transform(&blocks, &mut entries);
        (entries, tallied)
    }
}

/// What comes to a process: an order, or a message of another.
pub enum Note {
    Order(Command, Vec<u8>),
    FromPeer(ToPeer, Vec<u8>),
}

/// What a process does about it: tells the coordinator, or writes to another.
pub enum Reply {
    Tell(Report, Vec<u8>),
    Ready,
    Send(String, ToPeer, Vec<u8>),
}

/// Places, whose entries there are, and these.
pub type Entries = (std::ops::Range<u64>, Vec<u16>, Vec<Residue>);

/// A worker's process. Others reach it by its number.
#[derive(Default)]
pub struct Process {
    pub pid: u32,
    /// How many times slower than others it says to be.
    pub slowness: f64,
    pub slot: Option<Slot>,
    pub notes: VecDeque<Note>,
    pub round: u64,
    pub weights: Vec<Residue>,
    pub products: BTreeMap<u32, Vec<Residue>>,
    pub arrived: BTreeMap<(u32, u16), Vec<Residue>>,
    pub decodes: BTreeMap<u32, Command>,
    pub entries: BTreeMap<u32, Entries>,
    pub shares: BTreeMap<u32, Vec<Share>>,
    pub paid: BTreeMap<u64, Vec<Residue>>,
    pub delivers: Vec<(u64, Vec<u64>)>,
    /// Messages of a round that has not begun here.
    pub early: Vec<(ToPeer, Vec<u8>)>,
}

impl Process {
    /// Takes one thing in, and does what can be done.
    pub fn work(&mut self, lab: &Lab) -> Vec<Reply> {
        let mut replies = Vec::new();
        match self.notes.pop_front() {
            Some(Note::Order(order, bulk)) => self.obey(order, &bulk, lab, &mut replies),
            Some(Note::FromPeer(message, bulk)) if message.round() > self.round => {
                self.early.push((message, bulk));
            }
            Some(Note::FromPeer(message, bulk)) if message.round() == self.round => {
                self.take(message, &bulk, lab, &mut replies);
            }
            _ => {}
        }
        if self.slot.is_some() {
            self.go_on(lab, &mut replies);
        }
        replies
    }

    pub fn obey(&mut self, order: Command, bulk: &[u8], lab: &Lab, replies: &mut Vec<Reply>) {
        match order {
            Command::Seat { slot } => {
                self.slot = Some(Slot(slot));
                let rows = Report::Rows { slot, cached: false, downloaded: 8 };
                replies.push(Reply::Tell(rows, Vec::new()));
                replies.push(Reply::Ready);
            }
            Command::Weights { round } => {
                let early = std::mem::take(&mut self.early);
                let notes = std::mem::take(&mut self.notes);
                let (pid, slot, weights) = (self.pid, self.slot, Residue::take(bulk).unwrap());
                let slowness = self.slowness;
                *self = Self { pid, slowness, slot, notes, round, weights, ..Self::default() };
                for (message, bulk) in early {
                    match message.round() {
                        of if of == round => self.take(message, &bulk, lab, replies),
                        of if of > round => self.early.push((message, bulk)),
                        _ => {}
                    }
                }
            }
            Command::Multiply { round, group, places, to } if round == self.round => {
                if !self.products.contains_key(&group) {
                    let mut out = vec![Residue::default(); (places.end - places.start) as usize];
                    let rows = lab.rows(self.slot.unwrap(), &places);
                    product::rows_times(lab.model.width(), rows, &self.weights, &mut out);
                    self.products.insert(group, out);
                }
                replies.push(Reply::Tell(Report::Multiplied { round, group }, Vec::new()));
                let message = ToPeer::Product { round, group, slot: self.slot.unwrap().0 };
                let bulk = Residue::bytes(&self.products[&group]);
                replies.push(Reply::Send(to.address, message, bulk));
            }
            Command::Decode { round, group, .. }
                if round == self.round && !self.entries.contains_key(&group) =>
            {
                self.decodes.insert(group, order);
            }
            Command::Share { round, group, shares } if round == self.round => {
                self.shares.entry(group).or_default().extend(shares);
            }
            Command::Deliver { round, ticket, debts } if round == self.round => {
                self.delivers.push((ticket, debts));
            }
            _ => {}
        }
    }

    pub fn take(&mut self, message: ToPeer, bulk: &[u8], lab: &Lab, replies: &mut Vec<Reply>) {
        let values = Residue::take(bulk).unwrap();
        match message {
            ToPeer::Product { round, group, slot } => {
                self.arrived.insert((group, slot), values);
                let arrived = Report::Arrived { round, group, slot };
                replies.push(Reply::Tell(arrived, Vec::new()));
            }
            ToPeer::Entries { debt, places, .. } => {
                let mut sums = vec![Residue::default(); lab.model.width()];
                let rows = lab.rows(self.slot.unwrap(), &places);
                product::add_rows_scaled(lab.model.width(), rows, &values, &mut sums);
                self.paid.insert(debt, sums);
            }
        }
    }

    pub fn go_on(&mut self, lab: &Lab, replies: &mut Vec<Reply>) {
        let round = self.round;
        for (group, order) in std::mem::take(&mut self.decodes) {
            let Command::Decode { places, attempt, inputs, outputs, shares, .. } = &order else {
                continue;
            };
            let products: Vec<&[Residue]> = inputs
                .iter()
                .filter_map(|input| self.arrived.get(&(group, *input)).map(Vec::as_slice))
                .collect();
            if products.len() < inputs.len() {
                self.decodes.insert(group, order);
                continue;
            }
            let (entries, counted) = lab.decode(places, inputs, outputs, &products);
            self.entries.insert(group, (places.clone(), outputs.clone(), entries));
            self.shares.entry(group).or_default().extend(shares.iter().cloned());
            let (attempt, done) = (*attempt, Effort::default());
            let told = Report::Decoded { round, group, attempt, counted, done };
            replies.push(Reply::Tell(told, Vec::new()));
        }
        for (group, (places, outputs, entries)) in &self.entries {
            for share in self.shares.remove(group).unwrap_or_default() {
                let at = outputs.iter().position(|output| *output == share.of).unwrap();
                let length = (places.end - places.start) as usize;
                let mut values = entries[at * length..][..length].to_vec();
                let coefficient = Residue::from_wire(share.coefficient).unwrap();
                product::scale_entries(coefficient, &mut values);
                let message = ToPeer::Entries { round, debt: share.debt, places: places.clone() };
                replies.push(Reply::Send(share.to.address, message, Residue::bytes(&values)));
            }
        }
        for (ticket, debts) in std::mem::take(&mut self.delivers) {
            if !debts.iter().all(|debt| self.paid.contains_key(debt)) {
                self.delivers.push((ticket, debts));
                continue;
            }
            let parts: Vec<&[Residue]> = debts.iter().map(|d| self.paid[d].as_slice()).collect();
            let mut sums = vec![Residue::default(); lab.model.width()];
            product::total(&parts, &mut sums);
            let busy_seconds = 0.02 * self.slowness.max(1.0);
            let done = Effort { rows: 1, busy_seconds, ..Effort::default() };
            let sum = Report::Sum { round, ticket, done };
            replies.push(Reply::Tell(sum, Residue::bytes(&sums)));
        }
    }
}
