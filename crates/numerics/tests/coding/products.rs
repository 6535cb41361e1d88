//! Both products over machines chosen at random, for all sizes of codes; encoding in any pieces.

use crate::{
    cluster::{Cluster, Losses, Tally, alone, alone_second},
    numbers::{Numbers, normal, off, stream},
};
use planaria_numerics::{
    coding::{
        Error, Slot,
        blocks::{Blocks, Encoder, Rows},
        exact::Residue,
        plan::Plan,
        ring, speeds,
    },
    random::Stream,
};
use std::collections::BTreeSet;

struct Case<E: Numbers> {
    cluster: Cluster<E>,
    data: Vec<f64>,
    weights: Vec<f64>,
    slopes: Vec<f64>,
    columns: usize,
}

impl<E: Numbers> Case<E> {
    fn new(threshold: usize, machines: usize, rows: usize, columns: usize) -> Self {
        let width = 7;
        let mut draws = stream(threshold * 64 + machines, rows);
        let data = normal(&mut draws, rows * width);
        let weights = normal(&mut draws, width * columns);
        let slopes = normal(&mut draws, rows * columns);
        let cluster = Cluster::new(threshold, machines, width, &E::data(width, &data));
        Self { cluster, data, weights, slopes, columns }
    }

    /// How far both products are off on these machines, and the condition of their plan.
    fn run(&self, present: &BTreeSet<Slot>) -> (f64, f64, Tally) {
        let (width, height) = (self.cluster.width, self.cluster.blocks.height());
        let code = &self.cluster.generator;
        let plan = ring::arrange(code, E::PRECISION, 0..height, present, None);
        let plan: Plan = plan.expect("good").ready().expect("enough");
        let mut losses = Losses::calm(present.clone());
        let mut tally = Tally::default();
        let weights = E::weights(width, &self.weights);
        let gathered = self.cluster.first(&plan, &weights, &mut losses, &mut tally);
        let slopes = E::slopes(self.columns, &self.slopes);
        let sums = self.cluster.second(&gathered, &slopes, &mut losses, &mut tally);
        let first = off(&E::products(&gathered.products), &alone(width, &self.data, &self.weights));
        let plain = alone_second(width, &self.data, &self.slopes);
        let second = off(&E::gradients(&sums), &plain);
        let condition = ring::worst_window(code, plan.ring()).expect("slots");
        (first.max(second), condition, tally)
    }
}

fn choose(machines: usize, count: usize, draws: &mut Stream) -> BTreeSet<Slot> {
    let mut left: Vec<Slot> = (0..machines as u16).map(Slot).collect();
    while left.len() > count {
        left.remove(draws.below(left.len() as u64) as usize);
    }
    left.into_iter().collect()
}

/// Every pair of sizes, with uneven rows (few, none to spare, many) and one or three columns.
fn every_code<E: Numbers>(step: usize, mut check: impl FnMut(usize, usize, f64, f64)) {
    for machines in (1..=32).step_by(step) {
        for threshold in 1..=machines {
            let mut draws = stream(machines, threshold);
            for counted in 0..3 {
                let count = match counted {
                    0 => threshold,
                    _ => threshold + draws.below((machines - threshold + 1) as u64) as usize,
                };
                let rows = 1 + draws.below(3 * machines as u64 * threshold as u64) as usize;
                let case = Case::<E>::new(threshold, machines, rows, [1, 3][counted % 2]);
                let (off, condition, tally) = case.run(&choose(machines, count, &mut draws));
                check(threshold, machines, off, condition);
                let padded = case.cluster.blocks.height() * threshold;
                assert_eq!(tally.rows, [padded, padded]);
                assert_eq!((tally.extra, tally.discarded, tally.pauses), ([0, 0], 0, 0));
            }
        }
    }
}

#[test]
fn products_in_f64_for_all_sizes() {
    every_code::<f64>(1, |threshold, machines, off, condition| {
        assert!(off <= 1e-12, "{threshold} of {machines}: {off:e}, condition {condition:e}");
    });
}

#[test]
fn products_in_f32_for_small_thresholds() {
    for machines in 1..=16 {
        for threshold in 1..=machines.min(4) {
            let mut draws = stream(machines, threshold);
            for _ in 0..8 {
                let more = draws.below((machines - threshold + 1) as u64) as usize;
                let rows = 1 + draws.below(200) as usize;
                let case = Case::<f32>::new(threshold, machines, rows, 1);
                let (off, condition, _) = case.run(&choose(machines, threshold + more, &mut draws));
                assert!(off <= 1e-4, "{threshold} of {machines}: {off:e}, condition {condition:e}");
            }
        }
    }
}

#[test]
fn exact_products_are_those_of_one_machine_for_all_sizes() {
    every_code::<Residue>(3, |threshold, machines, off, _| {
        // Data, weights and slopes are held exactly here, so nothing at all may be off but the
        // rounding of the floats they are compared with.
        assert!(off <= 1e-14, "{threshold} of {machines}: {off:e}");
    });
}

