//! The controller of a job of any kind: training on one process or many, or a user's script.
//!
//! Owns a job from its checked recipe to its report: machines and processes, raised, watched,
//! replaced and given back; what is shown goes to a [`talk::Screen`] that it is given. Never prints,
//! never exits, and never computes a gradient.
//!
//! # Layout
//! - [`jobs`]: kinds of job: training, and the user's own script
//! - [`detached`]: a run whose controller is elsewhere; [`live`]: how commands find a live run
//! - [`agents`]: what each process of a run does
//! - [`holdings`]: what runs hold on machines, and how it is given back; [`leftovers`]: what a session
//!   could not take away
//! - [`survey`]: a recipe's data; [`data_there`]: the same on machines; [`size`]: processes and
//!   threads; [`memory`]: whether it fits;
//!   [`program`]: what processes are started from; [`machine`]: what this machine is
//! - [`fetching`]: public data sets
//! - [`stopping`]: whether this process was asked to stop; [`talk`]: what is shown; [`drawing`]:
//!   as bytes

pub mod agents;
pub mod data_there;
pub mod detached;
pub mod drawing;
pub mod fetching;
pub mod holdings;
pub mod jobs;
pub mod leftovers;
pub mod live;
pub mod machine;
pub mod memory;
pub mod program;
pub mod size;
pub mod stopping;
pub mod survey;
pub mod talk;
