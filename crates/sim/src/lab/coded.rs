//! A coded run's data, encoded, and the same linear model on plain rows as the truth.
//!
//! In exact arithmetic no sum has an order, so the weights of every step are the same bytes whichever machine
//! computed what. Losses are floats, and agree up to rounding.

use super::truth::{At, PlainRun, Truth, follow};
use planaria_coordinator::run::course::{Course, Done, Setup};
use planaria_learn::linear::number::{Bounds, Number};
use planaria_learn::linear::{Batches, Model, Plain, Stepping, Weights, plain};
use planaria_learn::{Scores, Targets};
use planaria_numerics::coding::blocks::{Encoder, Rows};
use planaria_numerics::coding::exact::{DataScale, Residue};
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::random::{Purpose, Stream};
use planaria_protocol::launch::{Coding, Facts};
use planaria_protocol::message::HeldOut;
use planaria_protocol::state::State;
use planaria_recipe::Recipe;
use planaria_recipe::shape::Shape;
use planaria_recipe::train::LinearPrecision;
use planaria_worker::methods::coded::block::{Block, Label};

const ROWS: usize = 47;
const HELD_OUT: usize = 12;
const FEATURES: usize = 4;
/// Of the data's columns.
const SCALE: DataScale = DataScale(1);

/// What every machine of a coded run may have, and can compute of it.
pub struct CodedData {
    model: Model,
    /// By slot.
    stored: Vec<Vec<Residue>>,
    bounds: Bounds,
    labels: Vec<Label>,
    held_out: (Vec<f32>, Vec<u32>),
}

/// The recipe of a code of these sizes.
pub fn recipe(threshold: usize, machines: usize) -> Recipe {
    serde_json::from_value(serde_json::json!({
        "name": "coded", "data": {"train": "none", "validation": null},
        "model": {"layers": [{"Dense": {"units": 1}}]},
        "train": {
            "epochs": 4, "batch": 12, "loss": "squared_hinge", "method": "coded", "l2": 0.01,
            "optimizer": {"sgd": {"learning_rate": 0.05, "momentum": 0.5}},
            "coded": {"threshold": threshold, "machines": machines, "precision": "exact"},
        },
        "output": {"checkpoint_steps": 3},
    }))
    .expect("a recipe of ours")
}

/// What is known of the data.
pub fn facts() -> Facts {
    Facts {
        input: Shape::Vector(FEATURES),
        classes: 2,
        examples: ROWS as u64,
        digest: (0..ROWS as u64).collect(),
        validation: HELD_OUT as u64,
        test: 0,
        parameters: FEATURES as u64 + 1,
        marks: Vec::new(),
        coding: Some(Coding {
            digest: "simulated".into(),
            class_names: vec!["no".into(), "yes".into()],
            target: Default::default(),
        }),
    }
}

impl CodedData {
    /// Draws the data, encodes it, and trains the model on plain rows.
    pub fn new(recipe: &Recipe, facts: &Facts) -> (Self, Truth) {
        let names = facts.coding.as_ref().map_or(&[][..], |coding| &coding.class_names);
        let model = Model::of(recipe, facts.input, names).expect("a recipe of ours");
        let mut draws = Stream::new(5, Purpose::Code, 0, 0);
        let mut draw = |rows: usize| -> (Vec<f32>, Vec<u32>) {
            let features = (0..rows * FEATURES).map(|_| draws.below(7) as f32 - 3.0).collect();
            (features, (0..rows).map(|_| draws.below(2) as u32).collect())
        };
        let (features, classes) = draw(ROWS);
        let held_out = draw(HELD_OUT);
        let targets = model.targets(Targets::Classes(&classes));
        let code = recipe.train.code().expect("a coded recipe");
        let generator =
            Generator::cauchy(code.threshold, code.machines).expect("sizes that there are");
        let batches = Batches::of(&recipe.train, ROWS).expect("a recipe of ours");
        let wide = plain::with_ones(FEATURES, model.width(), &features);
        let fixed = Residue::data(SCALE, model.width(), &wide).expect("whole numbers");
        let rows = Rows::Dense { width: model.width(), values: &fixed };
        let mut bounds = Bounds::new(model.width());
        Residue::bound(&mut bounds, &rows).expect("small numbers");
        let blocks = batches.blocks();
        let store = |slot| {
            let places = 0..blocks.height();
            let encoder = Encoder::new(&generator, slot, blocks, model.width(), places);
            let mut encoder = encoder.expect("sizes that there are");
            encoder.push(0, &rows).expect("all rows");
            encoder.finish().expect("all rows")
        };
        let stored = generator.slots().map(store).collect();
        let labels = (0..).zip(targets.iter().copied()).collect();
        let data = Self { model, stored, bounds, labels, held_out };
        let truth = data.train(recipe, facts, &features, &batches);
        (data, truth)
    }

    /// What a slot stores.
    pub fn block(&self, slot: u16) -> Block<Residue> {
        Block { rows: self.stored[slot as usize].clone(), bounds: self.bounds.clone() }
    }

    /// Ids and targets of all rows.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// Scores of some weights on the only held-out batch that there is.
    pub fn score(&self, weights: &[f64]) -> Scores {
        let (features, classes) = &self.held_out;
        let outputs = plain::outputs(&self.model, weights, features);
        let mut scores = Scores::new(self.model.columns(), 2);
        self.model.count(&outputs, Targets::Classes(classes), &mut scores);
        scores
    }

    /// The run on one machine, with plain rows.
    fn train(&self, recipe: &Recipe, facts: &Facts, features: &[f32], batches: &Batches) -> Truth {
        let stepping = Stepping::of(recipe);
        let weights = Weights::start(&self.model, &stepping);
        let mut rows = Plain::new(&self.model, LinearPrecision::Exact, SCALE, true);
        let targets: Vec<f64> = self.labels.iter().map(|label| label.1).collect();
        rows.push(features, &targets).expect("whole numbers");
        let state = State { examples_per_epoch: facts.examples, ..State::default() };
        let course = Course::new(Setup::of(recipe, facts), state);
        follow(course, &mut PlainRows { data: self, rows, batches, stepping, weights })
    }
}

/// The run on one machine, with plain rows.
struct PlainRows<'a> {
    data: &'a CodedData,
    rows: Plain,
    batches: &'a Batches,
    stepping: Stepping,
    weights: Weights,
}

impl PlainRun for PlainRows<'_> {
    fn step(&mut self, at: At, learning_rate: f32) -> Done {
        let (model, batch) = (&self.data.model, at.batch as usize);
        let summed = self.rows.sum(model, &self.weights.values, self.batches, batch, &mut |_| None);
        let summed = summed.expect("within the range");
        let rows = summed.outcome.rows;
        self.weights
            .step(model, &self.stepping, at.step, learning_rate, rows, &summed.sums)
            .expect("it is finite");
        let read = self.batches.rows(batch).into_iter().flatten();
        Done {
            loss_sum: summed.outcome.loss_sum.value(),
            correct: summed.outcome.correct,
            examples: rows,
            seconds: 0.0,
            read: read.map(|row| row as u64).collect(),
        }
    }

    /// As a checkpoint has them.
    fn weights(&self) -> planaria_learn::Weights {
        planaria_learn::Weights {
            parameters: self.weights.parameters(&self.data.model),
            state: self.weights.state(),
            optimizer: Vec::new(),
        }
    }

    fn score(&mut self, part: HeldOut, _: u64) -> Option<Scores> {
        (part == HeldOut::Validation).then(|| self.data.score(&self.weights.values))
    }
}
