//! Batches, and how they are filled: any run of places of any epoch, in any order, on any machine.

use crate::augment::Augmenter;
use crate::error::Error;
use crate::order::{Permutation, epoch_order};
use crate::part::Part;
use crate::scale::Scale;
use crate::source::Targets;
use planaria_numerics::aggregate::shard_range;
use planaria_numerics::digest::Digest;
use planaria_recipe::sections::{Augment, Normalize};
use std::ops::Range;

/// Examples that are computed together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Epoch it belongs to, from 0.
    pub epoch: u64,
    /// Its number in the epoch, from 0.
    pub step: u64,
    pub ids: Vec<u64>,
    /// Scaled and augmented values, example after example, channels innermost.
    pub inputs: Vec<f32>,
    /// What should be answered.
    pub targets: Targets,
    /// Examples that are about to be augmented.
    scratch: Vec<f32>,
    /// For sources that do not hold their examples in memory.
    room: Vec<u8>,
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        (self.epoch, self.step) == (other.epoch, other.step)
            && self.ids == other.ids
            && self.inputs == other.inputs
            && self.targets == other.targets
    }
}

impl Batch {
    /// Number of examples.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Examples of shard `v` of `shards`, as a range of this batch's examples.
    pub fn shard(&self, shards: usize, v: usize) -> Range<usize> {
        shard_range(self.len(), shards, v)
    }

    /// Digest of the example ids.
    pub fn digest(&self) -> Digest {
        self.ids.iter().copied().collect()
    }
}

/// Fills batches from a part: scales, and augments where asked.
#[derive(Debug, Clone)]
pub struct Loader {
    part: Part,
    seed: u64,
    shuffle: bool,
    scale: Scale,
    augmenter: Option<Augmenter>,
}

impl Loader {
    /// For training: each epoch in its own order, augmented by (seed, epoch, example id).
    pub fn training(
        part: Part,
        seed: u64,
        normalize: &Normalize,
        augment: &Augment,
    ) -> Result<Self, Error> {
        let augmenter =
            Augmenter::new(augment, part.source().shape()).map_err(|e| e.at("data.augment"))?;
        Ok(Self { seed, shuffle: true, augmenter, ..Self::evaluation(part, normalize)? })
    }

    /// For validation, test and inference: in the part's order, unchanged but for scaling.
    pub fn evaluation(part: Part, normalize: &Normalize) -> Result<Self, Error> {
        let channels = part.source().shape().channels();
        let scale = Scale::new(normalize, channels).map_err(|e| e.at("data.normalize"))?;
        Ok(Self { part, seed: 0, shuffle: false, scale, augmenter: None })
    }

    /// Where the examples come from.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Fills `batch` with the examples at `places` of the epoch's order (see [`crate::order`]),
    /// whatever it held before. Places are below the part's length.
    pub fn fill(&self, epoch: u64, places: Range<u64>, batch: &mut Batch) -> Result<(), Error> {
        self.label(epoch, places, batch)?;
        self.read_inputs(epoch, batch)
    }

    /// As [`Loader::fill`], but only ids and targets: inputs are left as they were.
    pub fn label(&self, epoch: u64, places: Range<u64>, batch: &mut Batch) -> Result<(), Error> {
        let n = self.part.len();
        let order =
            if self.shuffle { epoch_order(self.seed, epoch, n) } else { Permutation::identity(n) };
        batch.epoch = epoch;
        batch.ids.clear();
        batch.ids.extend(places.map(|place| self.part.id(order.at(place))));
        let source = self.part.source();
        batch.targets.clear(source.target());
        source.targets(&batch.ids, &mut batch.room, &mut batch.targets)
    }

    fn read_inputs(&self, epoch: u64, batch: &mut Batch) -> Result<(), Error> {
        let source = self.part.source();
        let len = source.shape().len();
        let Batch { ids, inputs, scratch, room, .. } = batch;
        inputs.resize(ids.len() * len, 0.0);
        let Some(augmenter) = &self.augmenter else {
            return source.read(ids, &self.scale, room, inputs);
        };
        scratch.resize(ids.len() * len, 0.0);
        source.read(ids, &self.scale, room, scratch)?;
        let examples = scratch.chunks_exact(len).zip(inputs.chunks_exact_mut(len));
        for (id, (from, to)) in ids.iter().zip(examples) {
            augmenter.apply(self.seed, epoch, *id, from, to);
        }
        Ok(())
    }
}
