//! What simulated runs compute: small recipes with the real engine and real data, and what a run in
//! one process makes of them. `coded` is that of coded runs, `truth` what must come out.
//!
//! Owns the truth that every simulated run is compared with, step by step. What was computed once
//! is kept: a shard is the same shard whichever worker computes it, and that the parameters it is computed
//! with are the run's is compared each time.

pub mod coded;
pub mod truth;

use crate::faults::Plan;
use coded::CodedData;
use planaria_coordinator::run::course::{Course, Done, Setup};
use planaria_data::order::batch_range;
use planaria_data::{Batch, Loader};
use planaria_learn::{Engine, Examples, Network, Scores, Settings, Trainer, Weights, engines};
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::optimizer;
use planaria_protocol::bytes::as_bytes;
use planaria_protocol::checkpoint::{FORMAT, Manifest};
use planaria_protocol::hash::sha256;
use planaria_protocol::launch::{Facts, Launch, Size, Station};
use planaria_protocol::message::{EVALUATION_BATCH, HeldOut, Push, ServerRange, Sha256};
use planaria_protocol::state::State;
use planaria_recipe::{DataFacts, Recipe, Source};
use planaria_worker::data::targets;
use planaria_worker::gradient::Task;
use planaria_worker::gradient::compute::{FirstBlocks, Outlet, compute};
use planaria_worker::gradient::evaluate::Evaluator;
use planaria_worker::gradient::read_ahead::{Cut, Portion, fill};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use truth::{At, Broken, PlainRun, Truth, follow};

/// The recipes: what differs between them is what decisions depend on.
const RECIPES: [(u32, &str); 4] = [
    (
        2,
        "{name: a, seed: 3, data: {train: digits, examples: 900, validation: 0.3, test: 0.3},
          model: {layers: [Flatten, {Dense: {units: 16}}, BatchNormalization, {Dense: {units: 10}}]},
          train: {epochs: 2, batch: 60, shards: 6, optimizer: {sgd: {learning_rate: 0.05, momentum: 0.9}}}}",
    ),
    (
        3,
        "{name: b, seed: 4, data: {train: digits, examples: 600, validation: 0.4},
          model: {layers: [Flatten, {Dense: {units: 16, activation: relu}}, BatchNormalization, {Dropout: {rate: 0.2}}, {Dense: {units: 10}}]},
          train: {epochs: 2, batch: 50, shards: 4, clip_norm: 0.5, optimizer: adam},
          output: {checkpoint_steps: 3}}",
    ),
    (
        1,
        "{name: c, seed: 5, data: {train: digits, examples: 150, validation: null},
          model: {layers: [Flatten, {Dense: {units: 16}}, BatchNormalization, {Dense: {units: 10}}]},
          train: {epochs: 3, batch: 30, shards: 3, optimizer: {sgd: {momentum: 0.0}}},
          output: {checkpoint_steps: 2, keep: 1}}",
    ),
    (
        // More servers than blocks: one has nothing to hold.
        5,
        "{name: d, seed: 6, data: {train: digits, examples: 700, validation: null, test: 0.4},
          model: {layers: [Flatten, {Dense: {units: 16}}, BatchNormalization, {Dense: {units: 10}}]},
          train: {epochs: 2, batch: 70, shards: 8, clip_norm: 1.0, optimizer: {sgd: {momentum: 0.9}}},
          output: {checkpoint_steps: 4}}",
    ),
];

/// Threshold and machines of coded runs.
const CODES: [(usize, usize); 2] = [(2, 5), (3, 6)];

/// Something that a worker tells a server, by its place in the order of blocks.
pub type Pushed = (usize, Push, Arc<[f32]>);

/// One recipe, its truth, and what was computed for it so far.
pub struct Bench {
    pub recipe: Recipe,
    /// What is known of its data and network.
    pub facts: Facts,
    /// Servers of every run of it.
    pub servers: u32,
    /// The engine's name.
    pub engine: String,
    /// What must come out.
    pub truth: Truth,
    work: Work,
}

/// What is computed with.
enum Work {
    Network(Box<Net>),
    Coded(Rc<CodedData>),
}

/// A network, its data, and what was computed with them so far.
struct Net {
    runner: Box<dyn Engine>,
    loader: Loader,
    held_out: [Option<Loader>; 2],
    evaluator: Evaluator,
    pushes: BTreeMap<(u64, u32, u32), Arc<Vec<Pushed>>>,
    scored: BTreeMap<(HeldOut, u64, u64), Scores>,
    classes: usize,
}

