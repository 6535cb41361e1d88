//! The user's own script on the machines of a pool.
//!
//! Owns a job from its recipe to its report. Machines come from a pool like those of training;
//! [docs/design/scripts.md](../../../../docs/design/scripts.md) follows one through.
//!
//! # Layout
//! - [`prepare`]: all that can be wrong before anything exists; [`python`]: whether a script is
//!   Python, and what it imports
//! - [`machines`]: those of the job, with its code on them
//! - [`layout`]: which process goes where; [`variables`]: what each is told; [`policy`]: what its end
//!   means; all pure
//! - [`run`]: the shell around them; [`round`]: what is done on machines before processes start;
//!   [`watch`]: what is asked of machines while they run
//! - [`blame`]: what the last lines of a process that failed tell; [`stuck`]: who waits for whom where a
//!   job gets nowhere
//! - [`transcript`]: what is kept of what they write; [`lines`]: as lines
//! - [`show`]: the lines of all processes on one screen; [`board`]: TensorBoard
//! - [`report`]: what came of it; [`about`]: what commands say of it

pub mod about;
pub mod blame;
pub mod board;
pub mod layout;
pub mod lines;
pub mod machines;
pub mod policy;
pub mod prepare;
pub mod python;
pub mod report;
pub mod round;
pub mod run;
pub mod show;
pub mod stuck;
pub mod transcript;
pub mod variables;
pub mod watch;
