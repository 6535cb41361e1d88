//! What two processes, or two versions, must agree on.
//!
//! Owns the words that cross a wire or outlive a process. Never decides anything, and never
//! computes on a tensor.
//!
//! # Layout
//! - [`message`]: what coordinator, servers, workers and consoles say to each other
//! - [`event`]: what happens in a run, as `events.jsonl` keeps it
//! - [`state`]: how far a run has come, as checkpoints keep it
//! - [`checkpoint`]: parts, manifests and the folder of them; [`durable`]: files that survive

pub mod checkpoint;
pub mod durable;
pub mod event;
pub mod message;
pub mod state;
