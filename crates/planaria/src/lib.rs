//! The `planaria` command and the library behind it.
//!
//! Owns the commands, the training loop, everything a run leaves behind, and all printing. Never
//! computes a gradient, reads an example or checks a recipe itself: the other crates do.
//!
//! # Layout
//! - [`cli`]: arguments; [`commands`]: one file per command
//! - [`cluster`]: a run on many processes; [`agent`]: one of them
//! - [`training`]: a run in one process
//! - [`run_dir`]: the run's folder, checkpoints, metrics, the model's files
//! - [`traces`]: reports, TensorBoard, the HTML page; [`progress`]: talk on stderr
//! - [`clock`]: the only place that asks the time; [`failure`]: exit codes
//! - [`memory`]: whether training will fit

/// Which build this is; processes of one run must be of the same.
pub const BUILD: &str = env!("PLANARIA_BUILD");

pub mod agent;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod commands;
pub mod failure;
pub mod memory;
pub mod progress;
pub mod run_dir;
pub mod traces;
pub mod training;
