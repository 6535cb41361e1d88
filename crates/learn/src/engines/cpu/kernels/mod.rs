//! Kernels: arithmetic on raw images and matrices, one thread, one documented order of additions.
//!
//! Kernels know nothing of layers or networks. They take pointers because the compiled program has
//! already checked every size; each states what it needs.

pub mod depthwise;
pub mod direct;
pub mod gemm;
pub mod limit;
pub mod norm;
pub mod pointwise;
pub mod pool;
pub mod pooled;
pub mod simd;
pub mod tile;
pub mod winograd;
