//! What a worker of a coded run computes with and on, for as long as its process lives.
//!
//! Every order is a function of the block, the labels and what comes with it. Never waits.

use super::Value;
use super::block::{self, Block};
use super::cache::Cache;
use super::round::Arithmetic;
use crate::bench::{data_trouble, same_data};
use crate::features;
use crate::run::Log;
use crate::step::targets;
use planaria_data::order::batch_range;
use planaria_data::{Batch, Loader, Part};
use planaria_learn::Scores;
use planaria_learn::linear::{Batches, Model, plain};
use planaria_numerics::coding::blocks::Blocks;
use planaria_numerics::coding::exact::DataScale;
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::coding::group::{Decoder, decoder_within};
use planaria_numerics::coding::{Precision, Slot, product};
use planaria_protocol::coded::Tallied;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{EVALUATION_BATCH, HeldOut, Trouble};
use planaria_recipe::train::CodedPrecision;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;

/// Rows that are read at a time.
const ROWS_AT_ONCE: usize = 4096;

/// What a worker computes with and on.
pub struct Bench<E: Value> {
    model: Model,
    generator: Generator<E::Scalar>,
    precision: Precision,
    scale: DataScale,
    blocks: Blocks,
    /// The data, until the block is there.
    data: Loader,
    ids: Vec<u64>,
    targets: Vec<f64>,
    held_out: [Option<Loader>; 2],
    classes: usize,
    cache: Option<Cache>,
    block: Option<(Slot, Block<E>)>,
    decoders: BTreeMap<Vec<Slot>, Decoder<E::Scalar>>,
    names: Vec<String>,
}

impl<E: Value> Bench<E> {
    /// Opens the data, and reads labels.
    pub fn prepare(launch: &Launch) -> Result<Self, Trouble> {
        let recipe = &launch.recipe;
        let code = recipe.train.code().ok_or_else(|| Trouble::new("the recipe has no code"))?;
        let data = features::open(recipe, launch.size.threads as usize).map_err(data_trouble)?;
        same_data(launch, &data)?;
        let wrong = |e: &dyn std::fmt::Display| Trouble { fix_input: true, ..Trouble::new(e) };
        let model = Model::of(recipe, launch.facts.input, &data.class_names());
        let model = model.map_err(|e| wrong(&e))?;
        let count = data.train.len() as usize;
        let batches = Batches::of(&recipe.train, count).map_err(|e| wrong(&e))?;
        let generator = E::code(code.threshold, code.machines).map_err(|e| wrong(&e))?;
        let normalize = &recipe.data.normalize;
        let load = |part: Part| Loader::evaluation(part, normalize).map_err(data_trouble);
        let names = data.feature_names();
        let digest = digest(launch, data.encoder.as_deref());
        let loader = load(data.train)?;
        let (ids, targets) = labels(&loader, &model)?;
        let precision = match code.precision {
            CodedPrecision::F32 => Precision::F32,
            CodedPrecision::F64 => Precision::F64,
            CodedPrecision::Exact => Precision::Exact,
        };
        let bench = Self {
            model,
            generator,
            precision,
            scale: DataScale(code.scale.unwrap_or(1)),
            blocks: batches.blocks(),
            data: loader,
            ids,
            targets,
            held_out: [data.validation.map(load).transpose()?, data.test.map(load).transpose()?],
            classes: launch.facts.classes as usize,
            cache: Cache::of(&digest),
            block: None,
            decoders: BTreeMap::new(),
            names,
        };
        if code.scale.is_none() && precision == Precision::Exact {
            bench.refuse_fractions()?;
        }
        Ok(bench)
    }

    /// Slots whose blocks this machine has; its own first.
    pub fn kept(&self) -> Vec<u16> {
        let own = self.block.as_ref().map(|(slot, _)| slot.0);
        let cached = self.cache.as_ref().map_or_else(Vec::new, Cache::slots);
        own.into_iter().chain(cached.into_iter().filter(|slot| Some(*slot) != own)).collect()
    }

