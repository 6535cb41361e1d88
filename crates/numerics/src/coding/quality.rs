//! How good a code is: the conditions of its groups, checked before a run starts.
//!
//! The worst group that the offline search has found is stored with the code; here a fixed choice
//! of groups is measured again, which shows a generator that is worse than the stored one.
//! Never searches for a better code.

use super::{Error, Precision, Slot, generator::Generator, group, table};
use crate::random::{Purpose, Stream};
use planaria_recipe::train::{Coded, LinearPrecision};

/// Groups that are measured when a run starts. All, where a code has no more.
pub const GROUPS_AT_START: usize = 1000;

/// The power method is off by a few hundredths, depending on the order of members.
const SLACK: f64 = 1.1;

/// Conditions of a code's groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Half of the groups measured are better.
    pub median: f64,
    /// 99% of the groups measured are better.
    pub most: f64,
    /// The worst group known, measured now or by the search.
    pub worst: f64,
    /// How many groups were measured now.
    pub groups: usize,
    /// Whether those are all there are.
    pub all: bool,
}

/// How good a recipe's code is; an error where it is not good enough for its precision, and nothing
/// for exact arithmetic, which rounds nothing.
pub fn of(code: &Coded) -> Result<Option<Quality>, Error> {
    let precision = match code.precision {
        LinearPrecision::F32 => Precision::F32,
        LinearPrecision::F64 => Precision::F64,
        LinearPrecision::Exact => return Ok(None),
    };
    check(&Generator::stored(code.threshold, code.machines)?, precision).map(Some)
}

/// Measures a stored code, and refuses it where its worst group is above `precision`'s limit.
pub fn check(generator: &Generator<f64>, precision: Precision) -> Result<Quality, Error> {
    let (threshold, machines) = (generator.threshold(), generator.machines());
    let stored = f64::from(table::entry(threshold, machines).worst);
    let mut quality = measure(generator, GROUPS_AT_START)?;
    if quality.worst > stored * SLACK || quality.worst.is_nan() {
        return Err(Error::Table { threshold, machines, stored, found: quality.worst });
    }
    quality.worst = stored;
    let limit = precision.condition_max();
    if stored > limit {
        return Err(Error::Unfit { threshold, machines, worst: stored, limit, precision });
    }
    Ok(quality)
}

/// Conditions of all groups if there are at most `groups_max`, or else of as many random ones.
pub fn measure(generator: &Generator<f64>, groups_max: usize) -> Result<Quality, Error> {
    let (n, k) = (generator.machines(), generator.threshold());
    let all = choices(n, k) <= groups_max as u64;
    let groups = if all { every_group(n, k) } else { random_groups(n, k, groups_max) };
    let mut conditions = Vec::with_capacity(groups.len());
    for members in &groups {
        conditions.push(group::condition(generator, members)?);
    }
    conditions.sort_by(f64::total_cmp);
    let at = |share: f64| conditions[((conditions.len() - 1) as f64 * share) as usize];
    Ok(Quality { median: at(0.5), most: at(0.99), worst: at(1.0), groups: groups.len(), all })
}

/// How many groups of `k` there are among `n` slots.
pub fn choices(n: usize, k: usize) -> u64 {
    (0..k as u64).fold(1, |product, i| product * (n as u64 - i) / (i + 1))
}

/// All groups of `k` among `n` slots, in order.
pub fn every_group(n: usize, k: usize) -> Vec<Vec<Slot>> {
    let mut groups = vec![];
    let mut members: Vec<u16> = (0..k as u16).collect();
    loop {
        groups.push(members.iter().map(|m| Slot(*m)).collect());
        let Some(i) = (0..k).rev().find(|i| usize::from(members[*i]) < n - k + i) else {
            return groups;
        };
        members[i] += 1;
        for j in i + 1..k {
            members[j] = members[j - 1] + 1;
        }
    }
}

/// A fixed choice of `count` groups of `k` among `n` slots, each in a random order.
pub fn random_groups(n: usize, k: usize, count: usize) -> Vec<Vec<Slot>> {
    (0..count as u64)
        .map(|number| {
            let mut draws = Stream::new(number, Purpose::Code, n as u64, k as u64);
            let mut slots: Vec<Slot> = (0..n as u16).map(Slot).collect();
            for i in 0..k {
                slots.swap(i, i + draws.below((n - i) as u64) as usize);
            }
            slots.truncate(k);
            slots
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_is_listed_once() {
        for (n, k) in [(1, 1), (5, 2), (8, 4), (6, 6), (9, 1)] {
            let mut groups = every_group(n, k);
            assert_eq!(groups.len() as u64, choices(n, k));
            groups.dedup();
            assert_eq!(groups.len() as u64, choices(n, k));
        }
        assert_eq!(choices(32, 16), 601_080_390);
    }
}
