//! A plan for machines of different speeds (Woolsey, Chen and Ji 2020).
//!
//! Each machine gets a load in proportion to its speed, at most all places; groups are then filled
//! so that every place still has the threshold's many members. Owns loads and filling.

use super::{
    Error, Paused, Precision, Slot, Standing,
    generator::Generator,
    group::{Judge, decoder_within},
    plan::{Group, Plan},
};
use std::ops::Range;

/// Loads below this share of the places are nothing but rounding.
const NOTHING: f64 = 1e-12;

/// A share of the places and its members.
#[derive(Debug, Clone, PartialEq)]
pub struct Filling {
    /// Share of all places.
    pub share: f64,
    /// As many as the threshold.
    pub members: Vec<Slot>,
}

/// A plan over `places` for machines with these speeds (any unit).
pub fn arrange<S: Judge>(
    generator: &Generator<S>,
    precision: Precision,
    places: Range<usize>,
    speeds: &[(Slot, f64)],
) -> Result<Standing<Plan>, Error> {
    let threshold = generator.threshold();
    if places.is_empty() {
        return Err(Error::NoRows);
    }
    if let Some(paused) = Paused::unless_enough(speeds.len(), threshold) {
        return Ok(Standing::Paused(paused));
    }
    let fillings = fill(threshold, &loads(threshold, speeds)?);
    let mut groups = Vec::with_capacity(fillings.len());
    let (mut done, mut from) = (0.0, places.start);
    for (i, filling) in fillings.iter().enumerate() {
        done += filling.share;
        let last = i + 1 == fillings.len();
        let to = if last { places.len() } else { (done * places.len() as f64).round() as usize };
        let to = (places.start + to).clamp(from, places.end);
        decoder_within(generator, &filling.members, precision)?;
        groups.push(Group { places: from..to, members: filling.members.clone() });
        from = to;
    }
    let ring = speeds.iter().map(|(slot, _)| *slot).collect();
    Ok(Standing::Ready(Plan::of_groups(threshold, ring, groups)))
}

/// The share of all places that each machine computes: min(c·speed, 1), together `threshold`.
pub fn loads(threshold: usize, speeds: &[(Slot, f64)]) -> Result<Vec<(Slot, f64)>, Error> {
    if let Some((slot, speed)) = speeds.iter().find(|(_, s)| !(s.is_finite() && *s > 0.0)) {
        return Err(Error::Speed { slot: *slot, speed: *speed });
    }
    let mut fastest: Vec<f64> = speeds.iter().map(|(_, speed)| *speed).collect();
    fastest.sort_by(|a, b| b.total_cmp(a));
    // The fastest machines are full; the others share what is left in proportion.
    let factor = (0..threshold.min(fastest.len())).find_map(|full| {
        let factor = (threshold - full) as f64 / fastest[full..].iter().sum::<f64>();
        (factor * fastest[full] <= 1.0).then_some(factor)
    });
    let load = |speed: f64| factor.map_or(1.0, |factor| (factor * speed).min(1.0));
    Ok(speeds.iter().map(|(slot, speed)| (*slot, load(*speed))).collect())
}

/// Groups of `threshold` machines that fill the loads, at most as many as machines: the smallest
/// load that is left goes with the largest, for as long as the others can still be filled.
pub fn fill(threshold: usize, loads: &[(Slot, f64)]) -> Vec<Filling> {
    let mut left = loads.to_vec();
    let mut fillings = vec![];
    for _ in 0..=loads.len() {
        left.retain(|(_, load)| *load > NOTHING);
        if left.len() < threshold {
            break;
        }
        left.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let first_large = left.len() + 1 - threshold;
        let sum: f64 = left.iter().map(|(_, load)| load).sum();
        let mut share = left[0].1;
        if left.len() > threshold {
            share = share.min(sum / threshold as f64 - left[first_large - 1].1);
        }
        let chosen = (0..1).chain(first_large..left.len());
        let members: Vec<Slot> = chosen.clone().map(|i| left[i].0).collect();
        chosen.for_each(|i| left[i].1 -= share);
        fillings.push(Filling { share, members });
    }
    fillings
}
