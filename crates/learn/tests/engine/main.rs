//! The engine's proofs: against naive f64 loops and finite differences, against PyTorch, and against
//! itself on other threads and instruction sets.

mod batch_norm_precision;
mod blocks;
mod convolutions;
mod dropout;
mod final_blocks;
mod finite_difference;
mod naive;
mod pytorch;
mod random_networks;
mod runner;
mod same_bits;
mod support;
