//! Coded products and training on machines that come and go, against one machine.
//!
//! Rows of the coded scheme's requirements that need no network: cover, products, losses in the
//! middle, pauses, costs, unequal machines, repetition, and exact arithmetic.

mod cluster;
mod exact;
mod losses;
mod numbers;
mod plans;
mod products;
mod repetition;
mod training;