#[test]
fn decoding_costs_what_parity_costs() {
    let (rows, threshold, machines) = (4000, 4, 8);
    let case = Case::<f64>::new(threshold, machines, rows, 1);
    for count in threshold..=machines {
        let present: BTreeSet<Slot> = (0..count as u16).map(Slot).collect();
        let (_, _, tally) = case.run(&present);
        let expect = (threshold * rows * (count - threshold)) as f64 / count as f64;
        for macs in tally.decode_macs {
            assert!((macs as f64 - expect).abs() <= 64.0, "{macs} of {expect}");
        }
        if count == threshold {
            assert_eq!(tally.decode_macs, [0, 0]);
        }
    }
}

#[test]
fn machines_that_store_blocks_as_they_are_give_the_very_bits() {
    let case = Case::<f32>::new(4, 8, 331, 2);
    let width = case.cluster.width;
    let present: BTreeSet<Slot> = (0..4).map(Slot).collect();
    let plan =
        Plan::cyclic(4, 0..case.cluster.blocks.height(), &[Slot(2), Slot(0), Slot(3), Slot(1)]);
    let plan = plan.expect("a ring").ready().expect("enough");
    let weights = f32::weights(width, &case.weights);
    let mut losses = Losses::calm(present);
    let gathered = case.cluster.first(&plan, &weights, &mut losses, &mut Tally::default());
    assert_eq!(gathered.products, alone(width, &f32::data(width, &case.data), &weights));
}

fn off_with_plan(case: &Case<f64>, plan: &Plan) -> f64 {
    let (width, columns, blocks) = (case.cluster.width, case.columns, case.cluster.blocks);
    let mut losses = Losses::calm(plan.ring().iter().copied().collect());
    let mut tally = Tally::default();
    let gathered = case.cluster.first(plan, &case.weights, &mut losses, &mut tally);
    let sums = case.cluster.second(&gathered, &case.slopes, &mut losses, &mut tally);
    // One machine, with the rows of the batch alone.
    let (mut data, mut slopes, mut found) = (vec![], vec![], vec![]);
    for block in 0..blocks.threshold() {
        let rows = blocks.data_rows(block, &plan.places());
        data.extend_from_slice(&case.data[rows.start * width..rows.end * width]);
        slopes.extend_from_slice(&case.slopes[rows.start * columns..rows.end * columns]);
        found.extend_from_slice(&gathered.products[rows.start * columns..rows.end * columns]);
    }
    let first = off(&found, &alone(width, &data, &case.weights));
    first.max(off(&sums, &alone_second(width, &data, &slopes)))
}

#[test]
fn batches_take_the_same_places_of_all_blocks() {
    let case = Case::<f64>::new(4, 8, 199, 2);
    for places in [0..10, 10..20, 20..50, 49..50] {
        let present = (2..8).map(Slot).collect();
        let plan = ring::arrange(&case.cluster.generator, f64::PRECISION, places, &present, None);
        let off = off_with_plan(&case, &plan.expect("good").ready().expect("enough"));
        assert!(off <= 1e-12, "{off:e}");
    }
}

#[test]
fn products_of_unequal_machines() {
    let mut draws = stream(8, 8);
    for (threshold, machines) in [(1, 4), (3, 6), (4, 8), (5, 12)] {
        let case = Case::<f64>::new(threshold, machines, 301, 1);
        let speed = |slot| (Slot(slot), f64::from(draws.uniform_in(0.2, 5.0)));
        let speeds: Vec<(Slot, f64)> = (0..machines as u16).map(speed).collect();
        let places = 0..case.cluster.blocks.height();
        let plan = speeds::arrange(&case.cluster.generator, f64::PRECISION, places, &speeds);
        let off = off_with_plan(&case, &plan.expect("good").ready().expect("enough"));
        assert!(off <= 1e-12, "{threshold} of {machines}: {off:e}");
    }
}

fn encoded<E: Numbers>(values: &[E], pieces: usize, sparse: bool, slot: Slot) -> Vec<E> {
    let (width, rows) = (5, values.len() / 5);
    let generator = E::generator(3, 7);
    let blocks = Blocks::new(rows, 3).expect("rows");
    let mut encoder =
        Encoder::new(&generator, slot, blocks, width, 0..blocks.height()).expect("a slot");
    let mut first = 0;
    while first < rows {
        let some = &values[first * width..(first + pieces).min(rows) * width];
        if sparse {
            let mut starts = vec![0];
            let (mut columns, mut kept) = (vec![], vec![]);
            for row in some.chunks_exact(width) {
                for (column, value) in row.iter().enumerate().filter(|(_, v)| **v != E::default()) {
                    columns.push(column as u32);
                    kept.push(*value);
                }
                starts.push(kept.len());
            }
            let rows = Rows::Sparse { width, starts: &starts, columns: &columns, values: &kept };
            encoder.push(first, &rows).expect("in order");
        } else {
            encoder.push(first, &Rows::Dense { width, values: some }).expect("in order");
        }
        first += some.len() / width;
    }
    encoder.finish().expect("all rows came")
}

