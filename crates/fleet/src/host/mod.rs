//! Our one process on each machine of a pool.
//!
//! # Layout
//! - [`serve`]: the process; [`tasks`]: what it does besides agents; [`gpus`]: those it has
//! - [`calling`]: a host that calls its controller; [`carried`]: what they talk over then;
//!   [`succeeding`]: when it takes the controller's place

pub mod calling;
pub mod carried;
pub mod gpus;
pub mod serve;
pub mod succeeding;
pub mod tasks;
