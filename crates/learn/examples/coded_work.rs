//! Work of coded products while machines come and go, computed for real in one thread:
//!
//!     coded_work ROWS WIDTH THRESHOLD MACHINES STAY ROUNDS
//!
//! Machines grow from the threshold to all, one at a time, stay for some iterations more, and
//! shrink again. In each iteration one
//! is computed in two ways, in turn: *adaptive*, each machine its m/P rows of each
//! product, and *whole*, each machine all rows it stores, as codes do that do not adapt. Prints a
//! JSON object for each: rows, multiplications, and seconds of processor time.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a benchmark measures and prints"
)]

use planaria_numerics::coding::blocks::{Blocks, Encoder, Rows};
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::coding::group::{Decoder, decoder_within};
use planaria_numerics::coding::plan::{Group, Plan};
use planaria_numerics::coding::{Precision, Slot, product, ring};
use planaria_numerics::random::{Purpose, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let numbers: Result<Vec<usize>, _> = std::env::args().skip(1).map(|a| a.parse()).collect();
    let [rows, width, threshold, machines, stay, rounds] = numbers?[..] else {
        return Err("usage: coded_work ROWS WIDTH THRESHOLD MACHINES STAY ROUNDS".into());
    };
    let lab = Lab::new(rows, width, threshold, machines)?;
    let up = threshold..=machines;
    let down = (threshold + 1..machines).rev();
    let trace: Vec<usize> = up.chain(std::iter::repeat_n(machines, stay)).chain(down).collect();
    // Once for the caches and the pages.
    lab.iterate(&lab.plan(machines, 0, None)?)?;
    for round in 0..rounds {
        let mut before = None;
        for (number, present) in trace.iter().enumerate() {
            let plan = lab.plan(*present, round, before.as_ref())?;
            for turn in 0..2 {
                let adaptive = (number + round + turn) % 2 == 0;
                let done = if adaptive { lab.iterate(&plan)? } else { lab.whole(&plan)? };
                let scheme = if adaptive { "adaptive" } else { "whole" };
                println!("{}", done.json(scheme, round, number, *present));
            }
            before = Some(plan);
        }
    }
    Ok(())
}

/// What one iteration took.
#[derive(Default)]
struct Done {
    rows: usize,
    rows_of_one_max: usize,
    work_macs: u64,
    decode_macs: u64,
    /// Of the machine that decodes most.
    decode_macs_of_one_max: u64,
    work_seconds: f64,
    /// Of the machine that works longest.
    work_seconds_of_one_max: f64,
    decode_seconds: f64,
    decode_wall_seconds: f64,
    off: f64,
}

impl Done {
    fn json(&self, scheme: &str, round: usize, iteration: usize, present: usize) -> String {
        format!(
            "{{\"scheme\": \"{scheme}\", \"round\": {round}, \"iteration\": {iteration}, \
             \"present\": {present}, \"rows\": {}, \"rows_of_one_max\": {}, \"work_macs\": {}, \
             \"decode_macs\": {}, \"decode_macs_of_one_max\": {}, \"work_cpu_seconds\": {:e}, \
             \"work_cpu_seconds_of_one_max\": {:e}, \"decode_cpu_seconds\": {:e}, \
             \"decode_wall_seconds\": {:e}, \"off\": {:e}}}",
            self.rows,
            self.rows_of_one_max,
            self.work_macs,
            self.decode_macs,
            self.decode_macs_of_one_max,
            self.work_seconds,
            self.work_seconds_of_one_max,
            self.decode_seconds,
            self.decode_wall_seconds,
            self.off
        )
    }
}

/// The data, what each slot stores, and what one machine computes.
struct Lab {
    generator: Generator<f64>,
    blocks: Blocks,
    width: usize,
    stored: Vec<Vec<f64>>,
    weights: Vec<f64>,
    /// For slopes: halves of the products, so that they need no labels.
    expected: Vec<f64>,
}