/// All recipes, made when they are asked for.
#[derive(Default)]
pub struct Lab {
    benches: [Option<Box<Bench>>; RECIPES.len() + CODES.len()],
}

impl Lab {
    /// How many recipes there are.
    pub const RECIPES: usize = RECIPES.len();

    /// How many recipes of coded runs there are, after the others.
    pub const CODED: usize = CODES.len();

    /// Threshold and machines of each.
    pub const CODES: [(usize, usize); CODES.len()] = CODES;

    pub fn bench(&mut self, recipe: usize) -> &mut Bench {
        self.benches[recipe].get_or_insert_with(|| {
            Box::new(match recipe.checked_sub(RECIPES.len()) {
                None => Bench::new(recipe),
                Some(code) => Bench::coded_run(CODES[code]),
            })
        })
    }
}

impl Bench {
    fn new(recipe: usize) -> Self {
        let (servers, text) = RECIPES[recipe];
        let source = Source::parse("sim.yaml", text.as_bytes(), &[]).expect("a recipe of ours");
        let data = &source.recipe().data;
        let set = planaria_data::open(data, source.recipe().seed).expect("digits are drawn");
        let found = DataFacts {
            input: set.train.source().shape(),
            classes: set.facts.classes(),
            examples: set.train.len() as usize,
        };
        let plan = source.plan(&found).expect("a recipe of ours");
        let recipe = plan.recipe.clone();
        let network = Network::of(&recipe, plan.input).expect("a network of ours");
        let held = |part: &Option<planaria_data::Part>| part.as_ref().map_or(0, |p| p.len());
        let facts = Facts {
            input: plan.input,
            classes: 10,
            examples: set.train.len(),
            digest: set.train.digest(),
            validation: held(&set.validation),
            test: held(&set.test),
            parameters: network.parameter_count() as u64,
            marks: vec![("digits".into(), "drawn".into())],
            coding: None,
        };
        let runner = engines::engine(
            Network::of(&recipe, plan.input).expect("as above"),
            Settings::of(&recipe, 1),
        )
        .expect("this machine computes");
        let (normalize, augment) = (&recipe.data.normalize, &recipe.data.augment);
        let loader = Loader::training(set.train, recipe.seed, normalize, augment);
        let evaluation = |part: Option<planaria_data::Part>| {
            part.map(|part| Loader::evaluation(part, normalize).expect("digits can be scaled"))
        };
        let held_out = [evaluation(set.validation), evaluation(set.test)];
        let engine = runner.name().to_owned();
        let mut net = Net {
            runner,
            loader: loader.expect("digits can be scaled"),
            held_out,
            evaluator: Evaluator::default(),
            pushes: BTreeMap::new(),
            scored: BTreeMap::new(),
            classes: facts.classes as usize,
        };
        let truth = net.train(&recipe, &facts, network);
        let work = Work::Network(Box::new(net));
        Self { engine, servers, truth, work, recipe, facts }
    }

    fn coded_run((threshold, machines): (usize, usize)) -> Self {
        let (recipe, facts) = (coded::recipe(threshold, machines), coded::facts());
        let (data, truth) = CodedData::new(&recipe, &facts);
        let (engine, work) = ("coded".to_owned(), Work::Coded(Rc::new(data)));
        Self { engine, servers: 0, truth, work, recipe, facts }
    }

    /// Whether it is of coded runs.
    pub fn is_coded(&self) -> bool {
        matches!(self.work, Work::Coded(_))
    }

    /// What machines of a coded run may have.
    pub fn coded(&self) -> &Rc<CodedData> {
        match &self.work {
            Work::Coded(data) => data,
            Work::Network(_) => unreachable!("only coded runs have coded data"),
        }
    }

    /// Scores of the true weights after `step` steps on a batch.
    pub fn score(&mut self, part: HeldOut, step: u64, batch: u64) -> Scores {
        let weights = &self.truth.weights[step as usize];
        self.work.net().score(weights, part, step, batch)
    }

