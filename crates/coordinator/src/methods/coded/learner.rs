//! The weights of a coded run and how they follow the sums that workers send.
//!
//! The same steps as in one process ([`planaria_learn::linear`]), so the same bits where sums are.
//! Never sends anything.

use super::arithmetic::Arithmetic;
use planaria_learn::linear::number::Bounds;
use planaria_learn::linear::{Model, Stepping, Weights, plain};
use planaria_numerics::coding::Error;
use planaria_numerics::coding::exact::DataScale;
use planaria_protocol::message::Trouble;
use planaria_protocol::methods::coded::Travel;
use planaria_recipe::Recipe;
use planaria_recipe::sections::Remedy;
use planaria_recipe::shape::Shape;

/// Weights, their optimizer, and the way from sums to a step.
#[derive(Debug, Clone)]
pub struct Learner {
    model: Model,
    stepping: Stepping,
    weights: Weights,
    scale: DataScale,
    /// Names of the data's columns, where they are known.
    columns: Vec<String>,
    /// What to try where numbers leave their range.
    remedy: Remedy,
}

impl Learner {
    /// The learner of a recipe, from the beginning; what is learned from has this shape.
    pub fn new(recipe: &Recipe, input: Shape) -> Result<Self, Trouble> {
        // Class weights are applied where the labels are, by the workers.
        let mut plain = recipe.clone();
        plain.train.class_weights.clear();
        let model = Model::of(&plain, input, &[]).map_err(Trouble::new)?;
        let stepping = Stepping::of(recipe);
        let weights = Weights::start(&model, &stepping);
        let scale = DataScale(recipe.train.code().and_then(|code| code.scale).unwrap_or(1));
        let (columns, remedy) = (Vec::new(), recipe.remedy());
        Ok(Self { model, stepping, weights, scale, columns, remedy })
    }

    /// With the names of the data's columns.
    #[must_use]
    pub fn naming(mut self, columns: Vec<String>) -> Self {
        self.columns = columns;
        self
    }

    /// What arithmetic found, with the column by its name: people know no numbers of columns.
    pub fn explained(&self, error: &Error) -> Trouble {
        let trouble = match self.columns.is_empty() {
            true => Trouble::new(error),
            false => Trouble::new(plain::named(error, &self.columns)),
        };
        Trouble { fix_input: true, ..trouble }
    }

    /// Goes on from a checkpoint's state.
    pub fn restore(&mut self, state: &[f32]) -> Result<(), Trouble> {
        let weights = Weights::restore(&self.model, &self.stepping, state);
        self.weights =
            weights.map_err(|e| Trouble::new(format!("the checkpoint's weights: {e}")))?;
        Ok(())
    }

    /// Goes on from what another has kept; false where it does not fit.
    pub fn restore_bytes(&mut self, bytes: &[u8]) -> bool {
        let state = f32::take(bytes);
        let weights = state.and_then(|s| Weights::restore(&self.model, &self.stepping, &s).ok());
        weights.map(|weights| self.weights = weights).is_some()
    }

    /// Columns of weights.
    pub fn columns(&self) -> usize {
        self.model.columns()
    }

    /// Trained parameters.
    pub fn len(&self) -> usize {
        self.model.weights()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weights as product 1 takes them; an error where it could leave the range of the numbers.
    pub fn weights(
        &self,
        code: &dyn Arithmetic,
        bounds: Option<&Bounds>,
    ) -> Result<Vec<u8>, Error> {
        code.weights(self.model.width(), &self.weights.values, bounds)
    }

    /// One step from the sums of product 2 over so many rows.
    pub fn learn(
        &mut self,
        code: &dyn Arithmetic,
        step: u64,
        rate: f32,
        rows: u64,
        sums: &[Vec<u8>],
    ) -> Result<f64, Trouble> {
        let mut total = vec![0.0; self.len()];
        code.total(self.scale, sums, &mut total);
        let Self { model, stepping, weights, .. } = self;
        weights.step(model, stepping, step, rate, rows, &total).map_err(|error| Trouble {
            message: format!("training failed at step {}: {error}", step + 1),
            hint: Some(self.remedy.at(rate)),
            fix_input: false,
            of_machine: false,
            agent: None,
        })
    }

    /// The weights as they are.
    pub fn values(&self) -> &[f64] {
        &self.weights.values
    }

    /// The weights as a layer's parameters, and all bits of them and of the optimizer.
    pub fn to_parts(&self) -> (Vec<f32>, Vec<f32>) {
        (self.weights.parameters(&self.model), self.weights.state())
    }

    /// All bits, to be kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        f32::bytes(&self.weights.state())
    }
}
