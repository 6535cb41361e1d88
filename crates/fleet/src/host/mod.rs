//! One process of ours on each machine of a pool, and the controller's end of the talk with it.
//!
//! # Layout
//! - [`words`]: what is said
//! - [`serve`]: the host's process; [`tasks`]: what it does besides agents
//! - [`remote`]: the controller's end
//! - [`calling`]: a host that calls its controller; [`carried`]: what they talk over then

pub mod calling;
pub mod carried;
pub mod remote;
pub mod serve;
pub mod tasks;
pub mod words;
