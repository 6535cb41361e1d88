//! A linear model trained in one process, on data that are not coded: the reference that coded runs
//! on many machines are compared with.
//!
//! Reads all training rows once, and in every step where they do not fit into memory. The same
//! kernels, slopes and steps as on machines
//! (`learn::linear`); nothing else is computed here. Never decides what comes next.

use crate::data::{data_trouble, targets};
use planaria_data::{Batch, DataSet, Loader, Part};
use planaria_learn::linear::{Batches, Model, Plain, Stepping, Weights, plain};
use planaria_learn::scores::numbers::Counting;
use planaria_learn::{Scores, StepResult};
use planaria_numerics::coding::exact::DataScale;
use planaria_numerics::coding::quality;
use planaria_numerics::digest::Digest;
use planaria_protocol::message::{EVALUATION_BATCH, Trouble};
use planaria_recipe::Plan;
use planaria_recipe::sections::{Normalize, Remedy};
use planaria_recipe::train::LinearPrecision;
use std::ops::Range;

/// A linear model under training.
#[derive(Debug)]
pub struct Linear {
    model: Model,
    stepping: Stepping,
    weights: Weights,
    batches: Batches,
    data: Plain,
    part: Part,
    normalize: Normalize,
    names: Vec<String>,
    precision: LinearPrecision,
    scale: DataScale,
    /// What to try where numbers leave their range.
    remedy: Remedy,
}

impl Linear {
    /// Reads the training part of a coded plan.
    pub fn new(plan: &Plan, set: &DataSet) -> Result<Self, Trouble> {
        let recipe = &plan.recipe;
        let model =
            Model::of(recipe, plan.input, &set.class_names()).map_err(Trouble::wrong_input)?;
        let stepping = Stepping::of(recipe);
        let train = &plan.recipe.train;
        let rows = usize::try_from(set.train.len()).unwrap_or(usize::MAX);
        let batches = Batches::of(train, rows).map_err(Trouble::wrong_input)?;
        let code = train.code().ok_or_else(|| Trouble::new("the recipe has no code"))?;
        quality::of(code).map_err(Trouble::wrong_input)?;
        let names = set.feature_names();
        let normalize = plan.recipe.data.normalize.clone();
        let scale = match code.precision {
            LinearPrecision::Exact => scale(code.scale, &model, &set.train, &normalize, &names)?,
            _ => DataScale(1),
        };
        // Rows that do not fit beside the data's own share of memory are read again in every step.
        let bytes = rows.saturating_mul(8 * model.width()) as u64;
        let is_kept = bytes <= planaria_data::Memory::of_process().left();
        let mut data = Plain::new(&model, code.precision, scale, is_kept);
        each(&set.train, &normalize, |batch| {
            let pushed = data.push(&batch.inputs, &model.targets(targets(&batch.targets)));
            pushed.map_err(|e| Trouble::wrong_input(plain::named(&e, &names)))
        })?;
        Ok(Self {
            weights: Weights::start(&model, &stepping),
            part: set.train.clone(),
            precision: code.precision,
            model,
            stepping,
            batches,
            data,
            normalize,
            names,
            scale,
            remedy: recipe.remedy(),
        })
    }

    /// Goes back to a checkpoint's state.
    pub fn restore(&mut self, state: &[f32]) -> Result<(), Trouble> {
        let restored = Weights::restore(&self.model, &self.stepping, state);
        self.weights = restored
            .map_err(|e| Trouble::new(format!("the checkpoint does not fit the model: {e}")))?;
        Ok(())
    }

