//! What a worker of a coded run computes with and on, for as long as its process lives.
//!
//! Every order is a function of the block, the labels and what comes with it. Rows come from the
//! source or the machine's cache when they are first needed; nothing else waits. Never opens data.

use super::block::{self, Block, Held, LABEL_BYTES};
use super::cache::Cache;
use super::round::Arithmetic;
use super::source::{Download, Missed, Source, Watch};
use super::{Seated, Value};
use crate::data::targets;
use planaria_data::order::batch_range;
use planaria_learn::Scores;
use planaria_learn::linear::{Batches, Model, plain};
use planaria_learn::scores::numbers::Counting;
use planaria_numerics::coding::blocks::Blocks;
use planaria_numerics::coding::exact::DataScale;
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::coding::group::{Decoder, decoder_within};
use planaria_numerics::coding::{Precision, Slot, product};
use planaria_numerics::regression::TargetScale;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{EVALUATION_BATCH, HeldOut, Trouble};
use planaria_protocol::methods::coded::Tallied;
use planaria_protocol::transfer::rows::Wanted;
use planaria_recipe::train::LinearPrecision;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of held-out rows that are kept in memory, at most.
const HELD_BYTES_MAX: usize = 256 << 20;

/// What a worker computes with and on.
pub struct Rows<E: Value> {
    model: Model,
    generator: Generator<E::Scalar>,
    precision: Precision,
    scale: DataScale,
    blocks: Blocks,
    ids: Vec<u64>,
    targets: Vec<f64>,
    /// Rows of the held-out parts, and those that were scored.
    held_out: [u64; 2],
    held: BTreeMap<(HeldOut, u64), Held>,
    classes: usize,
    /// How numbers to predict were scaled.
    target: TargetScale,
    source: Source,
    cache: Option<Cache>,
    block: Option<(Slot, Block<E>)>,
    /// What has come of a block that was cut off.
    partial: Option<(u16, Download<E>)>,
    /// Bytes that came for the block and the labels since it was last ready.
    downloaded: u64,
    decoders: BTreeMap<Vec<Slot>, Decoder<E::Scalar>>,
}

impl<E: Value> Rows<E> {
    /// Without rows yet.
    pub fn prepare(launch: &Launch, source: Source) -> Result<Self, Trouble> {
        let (recipe, facts) = (&launch.recipe, &launch.facts);
        let absent = || Trouble::new("the recipe has no code");
        let (code, coding) = recipe.train.code().zip(facts.coding.as_ref()).ok_or_else(absent)?;
        let wrong = |e: &dyn std::fmt::Display| Trouble { fix_input: true, ..Trouble::new(e) };
        let model = Model::of(recipe, facts.input, &coding.class_names).map_err(|e| wrong(&e))?;
        let count = usize::try_from(facts.examples).map_err(Trouble::new)?;
        let batches = Batches::of(&recipe.train, count).map_err(|e| wrong(&e))?;
        let precision = match code.precision {
            LinearPrecision::F32 => Precision::F32,
            LinearPrecision::F64 => Precision::F64,
            LinearPrecision::Exact => Precision::Exact,
        };
        Ok(Self {
            model,
            generator: E::code(code.threshold, code.machines).map_err(|e| wrong(&e))?,
            precision,
            scale: DataScale(code.scale.unwrap_or(1)),
            blocks: batches.blocks(),
            ids: Vec::new(),
            targets: Vec::new(),
            held_out: [facts.validation, facts.test],
            held: BTreeMap::new(),
            classes: facts.classes as usize,
            target: coding.target,
            source,
            cache: Cache::of(&coding.digest),
            block: None,
            partial: None,
            downloaded: 0,
            decoders: BTreeMap::new(),
        })
    }

    /// The same, with blocks kept elsewhere than the user keeps them.
    pub fn with_cache(self, cache: Cache) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// Slots whose blocks this machine has; its own first.
    pub fn kept(&self) -> Vec<u16> {
        let own = self.block.as_ref().map(|(slot, _)| slot.0);
        let cached = self.cache.as_ref().map_or_else(Vec::new, Cache::slots);
        own.into_iter().chain(cached.into_iter().filter(|slot| Some(*slot) != own)).collect()
    }

    /// Holds the rows of a slot, and the labels of all.
    pub fn sit(&mut self, slot: u16, watch: Watch<'_>) -> Result<Seated, Missed> {
        let mut cached = true;
        if self.block.as_ref().is_none_or(|(own, _)| own.0 != slot) {
            self.block = None;
            let values = self.blocks.height() * self.model.width();
            let found = self.cache.as_ref().and_then(|cache| cache.read(slot, values));
            cached = found.is_some();
            let block = match found {
                Some(block) => block,
                None => self.fetch_block(slot, watch)?,
            };
            self.block = Some((Slot(slot), block));
        }
        self.partial = None;
        if self.targets.is_empty() {
            self.take_labels(watch)?;
        }
        let downloaded = std::mem::take(&mut self.downloaded);
        let engine = format!("coded {}", self.precision);
        Ok(Seated { slot, cached, downloaded, bounds: self.bounds(), engine })
    }

