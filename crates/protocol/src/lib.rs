//! What two processes, or two versions, must agree on.
//!
//! Owns the words that cross a wire or outlive a process. Never decides anything, and never
//! computes on a tensor.
//!
//! # Layout
//! - [`message`]: what coordinator, servers, workers and consoles say to each other
//! - [`event`]: what happens in a run, as `events.jsonl` keeps it
//! - [`launch`]: what a process is told when it is started
//! - [`clock`]: time, as it is passed in
//! - [`state`]: how far a run has come, as checkpoints keep it

pub mod clock;
pub mod event;
pub mod launch;
pub mod message;
pub mod state;
