//! A whole coded run without sockets: workers leave, come back and are replaced at random moments,
//! and the weights are those of one machine, bit by bit.

use super::*;
use crate::coded::keeping::Snapshot;
use planaria_learn::linear::{Model, Plain, Stepping, Weights};
use planaria_numerics::coding::blocks::{Blocks, Encoder, Rows};
use planaria_numerics::coding::exact::{DataScale, Residue};
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::coding::group::Decoder;
use planaria_numerics::coding::{Precision, product};
use planaria_numerics::random::{Purpose, Stream};
use planaria_protocol::launch::Facts;
use planaria_protocol::message::Join;
use planaria_protocol::methods::coded::{
    Coefficient, Effort, Report, Share, Tallied, ToPeer, Travel,
};
use planaria_recipe::Recipe;
use planaria_recipe::shape::Shape;
use planaria_recipe::train::CodedPrecision;

const ROWS: usize = 37;
const FEATURES: usize = 4;

fn recipe(threshold: usize, machines: usize, batch: usize) -> Recipe {
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

fn facts() -> Facts {
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
struct Lab {
    recipe: Recipe,
    model: Model,
    generator: Generator<Residue>,
    blocks: Blocks,
    stored: Vec<Vec<Residue>>,
    features: Vec<f32>,
    targets: Vec<f64>,
}

impl Lab {
    fn new(threshold: usize, machines: usize, batch: usize) -> Self {
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
    fn reference(&self) -> Weights {
        let stepping = Stepping::of(&self.recipe);
        let mut weights = Weights::start(&self.model, &stepping);
        let batches = Batches::of(&self.recipe.train, ROWS).unwrap();
        let mut plain = Plain::new(&self.model, CodedPrecision::Exact, DataScale(1), true);
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

    fn rows(&self, slot: Slot, places: &std::ops::Range<u64>) -> &[Residue] {
        let width = self.model.width();
        &self.stored[slot.index()][places.start as usize * width..places.end as usize * width]
    }

    /// Decodes the products of `inputs`, and makes the entries of `outputs`.
    fn decode(
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
            tallied.loss_sum += outcome.loss_sum;
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

/// What comes to a process: an order, or a letter of another.
enum Note {
    Order(Command, Vec<u8>),
    Letter(ToPeer, Vec<u8>),
}

/// What a process does about it: tells the coordinator, or writes to another.
enum Reply {
    Tell(Report, Vec<u8>),
    Ready,
    Post(String, ToPeer, Vec<u8>),
}

/// Places, whose entries there are, and these.
type Entries = (std::ops::Range<u64>, Vec<u16>, Vec<Residue>);

/// A worker's process. Others reach it by its number.
#[derive(Default)]
struct Process {
    pid: u32,
    /// How many times slower than others it says to be.
    slowness: f64,
    slot: Option<Slot>,
    notes: VecDeque<Note>,
    round: u64,
    weights: Vec<Residue>,
    products: BTreeMap<u32, Vec<Residue>>,
    arrived: BTreeMap<(u32, u16), Vec<Residue>>,
    decodes: BTreeMap<u32, Command>,
    entries: BTreeMap<u32, Entries>,
    shares: BTreeMap<u32, Vec<Share>>,
    paid: BTreeMap<u64, Vec<Residue>>,
    delivers: Vec<(u64, Vec<u64>)>,
    /// Letters of a round that has not begun here.
    early: Vec<(ToPeer, Vec<u8>)>,
}

impl Process {
    /// Takes one thing in, and does what can be done.
    fn work(&mut self, lab: &Lab) -> Vec<Reply> {
        let mut replies = Vec::new();
        match self.notes.pop_front() {
            Some(Note::Order(order, bulk)) => self.obey(order, &bulk, lab, &mut replies),
            Some(Note::Letter(letter, bulk)) if letter.round() > self.round => {
                self.early.push((letter, bulk));
            }
            Some(Note::Letter(letter, bulk)) if letter.round() == self.round => {
                self.take(letter, &bulk, lab, &mut replies);
            }
            _ => {}
        }
        if self.slot.is_some() {
            self.go_on(lab, &mut replies);
        }
        replies
    }

    fn obey(&mut self, order: Command, bulk: &[u8], lab: &Lab, replies: &mut Vec<Reply>) {
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
                for (letter, bulk) in early {
                    match letter.round() {
                        of if of == round => self.take(letter, &bulk, lab, replies),
                        of if of > round => self.early.push((letter, bulk)),
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
                let letter = ToPeer::Product { round, group, slot: self.slot.unwrap().0 };
                let bulk = Residue::bytes(&self.products[&group]);
                replies.push(Reply::Post(to.address, letter, bulk));
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

    fn take(&mut self, letter: ToPeer, bulk: &[u8], lab: &Lab, replies: &mut Vec<Reply>) {
        let values = Residue::take(bulk).unwrap();
        match letter {
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

    fn go_on(&mut self, lab: &Lab, replies: &mut Vec<Reply>) {
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
                let letter = ToPeer::Entries { round, debt: share.debt, places: places.clone() };
                replies.push(Reply::Post(share.to.address, letter, Residue::bytes(&values)));
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

/// What has happened in a run.
#[derive(Default)]
struct Story {
    ended: Option<String>,
    saved: Option<Snapshot>,
    kept: Option<(u64, Vec<u8>)>,
    record: Option<Record>,
    events: Vec<What>,
}

struct World {
    lab: Lab,
    coded: Coded<Residue>,
    now: Duration,
    processes: BTreeMap<u32, Process>,
    pids: u32,
    story: Story,
    workers: u32,
    generation: u64,
}

impl World {
    fn new(lab: Lab, workers: u32) -> Self {
        let learner = Learner::new(&lab.recipe, Shape::Vector(FEATURES)).unwrap();
        let start = Start { source: "the seed".into(), ..Start::default() };
        let coded = Self::coded(&lab, workers, 1, learner, start);
        let (now, processes) = (Duration::ZERO, BTreeMap::new());
        Self {
            lab,
            coded,
            now,
            processes,
            pids: 0,
            story: Story::default(),
            workers,
            generation: 1,
        }
    }

    fn coded(
        lab: &Lab,
        workers: u32,
        generation: u64,
        learner: Learner<Residue>,
        start: Start,
    ) -> Coded<Residue> {
        let generator = lab.generator.clone();
        let setting = Setting {
            code: Code { generator, precision: Precision::Exact },
            batches: Batches::of(&lab.recipe.train, ROWS).unwrap(),
            workers,
            held_out: [0, 0],
            build: "lab".into(),
            generation,
        };
        Coded::new(setting, Setup::of(&lab.recipe, &facts()), learner, start, 0.0)
    }

    fn tell(&mut self, input: Input) {
        self.now += Duration::from_millis(1);
        for decision in self.coded.step(self.now, input) {
            match decision.action {
                Action::ToCoded(worker, message, bulk) => {
                    if let Some(process) = self.processes.get_mut(&worker) {
                        process.notes.push_back(Note::Order(message, bulk.to_vec()));
                    }
                }
                Action::Record(What::Ended { outcome, .. }) => self.story.ended = Some(outcome),
                Action::Record(what) => self.story.events.push(what),
                Action::SaveWeights(_, snapshot) => {
                    self.story.saved = Some(*snapshot);
                    self.tell(Input::ManifestWritten(Ok("folder".into())));
                }
                Action::KeepWeights(step, weights) => self.story.kept = Some((step, weights)),
                Action::Keep(record) => self.story.record = Some(*record),
                _ => {}
            }
        }
    }

    fn join(&mut self, worker: u32) {
        self.pids += 1;
        let pid = self.pids;
        self.processes.insert(worker, Process { pid, ..Process::default() });
        self.tell(joined(worker, pid));
        let (slots, address) = (Vec::new(), pid.to_string());
        self.tell(Input::Coded(worker, Report::Offer { slots, address }, Vec::new()));
    }

    fn kill(&mut self, worker: u32) {
        if let Some(process) = self.processes.remove(&worker) {
            let (agent, how) = (Agent::Worker(worker), "killed".to_owned());
            self.tell(Input::Left { agent, pid: process.pid, how, ended: true });
        }
    }

    fn work(&mut self, worker: u32) {
        let Self { processes, lab, .. } = self;
        let replies = processes.get_mut(&worker).map(|process| process.work(lab));
        for reply in replies.unwrap_or_default() {
            match reply {
                Reply::Tell(message, bulk) => self.tell(Input::Coded(worker, message, bulk)),
                Reply::Ready => {
                    let ready = FromWorker::Ready { engine: "lab".into(), threads: 1 };
                    self.tell(Input::Worker(worker, ready));
                }
                Reply::Post(address, letter, bulk) => {
                    let pid: u32 = address.parse().expect("an address of somebody");
                    let reader = self.processes.values_mut().find(|process| process.pid == pid);
                    if let Some(reader) = reader {
                        reader.notes.push_back(Note::Letter(letter, bulk));
                    }
                }
            }
        }
    }

    /// The coordinator is lost; another goes on from what was kept, and everyone joins again.
    fn restart(&mut self) {
        let record = self.story.record.clone().unwrap();
        let (step, weights) = self.story.kept.clone().unwrap();
        assert_eq!(step, record.state.step, "the weights are those of the record");
        let mut learner = Learner::new(&self.lab.recipe, Shape::Vector(FEATURES)).unwrap();
        assert!(learner.restore_bytes(&weights));
        let start = Start {
            state: record.state.clone(),
            record: Some(record),
            source: "kept".into(),
            superseded: 0,
            after: Some("the coordinator was lost".into()),
        };
        self.generation += 1;
        self.coded = Self::coded(&self.lab, self.workers, self.generation, learner, start);
        let workers: Vec<u32> = self.processes.keys().copied().collect();
        workers.into_iter().for_each(|worker| self.join(worker));
    }

    fn finish(mut self, seed: u64) {
        assert_eq!(self.story.ended.as_deref(), Some("completed"), "seed {seed}");
        let expected = self.lab.reference();
        let saved = self.story.saved.take().expect("the last epoch is saved");
        assert_eq!(saved.state, expected.state(), "seed {seed}: other weights");
        let mut at = 0;
        for what in &self.story.events {
            if let What::Committed { first_step, end_step, .. } = what {
                assert_eq!(*first_step, at, "seed {seed}: steps are told once, in order");
                at = *end_step;
            }
            if let What::Epoch { exact, .. } = what {
                assert!(exact, "seed {seed}: every example is read once");
            }
        }
        assert_eq!(at, self.coded.state().step, "seed {seed}");
    }
}

fn joined(worker: u32, pid: u32) -> Input {
    Input::Joined(Join {
        agent: Agent::Worker(worker),
        build: "lab".into(),
        pid,
        machine: None,
        address: None,
        kept: None,
        errand: Default::default(),
    })
}

/// A run under churn: `restarts` says whether coordinators are lost too.
fn run(seed: u64, restarts: bool) {
    let mut draws = Stream::new(seed, Purpose::Code, 3, 3);
    let machines = 2 + draws.below(5) as usize;
    let threshold = 1 + draws.below(machines as u64 - 1) as usize;
    let batch = [ROWS, 12, 7][draws.below(3) as usize].max(threshold);
    let workers = threshold as u32 + draws.below((machines - threshold + 1) as u64) as u32;
    let mut world = World::new(Lab::new(threshold, machines, batch), workers);
    (0..workers).for_each(|worker| world.join(worker));
    let mut troubles = 0;
    for _ in 0..200_000 {
        if world.story.ended.is_some() {
            return world.finish(seed);
        }
        let worker = draws.below(u64::from(workers)) as u32;
        match draws.below(40) {
            0 if troubles < 30 => {
                troubles += 1;
                world.kill(worker);
            }
            1 if restarts && troubles < 30 && world.story.record.is_some() => {
                troubles += 1;
                world.restart();
            }
            2 => world.tell(Input::Tick),
            _ if !world.processes.contains_key(&worker) => {
                if draws.below(4) == 0 {
                    world.join(worker);
                }
            }
            _ => world.work(worker),
        }
        if draws.below(8) == 0 {
            world.tell(Input::Tick);
        }
    }
    panic!("seed {seed}: not over at step {}", world.coded.state().step);
}

#[test]
fn workers_come_and_go_and_the_weights_are_those_of_one_machine() {
    (0..60).for_each(|seed| run(seed, false));
}

#[test]
fn coordinators_are_lost_too() {
    (0..40).for_each(|seed| run(1000 + seed, true));
}

#[test]
fn with_too_few_it_says_so_and_goes_on_by_itself() {
    let mut world = World::new(Lab::new(3, 4, ROWS), 3);
    (0..3).for_each(|worker| world.join(worker));
    for round in 0..40 {
        world.tell(Input::Tick);
        world.work(round % 3);
    }
    assert!(world.coded.state().step > 0 || world.coded.work.is_some());
    world.kill(1);
    world.tell(Input::Tick);
    let step = world.coded.state().step;
    assert_eq!(world.coded.pulse(world.now).phase, "paused, have 2, need 3");
    assert!(world.story.events.contains(&What::Paused { workers: 2, min: 3 }));
    for round in 0..60 {
        world.work([0, 2][round % 2]);
        world.tell(Input::Tick);
    }
    assert_eq!(world.coded.state().step, step, "nothing is updated");
    world.join(1);
    for round in 0..2000 {
        world.work(round % 3);
        world.tell(Input::Tick);
    }
    assert!(world.story.events.contains(&What::Unpaused { workers: 3 }));
    world.finish(0);
}

#[test]
fn whoever_returns_with_its_block_takes_the_same_slot() {
    let mut world = World::new(Lab::new(2, 4, ROWS), 4);
    (0..4).for_each(|worker| world.join(worker));
    world.kill(0);
    world.kill(3);
    world.pids += 1;
    let pid = world.pids;
    world.processes.insert(0, Process { pid, ..Process::default() });
    world.tell(joined(0, pid));
    let (slots, address) = (vec![1, 3], pid.to_string());
    world.tell(Input::Coded(0, Report::Offer { slots, address }, Vec::new()));
    assert_eq!(world.coded.members[&0].slot, Some(Slot(3)), "1 is taken, 3 is free and kept");
}

#[test]
fn who_is_much_slower_is_given_less_and_the_weights_are_the_same() {
    let mut world = World::new(Lab::new(2, 4, ROWS), 4);
    (0..4).for_each(|worker| world.join(worker));
    world.processes.get_mut(&2).unwrap().slowness = 6.0;
    let mut loads = Vec::new();
    for round in 0..4000 {
        world.tell(Input::Tick);
        world.work(round % 4);
        if let (Some(work), Some(slot)) = (&world.coded.work, world.coded.members[&2].slot) {
            let plan = work.iteration.plan();
            let others = plan.ring().iter().filter(|other| **other != slot);
            loads.push((plan.load(slot), others.map(|other| plan.load(*other)).min().unwrap()));
        }
    }
    let (first, last) = (loads[0], loads[loads.len() - 1]);
    assert!(first.0 >= first.1 && last.0 * 3 <= last.1, "{first:?}, then {last:?}");
    world.finish(0);
}
