//! A coded run: a linear model whose workers hold coded data and may leave and come at any moment.
//!
//! Owns what is decided in such a run, and the weights, which are small and live here. Products
//! pass through the coordinator, which keeps what has come until the step counts: a loss costs the
//! unfinished work of whoever was lost and nothing else. Decoding is the workers', group by group.
//! Never sees data.
//!
//! # Layout
//! - [`iteration`]: both products of one step, and losses in the middle; pure
//! - [`learner`]: weights and their optimizer
//! - [`decide`]: members and their slots, steps, scores, checkpoints; pure
//! - [`keeping`]: weights on the disk, for a coordinator that takes the place of another

pub mod decide;
pub mod iteration;
pub mod keeping;
pub mod learner;
