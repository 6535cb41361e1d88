//! One process of ours on each machine of a pool, and the controller's end of the talk with it.
//!
//! # Layout
//! - [`words`]: what is said; [`asks`]: questions among it that have one answer each
//! - [`serve`]: the host's process; [`tasks`]: what it does besides agents; [`gpus`]: those it has
//! - [`remote`]: the controller's end
//! - [`calling`]: a host that calls its controller; [`carried`]: what they talk over then

pub mod asks;
pub mod calling;
pub mod carried;
pub mod gpus;
pub mod remote;
pub mod serve;
pub mod tasks;
pub mod words;
