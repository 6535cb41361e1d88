//! Batches, and how they are filled: any run of places of any epoch, in any order, on any machine.

use crate::augment::Augmenter;
use crate::error::Error;
use crate::order::{Permutation, epoch_order};
use crate::part::Part;
use crate::scale::Scale;
use crate::source::Target;
use planaria_numerics::aggregate::shard_range;
use planaria_numerics::digest::Digest;
use planaria_recipe::sections::{Augment, Normalize};
use std::ops::Range;

/// How many examples ahead a source is told what will be read.
const PREFETCH_AHEAD: usize = 2;

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
    /// Room for an example that is about to be augmented.
    scratch: Vec<f32>,
}

/// What should be answered for the examples of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// The class of each example.
    Classes(Vec<u32>),
    /// So many numbers for each example.
    Values(Vec<f32>),
}

impl Default for Targets {
    fn default() -> Self {
        Self::Classes(Vec::new())
    }
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
        self.label(epoch, places, batch);
        self.read_inputs(epoch, batch)
    }

    /// As [`Loader::fill`], but only ids and targets: inputs are left as they were.
    pub fn label(&self, epoch: u64, places: Range<u64>, batch: &mut Batch) {
        let n = self.part.len();
        let order =
            if self.shuffle { epoch_order(self.seed, epoch, n) } else { Permutation::identity(n) };
        batch.epoch = epoch;
        batch.ids.clear();
        batch.ids.extend(places.map(|place| self.part.id(order.at(place))));
        self.read_targets(batch);
    }

    fn read_inputs(&self, epoch: u64, batch: &mut Batch) -> Result<(), Error> {
        let source = self.part.source();
        let len = source.shape().len();
        batch.inputs.resize(batch.ids.len() * len, 0.0);
        for (i, out) in batch.inputs.chunks_exact_mut(len).enumerate() {
            let id = batch.ids[i];
            if let Some(&later) = batch.ids.get(i + PREFETCH_AHEAD) {
                source.prefetch(later);
            }
            match &self.augmenter {
                None => source.read(id, &self.scale, out)?,
                Some(augmenter) => {
                    batch.scratch.resize(len, 0.0);
                    source.read(id, &self.scale, &mut batch.scratch)?;
                    augmenter.apply(self.seed, epoch, id, &batch.scratch, out);
                }
            }
        }
        Ok(())
    }

    fn read_targets(&self, batch: &mut Batch) {
        let source = self.part.source();
        match (source.target(), &mut batch.targets) {
            (Target::Class { .. }, Targets::Classes(classes)) => {
                classes.clear();
                classes.extend(batch.ids.iter().map(|&id| source.class(id)));
            }
            (Target::Values { .. }, Targets::Values(values)) => {
                values.clear();
                batch.ids.iter().for_each(|&id| values.extend_from_slice(source.values(id)));
            }
            (target, targets) => {
                *targets = match target {
                    Target::Class { .. } => Targets::Classes(Vec::new()),
                    Target::Values { .. } => Targets::Values(Vec::new()),
                };
                self.read_targets(batch);
            }
        }
    }
}