impl Lab {
    fn new(rows: usize, width: usize, threshold: usize, machines: usize) -> Result<Self, Failure> {
        let mut draws = Stream::new(7, Purpose::Test, 1, 1);
        let mut normal = |count| (0..count).map(|_| f64::from(draws.normal())).collect();
        let (data, weights): (Vec<f64>, Vec<f64>) = (normal(rows * width), normal(width));
        let generator = Generator::stored(threshold, machines)?;
        let blocks = Blocks::new(rows, threshold)?;
        let mut stored = Vec::with_capacity(machines);
        for slot in generator.slots() {
            let mut encoder = Encoder::new(&generator, slot, blocks, width, 0..blocks.height())?;
            encoder.push(0, &Rows::Dense { width, values: &data })?;
            stored.push(encoder.finish()?);
        }
        let mut products = vec![0.0; rows];
        product::rows_times(width, &data, &weights, &mut products);
        products.iter_mut().for_each(|z| *z /= 2.0);
        let mut expected = vec![0.0; width];
        product::add_rows_scaled(width, &data, &products, &mut expected);
        Ok(Self { generator, blocks, width, stored, weights, expected })
    }

    /// A plan for so many machines, another choice of them in each round.
    fn plan(&self, present: usize, round: usize, before: Option<&Plan>) -> Result<Plan, Failure> {
        let all = self.generator.machines();
        // A machine that stays is there at the next size as well; 7 is prime to all counts up to 20 but 14.
        let here: BTreeSet<Slot> =
            (0..present).map(|i| Slot(((i + round * 7) % all) as u16)).collect();
        let places = 0..self.blocks.height();
        let plan = ring::arrange(&self.generator, Precision::F64, places, &here, before)?;
        plan.ready().ok_or_else(|| "too few machines".into())
    }

    fn rows(&self, slot: Slot, places: &Range<usize>) -> &[f64] {
        &self.stored[slot.index()][places.start * self.width..places.end * self.width]
    }

    /// Each machine its share of the groups.
    fn iterate(&self, plan: &Plan) -> Result<Done, Failure> {
        let mut done = Done::default();
        let mut of_one: BTreeMap<Slot, f64> = BTreeMap::new();
        let mut products: BTreeMap<(usize, Slot), Vec<f64>> = BTreeMap::new();
        for slot in plan.ring() {
            let start = cpu_seconds();
            for (sub_block, places) in plan.share(*slot) {
                let values = self.multiply(*slot, &places);
                products.insert((sub_block.group, *slot), values);
            }
            *of_one.entry(*slot).or_default() += cpu_seconds() - start;
        }
        let mut entries = BTreeMap::new();
        let mut decoding: BTreeMap<Slot, u64> = BTreeMap::new();
        for (number, group) in plan.groups().iter().enumerate() {
            let own = |slot: &Slot| products[&(number, *slot)].as_slice();
            let views: Vec<&[f64]> = group.members.iter().map(own).collect();
            // Decoded by one of its members, each in its turn.
            let (made, macs) = self.decode(group, &views, &mut done)?;
            *decoding.entry(group.members[0]).or_default() += macs;
            entries.insert(number, made);
        }
        done.decode_macs_of_one_max = decoding.values().copied().max().unwrap_or(0);
        let mut sums = vec![];
        for slot in plan.ring() {
            let start = cpu_seconds();
            let mut sum = vec![0.0; self.width];
            for (sub_block, places) in plan.share(*slot) {
                let members = &plan.groups()[sub_block.group].members;
                let at = members.iter().position(|m| m == slot).unwrap_or(0);
                let own = &entries[&sub_block.group][at * places.len()..][..places.len()];
                product::add_rows_scaled(self.width, self.rows(*slot, &places), own, &mut sum);
            }
            *of_one.entry(*slot).or_default() += cpu_seconds() - start;
            sums.push(sum);
        }
        let loads: Vec<usize> = plan.ring().iter().map(|slot| plan.load(*slot)).collect();
        self.finish(done, &loads, &of_one, &sums)
    }

