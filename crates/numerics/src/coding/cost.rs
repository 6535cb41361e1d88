//! What a coded iteration costs each machine: storage, work and traffic, counted from a plan.
//!
//! The same numbers that a run then reports. Never measures.

use super::{Slot, blocks::Blocks, generator::Generator, plan::Plan, scalar::Scalar};

/// Costs of one iteration: product 1, decoding, slopes, product 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// What a machine stores of the data.
    pub storage_bytes: u64,
    /// Most rows that one machine computes, for each product.
    pub rows_max: u64,
    /// Fewest rows that one machine computes, for each product.
    pub rows_min: u64,
    /// Multiplications of all machines, for both products.
    pub work_macs: u64,
    /// Multiplications for decoding, and as many for transforming.
    pub decode_macs: u64,
    /// Values that machines send with product 1; and as many entries come back.
    pub traffic_values: u64,
    /// Machines that may be lost before the run pauses.
    pub losses: usize,
}

/// Costs of a plan over data of `width` columns and as many `columns` of weights, in values of
/// `value_bytes`.
pub fn cost<S: Scalar>(
    generator: &Generator<S>,
    plan: &Plan,
    blocks: Blocks,
    width: usize,
    columns: usize,
    value_bytes: usize,
) -> Cost {
    let loads: Vec<usize> = plan.ring().iter().map(|slot| plan.load(*slot)).collect();
    let rows: usize = loads.iter().sum();
    Cost {
        storage_bytes: (blocks.height() * width * value_bytes) as u64,
        rows_max: loads.iter().copied().max().unwrap_or(0) as u64,
        rows_min: loads.iter().copied().min().unwrap_or(0) as u64,
        work_macs: (2 * rows * width * columns) as u64,
        decode_macs: decode_rows(generator, plan) * columns as u64,
        traffic_values: (rows * columns) as u64,
        losses: plan.ring().len() - plan.threshold(),
    }
}

/// Multiplications per column of weights to decode all groups of a plan.
fn decode_rows<S: Scalar>(generator: &Generator<S>, plan: &Plan) -> u64 {
    let missing = |members: &[Slot]| {
        members.iter().filter(|slot| generator.systematic(**slot).is_none()).count()
    };
    let groups = plan.groups().iter();
    groups.map(|g| (missing(&g.members) * g.members.len() * g.places.len()) as u64).sum()
}