    /// What a worker tells the servers of a task.
    pub fn compute(&mut self, task: &Task, server_ranges: &[ServerRange]) -> Arc<Vec<Pushed>> {
        let key = (task.step, task.shards.start, task.shards.end);
        let net = self.work.net();
        if let Some(pushes) = net.pushes.get(&key) {
            return pushes.clone();
        }
        let train = &self.recipe.train;
        let mut portion = Portion::default();
        let cut = Cut { batch: train.batch, shards: train.shards };
        fill(&net.loader, cut, task, &mut portion).expect("digits are drawn");
        let collector =
            Collector { server_ranges: server_ranges.to_vec(), pushes: Mutex::default() };
        let parameters = &self.truth.weights[task.step as usize].parameters;
        let mut first = FirstBlocks::default();
        let engine = net.runner.as_mut();
        compute(engine, &collector, parameters, &portion, train.shards, &mut first, &|| false);
        let mut pushes = collector.pushes.into_inner().expect("no thread panics with the list");
        // A sender may have carried some of the first; the order of the others is theirs.
        let until = pushes.iter().position(|(_, push, _)| matches!(push, Push::Shard { .. }));
        let until = until.unwrap_or(pushes.len());
        pushes[..until].sort_by_key(|(at, push, _)| match push {
            Push::Gradient { first_shard, first_block, .. } => (*first_block, *first_shard, *at),
            _ => (0, 0, *at),
        });
        let shards =
            pushes.iter().filter(|(_, push, _)| matches!(push, Push::Shard { .. })).count();
        pushes[until + shards..].sort_by_key(|(at, push, _)| match push {
            Push::Gradient { first_shard, .. } => (*first_shard, *at),
            _ => (0, *at),
        });
        let pushes = Arc::new(pushes);
        net.pushes.insert(key, pushes.clone());
        pushes
    }

    /// Examples of some shards of a batch.
    pub fn examples(&self, task: &Task) -> u64 {
        let train = &self.recipe.train;
        let whole = batch_range(self.facts.examples, train.batch, task.batch);
        let examples = (whole.end - whole.start) as usize;
        let range =
            |v: u32| planaria_numerics::aggregate::shard_range(examples, train.shards, v as usize);
        task.shards.clone().map(|v| range(v).len() as u64).sum()
    }

    /// Whether these are the run's parameters after `step` steps.
    pub fn check_parameters(&self, step: u64, parameters: &[f32]) -> Result<(), Broken> {
        let truth = self.truth.weights.get(step as usize).map(|w| &w.parameters[..]);
        if truth.is_some_and(|truth| as_bytes(truth) == as_bytes(parameters)) {
            return Ok(());
        }
        Err(Broken(format!("the parameters after step {step} are not those of the plain run")))
    }

    /// Whether this is the run's state after `step` steps.
    pub fn check_state(&self, step: u64, state: &[f32]) -> Result<(), Broken> {
        let truth = self.truth.weights.get(step as usize).map(|w| &w.state[..]);
        if truth.is_some_and(|truth| as_bytes(truth) == as_bytes(state)) {
            return Ok(());
        }
        Err(Broken(format!("the state after step {step} is not that of the plain run")))
    }

    /// Steps in all.
    pub fn steps(&self) -> u64 {
        self.truth.state.step
    }

    /// Steps of an epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        Setup::of(&self.recipe, &self.facts).steps_per_epoch
    }

    /// What a process is told.
    pub fn launch(&self, plan: &Plan) -> Launch {
        let mut recipe = self.recipe.clone();
        recipe.train.redundancy = plan.redundancy as usize;
        recipe.output.keep = plan.keep;
        let (workers, workers_min, servers) = (plan.workers, plan.workers_min, self.servers);
        Launch {
            secret: String::new(),
            generation: 1,
            build: "sim".into(),
            coordinator: None,
            recipe,
            facts: self.facts.clone(),
            size: Size { workers, workers_min, servers, threads: 1 },
            state: None,
            station: Station::default(),
            course: None,
        }
    }

    /// What every checkpoint's manifest says alike.
    pub fn manifest(&self, generation: u64, state: State) -> Manifest {
        Manifest {
            format: FORMAT,
            planaria: "sim".into(),
            build: "sim".into(),
            generation,
            step: state.step,
            recipe_sha256: String::new(),
            recipe: String::new(),
            data: Vec::new(),
            state,
            parameters: self.facts.parameters,
            state_values: self.truth.weights[0].state.len() as u64,
            slots: optimizer::slots(&self.recipe.train.optimizer) as u32,
            parts: Vec::new(),
        }
    }
}

