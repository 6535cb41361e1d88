//! Networks, losses and the engines that compute them.
//!
//! An engine is a function from (parameters, state, a shard's examples) to (gradients, statistics,
//! loss) on flat buffers. Never reads files, prints, or asks the clock.
//!
//! # Layout
//! - `network`: layers to a graph and a plan of the flat buffers
//! - [`engines`]: the traits [`Engine`] and [`Trainer`], and who implements them; `engines/cpu` is the
//!   CPU's kernels, programs and threads
//! - [`linear`]: linear models on coded or plain data
//! - [`saved`]: trained networks as bytes of files, and their first layers on their own
//! - `loss`: losses and their gradients
//! - `statistics`: batch normalisation's statistics over shards
//! - [`scores`]: how good outputs are

mod buffer;
pub mod engines;
mod error;
pub mod linear;
mod loss;
mod network;
pub mod saved;
pub mod scores;
mod statistics;

pub use buffer::Buffer;
pub use engines::cpu::kernels::simd::Isa;
pub use engines::{
    Engine, Examples, Hooks, Ready, Score, Settings, StepResult, Trainer, Weights, Work,
};
pub use error::Error;
pub use loss::{Objective, Targets};
pub use network::{Kind, Network, Tensor};
pub use scores::Scores;
pub use statistics::Statistics;
