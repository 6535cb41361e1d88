//! The ring order of the machines that are there.
//!
//! A cyclic plan decodes windows of the ring, so the order decides how well it is conditioned, and,
//! after another plan, how many rows change hands. Owns that choice: the best of a few fixed
//! orders, or, of those nearly as good, the one that changes least. Pure: the same machines after
//! the same plan always come to the same order.

use super::{
    Error, Paused, Precision, Slot, Standing,
    generator::Generator,
    group::{Decoder, Judge, decoder_within},
    handover,
    plan::Plan,
};
use crate::random::{Purpose, Stream};
use std::{collections::BTreeSet, ops::Range};

/// Orders that are tried.
pub const ORDERS: usize = 16;

/// How many times the best order's condition is good enough for one that moves fewer rows.
const NEARLY: f64 = 4.0;

/// A cyclic plan for `present` machines over `places`. After `previous`, one that moves few rows.
pub fn arrange<S: Judge>(
    generator: &Generator<S>,
    precision: Precision,
    places: Range<usize>,
    present: &BTreeSet<Slot>,
    previous: Option<&Plan>,
) -> Result<Standing<Plan>, Error> {
    let threshold = generator.threshold();
    for slot in present {
        generator.check_slot(*slot)?;
    }
    if let Some(paused) = Paused::unless_enough(present.len(), threshold) {
        return Ok(Standing::Paused(paused));
    }
    let mut orders = fresh_orders(present);
    if let Some(previous) = previous {
        orders.extend(edited_orders(previous.ring(), present));
    }
    let mut judged = Vec::with_capacity(orders.len());
    for order in orders {
        judged.push((worst_window(generator, &order)?, order));
    }
    let best = judged.iter().map(|(worst, _)| *worst).fold(f64::INFINITY, f64::min);
    if best > precision.condition_max() {
        return Err(refusal(generator, precision, &judged[0].1));
    }
    let enough = (NEARLY * best).min(precision.condition_max());
    let order = match previous {
        Some(previous) => {
            let good = judged.iter().filter(|(worst, _)| *worst <= enough).map(|(_, order)| order);
            least_moved(previous, threshold, &places, good)
        }
        None => judged.into_iter().find(|(worst, _)| *worst == best).map(|(_, order)| order),
    };
    Plan::cyclic(threshold, places, &order.expect("the best order is good enough"))
}

/// The worst condition of a window of the ring.
pub fn worst_window<S: Judge>(generator: &Generator<S>, ring: &[Slot]) -> Result<f64, Error> {
    let mut worst = 0.0;
    for members in windows(ring, generator.threshold()) {
        let decoder = Decoder::new(generator, &members)?;
        worst = S::judge(&decoder, generator, worst).max(worst);
    }
    Ok(worst)
}

/// The groups of a ring. All members of a ring as long as the threshold make one.
fn windows(ring: &[Slot], threshold: usize) -> impl Iterator<Item = Vec<Slot>> {
    let count = if ring.len() == threshold { 1 } else { ring.len() };
    (0..count).map(move |j| (0..threshold).map(|i| ring[(j + i) % ring.len()]).collect())
}

fn refusal<S: Judge>(generator: &Generator<S>, precision: Precision, ring: &[Slot]) -> Error {
    windows(ring, generator.threshold())
        .find_map(|members| decoder_within(generator, &members, precision).err())
        .expect("a window of this ring is above the limit")
}

/// Ascending, and shuffled in ways that follow from who is there.
fn fresh_orders(present: &BTreeSet<Slot>) -> Vec<Vec<Slot>> {
    let ascending: Vec<Slot> = present.iter().copied().collect();
    let name = present.iter().fold(0u64, |bits, slot| bits | 1 << slot.0);
    let mut orders = vec![ascending.clone()];
    for number in 1..ORDERS as u64 {
        let mut draws = Stream::new(number, Purpose::Code, name, 1);
        let mut order = ascending.clone();
        for i in (1..order.len()).rev() {
            order.swap(i, draws.below(i as u64 + 1) as usize);
        }
        orders.push(order);
    }
    orders
}

/// The ring without those who left, and those who came next to each other anywhere in it.
fn edited_orders(ring: &[Slot], present: &BTreeSet<Slot>) -> Vec<Vec<Slot>> {
    let stayed: Vec<Slot> = ring.iter().copied().filter(|slot| present.contains(slot)).collect();
    let came: Vec<Slot> = present.iter().copied().filter(|slot| !ring.contains(slot)).collect();
    let ends = if came.is_empty() { 0 } else { stayed.len() };
    (0..=ends).map(|at| [&stayed[..at], &came, &stayed[at..]].concat()).collect()
}

/// Of these orders, in any rotation, the one that moves the fewest rows; the first of equals.
fn least_moved<'a>(
    previous: &Plan,
    threshold: usize,
    places: &Range<usize>,
    orders: impl Iterator<Item = &'a Vec<Slot>>,
) -> Option<Vec<Slot>> {
    let before = handover::Held::of(previous);
    let mut best: Option<(usize, Vec<Slot>)> = None;
    for order in orders {
        for turn in 0..order.len() {
            let ring = [&order[turn..], &order[..turn]].concat();
            let moved = before.waste_to_ring(&ring, threshold, places);
            if best.as_ref().is_none_or(|(least, _)| moved < *least) {
                best = Some((moved, ring));
            }
        }
    }
    best.map(|(_, ring)| ring)
}
