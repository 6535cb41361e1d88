//! Rows as workers of a coded run get them, made of the data: a slot's, coded; labels; held-out
//! batches. Any rows can be made at any time, alone, and are always the same bytes.
//!
//! Owns the numbers that the data becomes, and the bounds of its columns. Never keeps what it made.

use crate::data::{data_trouble, targets};
use crate::methods::coded::Value;
use crate::methods::coded::block::{LABEL_BYTES, label_bytes};
use planaria_data::order::batch_range;
use planaria_data::{Batch, DataSet, Loader, Part, Target, Targets};
use planaria_learn::linear::number::Bounds;
use planaria_learn::linear::{Batches, Model, plain};
use planaria_numerics::coding;
use planaria_numerics::coding::Slot;
use planaria_numerics::coding::blocks::{self, Blocks, Encoder};
use planaria_numerics::coding::exact::{DataScale, Residue};
use planaria_numerics::coding::generator::Generator;
use planaria_protocol::message::{EVALUATION_BATCH, HeldOut, Trouble};
use planaria_protocol::transfer::Length;
use planaria_protocol::transfer::rows::Wanted;
use planaria_recipe::Recipe;
use planaria_recipe::shape::Shape;
use planaria_recipe::train::{Coded as Words, LinearPrecision};
use std::ops::Range;
use std::sync::Arc;

/// Rows read at a time for the bounds.
const ROWS_AT_ONCE: u64 = 512;

/// Gives out rows.
pub trait Rows: Send + Sync {
    /// How much there is of what is wanted, and what comes before it.
    fn look(&self, wanted: Wanted) -> Result<(Length, Vec<u8>), Trouble>;
    /// Adds the bytes of some rows to `out`.
    fn fill(&self, wanted: Wanted, rows: Range<u64>, out: &mut Vec<u8>) -> Result<(), Trouble>;
}

/// The rows of a coded recipe's data. In exact arithmetic all of it is read once, for the bounds.
pub fn of(recipe: &Recipe, input: Shape, data: DataSet) -> Result<Arc<dyn Rows>, Trouble> {
    let code = recipe.train.code().ok_or_else(|| Trouble::new("the recipe has no code"))?;
    Ok(match code.precision {
        LinearPrecision::F32 => Arc::new(Coded::<f32>::new(recipe, code, input, data)?),
        LinearPrecision::F64 => Arc::new(Coded::<f64>::new(recipe, code, input, data)?),
        LinearPrecision::Exact => {
            let mut coded = Coded::<Residue>::new(recipe, code, input, data)?;
            coded.bound(code.scale.is_none())?;
            Arc::new(coded)
        }
    })
}

/// The data, and how it becomes rows in one kind of number.
struct Coded<E: Value> {
    model: Model,
    generator: Generator<E::Scalar>,
    blocks: Blocks,
    scale: DataScale,
    train: Loader,
    held_out: [Option<Loader>; 2],
    names: Vec<String>,
    /// JSON of the bounds; nothing for floats.
    bounds: Vec<u8>,
}

impl<E: Value> Coded<E> {
    fn new(recipe: &Recipe, code: &Words, input: Shape, data: DataSet) -> Result<Self, Trouble> {
        let model = Model::of(recipe, input, &data.class_names()).map_err(Trouble::wrong_input)?;
        let count = usize::try_from(data.train.len()).map_err(Trouble::wrong_input)?;
        let batches = Batches::of(&recipe.train, count).map_err(Trouble::wrong_input)?;
        let load =
            |part: Part| Loader::evaluation(part, &recipe.data.normalize).map_err(data_trouble);
        Ok(Self {
            model,
            generator: E::code(code.threshold, code.machines).map_err(Trouble::wrong_input)?,
            blocks: batches.blocks(),
            scale: DataScale(code.scale.unwrap_or(1)),
            names: data.feature_names(),
            train: load(data.train)?,
            held_out: [data.validation.map(load).transpose()?, data.test.map(load).transpose()?],
            bounds: Vec::new(),
        })
    }

    /// Looks at all rows, which must be whole numbers where no scale is stated.
    fn bound(&mut self, whole: bool) -> Result<(), Trouble> {
        let width = self.model.width();
        let (mut bounds, mut batch) = (Bounds::new(width), Batch::default());
        let count = self.train.part().len();
        for first in (0..count).step_by(ROWS_AT_ONCE as usize) {
            let rows = first..(first + ROWS_AT_ONCE).min(count);
            self.train.fill(0, rows, &mut batch).map_err(data_trouble)?;
            if whole {
                let found = plain::whole(self.model.features, &batch.inputs);
                found.map_err(|column| self.fraction(column))?;
            }
            let values = self.numbers(&batch)?;
            let rows = blocks::Rows::Dense { width, values: &values };
            E::bound(&mut bounds, &rows).map_err(|e| self.named(&e))?;
        }
        self.bounds = serde_json::to_vec(&bounds).map_err(Trouble::new)?;
        Ok(())
    }

