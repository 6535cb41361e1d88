//! Reading ahead: the same batches from any start, in bounded memory, stopping when told.

mod support;

use planaria_data::order::{batch_range, batches};
use planaria_data::scale::Scale;
use planaria_data::sources::digits::Digits;
use planaria_data::{
    Batch, DataFile, Error, Loader, Part, Reader, Schedule, Source, Target, Targets, open,
};
use planaria_numerics::digest::Digest;
use planaria_recipe::sections::{Augment, Normalize};
use planaria_recipe::shape::Shape;
use std::collections::BTreeSet;
use std::sync::Arc;

fn loader(n: u64, augment: &Augment) -> Loader {
    let part = Part::whole(Arc::new(Digits::new(5, 0, n)));
    Loader::training(part, 9, &Normalize::default(), augment).unwrap()
}

fn all(loader: Loader, schedule: Schedule) -> Vec<Batch> {
    Reader::start(loader, schedule).unwrap().map(Result::unwrap).collect()
}

#[test]
fn any_start_gives_the_same_batches() {
    let augment = Augment { crop_padding: 3, horizontal_flip: true, cutout: 5 };
    let loader = loader(50, &augment);
    let whole = all(loader.clone(), Schedule { batch: 16, epochs: 0..3, step: 0 });
    assert_eq!(whole.len(), 12);
    assert_eq!(whole[3].len(), 2);
    for start in 0..12 {
        let schedule = Schedule { batch: 16, epochs: start / 4..3, step: start % 4 };
        assert_eq!(all(loader.clone(), schedule), whole[start as usize..]);
    }
    // And so does a loader that is asked for one batch alone.
    let mut alone = Batch::default();
    loader.fill(1, batch_range(50, 16, 2), &mut alone).unwrap();
    assert_eq!((alone.ids, alone.inputs), (whole[6].ids.clone(), whole[6].inputs.clone()));
    assert_ne!(whole[0].ids, whole[4].ids);
    assert!(all(loader, Schedule { batch: 16, epochs: 2..3, step: 9 }).is_empty());
}

#[test]
fn an_epoch_reads_each_example_once() {
    let mut section = support::data("digits");
    section.examples = Some(333);
    section.validation = Some(planaria_recipe::sections::Part::Share(0.1));
    let part = open(&section, 2).unwrap().train;
    let loader = Loader::training(part.clone(), 2, &Normalize::default(), &Augment::default());
    let reader = Reader::start(loader.unwrap(), Schedule { batch: 32, epochs: 0..2, step: 0 });
    let mut digests = [Digest::default(); 2];
    for batch in reader.unwrap() {
        let batch = batch.unwrap();
        let slot = &mut digests[batch.epoch as usize];
        *slot = slot.combine(batch.digest());
    }
    assert_eq!(digests, [part.digest(); 2]);
    assert_eq!(part.digest().count, 300);
}

#[test]
fn memory_is_used_again() {
    let loader = loader(60, &Augment::default());
    let mut reader = Reader::start(loader, Schedule { batch: 10, epochs: 0..40, step: 0 }).unwrap();
    let mut places = BTreeSet::new();
    let mut count = 0;
    while let Some(batch) = reader.next() {
        let batch = batch.unwrap();
        places.insert(batch.inputs.as_ptr() as usize);
        reader.recycle(batch);
        count += 1;
    }
    assert_eq!(count, 40 * batches(60, 10));
    assert!(places.len() <= 8, "{} buffers", places.len());
}

#[test]
fn dropping_stops_the_thread() {
    let reader = Reader::start(
        loader(2000, &Augment::default()),
        Schedule { batch: 10, epochs: 0..u64::MAX, step: 0 },
    );
    let mut reader = reader.unwrap();
    reader.next().unwrap().unwrap();
    // Joins the thread, which has an endless schedule: returning is the proof.
    drop(reader);
    let empty = Schedule { batch: 0, epochs: 0..1, step: 0 };
    assert!(Reader::start(loader(10, &Augment::default()), empty).is_err());
}

/// Fails, or breaks down, at one example.
#[derive(Debug)]
struct Broken {
    at: u64,
    panics: bool,
}

impl Source for Broken {
    fn len(&self) -> u64 {
        100
    }
    fn shape(&self) -> Shape {
        Shape::Vector(2)
    }
    fn target(&self) -> Target {
        Target::Values { width: 1 }
    }
    fn targets(&self, ids: &[u64], _: &mut Vec<u8>, out: &mut Targets) -> Result<(), Error> {
        if let Targets::Values(values) = out {
            values.extend(ids.iter().map(|_| 0.5));
        }
        Ok(())
    }
    fn read(&self, ids: &[u64], _: &Scale, _: &mut Vec<u8>, _: &mut [f32]) -> Result<(), Error> {
        let is_bad = ids.contains(&self.at);
        assert!(!(self.panics && is_bad), "breaks down on purpose");
        if is_bad {
            return Err(Error::Setting { message: format!("example {} is bad", self.at) });
        }
        Ok(())
    }
    fn files(&self) -> &[DataFile] {
        &[]
    }
}

#[test]
fn failures_come_in_their_place_and_end_the_reading() {
    let check = |panics: bool, expect: &str| {
        let part = Part::whole(Arc::new(Broken { at: 35, panics }));
        let loader = Loader::evaluation(part, &Normalize::default()).unwrap();
        let reader = Reader::start(loader, Schedule { batch: 10, epochs: 0..1, step: 0 });
        let read: Vec<_> = reader.unwrap().collect();
        assert_eq!(read.len(), 4);
        assert!(read[..3].iter().all(Result::is_ok));
        let error = read[3].as_ref().unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    check(false, "example 35 is bad");
    check(true, "its thread broke down");
}
