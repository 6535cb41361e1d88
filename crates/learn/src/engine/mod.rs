//! Runs programs: one thread computes one shard, many threads many shards side by side.

pub mod convolve;
pub mod normalise;
pub mod shard;
pub mod threads;
pub mod trainer;
pub mod workspace;
