//! Scores on held-out examples, batch by batch.
//!
//! Scores are added up in the order of batches by the caller, so that they do not depend on who
//! scored which.

use crate::data::targets;
use planaria_data::order::batch_range;
use planaria_data::{Batch, Error, Loader};
use planaria_learn::scores::numbers::Counting;
use planaria_learn::{Engine, Scores};
use planaria_numerics::regression::TargetScale;
use planaria_protocol::message::EVALUATION_BATCH;

/// What scoring one batch after another needs.
#[derive(Default)]
pub struct Evaluator {
    batch: Batch,
    outputs: Vec<f32>,
    scratch: Vec<f32>,
    /// How numbers to predict were scaled.
    scale: TargetScale,
}

impl Evaluator {
    /// Of data whose numbers to predict were scaled so.
    pub fn of(scale: TargetScale) -> Self {
        Self { scale, ..Self::default() }
    }

    /// Scores of one batch.
    pub fn score(
        &mut self,
        engine: &mut dyn Engine,
        weights: (&[f32], &[f32]),
        loader: &Loader,
        batch: u64,
        classes: usize,
    ) -> Result<Scores, Error> {
        let part = loader.part().len();
        let places = batch_range(part, EVALUATION_BATCH, batch);
        let counting = Counting::new(self.scale, places.start, part);
        loader.fill(0, places, &mut self.batch)?;
        let width = engine.network().output().len();
        self.outputs.resize(self.batch.ids.len() * width, 0.0);
        self.scratch.resize(width, 0.0);
        engine.predict(weights, &self.batch.inputs, &mut self.outputs);
        let targets = targets(&self.batch.targets);
        let loss_sum = engine.objective().sum(&self.outputs, targets, &mut self.scratch);
        let mut scores = Scores::new(width, classes).counting(counting);
        scores.count(&self.outputs, targets, loss_sum);
        Ok(scores)
    }
}