fn pieces_do_not_matter<E: Numbers>() {
    let mut draws = stream(1, 1);
    let mut values = normal(&mut draws, 5 * 47);
    values.iter_mut().step_by(2).for_each(|v| *v = 0.0);
    let values = E::data(5, &values);
    for slot in (0..7).map(Slot) {
        let whole = encoded(&values, 47, false, slot);
        assert_eq!(whole.len(), 16 * 5);
        for pieces in [1, 2, 7, 46] {
            assert_eq!(encoded(&values, pieces, false, slot), whole);
            assert_eq!(encoded(&values, pieces, true, slot), whole);
        }
        if slot.index() < 3 {
            let own = &values[slot.index() * 80..(slot.index() * 80 + 80).min(values.len())];
            assert_eq!(&whole[..own.len()], own);
        }
    }
}

#[test]
fn encoding_does_not_depend_on_how_rows_come() {
    pieces_do_not_matter::<f32>();
    pieces_do_not_matter::<f64>();
    pieces_do_not_matter::<Residue>();
}

#[test]
fn a_joiner_may_encode_its_first_rows_alone() {
    let values = normal(&mut stream(2, 2), 5 * 47);
    let generator = f64::generator(3, 7);
    let blocks = Blocks::new(47, 3).expect("rows");
    let encode = |places| {
        let mut encoder = Encoder::new(&generator, Slot(5), blocks, 5, places).expect("a slot");
        encoder.push(0, &Rows::Dense { width: 5, values: &values }).expect("in order");
        encoder.finish().expect("all rows came")
    };
    assert_eq!(encode(4..9), encode(0..16)[20..45]);
}

#[test]
fn rows_that_add_nothing_may_be_skipped_and_no_others() {
    let (width, values) = (5, normal(&mut stream(2, 3), 5 * 47));
    let generator = f64::generator(3, 7);
    let blocks = Blocks::new(47, 3).expect("rows");
    for slot in generator.slots() {
        let new = |places| Encoder::<f64>::new(&generator, slot, blocks, width, places);
        let mut whole = new(0..16).expect("a slot");
        whole.push(0, &Rows::Dense { width, values: &values }).expect("in order");
        let whole = whole.finish().expect("all rows came");
        for places in [0..1, 4..9, 14..16] {
            let mut encoder = new(places.clone()).expect("a slot");
            for block in 0..3 {
                let rows = blocks.data_rows(block, &places);
                if !encoder.needs(block) {
                    continue;
                }
                assert!(encoder.skip(rows.start + 1).is_err(), "one that counts");
                encoder.skip(rows.start).expect("others");
                let own = &values[rows.start * width..rows.end * width];
                encoder.push(rows.start, &Rows::Dense { width, values: own }).expect("in order");
            }
            encoder.skip(47).expect("others");
            let coded = encoder.finish().expect("all that count came");
            assert_eq!(coded, whole[places.start * width..places.end * width], "{slot:?}");
        }
    }
}

#[test]
fn rows_that_are_not_the_data_are_refused() {
    let generator = f64::generator(3, 7);
    let blocks = Blocks::new(10, 3).expect("rows");
    let new = |slot| Encoder::<f64>::new(&generator, Slot(slot), blocks, 2, 0..4);
    assert_eq!(new(7).err(), Some(Error::UnknownSlot { slot: Slot(7), machines: 7 }));
    let mut encoder = new(3).expect("a slot");
    let dense = |width, values| Rows::Dense { width, values };
    assert!(encoder.push(0, &dense(3, &[0.0; 6])).is_err());
    assert!(encoder.push(0, &dense(2, &[0.0; 5])).is_err());
    assert!(encoder.push(1, &dense(2, &[0.0; 4])).is_err());
    assert!(encoder.push(0, &dense(2, &[0.0; 22])).is_err());
    let sparse = |starts: &'static [usize], columns: &'static [u32]| Rows::Sparse {
        width: 2,
        starts,
        columns,
        values: &[1.0, 2.0],
    };
    assert!(encoder.push(0, &sparse(&[0, 2], &[0, 2])).is_err());
    assert!(encoder.push(0, &sparse(&[0, 3], &[0, 1])).is_err());
    assert!(encoder.push(0, &sparse(&[2, 1], &[0, 1])).is_err());
    encoder.push(0, &sparse(&[0, 2], &[0, 1])).expect("a row");
    assert_eq!(encoder.finish(), Err(Error::Order { expected: 1, found: 10 }));
}