    /// Each machine all that it stores, in both products; what the first of the ring have is used.
    fn whole(&self, plan: &Plan) -> Result<Done, Failure> {
        let mut done = Done::default();
        let mut of_one: BTreeMap<Slot, f64> = BTreeMap::new();
        let (places, threshold) = (0..self.blocks.height(), self.blocks.threshold());
        let mut products = vec![];
        for slot in plan.ring() {
            let start = cpu_seconds();
            products.push(self.multiply(*slot, &places));
            *of_one.entry(*slot).or_default() += cpu_seconds() - start;
        }
        let members = plan.ring()[..threshold].to_vec();
        let group = Group { places: places.clone(), members };
        let views: Vec<&[f64]> = products[..threshold].iter().map(Vec::as_slice).collect();
        let (entries, macs) = self.decode(&group, &views, &mut done)?;
        done.decode_macs_of_one_max = macs;
        let mut sums = vec![];
        for (number, slot) in plan.ring().iter().enumerate() {
            let start = cpu_seconds();
            let mut sum = vec![0.0; self.width];
            // A machine beyond the threshold does as much, in case one of the others is lost.
            let own = &entries[number % threshold * places.len()..][..places.len()];
            product::add_rows_scaled(self.width, self.rows(*slot, &places), own, &mut sum);
            *of_one.entry(*slot).or_default() += cpu_seconds() - start;
            sums.push(sum);
        }
        let loads = vec![places.len(); plan.ring().len()];
        sums.truncate(threshold);
        self.finish(done, &loads, &of_one, &sums)
    }

    fn multiply(&self, slot: Slot, places: &Range<usize>) -> Vec<f64> {
        let mut out = vec![0.0; places.len()];
        product::rows_times(self.width, self.rows(slot, places), &self.weights, &mut out);
        out
    }

    /// Products to entries, by way of slopes; the multiplications it took.
    fn decode(
        &self,
        group: &Group,
        products: &[&[f64]],
        done: &mut Done,
    ) -> Result<(Vec<f64>, u64), Failure> {
        let (start, wall) = (cpu_seconds(), Instant::now());
        let (decoder, _): (Decoder<f64>, f64) =
            decoder_within(&self.generator, &group.members, Precision::F64)?;
        let length = group.places.len();
        let mut blocks = vec![0.0; length * products.len()];
        let mut macs = decoder.decode(products, &mut blocks);
        for (block, values) in blocks.chunks_exact_mut(length.max(1)).enumerate() {
            let rows = self.blocks.data_rows(block, &group.places).len();
            values[..rows].iter_mut().for_each(|z| *z /= 2.0);
            values[rows..].fill(0.0);
        }
        let mut entries = vec![0.0; blocks.len()];
        macs += decoder.transform(&blocks, &mut entries);
        done.decode_macs += macs;
        done.decode_seconds += cpu_seconds() - start;
        done.decode_wall_seconds += wall.elapsed().as_secs_f64();
        Ok((entries, macs))
    }

    /// The sum of all, compared with one machine's; and what was counted.
    fn finish(
        &self,
        mut done: Done,
        loads: &[usize],
        of_one: &BTreeMap<Slot, f64>,
        sums: &[Vec<f64>],
    ) -> Result<Done, Failure> {
        let parts: Vec<&[f64]> = sums.iter().map(Vec::as_slice).collect();
        let mut total = vec![0.0; self.width];
        product::total(&parts, &mut total);
        let largest = self.expected.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        let apart = total.iter().zip(&self.expected).map(|(a, b)| (a - b).abs());
        done.off = apart.fold(0.0, f64::max) / largest;
        if done.off > 1e-10 {
            return Err(format!("the gradient is off by {:e}", done.off).into());
        }
        done.rows = 2 * loads.iter().sum::<usize>();
        done.rows_of_one_max = 2 * loads.iter().copied().max().unwrap_or(0);
        done.work_macs = (done.rows * self.width) as u64;
        done.work_seconds = of_one.values().sum();
        done.work_seconds_of_one_max = of_one.values().copied().fold(0.0, f64::max);
        Ok(done)
    }
}

/// Processor time of this thread.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
