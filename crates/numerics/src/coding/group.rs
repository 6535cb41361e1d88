//! What a group's members make together: decoding product 1 and transforming entries for product 2.
//!
//! Owns the inverse of a group's rows of the generator. Of L members those that are systematic
//! need no decoding; only the blocks that are missing are solved for, so a group of systematic
//! members costs nothing. Never waits for a member: it is given all that it needs.

use super::{
    Error, Precision, Slot,
    field::Residue,
    generator::Generator,
    matrix,
    scalar::{Element, Scalar},
};

/// Values that are combined at a time.
const AT_ONCE: usize = 64;

/// The inverse of a group's rows: blocks from members' products.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoder<S> {
    members: Vec<Slot>,
    /// For each member the block it stores as it is, if it is systematic.
    own: Vec<Option<usize>>,
    /// Blocks that no member stores as they are, ascending.
    missing: Vec<usize>,
    /// For each missing block its row of the inverse: a coefficient for each member.
    solve: Vec<S>,
}

impl<S: Scalar> Decoder<S> {
    /// The decoder of `members`, in their order. An error unless they are a group of this code.
    pub fn new(generator: &Generator<S>, members: &[Slot]) -> Result<Self, Error> {
        generator.check_group(members)?;
        let own: Vec<_> = members.iter().map(|slot| generator.systematic(*slot)).collect();
        let missing: Vec<usize> =
            (0..generator.threshold()).filter(|block| !own.contains(&Some(*block))).collect();
        let parity: Vec<usize> = (0..members.len()).filter(|m| own[*m].is_none()).collect();
        let solve = solve(generator, members, &own, &missing, &parity)
            .ok_or_else(|| Error::Group { members: members.to_vec(), threshold: members.len() })?;
        Ok(Self { members: members.to_vec(), own, missing, solve })
    }

    /// Whom it decodes from, in order.
    pub fn members(&self) -> &[Slot] {
        &self.members
    }

    /// Multiplications and additions that decoding, or transforming, one row of the group takes,
    /// per column of weights.
    pub fn macs_per_row(&self) -> u64 {
        (self.missing.len() * self.members.len()) as u64
    }

    /// The members' products (one slice for each, in their order, all of one length) to the blocks'
    /// products, block by block into `blocks`. Returns the multiplications that it took.
    pub fn decode<E: Element<Scalar = S>>(&self, products: &[&[E]], blocks: &mut [E]) -> u64 {
        let length = products.first().map_or(0, |p| p.len());
        assert_eq!(products.len(), self.members.len(), "a product of every member");
        assert_eq!(blocks.len(), length * products.len(), "room for every block");
        for (product, own) in products.iter().zip(&self.own) {
            if let Some(block) = own {
                blocks[block * length..][..length].copy_from_slice(product);
            }
        }
        for (block, row) in self.missing.iter().zip(self.rows()) {
            let out = &mut blocks[block * length..][..length];
            combine(out, None, row.iter().copied().zip(products.iter().copied()));
        }
        self.macs_per_row() * length as u64
    }

    /// The blocks' slopes (block by block) to the entries that each member multiplies its rows by,
    /// member by member into `entries`. Returns the multiplications that it took.
    pub fn transform<E: Element<Scalar = S>>(&self, slopes: &[E], entries: &mut [E]) -> u64 {
        let length = slopes.len() / self.members.len();
        assert_eq!(slopes.len(), entries.len(), "an entry for every slope");
        if length == 0 {
            return 0;
        }
        let block = |block: usize| &slopes[block * length..][..length];
        for (m, out) in entries.chunks_exact_mut(length).enumerate() {
            let terms = self.missing.iter().zip(self.rows()).map(|(b, row)| (row[m], block(*b)));
            combine(out, self.own[m].map(block), terms);
        }
        self.macs_per_row() * length as u64
    }

    /// The coefficients with which the members make up for what another slot stores:
    /// its row of the generator times the inverse.
    pub fn make_up(&self, generator: &Generator<S>, slot: Slot) -> Vec<S> {
        let coefficient = |block| generator.coefficient(slot, block);
        let column = |(m, own): (usize, &Option<usize>)| {
            let start = own.map_or(S::ZERO, coefficient);
            let terms = self.missing.iter().zip(self.rows());
            terms.fold(start, |sum, (block, row)| sum.plus(coefficient(*block).times(row[m])))
        };
        self.own.iter().enumerate().map(column).collect()
    }

    fn rows(&self) -> std::slice::ChunksExact<'_, S> {
        self.solve.chunks_exact(self.members.len())
    }
}

impl Decoder<f64> {
    /// What the condition is not above: the product of Frobenius norms. Cheaper than the condition,
    /// and seldom more than a few times as much.
    pub fn condition_bound(&self) -> f64 {
        let systematic = (self.members.len() - self.missing.len()) as f64;
        let squares: f64 = self.solve.iter().map(|v| v * v).sum();
        // Rows of the generator have length 1.
        (self.members.len() as f64 * (systematic + squares)).sqrt()
    }