    /// The rows of a batch as they are multiplied.
    fn numbers(&self, batch: &Batch) -> Result<Vec<E>, Trouble> {
        let width = self.model.width();
        let wide = plain::with_ones(self.model.features, width, &batch.inputs);
        E::data(self.scale, width, &wide).map_err(|e| self.named(&e))
    }

    /// Some places of what a slot stores, from the rows of each block that lie there.
    fn encode(&self, slot: u16, places: &Range<usize>) -> Result<Vec<E>, Trouble> {
        let (blocks, width) = (self.blocks, self.model.width());
        let refused = |e: coding::Error| self.named(&e);
        let mut encoder =
            Encoder::<E>::new(&self.generator, Slot(slot), blocks, width, places.clone())
                .map_err(refused)?;
        let mut batch = Batch::default();
        for block in 0..blocks.threshold() {
            let rows = blocks.data_rows(block, places);
            if rows.is_empty() || !encoder.needs(block) {
                continue;
            }
            encoder.skip(rows.start).map_err(refused)?;
            let own = rows.start as u64..rows.end as u64;
            self.train.fill(0, own, &mut batch).map_err(data_trouble)?;
            let values = self.numbers(&batch)?;
            let dense = blocks::Rows::Dense { width, values: &values };
            encoder.push(rows.start, &dense).map_err(refused)?;
        }
        encoder.skip(blocks.rows()).map_err(refused)?;
        encoder.finish().map_err(refused)
    }

    /// Features and target of some rows of a held-out part.
    fn plain(&self, part: HeldOut, rows: Range<u64>, out: &mut Vec<u8>) -> Result<(), Trouble> {
        let mut batch = Batch::default();
        self.held_out(part)?.fill(0, rows, &mut batch).map_err(data_trouble)?;
        for (row, inputs) in batch.inputs.chunks_exact(self.model.features.max(1)).enumerate() {
            out.extend(inputs.iter().flat_map(|value| value.to_le_bytes()));
            match &batch.targets {
                Targets::Classes(classes) => out.extend(classes[row].to_le_bytes()),
                Targets::Values(values) => out.extend(values[row].to_le_bytes()),
            }
        }
        Ok(())
    }

    fn held_out(&self, part: HeldOut) -> Result<&Loader, Trouble> {
        let loader = match part {
            HeldOut::Validation => &self.held_out[0],
            HeldOut::Test => &self.held_out[1],
        };
        loader.as_ref().ok_or_else(|| Trouble::new(format!("there is no {part} part")))
    }

    fn fraction(&self, column: usize) -> Trouble {
        let name = self.names.get(column).map_or("?", String::as_str);
        let (why, hint) = LinearPrecision::not_whole(name);
        Trouble::wrong_input(why).hint(hint)
    }

    /// An error of arithmetic names columns by their numbers; people know them by their names.
    fn named(&self, error: &coding::Error) -> Trouble {
        Trouble::wrong_input(plain::named(error, &self.names))
    }
}

impl<E: Value> Rows for Coded<E>
where
    E::Scalar: Send + Sync,
{
    fn look(&self, wanted: Wanted) -> Result<(Length, Vec<u8>), Trouble> {
        let length =
            |rows: u64, unit_bytes: usize| Length { units: rows, unit_bytes: unit_bytes as u64 };
        Ok(match wanted {
            Wanted::Block { .. } => {
                let unit_bytes = self.model.width() * E::BYTES;
                (length(self.blocks.height() as u64, unit_bytes), self.bounds.clone())
            }
            Wanted::Labels => (length(self.train.part().len(), LABEL_BYTES), Vec::new()),
            Wanted::Batch { part, batch } => {
                let loader = self.held_out(part)?;
                let rows = batch_rows(loader, batch);
                let target = match loader.part().source().target() {
                    Target::Class { .. } => 0,
                    Target::Values { .. } => 1,
                };
                let unit_bytes = (self.model.features + 1) * 4;
                (length(rows.end.saturating_sub(rows.start), unit_bytes), vec![target])
            }
        })
    }

    fn fill(&self, wanted: Wanted, rows: Range<u64>, out: &mut Vec<u8>) -> Result<(), Trouble> {
        match wanted {
            Wanted::Block { slot } => {
                let places = rows.start as usize..rows.end as usize;
                E::put(&self.encode(slot, &places)?, out);
            }
            Wanted::Labels => {
                let mut batch = Batch::default();
                self.train.label(0, rows, &mut batch).map_err(data_trouble)?;
                let values = self.model.targets(targets(&batch.targets));
                let labels: Vec<_> = batch.ids.into_iter().zip(values).collect();
                out.extend(label_bytes(&labels));
            }
            Wanted::Batch { part, batch } => {
                let first = batch_rows(self.held_out(part)?, batch).start;
                self.plain(part, first + rows.start..first + rows.end, out)?;
            }
        }
        Ok(())
    }
}

fn batch_rows(loader: &Loader, batch: u64) -> Range<u64> {
    batch_range(loader.part().len(), EVALUATION_BATCH, batch)
}

#[cfg(test)]
mod tests;