    /// Holds the rows of a slot; whether they had not to be encoded.
    pub fn sit(&mut self, slot: u16, log: &Log) -> Result<bool, Trouble> {
        if self.block.as_ref().is_some_and(|(own, _)| own.0 == slot) {
            return Ok(true);
        }
        self.block = None;
        let values = self.blocks.height() * self.model.width();
        if let Some(block) = self.cache.as_ref().and_then(|cache| cache.read(slot, values)) {
            self.block = Some((Slot(slot), block));
            return Ok(true);
        }
        let (generator, model) = (&self.generator, &self.model);
        let block =
            block::encode(generator, Slot(slot), self.blocks, model, self.scale, &self.data)
                .map_err(|trouble| self.explained(trouble))?;
        if let Some(Err(e)) = self.cache.as_ref().map(|cache| cache.write(slot, &block)) {
            log(&format!("the block is not kept for another time: {e}"));
        }
        self.block = Some((Slot(slot), block));
        Ok(false)
    }

    /// What bounds products, as JSON; nothing for floats.
    pub fn bounds(&self) -> Vec<u8> {
        let bounds = self.block.as_ref().filter(|_| self.precision == Precision::Exact);
        bounds.and_then(|(_, block)| serde_json::to_vec(&block.bounds).ok()).unwrap_or_default()
    }

    /// As reports call it.
    pub fn engine(&self) -> String {
        format!("coded {}", self.precision)
    }

    /// The decoder of some members; it is made once.
    fn decoder(&mut self, members: &[Slot]) -> Result<&Decoder<E::Scalar>, Trouble> {
        if !self.decoders.contains_key(members) {
            let decoder = decoder_within(&self.generator, members, self.precision);
            let (decoder, _) = decoder.map_err(Trouble::new)?;
            self.decoders.insert(members.to_vec(), decoder);
        }
        Ok(&self.decoders[members])
    }

    /// Replaces the products of a block's rows by their slopes; those of padding by nothing.
    fn slope(
        &self,
        block: usize,
        places: &Range<usize>,
        values: &mut [E],
        tallied: &mut Tallied,
    ) -> Result<(), Trouble> {
        let columns = self.model.columns();
        let rows = self.blocks.data_rows(block, places);
        let (own, padding) = values.split_at_mut(rows.len() * columns);
        let mut wide = vec![0.0; own.len()];
        E::products(self.scale, own, &mut wide);
        let outcome = self.model.judge(&mut wide, &self.targets[rows.clone()]);
        let slopes = E::slopes(columns, &wide).map_err(|e| self.explained(Trouble::new(e)))?;
        for row in slopes.chunks_exact(columns) {
            for (slope, (largest, sum)) in row.iter().zip(&mut tallied.sizes) {
                let size = slope.size_fixed();
                *largest = size.max(*largest);
                *sum += u128::from(size);
            }
        }
        own.copy_from_slice(&slopes);
        padding.fill(E::default());
        tallied.loss_sum += outcome.loss_sum;
        tallied.correct += outcome.correct;
        tallied.read.extend(self.ids[rows].iter().copied());
        Ok(())
    }

    /// Scores of one batch of a held-out part, as JSON.
    pub fn score(&self, part: HeldOut, batch: u64, weights: &[f64]) -> Result<Vec<u8>, Trouble> {
        let loader = match part {
            HeldOut::Validation => &self.held_out[0],
            HeldOut::Test => &self.held_out[1],
        };
        let loader =
            loader.as_ref().ok_or_else(|| Trouble::new("there is no such held-out part"))?;
        let places = batch_range(loader.part().len(), EVALUATION_BATCH, batch);
        let mut read = Batch::default();
        loader.fill(0, places, &mut read).map_err(data_trouble)?;
        let outputs = plain::outputs(&self.model, weights, &read.inputs);
        let mut scores = Scores::new(self.model.columns(), self.classes);
        self.model.count(&outputs, targets(&read.targets), &mut scores);
        serde_json::to_vec(&scores).map_err(Trouble::new)
    }

    fn rows(&self, places: &Range<usize>) -> Result<&[E], Trouble> {
        let (_, block) = self.block.as_ref().ok_or_else(|| Trouble::new("it has no block yet"))?;
        let width = self.model.width();
        block
            .rows
            .get(places.start * width..places.end * width)
            .ok_or_else(|| Trouble::new(format!("it has no places {places:?}")))
    }

