//! Product 2 as work that machines owe: rows times entries, added up.
//!
//! What a machine has not delivered when it is lost is made up for by any threshold's many others:
//! X̃ₚᵀg̃ = Σ X̃ₜᵀ(cₜg̃) with c = Gₚ(G_T)⁻¹. That is again work that machines owe, so a second loss
//! is no other case; shares of the same rows are merged, so that what is owed does not grow with
//! losses. Owns those coefficients; holds entries, never rows.

use super::{
    Error, Paused, Precision, Slot, Standing,
    generator::Generator,
    group::{Judge, decoder_within},
    product::scale_entries,
    scalar::{Element, Scalar},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Rows of a slot that are to be multiplied by entries and added up.
#[derive(Debug, Clone, PartialEq)]
pub struct Owed<E> {
    /// Who owes it.
    pub slot: Slot,
    /// Which of its rows.
    pub places: Range<usize>,
    /// For each row an entry per column of weights.
    pub entries: Vec<E>,
}

impl<E: Element> Owed<E>
where
    E::Scalar: Judge,
{
    /// What others owe in place of this machine, which is lost. Nothing but this share is computed
    /// again: at most as many times its rows as the threshold.
    pub fn hand_on(
        &self,
        generator: &Generator<E::Scalar>,
        precision: Precision,
        alive: &BTreeSet<Slot>,
    ) -> Result<Standing<Vec<Owed<E>>>, Error> {
        Ok(match make_up(generator, precision, self.slot, alive)? {
            Standing::Paused(paused) => Standing::Paused(paused),
            Standing::Ready(shares) => Standing::Ready(
                shares
                    .into_iter()
                    .map(|(slot, coefficient)| {
                        let mut entries = self.entries.clone();
                        scale_entries(coefficient, &mut entries);
                        Owed { slot, places: self.places.clone(), entries }
                    })
                    .collect(),
            ),
        })
    }
}

/// Shares of the same rows of the same slot made one, by slot and places: their entries added up in
/// the order they come in.
pub fn merged<E: Element>(owed: Vec<Owed<E>>) -> Vec<Owed<E>> {
    let mut shares: BTreeMap<(Slot, usize, usize), Owed<E>> = BTreeMap::new();
    for next in owed {
        let name = (next.slot, next.places.start, next.places.end);
        let Some(share) = shares.get_mut(&name) else {
            shares.insert(name, next);
            continue;
        };
        for (sum, entry) in share.entries.iter_mut().zip(&next.entries) {
            *sum = E::narrow(sum.widen().plus(entry.widen()));
        }
    }
    shares.into_values().collect()
}

/// Who of `alive` makes up for what `lost` stores, and with which coefficients: of some fixed
/// choices that are conditioned well enough, the one with the fewest machines, then the smallest
/// coefficients.
pub fn make_up<S: Judge>(
    generator: &Generator<S>,
    precision: Precision,
    lost: Slot,
    alive: &BTreeSet<Slot>,
) -> Result<Standing<Vec<(Slot, S)>>, Error> {
    generator.check_slot(lost)?;
    let threshold = generator.threshold();
    let others: Vec<Slot> = alive.iter().copied().filter(|slot| *slot != lost).collect();
    if let Some(paused) = Paused::unless_enough(others.len(), threshold) {
        return Ok(Standing::Paused(paused));
    }
    let choices = if others.len() == threshold { 1 } else { others.len() };
    let mut best: Option<Shares<S>> = None;
    let mut refusal = None;
    for first in 0..choices {
        let members: Vec<Slot> =
            (0..threshold).map(|i| others[(first + i) % others.len()]).collect();
        match Shares::of(generator, precision, lost, &members) {
            Err(error) => refusal = refusal.or(Some(error)),
            Ok(shares) if best.as_ref().is_none_or(|best| shares.rank() < best.rank()) => {
                best = Some(shares);
            }
            Ok(_) => {}
        }
    }
    match (best, refusal) {
        (Some(shares), _) => Ok(Standing::Ready(shares.0)),
        (None, Some(error)) => Err(error),
        (None, None) => Err(Error::Group { members: others, threshold }),
    }
}

/// Coefficients that are not zero, and whose they are.
struct Shares<S>(Vec<(Slot, S)>);

impl<S: Judge> Shares<S> {
    fn of(
        generator: &Generator<S>,
        precision: Precision,
        lost: Slot,
        members: &[Slot],
    ) -> Result<Self, Error> {
        let (decoder, _) = decoder_within(generator, members, precision)?;
        let coefficients = decoder.make_up(generator, lost);
        let mut shares: Vec<(Slot, S)> = members.iter().copied().zip(coefficients).collect();
        shares.retain(|(_, coefficient)| *coefficient != S::ZERO);
        Ok(Self(shares))
    }

    fn rank(&self) -> (usize, f64) {
        (self.0.len(), self.0.iter().map(|(_, c)| c.size()).fold(0.0, f64::max))
    }
}
