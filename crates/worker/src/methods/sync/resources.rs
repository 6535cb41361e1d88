//! What a worker computes with and on, for as long as its process lives: data, engine, and what is
//! read ahead.
//!
//! Never waits for parameters: they are there, or what was asked for is not done.

use crate::data::{data_trouble, same_data};
use crate::features;
use crate::gradient::Task;
use crate::gradient::compute::{FirstBlocks, compute};
use crate::gradient::evaluate::Evaluator;
use crate::gradient::parameters::Parameters;
use crate::gradient::read_ahead::{Cut, ReadAhead, Wanted};
use crate::gradient::servers::Servers;
use crate::session::method::Batch;
use planaria_data::{Loader, Part};
use planaria_learn::{Engine, Network, Settings, engines};
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{HeldOut, Trouble};
use std::sync::Arc;
use std::time::Duration;

/// What a worker computes with and on.
pub struct Resources {
    engine: Box<dyn Engine>,
    ahead: ReadAhead,
    validation: Option<Loader>,
    test: Option<Loader>,
    evaluator: Evaluator,
    first: FirstBlocks,
    /// The step whose weights the engine is prepared to predict with.
    predicts: Option<u64>,
    shards: usize,
    classes: usize,
}

/// What was computed, and since when.
#[derive(Debug, Clone, Copy)]
pub struct Computed {
    pub examples: u64,
    /// When computing began.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
}

impl Resources {
    /// Opens the data and compiles the network. What is `wanted` is read ahead from now on.
    pub fn prepare(launch: &Launch, wanted: &Wanted) -> Result<Self, Trouble> {
        let recipe = &launch.recipe;
        let data = features::open(recipe, launch.size.threads as usize).map_err(data_trouble)?;
        same_data(launch, &data)?;
        let evaluator = Evaluator::of(data.target_scale().unwrap_or_default());
        let network = Network::of(recipe, launch.facts.input).map_err(Trouble::new)?;
        let settings = Settings::of(recipe, launch.size.threads as usize);
        let engine = engines::engine(network, settings).map_err(Trouble::wrong_input)?;
        let (normalize, augment) = (&recipe.data.normalize, &recipe.data.augment);
        let loader = Loader::training(data.train, recipe.seed, normalize, augment);
        let cut = Cut { batch: recipe.train.batch, shards: recipe.train.shards };
        let ahead = ReadAhead::start(wanted.clone(), loader.map_err(data_trouble)?, cut)
            .map_err(|e| Trouble::new(format!("cannot start a thread: {e}")))?;
        let held_out = |part: Option<Part>| {
            part.map(|part| Loader::evaluation(part, normalize)).transpose().map_err(data_trouble)
        };
        Ok(Self {
            engine,
            ahead,
            validation: held_out(data.validation)?,
            test: held_out(data.test)?,
            evaluator,
            first: FirstBlocks::default(),
            predicts: None,
            shards: recipe.train.shards,
            classes: launch.facts.classes as usize,
        })
    }

    pub fn engine(&self) -> &dyn Engine {
        self.engine.as_ref()
    }

    /// Computes and pushes a task; nothing if its parameters are no longer there. Others may have
    /// computed it: as soon as the parameters after it are there, it is given up.
    pub fn compute(
        &mut self,
        task: &Task,
        servers: &Servers,
        parameters: &Arc<Parameters>,
        clock: &dyn Clock,
    ) -> Result<Option<Computed>, Trouble> {
        let portion = self.ahead.take(task).map_err(data_trouble)?;
        let computed = parameters.see(task.step).map(|values| {
            let began = clock.now();
            let is_over = || parameters.is_past(task.step);
            let engine = self.engine.as_mut();
            let (cut, first) = (self.shards, &mut self.first);
            let computed = compute(engine, servers, &values, &portion, cut, first, &is_over);
            let all = portion.shards.len().max(1);
            let examples = (portion.batch.ids.len() * computed / all) as u64;
            Computed { examples, began, ended: clock.now() }
        });
        self.ahead.recycle(portion);
        Ok(computed)
    }

    /// The scores of one batch, as JSON; nothing if the parameters are no longer there.
    pub fn score(
        &mut self,
        Batch { part, step, batch }: Batch,
        parameters: &Arc<Parameters>,
        state: &[f32],
    ) -> Result<Option<Vec<u8>>, Trouble> {
        let loader = match part {
            HeldOut::Validation => &self.validation,
            HeldOut::Test => &self.test,
        };
        let loader =
            loader.as_ref().ok_or_else(|| Trouble::new("there is no such held-out part"))?;
        let Some(values) = parameters.see(step) else { return Ok(None) };
        if self.predicts.replace(step) != Some(step) {
            self.engine.forget();
        }
        let weights = (&*values, state);
        let scores = self
            .evaluator
            .score(self.engine.as_mut(), weights, loader, batch, self.classes)
            .map_err(data_trouble)?;
        Ok(Some(scores.to_json()))
    }

    /// Parameters may be others than before under the same number of steps.
    pub fn forget_weights(&mut self) {
        self.predicts = None;
    }
}
