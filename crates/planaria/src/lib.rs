//! The `planaria` command and the library behind it.
//!
//! ```no_run
//! use planaria::Planaria;
//! use planaria::layers::{Activation, conv2d, dense, flatten, max_pooling2d};
//!
//! let report = Planaria::new("digits")
//!     .data("digits")
//!     .model([conv2d(16, 3, Activation::Relu), max_pooling2d(), flatten(), dense(10)])
//!     .epochs(5)
//!     .workers(3)
//!     .servers(1)
//!     .train()?;
//! println!("accuracy {:?} after {} steps", report.accuracy, report.steps);
//! # Ok::<(), planaria::Failure>(())
//! ```
//! [`Planaria`] has more, and says where workers and servers come from.
//!
//! Owns the commands, the training loop, everything a run leaves behind, and all printing. Never
//! computes a gradient, reads an example or checks a recipe itself: the other crates do.
//!
//! # Layout
//! - [`library`]: training from a program; the commands use it too
//! - [`cli`]: arguments; [`commands`]: one file per command
//! - [`audit`]: whether every example was read exactly once; [`chaos`]: breaking a run on purpose
//! - [`cluster`]: a run on many processes; [`agent`]: one of them
//! - [`holdings`]: what runs hold on machines; [`doctor`]: what works here
//! - [`training`]: a run in one process
//! - [`run_dir`]: the run's folder, checkpoints, metrics, the model's files
//! - [`traces`]: reports, TensorBoard, the HTML page
//! - [`source`]: a coded run's rows for its workers
//! - [`scripts`]: the user's own script on the machines of a pool
//! - [`progress`]: talk on stderr; [`picture`]: a run as lines of text; [`screen`]: drawing them
//! - [`paint`]: text with colours
//! - [`clock`]: the only place that asks the time; [`failure`]: exit codes
//! - [`memory`]: whether training will fit

/// Which build this is; processes of one run must be of the same.
pub const BUILD: &str = env!("PLANARIA_BUILD");

pub mod agent;
pub mod audit;
pub mod chaos;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod commands;
pub mod doctor;
pub mod failure;
pub mod holdings;
pub mod library;
pub mod memory;
pub mod paint;
pub mod picture;
pub mod progress;
pub mod run_dir;
pub mod screen;
pub mod scripts;
pub mod source;
pub mod traces;
pub mod training;

pub use failure::Failure;
pub use library::{Planaria, layers};
pub use traces::report::{Outcome, Report};
