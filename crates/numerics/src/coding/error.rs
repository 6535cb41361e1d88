//! What can be wrong with a code, a plan or the numbers that are put into them.
//!
//! Too few machines is no error: that is [`super::Paused`].

use super::{Precision, Slot};

/// Why something coded cannot be done; says which value, and what to do about it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// No code has these sizes.
    #[error(
        "a code needs 1 ≤ threshold ≤ machines ≤ {}, but the threshold is {threshold} of {machines} machines",
        super::MACHINES_MAX
    )]
    Sizes {
        /// Blocks that the data are cut into.
        threshold: usize,
        /// Rows of the generator.
        machines: usize,
    },
    /// There is nothing to encode, or the plan has no rows.
    #[error("there are no rows to code")]
    NoRows,
    /// A slot outside the code.
    #[error("slot {slot} is not in a code of {machines} machines")]
    UnknownSlot {
        slot: Slot,
        /// Rows of the generator.
        machines: usize,
    },
    /// A group has to have exactly as many distinct members as the threshold.
    #[error("a group has {threshold} distinct members, not {members:?}")]
    Group {
        /// What was given.
        members: Vec<Slot>,
        /// How many there should be.
        threshold: usize,
    },
    /// Some group of this code amplifies rounding too much.
    #[error(
        "the code for threshold {threshold} of {machines} machines has groups of condition {worst:.1e}, above {limit:.0e}, the limit of {precision}: use {} or fewer machines", precision.remedy()
    )]
    Unfit {
        /// Blocks that the data are cut into.
        threshold: usize,
        /// Rows of the generator.
        machines: usize,
        /// The worst group's condition.
        worst: f64,
        /// What would be allowed.
        limit: f64,
        /// For which precision.
        precision: Precision,
    },
    /// These machines together amplify rounding too much.
    #[error(
        "the group of slots {members:?} has condition {condition:.1e}, above {limit:.0e}, the limit of {precision}: use {}, or wait for another machine", precision.remedy()
    )]
    Condition {
        /// Who would be decoded from.
        members: Vec<Slot>,
        condition: f64,
        /// What would be allowed.
        limit: f64,
        /// For which precision.
        precision: Precision,
    },
    /// The generator is not the one whose quality was measured.
    #[error(
        "the code for threshold {threshold} of {machines} machines is not the stored one: condition {found:.3e} where at most {stored:.3e} was measured"
    )]
    Table {
        /// Blocks that the data are cut into.
        threshold: usize,
        /// Rows of the generator.
        machines: usize,
        /// What the table has.
        stored: f64,
        /// What the check found.
        found: f64,
    },
    /// Rows came in another order, or too many or too few.
    #[error("rows are encoded in order: expected row {expected}, got {found}")]
    Order {
        /// Which row should come.
        expected: usize,
        found: usize,
    },
    /// Rows that do not have the shape they should.
    #[error("rows have {expected} columns, but {found} came")]
    Width {
        /// Columns of the data.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// Speeds must be positive.
    #[error("the speed of slot {slot} is {speed}, which is not a positive number")]
    Speed {
        slot: Slot,
        /// What was given.
        speed: f64,
    },
    /// A value that fixed point cannot hold.
    #[error(
        "column {column} of {what} is {value:e}, which fixed point with scale {scale:e} cannot hold"
    )]
    Value {
        /// Data, weights or slopes.
        what: &'static str,
        column: usize,
        value: f64,
        /// What it would be multiplied by.
        scale: f64,
    },
    /// A product could leave the field's range.
    #[error(
        "{product} could reach 2^{bits:.1}, and exact arithmetic holds 2^60: column {column} is the largest part; use a smaller scale for the data, smaller values there, a lower learning rate, or precision f64"
    )]
    Range {
        /// `Xw` or `Xᵀg`.
        product: &'static str,
        /// The column that the product is largest in, or that brings in most of it.
        column: usize,
        /// Binary logarithm of the bound.
        bits: f64,
    },
    /// Redundancy that the workers do not suffice for.
    #[error("{workers} workers cannot hold every part {copies} times: lower the redundancy to {} or add workers", workers.saturating_sub(1))]
    Redundancy {
        /// How many there are.
        workers: usize,
        /// Redundancy and one.
        copies: usize,
    },
    /// All holders of a part are lost.
    #[error("every holder of part {part} is lost: {holders:?}")]
    PartLost {
        part: usize,
        /// Who held it.
        holders: Vec<usize>,
    },
}
