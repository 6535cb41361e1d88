//! Examples as the features that something fixed makes of them.
//!
//! Owns when that is computed: once for each part, when its first example is read. A caller that
//! opens data gets parts that read like any other. Never knows what makes the features.

use crate::batch::{Batch, Loader};
use crate::budget::Memory;
use crate::dataset::{DataSet, Facts, Mark};
use crate::error::Error;
use crate::part::Part;
use crate::records::{Records, Spool, float_bytes, floats};
use crate::scale::Scale;
use crate::source::{DataFile, Source, Target, Targets};
use planaria_recipe::sections::Normalize;
use planaria_recipe::shape::Shape;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The recipe key that asks for features.
pub const KEY: &str = "model.features.from";
/// Examples that are read and changed at a time.
const ROWS_AT_ONCE: u64 = 256;

/// Makes features of examples; the same of the same, whatever comes before.
pub trait Extract: Send + std::fmt::Debug {
    /// Shape of an example.
    fn input(&self) -> Shape;
    /// Shape of its features.
    fn output(&self) -> Shape;
    /// Features of examples, one after the other; `out` has room for all of them.
    fn apply(&mut self, inputs: &[f32], out: &mut [f32]);
}

/// What all parts share.
type Extractor = Arc<Mutex<dyn Extract>>;

impl DataSet {
    /// The same data as features: examples are scaled by `normalize` and given to `by`. `mark` is
    /// what `by` is known again by.
    pub fn extracted(
        mut self,
        by: Extractor,
        normalize: &Normalize,
        mark: Mark,
    ) -> Result<Self, Error> {
        self.facts = self.facts.extracted(&by)?;
        let shape = self.facts.input;
        let features = |part: Part| {
            let loader = Loader::evaluation(part, normalize)?;
            let source = Features { loader, by: by.clone(), shape, values: Mutex::default() };
            Ok::<_, Error>(Part::whole(Arc::new(source)))
        };
        self.train = features(self.train)?;
        self.validation = self.validation.map(features).transpose()?;
        self.test = self.test.map(features).transpose()?;
        self.marks.push(mark);
        self.is_extracted = true;
        Ok(self)
    }
}

impl Facts {
    /// What is known of the data as features.
    pub fn extracted(mut self, by: &Extractor) -> Result<Self, Error> {
        let by = by.lock().unwrap_or_else(PoisonError::into_inner);
        if by.input() != self.input {
            let message = format!(
                "the saved network takes examples of {}, but `data.train` holds examples of {}",
                by.input(),
                self.input
            );
            return Err(Error::setting(message).at(KEY));
        }
        self.input = by.output();
        Ok(self)
    }
}

/// A part as features; its examples count from 0 in the part's order.
#[derive(Debug)]
struct Features {
    loader: Loader,
    by: Extractor,
    shape: Shape,
    /// Of all examples, once one was read.
    values: Mutex<Option<Arc<Records>>>,
}

impl Features {
    fn part(&self) -> &Part {
        self.loader.part()
    }

    fn all(&self) -> Result<Arc<Records>, Error> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(values) = &*values {
            return Ok(values.clone());
        }
        let computed = Arc::new(self.compute()?);
        *values = Some(computed.clone());
        Ok(computed)
    }

    fn compute(&self) -> Result<Records, Error> {
        let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, width) = (self.part().len(), self.shape.len());
        let mut spool = Spool::new(Path::new(KEY), &Memory::of_process());
        let (mut batch, mut made, mut bytes) = (Batch::default(), Vec::new(), Vec::new());
        for first in (0..count).step_by(ROWS_AT_ONCE as usize) {
            let places = first..(first + ROWS_AT_ONCE).min(count);
            self.loader.fill(0, places, &mut batch)?;
            made.resize(batch.len() * width, 0.0);
            by.apply(&batch.inputs, &mut made);
            check_finite(first, width, &made)?;
            float_bytes(&made, &mut bytes);
            spool.push(&bytes)?;
        }
        Ok(Records::new(4 * width).with(spool.finish()?, count))
    }
}

fn check_finite(first: u64, width: usize, values: &[f32]) -> Result<(), Error> {
    let Some(at) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    let (row, column) = (first + (at / width.max(1)) as u64, at % width.max(1));
    let message =
        format!("the saved network makes {} of example {row} (feature {column})", values[at]);
    Err(Error::setting(message).at(KEY))
}