    /// In exact arithmetic without a scale features must be whole numbers.
    fn refuse_fractions(&self) -> Result<(), Trouble> {
        let mut batch = Batch::default();
        let count = self.data.part().len();
        for first in (0..count).step_by(ROWS_AT_ONCE) {
            let places = first..(first + ROWS_AT_ONCE as u64).min(count);
            self.data.fill(0, places, &mut batch).map_err(data_trouble)?;
            plain::whole(self.model.features, &batch.inputs).map_err(|column| {
                let name = self.names.get(column).map_or("?", String::as_str);
                Trouble {
                    message: format!(
                        "`precision: exact` computes with whole numbers, but feature `{name}` has \
                         others"
                    ),
                    hint: Some("set `train.coded.scale`, bin the column, or use `f64`".into()),
                    fix_input: true,
                }
            })?;
        }
        Ok(())
    }

    /// An error of arithmetic names columns by their numbers; people know them by their names.
    fn explained(&self, trouble: Trouble) -> Trouble {
        let word = trouble.message.split("column ").nth(1);
        let number: Option<usize> = word.and_then(|w| {
            w.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok())
        });
        match number.and_then(|n| self.names.get(n)) {
            Some(name) => {
                Trouble { message: format!("{} (it is `{name}`)", trouble.message), ..trouble }
            }
            None => trouble,
        }
    }
}

impl<E: Value> Arithmetic<E> for Bench<E> {
    fn multiply(&self, places: &Range<usize>, weights: &[E]) -> Result<Vec<E>, Trouble> {
        let rows = self.rows(places)?;
        if weights.len() != self.model.weights() {
            return Err(Trouble::new(format!("{} weights came", weights.len())));
        }
        let mut out = vec![E::default(); places.len() * self.model.columns()];
        product::rows_times(self.model.width(), rows, weights, &mut out);
        Ok(out)
    }

    fn decode(
        &mut self,
        places: &Range<usize>,
        inputs: &[Slot],
        outputs: &[Slot],
        products: &[&[E]],
    ) -> Result<(Vec<E>, Tallied), Trouble> {
        let (columns, threshold) = (self.model.columns(), self.blocks.threshold());
        let length = places.len() * columns;
        let are_whole = products.iter().all(|product| product.len() == length);
        if !are_whole || [products.len(), inputs.len(), outputs.len()] != [threshold; 3] {
            return Err(Trouble::new("a group came without all its products"));
        }
        let mut blocks = vec![E::default(); length * threshold];
        self.decoder(inputs)?.decode(products, &mut blocks);
        let mut tallied = Tallied { sizes: vec![(0, 0); columns], ..Tallied::default() };
        for (block, values) in blocks.chunks_exact_mut(length.max(1)).enumerate() {
            self.slope(block, places, values, &mut tallied)?;
        }
        let mut entries = vec![E::default(); blocks.len()];
        self.decoder(outputs)?.transform(&blocks, &mut entries);
        Ok((entries, tallied))
    }

    fn add(&self, places: &Range<usize>, entries: &[E]) -> Result<Vec<E>, Trouble> {
        let rows = self.rows(places)?;
        if entries.len() != places.len() * self.model.columns() {
            return Err(Trouble::new(format!("{} entries came", entries.len())));
        }
        let mut sums = vec![E::default(); self.model.weights()];
        product::add_rows_scaled(self.model.width(), rows, entries, &mut sums);
        Ok(sums)
    }
}

/// Ids and targets of all rows, in their order.
fn labels(loader: &Loader, model: &Model) -> Result<(Vec<u64>, Vec<f64>), Trouble> {
    let count = loader.part().len();
    let (mut ids, mut list) = (Vec::new(), Vec::new());
    let mut batch = Batch::default();
    for first in (0..count).step_by(ROWS_AT_ONCE) {
        let places = first..(first + ROWS_AT_ONCE as u64).min(count);
        loader.fill(0, places, &mut batch).map_err(data_trouble)?;
        ids.extend_from_slice(&batch.ids);
        list.extend(model.targets(targets(&batch.targets)));
    }
    Ok((ids, list))
}

/// What tells a coding from others: data, how it is read, and the code.
fn digest(launch: &Launch, encoder: Option<&planaria_data::table::Encoder>) -> String {
    let recipe = &launch.recipe;
    let mut hash = Sha256::new();
    let parts = [
        serde_json::to_string(&recipe.data).unwrap_or_default(),
        serde_json::to_string(&recipe.model).unwrap_or_default(),
        serde_json::to_string(&recipe.train.coded).unwrap_or_default(),
        serde_json::to_string(&launch.facts.marks).unwrap_or_default(),
        serde_json::to_string(&encoder).unwrap_or_default(),
        format!("{} {}", recipe.seed, launch.facts.examples),
    ];
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
