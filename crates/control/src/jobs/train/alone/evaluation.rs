//! Evaluates a network on a part of the data.
//!
//! Reads ahead, predicts, counts. Never changes weights, and stops between batches when asked.

use crate::stopping;
use crate::survey::data_failure;
use planaria_data::{Loader, Part, Reader, Schedule};
use planaria_learn::scores::numbers::Counting;
use planaria_learn::{Scores, Trainer};
use planaria_numerics::regression::TargetScale;
use planaria_protocol::message::EVALUATION_BATCH;
use planaria_recipe::sections::Normalize;
use planaria_runs::failure::Result;
use planaria_worker::methods::solo::learner::score;

/// Scores on `part`, whose numbers to predict were scaled so; or nothing if a stop was asked for on the way.
pub fn evaluate(
    trainer: &mut dyn Trainer,
    part: &Part,
    normalize: &Normalize,
    classes: usize,
    scale: TargetScale,
) -> Result<Option<Scores>> {
    let loader = Loader::evaluation(part.clone(), normalize).map_err(data_failure)?;
    let schedule = Schedule { batch: EVALUATION_BATCH, epochs: 0..1, step: 0 };
    let mut reader = Reader::start(loader, schedule).map_err(data_failure)?;
    let mut scores = Scores::new(trainer.network().output().len(), classes);
    while let Some(batch) = reader.next() {
        if stopping::asked() {
            return Ok(None);
        }
        let batch = batch.map_err(data_failure)?;
        let counting = Counting::new(scale, batch.step * EVALUATION_BATCH as u64, part.len());
        scores.add(&score(trainer, &batch, classes, counting));
        reader.recycle(batch);
    }
    Ok(Some(scores))
}