    /// Condition of the group's rows of `generator`.
    pub fn condition(&self, generator: &Generator<f64>) -> f64 {
        let n = self.members.len();
        let rows: Vec<f64> = self
            .members
            .iter()
            .flat_map(|slot| (0..n).map(|block| generator.coefficient(*slot, block)))
            .collect();
        let mut inverse = vec![0.0; n * n];
        for (m, own) in self.own.iter().enumerate() {
            if let Some(block) = own {
                inverse[block * n + m] = 1.0;
            }
        }
        for (block, row) in self.missing.iter().zip(self.rows()) {
            inverse[block * n..][..n].copy_from_slice(row);
        }
        if self.missing.is_empty() { 1.0 } else { matrix::condition(n, &rows, &inverse) }
    }
}

/// Condition of the group `members` of a code.
pub fn condition(generator: &Generator<f64>, members: &[Slot]) -> Result<f64, Error> {
    Ok(Decoder::new(generator, members)?.condition(generator))
}

/// What a precision asks of every group that is decoded.
pub trait Judge: Scalar {
    /// Condition of the decoder's group where it is above `floor`, otherwise something not above it;
    /// 1 where nothing is rounded.
    fn judge(decoder: &Decoder<Self>, generator: &Generator<Self>, floor: f64) -> f64;
}

impl Judge for f64 {
    fn judge(decoder: &Decoder<Self>, generator: &Generator<Self>, floor: f64) -> f64 {
        if decoder.condition_bound() <= floor { floor } else { decoder.condition(generator) }
    }
}

/// Nothing is rounded in the field, so every group is as good as another.
impl Judge for Residue {
    fn judge(_: &Decoder<Self>, _: &Generator<Self>, _: f64) -> f64 {
        1.0
    }
}

/// The decoder of `members`, if its condition is within `precision`'s limit; the condition with it.
pub fn decoder_within<S: Judge>(
    generator: &Generator<S>,
    members: &[Slot],
    precision: Precision,
) -> Result<(Decoder<S>, f64), Error> {
    let decoder = Decoder::new(generator, members)?;
    let condition = S::judge(&decoder, generator, 0.0);
    let limit = precision.condition_max();
    if condition > limit || condition.is_nan() {
        return Err(Error::Condition { members: members.to_vec(), condition, limit, precision });
    }
    Ok((decoder, condition))
}

/// `out` = `start` + Σ coefficient·values, each value one chain over the terms in their order.
fn combine<'a, E: Element>(
    out: &mut [E],
    start: Option<&[E]>,
    terms: impl Iterator<Item = (E::Scalar, &'a [E])> + Clone,
) {
    let mut wide = [E::Scalar::ZERO; AT_ONCE];
    for (number, out) in out.chunks_mut(AT_ONCE).enumerate() {
        let here = number * AT_ONCE..number * AT_ONCE + out.len();
        let wide = &mut wide[..out.len()];
        match start {
            None => wide.fill(E::Scalar::ZERO),
            Some(start) => {
                wide.iter_mut().zip(&start[here.clone()]).for_each(|(w, v)| *w = v.widen());
            }
        }
        for (coefficient, values) in terms.clone() {
            for (sum, value) in wide.iter_mut().zip(&values[here.clone()]) {
                *sum = sum.plus(coefficient.times(value.widen()));
            }
        }
        out.iter_mut().zip(wide).for_each(|(out, sum)| *out = E::narrow(*sum));
    }
}

/// Rows of the inverse for the missing blocks. With C the parity members' coefficients of the
/// missing blocks and B those of the blocks that are there: C⁻¹ for parity members, −C⁻¹B for
/// systematic ones.
fn solve<S: Scalar>(
    generator: &Generator<S>,
    members: &[Slot],
    own: &[Option<usize>],
    missing: &[usize],
    parity: &[usize],
) -> Option<Vec<S>> {
    let k = missing.len();
    let minor: Vec<S> = parity
        .iter()
        .flat_map(|m| missing.iter().map(|block| generator.coefficient(members[*m], *block)))
        .collect();
    let inverse = matrix::invert(k, &minor)?;
    let mut solve = vec![S::ZERO; k * members.len()];
    for (row, inverse) in solve.chunks_exact_mut(members.len()).zip(inverse.chunks_exact(k.max(1)))
    {
        for (m, own) in own.iter().enumerate() {
            row[m] = match own {
                None => inverse[parity.iter().position(|p| *p == m)?],
                Some(block) => parity.iter().zip(inverse).fold(S::ZERO, |sum, (p, inverse)| {
                    sum.minus(inverse.times(generator.coefficient(members[*p], *block)))
                }),
            };
        }
    }
    Some(solve)
}
