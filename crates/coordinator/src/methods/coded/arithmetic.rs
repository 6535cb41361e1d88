//! The arithmetic of a code: f32, f64 or exact, behind one trait.
//!
//! Owns all that depends on which numbers products are computed in: coefficients travel as 64 bits,
//! weights and sums as bytes, and only what computes with them knows what they are. So the decisions
//! of a coded run are compiled once, and not for each precision. Never decides who does what.

use planaria_learn::linear::number::{Bounds, Number};
use planaria_numerics::coding::exact::DataScale;
use planaria_numerics::coding::gathering::Gathering;
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::coding::owed::make_up;
use planaria_numerics::coding::plan::{Plan, SubBlock};
use planaria_numerics::coding::scalar::{Element, Scalar};
use planaria_numerics::coding::{Error, Precision, Slot, Standing, product, ring, speeds};
use planaria_protocol::methods::coded::{Coefficient, Travel};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;

/// A coefficient as its bits ([`Coefficient::to_wire`]).
pub type Bits = u64;

/// A code and the numbers that it is computed in.
pub trait Arithmetic: Debug + Send {
    /// Workers without which nothing can be decoded.
    fn threshold(&self) -> usize;
    /// Slots.
    fn machines(&self) -> usize;

    /// A plan by how fast those who are there are.
    fn arrange_by_speed(
        &self,
        places: Range<usize>,
        speeds: &[(Slot, f64)],
    ) -> Result<Standing<Plan>, Error>;
    /// A plan by which all compute as much.
    fn arrange_in_ring(
        &self,
        places: Range<usize>,
        present: &BTreeSet<Slot>,
        before: Option<&Plan>,
    ) -> Result<Standing<Plan>, Error>;
    /// Gives what lost machines owe of product 1 to others.
    fn repair(
        &self,
        gathering: &mut Gathering,
        alive: &BTreeSet<Slot>,
    ) -> Result<Standing<Vec<SubBlock>>, Error>;
    /// Who of `alive` makes up for a share of what `lost` stores, and with which coefficients.
    fn make_up(
        &self,
        lost: Slot,
        share: Bits,
        alive: &BTreeSet<Slot>,
    ) -> Result<Standing<Vec<(Slot, Bits)>>, Error>;

    /// The coefficient one.
    fn one(&self) -> Bits;
    /// The sum of two coefficients.
    fn plus(&self, one: Bits, other: Bits) -> Result<Bits, Error>;

    /// Weights of `width` rows as product 1 takes them; an error where it could leave the range of
    /// the numbers.
    fn weights(
        &self,
        width: usize,
        weights: &[f64],
        bounds: Option<&Bounds>,
    ) -> Result<Vec<u8>, Error>;
    /// Whether bytes are so many numbers.
    fn are_numbers(&self, count: usize, bytes: &[u8]) -> bool;
    /// The total of sums of product 2, each of as many numbers as `out`.
    fn total(&self, scale: DataScale, sums: &[Vec<u8>], out: &mut [f64]);
}

/// What coded products are computed in, and how it travels.
pub trait Value: Number + Travel + Element<Scalar: Coefficient> {}

impl<T: Number + Travel + Element<Scalar: Coefficient>> Value for T {}

/// A code, and in which numbers it is computed.
#[derive(Debug, Clone)]
pub struct Code<E: Value> {
    /// What each slot stores.
    pub generator: Generator<E::Scalar>,
    /// By whose limit groups are judged.
    pub precision: Precision,
}

impl<E: Value> Code<E> {
    /// What comes of two coefficients. Bits of a coefficient always are one, unless so many losses
    /// in one step were made up for that the factors have left the range of a float.
    fn combine(
        &self,
        one: Bits,
        other: Bits,
        with: fn(E::Scalar, E::Scalar) -> E::Scalar,
    ) -> Result<Bits, Error> {
        let pair = E::Scalar::from_wire(one).zip(E::Scalar::from_wire(other));
        let bits = pair.map(|(one, other)| with(one, other).to_wire());
        bits.filter(|bits| E::Scalar::from_wire(*bits).is_some()).ok_or(Error::Condition {
            members: Vec::new(),
            condition: f64::INFINITY,
            limit: self.precision.condition_max(),
            precision: self.precision,
        })
    }
}

impl<E: Value> Arithmetic for Code<E> {
    fn threshold(&self) -> usize {
        self.generator.threshold()
    }

    fn machines(&self) -> usize {
        self.generator.machines()
    }

    fn arrange_by_speed(
        &self,
        places: Range<usize>,
        speeds: &[(Slot, f64)],
    ) -> Result<Standing<Plan>, Error> {
        speeds::arrange(&self.generator, self.precision, places, speeds)
    }

    fn arrange_in_ring(
        &self,
        places: Range<usize>,
        present: &BTreeSet<Slot>,
        before: Option<&Plan>,
    ) -> Result<Standing<Plan>, Error> {
        ring::arrange(&self.generator, self.precision, places, present, before)
    }

    fn repair(
        &self,
        gathering: &mut Gathering,
        alive: &BTreeSet<Slot>,
    ) -> Result<Standing<Vec<SubBlock>>, Error> {
        gathering.repair(&self.generator, self.precision, alive)
    }

    fn make_up(
        &self,
        lost: Slot,
        share: Bits,
        alive: &BTreeSet<Slot>,
    ) -> Result<Standing<Vec<(Slot, Bits)>>, Error> {
        let shares = match make_up(&self.generator, self.precision, lost, alive)? {
            Standing::Paused(paused) => return Ok(Standing::Paused(paused)),
            Standing::Ready(shares) => shares,
        };
        let times = |(slot, factor): (Slot, E::Scalar)| {
            Ok((slot, self.combine(share, factor.to_wire(), Scalar::times)?))
        };
        Ok(Standing::Ready(shares.into_iter().map(times).collect::<Result<_, Error>>()?))
    }

    fn one(&self) -> Bits {
        E::Scalar::ONE.to_wire()
    }

    fn plus(&self, one: Bits, other: Bits) -> Result<Bits, Error> {
        self.combine(one, other, Scalar::plus)
    }

    fn weights(
        &self,
        width: usize,
        weights: &[f64],
        bounds: Option<&Bounds>,
    ) -> Result<Vec<u8>, Error> {
        let weights = E::weights(width, weights)?;
        if let Some(bounds) = bounds {
            E::check_weights(bounds, &weights)?;
        }
        Ok(E::bytes(&weights))
    }

    fn are_numbers(&self, count: usize, bytes: &[u8]) -> bool {
        bytes.len() == count * E::BYTES && E::take(bytes).is_some()
    }

    fn total(&self, scale: DataScale, sums: &[Vec<u8>], out: &mut [f64]) {
        let sums: Vec<Vec<E>> = sums.iter().filter_map(|bytes| E::take(bytes)).collect();
        let parts: Vec<&[E]> = sums.iter().map(Vec::as_slice).collect();
        let mut total = vec![E::default(); out.len()];
        product::total(&parts, &mut total);
        E::sums(scale, &total, out);
    }
}
