//! Runs programs: one thread computes one shard, many threads many shards side by side.

pub mod convolve;
pub mod normalise;
pub mod packing;
pub mod parts;
pub mod predictor;
pub mod shard;
pub mod threads;
pub mod trainer;
mod whole_shard;
pub mod workspace;
