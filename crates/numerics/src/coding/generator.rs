//! Generator matrices: which combination of the data's blocks each machine stores.
//!
//! The first `threshold` slots are systematic: slot p stores block p as it is. The others are
//! parity. Over the reals parity rows are unit vectors, orthogonal in runs of `threshold`, drawn
//! from a seed that an offline search has chosen and [`super::table`] holds. Over the field of
//! exact arithmetic they are a Cauchy matrix, of which every square part is invertible.
//! Never searches.

use super::{Error, MACHINES_MAX, Slot, field::Residue, scalar::Scalar, table};
use crate::random::{Purpose, Stream};

/// The identity over parity rows: `machines` × `threshold`.
#[derive(Debug, Clone, PartialEq)]
pub struct Generator<S> {
    threshold: usize,
    machines: usize,
    parity: Vec<S>,
}

impl<S: Scalar> Generator<S> {
    /// Blocks that the data are cut into; machines needed.
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// Slots there are.
    pub fn machines(&self) -> usize {
        self.machines
    }

    /// All slots, systematic ones first.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + use<S> {
        (0..self.machines as u16).map(Slot)
    }

    /// The block that `slot` stores as it is, if it is systematic.
    pub fn systematic(&self, slot: Slot) -> Option<usize> {
        (slot.index() < self.threshold).then_some(slot.index())
    }

    /// How much of `block` is in what `slot` stores.
    pub fn coefficient(&self, slot: Slot, block: usize) -> S {
        match self.systematic(slot) {
            Some(own) if own == block => S::ONE,
            Some(_) => S::ZERO,
            None => self.parity[(slot.index() - self.threshold) * self.threshold + block],
        }
    }

    /// An error unless `members` are distinct slots of this code, as many as the threshold.
    pub fn check_group(&self, members: &[Slot]) -> Result<(), Error> {
        for slot in members {
            self.check_slot(*slot)?;
        }
        let repeated = members.iter().enumerate().any(|(i, slot)| members[..i].contains(slot));
        if members.len() != self.threshold || repeated {
            return Err(Error::Group { members: members.to_vec(), threshold: self.threshold });
        }
        Ok(())
    }

    /// An error unless `slot` is in this code.
    pub fn check_slot(&self, slot: Slot) -> Result<(), Error> {
        if slot.index() >= self.machines {
            return Err(Error::UnknownSlot { slot, machines: self.machines });
        }
        Ok(())
    }
}

impl Generator<f64> {
    /// The stored code of these sizes, for f32 and f64.
    pub fn stored(threshold: usize, machines: usize) -> Result<Self, Error> {
        check_sizes(threshold, machines)?;
        Ok(Self::from_seed(threshold, machines, table::entry(threshold, machines).seed))
    }

    /// The code that `seed` stands for; for the search and its tests.
    pub fn from_seed(threshold: usize, machines: usize, seed: u32) -> Self {
        let name = (threshold * (MACHINES_MAX + 1) + machines) as u64;
        let mut draws = Stream::new(u64::from(seed), Purpose::Code, name, 0);
        let mut parity: Vec<f64> = Vec::with_capacity((machines - threshold) * threshold);
        for row in 0..machines - threshold {
            let first = row / threshold * threshold * threshold;
            let next = orthogonal(&parity[first..], threshold, &mut draws);
            parity.extend(next);
        }
        Self { threshold, machines, parity }
    }
}

impl Generator<Residue> {
    /// The Cauchy code of these sizes, for exact arithmetic: 1 / (slot − block).
    pub fn cauchy(threshold: usize, machines: usize) -> Result<Self, Error> {
        check_sizes(threshold, machines)?;
        let entry = |slot: usize, block: usize| {
            let difference = Residue::from_i64((slot - block) as i64);
            difference.inverse().expect("a parity slot comes after every block")
        };
        let parity = (threshold..machines)
            .flat_map(|slot| (0..threshold).map(move |block| entry(slot, block)))
            .collect();
        Ok(Self { threshold, machines, parity })
    }
}

fn check_sizes(threshold: usize, machines: usize) -> Result<(), Error> {
    if threshold == 0 || threshold > machines || machines > MACHINES_MAX {
        return Err(Error::Sizes { threshold, machines });
    }
    Ok(())
}

/// A random unit vector at right angles to `rows` (fewer than `width` of them). Replication, the
/// code of width 1, has only ones.
fn orthogonal(rows: &[f64], width: usize, draws: &mut Stream) -> Vec<f64> {
    if width == 1 {
        return vec![1.0];
    }
    let mut row: Vec<f64> = (0..width).map(|_| f64::from(draws.normal())).collect();
    // Twice is enough to be orthogonal to the last bit (Giraud and others 2005).
    for _ in 0..2 {
        for other in rows.chunks_exact(width) {
            let along: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
            row.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
        }
        let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        row.iter_mut().for_each(|v| *v /= length);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_rows_are_orthogonal_in_runs() {
        for (threshold, machines) in [(2, 9), (4, 8), (5, 32), (16, 32), (31, 32)] {
            let g = Generator::stored(threshold, machines).expect("sizes are allowed");
            let row = |slot| (0..threshold).map(move |b| (slot, b));
            for a in threshold..machines {
                for b in threshold..=a {
                    let dot: f64 = row(a)
                        .map(|(_, k)| {
                            g.coefficient(Slot(a as u16), k) * g.coefficient(Slot(b as u16), k)
                        })
                        .sum();
                    let same_run = (a - threshold) / threshold == (b - threshold) / threshold;
                    if same_run {
                        let expect = f64::from(u8::from(a == b));
                        assert!((dot - expect).abs() < 1e-14, "rows {a} and {b}: {dot}");
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_are_checked() {
        for (threshold, machines) in [(0, 4), (5, 4), (4, 33)] {
            let error = Error::Sizes { threshold, machines };
            assert_eq!(Generator::stored(threshold, machines), Err(error.clone()));
            assert_eq!(Generator::cauchy(threshold, machines), Err(error));
        }
    }
}