    /// One step on one batch of an epoch, and which examples it took.
    pub fn step(
        &mut self,
        step: u64,
        batch: u64,
        rate: f32,
    ) -> Result<(StepResult, Digest), Trouble> {
        let loader =
            Loader::evaluation(self.part.clone(), &self.normalize).map_err(data_trouble)?;
        let (mut room, mut unread) = (Batch::default(), None);
        let mut read = |rows: Range<usize>| {
            let filled = loader.fill(0, rows.start as u64..rows.end as u64, &mut room);
            unread = filled.err();
            unread.is_none().then(|| room.inputs.clone())
        };
        let (weights, at) = (&self.weights.values, batch as usize);
        let summed = self.data.sum(&self.model, weights, &self.batches, at, &mut read);
        let summed = summed.map_err(|fault| match (fault, unread.take()) {
            (plain::Fault::Coding(e), _) => {
                let step = step + 1;
                Trouble::new(format!("step {step}: {}", plain::named(&e, &self.names)))
            }
            (plain::Fault::Unread, Some(error)) => data_trouble(error),
            (plain::Fault::Unread, None) => Trouble::new("training rows could not be read"),
        })?;
        let outcome = summed.outcome;
        let (model, stepping) = (&self.model, &self.stepping);
        let stepped = self.weights.step(model, stepping, step, rate, outcome.rows, &summed.sums);
        let gradient_norm = stepped.map_err(|e| {
            Trouble::new(format!("training failed: {e}")).hint(self.remedy.at(rate))
        })?;
        let result = StepResult {
            loss_sum: outcome.loss_sum.value(),
            correct: outcome.correct,
            examples: outcome.rows,
            gradient_norm,
        };
        let rows = self.batches.rows(batch as usize);
        let read = rows.into_iter().flatten().map(|row| self.part.id(row as u64)).collect();
        Ok((result, read))
    }

    /// Scores of one batch.
    pub fn score(&self, batch: &Batch, classes: usize, counting: Counting) -> Scores {
        let mut scores = Scores::new(self.model.columns(), classes).counting(counting);
        let outputs = plain::outputs(&self.model, &self.weights.values, &batch.inputs);
        self.model.count(&outputs, targets(&batch.targets), &mut scores);
        scores
    }

    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// As reports call what computes it.
    pub fn engine(&self) -> String {
        format!("linear {}", self.precision.name())
    }

    /// What exact arithmetic makes of the data, in words.
    pub fn remark(&self) -> Option<String> {
        (self.precision == LinearPrecision::Exact).then(|| {
            let scale = self.scale.0;
            match scale {
                1 => "exact: features are whole numbers, so nothing of them is rounded".into(),
                _ => format!(
                    "exact: features are multiplied by {scale} and rounded, by at most {:.1e} each",
                    0.5 / f64::from(scale)
                ),
            }
        })
    }
}

/// What features are multiplied by, or which is not a whole number.
fn scale(
    given: Option<u32>,
    model: &Model,
    part: &Part,
    normalize: &Normalize,
    names: &[String],
) -> Result<DataScale, Trouble> {
    let mut whole = Ok(());
    if given.is_none() {
        each(part, normalize, |batch| {
            if whole.is_ok() {
                whole = plain::whole(model.features, &batch.inputs);
            }
            Ok(())
        })?;
    }
    plain::data_scale(given, whole).map_err(|column| {
        let name = names.get(column).map_or("?", String::as_str);
        let (why, hint) = LinearPrecision::not_whole(name);
        Trouble::wrong_input(why).hint(hint)
    })
}

/// Gives out a part's examples in their order, some at a time.
fn each(
    part: &Part,
    normalize: &Normalize,
    mut take: impl FnMut(&Batch) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let loader = Loader::evaluation(part.clone(), normalize).map_err(data_trouble)?;
    let mut batch = Batch::default();
    for places in chunks(part.len(), EVALUATION_BATCH as u64) {
        loader.fill(0, places, &mut batch).map_err(data_trouble)?;
        take(&batch)?;
    }
    Ok(())
}

fn chunks(len: u64, size: u64) -> impl Iterator<Item = Range<u64>> {
    (0..len).step_by(size as usize).map(move |at| at..(at + size).min(len))
}
