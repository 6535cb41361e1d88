//! Rows are the same bytes however many are made at a time, and those that one process would encode.

use super::*;
use crate::methods::coded::{block, serving::check};
use crate::methods::facts;
use planaria_learn::Network;
use planaria_protocol::launch::Facts;
use planaria_recipe::{DataFacts, Source};
use std::fmt::Write;
use std::path::Path;

/// A table of 49 rows with features of whole numbers.
fn table(folder: &Path, odd: &str) -> String {
    let mut text = String::from("a,b,colour,answer\n");
    for i in 0..49 {
        let b = if i % 7 == 3 { odd.to_owned() } else { (i * 7 % 11).to_string() };
        let colour = ["red", "green", "blue"][i % 3];
        let _ = writeln!(text, "{},{b},{colour},{}", i % 5, ["no", "yes"][i % 2]);
    }
    let path = folder.join("rows.csv");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn opened(precision: &str, odd: &str) -> (Recipe, Facts, DataSet) {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path(), odd);
    let text = format!(
        "{{name: t, seed: 3, data: {{train: \"{path}\", format: csv, test: 0.2, validation: 0.1, \
         table: {{label: answer, positive: yes, one_hot: [colour], standardize: false}}}}, \
         model: {{layers: [{{Dense: {{units: 1}}}}]}}, \
         train: {{method: coded, loss: squared_hinge, epochs: 1, \
         coded: {{threshold: 3, machines: 5, precision: {precision}}}}}}}"
    );
    let source = Source::parse("t.yaml", text.as_bytes(), &[]).unwrap_or_else(|e| panic!("{e}"));
    let set = planaria_data::open(&source.recipe().data, source.recipe().seed).unwrap();
    let examples = set.facts.train as usize;
    let seen = DataFacts { input: set.facts.input, classes: set.facts.classes(), examples };
    let plan = source.plan(&seen).unwrap_or_else(|e| panic!("{e}"));
    let facts = facts(&plan, &set, &Network::of(&plan.recipe, plan.input).unwrap());
    (plan.recipe, facts, set)
}

/// All bytes of what is wanted, so many rows at a time.
fn all(rows: &dyn Rows, wanted: Wanted, at_once: u64) -> Vec<u8> {
    let (length, _) = rows.look(wanted).unwrap();
    let mut out = Vec::new();
    for first in (0..length.units).step_by(at_once as usize) {
        rows.fill(wanted, first..(first + at_once).min(length.units), &mut out).unwrap();
    }
    assert_eq!(out.len() as u64, length.units * length.unit_bytes);
    out
}

/// Blocks are what an encoder makes of all rows in their order.
fn encodes<E: Value + PartialEq + std::fmt::Debug>(precision: &str) {
    let (recipe, facts, set) = opened(precision, "3");
    let rows = of(&recipe, facts.input, set.clone()).unwrap();
    let generator = E::code(3, 5).unwrap();
    let width = facts.input.len() + 1;
    let blocks = Blocks::new(set.train.len() as usize, 3).unwrap();
    assert_ne!(blocks.rows() % 3, 0, "the last block is filled up");
    let loader = Loader::evaluation(set.train.clone(), &recipe.data.normalize).unwrap();
    let mut batch = Batch::default();
    loader.fill(0, 0..set.train.len(), &mut batch).unwrap();
    let wide = plain::with_ones(width - 1, width, &batch.inputs);
    let values = E::data(DataScale(1), width, &wide).unwrap();
    for slot in 0..5 {
        let places = 0..blocks.height();
        let mut encoder = Encoder::<E>::new(&generator, Slot(slot), blocks, width, places).unwrap();
        encoder.push(0, &blocks::Rows::Dense { width, values: &values }).unwrap();
        let expected = encoder.finish().unwrap();
        for at_once in [1, 4, 1000] {
            let bytes = all(&*rows, Wanted::Block { slot }, at_once);
            assert_eq!(E::take(&bytes), Some(expected.clone()), "slot {slot}, {at_once}");
        }
    }
    let mut out = Vec::new();
    assert!(rows.fill(Wanted::Block { slot: 5 }, 0..1, &mut out).is_err(), "no such slot");
}

#[test]
fn blocks_are_what_one_process_would_encode() {
    encodes::<f32>("f32");
    encodes::<f64>("f64");
    encodes::<Residue>("exact");
}

#[test]
fn labels_and_held_out_rows_are_plain() {
    let (recipe, facts, set) = opened("exact", "3");
    let rows = of(&recipe, facts.input, set.clone()).unwrap();
    let labels = all(&*rows, Wanted::Labels, 7);
    let labels = block::labels(&labels).unwrap();
    let ids: Vec<u64> = labels.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, (0..set.train.len()).map(|at| set.train.id(at)).collect::<Vec<_>>());
    assert!(labels.iter().all(|(_, target)| target.abs() == 1.0));

    let wanted = Wanted::Batch { part: HeldOut::Test, batch: 0 };
    let (length, head) = rows.look(wanted).unwrap();
    assert_eq!((length.units, head.as_slice()), (facts.test, [0].as_slice()));
    let bytes = all(&*rows, wanted, 2);
    let words = block::words(&bytes).unwrap();
    let held = block::Held::of(&words, facts.input.len(), &head).unwrap();
    let loader = Loader::evaluation(set.test.unwrap(), &recipe.data.normalize).unwrap();
    let mut batch = Batch::default();
    loader.fill(0, 0..facts.test, &mut batch).unwrap();
    assert_eq!((held.inputs, held.targets), (batch.inputs, batch.targets));
    let none = rows.look(Wanted::Batch { part: HeldOut::Test, batch: 1 }).unwrap();
    assert_eq!(none.0.units, 0);
}

#[test]
fn exact_rows_have_bounds_and_fractions_are_named() {
    let (recipe, facts, set) = opened("exact", "3");
    let head = of(&recipe, facts.input, set).unwrap().look(Wanted::Block { slot: 0 }).unwrap().1;
    assert!(serde_json::from_slice::<Bounds>(&head).is_ok());
    let (recipe, facts, set) = opened("exact", "3.5");
    let found = check(&recipe, facts.input, &set).unwrap_err();
    assert!(found.fix_input && found.message.contains("feature `b`"), "{found:?}");
    let (recipe, facts, set) = opened("f64", "3.5");
    assert_eq!(check(&recipe, facts.input, &set), Ok(()));
}

#[test]
fn codings_are_told_apart() {
    let digest = |precision: &str| opened(precision, "3").1.coding.unwrap().digest;
    // The table lies at another path each time.
    assert_ne!(digest("f64"), digest("exact"));
    let (_, facts, _) = opened("f64", "3");
    assert_eq!(facts.coding.unwrap().class_names, ["no", "yes"]);
}
