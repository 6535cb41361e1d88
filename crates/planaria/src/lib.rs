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
//! Owns arguments, words and all printing. Never starts a process, computes a gradient, reads an
//! example or checks a recipe itself: the other crates do.
//!
//! # Layout
//! - [`library`]: training from a program; the commands use it too
//! - [`cli`]: arguments; [`commands`]: one file per command
//! - [`chaos`]: breaking a run on purpose; [`doctor`]: what works here
//! - [`picture`]: a run as lines of text; [`screen`]: drawing them; [`signals`]: Ctrl-C

/// Which build this is; processes of one run must be of the same.
pub const BUILD: &str = env!("PLANARIA_BUILD");

pub mod chaos;
pub mod cli;
pub mod commands;
pub mod doctor;
pub mod library;
pub mod picture;
pub mod screen;
pub mod signals;

pub use library::{Planaria, layers};
pub use planaria_runs::failure::Failure;
pub use planaria_runs::traces::report::{Outcome, Report};
pub use planaria_runs::{clock, evidence, failure, run_dir};