    /// Fetches the rows of a slot, or the rest of them, and keeps them.
    fn fetch_block(&mut self, slot: u16, watch: Watch<'_>) -> Result<Block<E>, Missed> {
        let width = self.model.width();
        let partial = self.partial.take().filter(|(own, _)| *own == slot);
        let (_, mut rows) = partial.unwrap_or_else(|| {
            (slot, Download::new(self.blocks.height(), width, E::BYTES, E::take))
        });
        let fetched = self.source.fetch(Wanted::Block { slot }, &mut rows, watch);
        self.downloaded += rows.take_bytes();
        if let Err(missed) = fetched {
            self.partial = Some((slot, rows));
            return Err(missed);
        }
        let block = rows.finish().and_then(|(rows, head)| Block::of(rows, width, &head));
        let block = block.ok_or_else(|| Trouble::new("the source sent invalid bounds"))?;
        if let Some(Err(e)) = self.cache.as_ref().map(|cache| cache.write(slot, &block)) {
            (watch.log)(&format!("the block is not cached: {e}"));
        }
        Ok(block)
    }

    /// Ids and targets of all rows, in their order.
    fn take_labels(&mut self, watch: Watch<'_>) -> Result<(), Missed> {
        let rows = self.blocks.rows();
        let mut found = self.cache.as_ref().and_then(|cache| cache.read_labels(rows));
        if found.is_none() {
            let mut labels = Download::new(rows, 1, LABEL_BYTES, block::labels);
            let fetched = self.source.fetch(Wanted::Labels, &mut labels, watch);
            self.downloaded += labels.take_bytes();
            fetched?;
            found = labels.finish().map(|(labels, _)| labels);
            let kept = self.cache.as_ref().zip(found.as_ref()).map(|(c, l)| c.write_labels(l));
            if let Some(Err(e)) = kept {
                (watch.log)(&format!("the labels are not cached: {e}"));
            }
        }
        (self.ids, self.targets) = found.unwrap_or_default().into_iter().unzip();
        Ok(())
    }

    /// What bounds products, as JSON; nothing for floats.
    fn bounds(&self) -> Vec<u8> {
        let bounds = self.block.as_ref().filter(|_| self.precision == Precision::Exact);
        bounds.and_then(|(_, block)| serde_json::to_vec(&block.bounds).ok()).unwrap_or_default()
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
        let slopes = E::slopes(columns, &wide).map_err(Trouble::new)?;
        for row in slopes.chunks_exact(columns) {
            for (slope, (largest, sum)) in row.iter().zip(&mut tallied.sizes) {
                let size = slope.size_fixed();
                *largest = size.max(*largest);
                *sum += u128::from(size);
            }
        }
        own.copy_from_slice(&slopes);
        padding.fill(E::default());
        tallied.loss_sum.combine(&outcome.loss_sum);
        tallied.correct += outcome.correct;
        tallied.read.extend(self.ids[rows].iter().copied());
        Ok(())
    }

    /// Scores of one batch of a held-out part, as JSON.
    pub fn score(
        &mut self,
        part: HeldOut,
        batch: u64,
        weights: &[f64],
        watch: Watch<'_>,
    ) -> Result<Vec<u8>, Missed> {
        let fresh = match self.held.contains_key(&(part, batch)) {
            true => None,
            false => Some(self.fetch_batch(part, batch, watch)?),
        };
        let held = fresh.as_ref().or_else(|| self.held.get(&(part, batch)));
        let held = held.ok_or_else(|| Trouble::new("there is no such batch"))?;
        let outputs = plain::outputs(&self.model, weights, &held.inputs);
        let first = batch * EVALUATION_BATCH as u64;
        let counting = Counting::new(self.target, first, self.held_out_len(part));
        let mut scores = Scores::new(self.model.columns(), self.classes).counting(counting);
        self.model.count(&outputs, targets(&held.targets), &mut scores);
        if let Some(held) = fresh {
            self.keep_batch(part, batch, held);
        }
        Ok(scores.to_json())
    }

    fn fetch_batch(&self, part: HeldOut, batch: u64, watch: Watch<'_>) -> Result<Held, Missed> {
        let places = batch_range(self.held_out_len(part), EVALUATION_BATCH, batch);
        let rows = usize::try_from(places.end.saturating_sub(places.start)).unwrap_or_default();
        let features = self.model.features;
        let mut words = Download::new(rows, features + 1, 4, block::words);
        self.source.fetch(Wanted::Batch { part, batch }, &mut words, watch)?;
        let held = words.finish().and_then(|(words, head)| Held::of(&words, features, &head));
        Ok(held.ok_or_else(|| Trouble::new("the source sent an invalid batch"))?)
    }

    fn held_out_len(&self, part: HeldOut) -> u64 {
        match part {
            HeldOut::Validation => self.held_out[0],
            HeldOut::Test => self.held_out[1],
        }
    }

    fn keep_batch(&mut self, part: HeldOut, batch: u64, held: Held) {
        let kept: usize = self.held.values().map(Held::bytes).sum();
        if kept + held.bytes() <= HELD_BYTES_MAX {
            self.held.insert((part, batch), held);
        }
    }

    fn rows(&self, places: &Range<usize>) -> Result<&[E], Trouble> {
        let (_, block) = self.block.as_ref().ok_or_else(|| Trouble::new("it has no block yet"))?;
        let width = self.model.width();
        block
            .rows
            .get(places.start * width..places.end * width)
            .ok_or_else(|| Trouble::new(format!("it has no places {places:?}")))
    }
}

impl<E: Value> Arithmetic<E> for Rows<E> {
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
