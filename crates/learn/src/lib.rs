//! Networks, losses and the engine that computes them on the CPU.
//!
//! An engine is a function from (parameters, state, a shard's examples) to (gradients, statistics,
//! loss) on flat buffers. Never reads files, prints, or asks the clock.
//!
//! # Layout
//! - `network`: layers to a graph and a plan of the flat buffers
//! - `program`: graph to a schedule of kernels on placed memory
//! - [`kernels`]: the arithmetic, compiled for each instruction set
//! - `engine`: runs programs on threads, a shard per thread, and steps the optimizer
//! - [`linear`]: linear models on coded or plain data
//! - [`saved`]: trained networks as bytes of files, and their first layers on their own
//! - `loss`: losses and their gradients
//! - [`scores`]: how good outputs are

mod engine;
mod error;
pub mod kernels;
pub mod linear;
mod loss;
mod network;
mod program;
pub mod saved;
pub mod scores;

pub use engine::runner::{Hooks, Ready, Runner};
pub use engine::shard::{Draw, Score};
pub use engine::statistics::Statistics;
pub use engine::trainer::{Settings, StepResult, Trainer, Weights};
pub use engine::workspace::Workspace;
pub use engine::{Engine, Examples, ShardGradient};
pub use error::Error;
pub use kernels::simd::Isa;
pub use loss::{Objective, Targets};
pub use network::{Kind, Network, Tensor};
pub use scores::Scores;
