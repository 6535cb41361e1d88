//! A run's folder, its events, and all that is made of them afterwards.
//!
//! Owns the names and formats of the files of a run, what its events add up to, and the reports and
//! pages made of them. Never starts a process, asks a live run anything, or prints.
//!
//! # Layout
//! - [`run_dir`]: the run's folder, its lock and metrics; [`history`]: what became of the run
//! - [`summary`]: what its events add up to; [`sentence`]: each in words; [`notices`]: which are worth a
//!   line; [`machines`]: who was lost and who came; [`outcome`]: how it ended
//! - [`audit`]: whether every example was read exactly once, from events; [`evidence`]: from a folder
//! - [`traces`]: reports, TensorBoard, the HTML pages
//! - [`story`]: a script's run, [`processes`]: those of it
//! - [`clock`]: the only place that asks the time; [`failure`]: why a command ended badly

pub mod audit;
pub mod clock;
pub mod evidence;
pub mod failure;
pub mod frame;
pub mod history;
pub mod lineage;
pub mod machines;
pub mod notices;
pub mod outcome;
pub mod processes;
pub mod run_dir;
pub mod sentence;
pub mod story;
pub mod summary;
pub mod traces;