impl Work {
    fn net(&mut self) -> &mut Net {
        match self {
            Self::Network(net) => net,
            Self::Coded(_) => unreachable!("coded runs have no network"),
        }
    }
}

impl Net {
    /// The run in one process.
    fn train(&mut self, recipe: &Recipe, facts: &Facts, network: Network) -> Truth {
        let trainer = engines::trainer(network, Settings::of(recipe, 1));
        let trainer = trainer.expect("this machine computes");
        let state = State { examples_per_epoch: facts.examples, ..State::default() };
        let course = Course::new(Setup::of(recipe, facts), state);
        let (batch, batch_examples) = (Batch::default(), recipe.train.batch);
        follow(course, &mut PlainNet { net: self, trainer, facts, batch_examples, batch })
    }

    /// Scores of the weights after `step` steps on a batch.
    fn score(&mut self, weights: &Weights, part: HeldOut, step: u64, batch: u64) -> Scores {
        if let Some(scores) = self.scored.get(&(part, step, batch)) {
            return scores.clone();
        }
        let loader = self.held_out[usize::from(part == HeldOut::Test)].as_ref();
        let loader = loader.expect("only parts that there are, are scored");
        let weights = (&weights.parameters[..], &weights.state[..]);
        let engine = self.runner.as_mut();
        engine.forget();
        let scores = self.evaluator.score(engine, weights, loader, batch, self.classes);
        let scores = scores.expect("digits are drawn");
        self.scored.insert((part, step, batch), scores.clone());
        scores
    }
}

/// A network's run in one process.
struct PlainNet<'a> {
    net: &'a mut Net,
    trainer: Box<dyn Trainer>,
    facts: &'a Facts,
    /// Examples of a batch.
    batch_examples: usize,
    /// The batch that was read last.
    batch: Batch,
}

impl PlainRun for PlainNet<'_> {
    fn step(&mut self, at: At, learning_rate: f32) -> Done {
        let Self { net, trainer, batch, .. } = self;
        let places = batch_range(self.facts.examples, self.batch_examples, at.batch);
        net.loader.fill(at.epoch, places, batch).expect("digits");
        let examples = Examples { inputs: &batch.inputs, targets: targets(&batch.targets) };
        let result = trainer.step(at.step, learning_rate, examples).expect("it is finite");
        Done {
            loss_sum: result.loss_sum,
            correct: result.correct,
            examples: result.examples,
            seconds: 0.0,
            read: batch.digest(),
        }
    }

    fn weights(&self) -> Weights {
        self.trainer.weights()
    }

    fn score(&mut self, part: HeldOut, step: u64) -> Option<Scores> {
        let examples = match part {
            HeldOut::Validation => self.facts.validation,
            HeldOut::Test => self.facts.test,
        };
        let weights = self.trainer.weights();
        let batches = 0..examples.div_ceil(EVALUATION_BATCH as u64);
        let scores = batches.map(|batch| self.net.score(&weights, part, step, batch));
        scores.reduce(|mut sum, scores| {
            sum.add(&scores);
            sum
        })
    }
}

/// The hashes of parameters, by server.
pub fn hashes(parameters: &[f32], server_ranges: &[ServerRange]) -> Vec<Sha256> {
    let mut server_ranges: Vec<&ServerRange> = server_ranges.iter().collect();
    server_ranges.sort_by_key(|server_range| server_range.server);
    let place = |block: u32| (block as usize * BLOCK).min(parameters.len());
    let values = |server_range: &&ServerRange| {
        &parameters[place(server_range.blocks.start)..place(server_range.blocks.end)]
    };
    server_ranges.iter().map(|server_range| sha256(as_bytes(values(server_range)))).collect()
}

/// Where what is computed is laid down.
struct Collector {
    server_ranges: Vec<ServerRange>,
    pushes: Mutex<Vec<Pushed>>,
}

impl Outlet for Collector {
    fn server_ranges(&self) -> &[ServerRange] {
        &self.server_ranges
    }

    fn tell(&self, at: usize, message: &Push, bulk: &[u8]) {
        let values = bulk.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let pushed = (at, message.clone(), values.collect());
        self.pushes.lock().expect("no thread panics with the list").push(pushed);
    }
}