impl Source for Features {
    fn len(&self) -> u64 {
        self.part().len()
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn target(&self) -> Target {
        self.part().source().target()
    }

    /// Inputs have been scaled; their features are as they are.
    fn read(
        &self,
        ids: &[u64],
        _: &Scale,
        room: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let width = self.shape.len();
        self.all()?.each(ids, room, |i, record| {
            floats(record, &mut out[i * width..(i + 1) * width]);
        })
    }

    fn targets(&self, ids: &[u64], room: &mut Vec<u8>, out: &mut Targets) -> Result<(), Error> {
        let source = self.part().source();
        ids.iter().try_for_each(|id| source.targets(&[self.part().id(*id)], room, out))
    }

    fn files(&self) -> &[DataFile] {
        self.part().source().files()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::open;
    use planaria_recipe::sections::{Augment, Data, Format, Part as Section};

    /// Two features: the sum of an example's values, and how often it was asked.
    #[derive(Debug, Default)]
    struct Sums {
        asked: f32,
    }

    impl Extract for Sums {
        fn input(&self) -> Shape {
            Shape::Image { height: 28, width: 28, channels: 1 }
        }

        fn output(&self) -> Shape {
            Shape::Vector(2)
        }

        fn apply(&mut self, inputs: &[f32], out: &mut [f32]) {
            self.asked += 1.0;
            for (example, out) in inputs.chunks_exact(28 * 28).zip(out.chunks_exact_mut(2)) {
                out.copy_from_slice(&[example.iter().sum(), self.asked]);
            }
        }
    }

    fn data() -> Data {
        Data {
            train: "digits".into(),
            test: None,
            validation: Some(Section::Share(0.2)),
            format: Format::Auto,
            table: None,
            examples: Some(600),
            normalize: Normalize::default(),
            augment: Augment::default(),
        }
    }

    #[test]
    fn parts_read_as_features_that_are_computed_once() {
        let plain = open(&data(), 4).unwrap();
        let mark = Mark { name: "sums".into(), content: "1".into() };
        let normalize = Normalize { mean: vec![0.5], std: vec![2.0] };
        let by = Arc::new(Mutex::new(Sums::default()));
        let set = open(&data(), 4).unwrap().extracted(by, &normalize, mark.clone()).unwrap();
        assert_eq!((set.facts.input, set.marks.last()), (Shape::Vector(2), Some(&mark)));
        assert_eq!(set.feature_names(), ["0", "1"]);
        let whole = |part: &Part, normalize: &Normalize| {
            let mut batch = Batch::default();
            let loader = Loader::evaluation(part.clone(), normalize).unwrap();
            loader.fill(0, 0..part.len(), &mut batch).unwrap();
            batch
        };
        let (raw, features) =
            (whole(&plain.train, &normalize), whole(&set.train, &data().normalize));
        assert_eq!(features.targets, raw.targets);
        let sums: Vec<f32> =
            raw.inputs.chunks_exact(784).map(|example| example.iter().sum()).collect();
        let found: Vec<f32> = features.inputs.chunks_exact(2).map(|row| row[0]).collect();
        assert_eq!(found, sums);
        assert_eq!(whole(&set.train, &normalize), features, "again, and not scaled");
        let held = |set: &DataSet| set.validation.as_ref().map(Part::len);
        assert_eq!(held(&set), held(&plain));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        #[derive(Debug)]
        struct Other;
        impl Extract for Other {
            fn input(&self) -> Shape {
                Shape::Vector(7)
            }
            fn output(&self) -> Shape {
                Shape::Vector(1)
            }
            fn apply(&mut self, _: &[f32], _: &mut [f32]) {}
        }
        let mark = Mark { name: "other".into(), content: "1".into() };
        let by = Arc::new(Mutex::new(Other));
        let set = open(&data(), 4).unwrap();
        let error = set.extracted(by, &Normalize::default(), mark).unwrap_err();
        assert_eq!(error.key(), Some(KEY));
        let said = error.to_string();
        assert!(said.contains("takes examples of 7") && said.contains("28"), "{said}");
    }
}
