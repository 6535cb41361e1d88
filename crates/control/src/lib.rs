//! The controller of a job of any kind: training on one process or many, or a user's script.
//!
//! Owns a job from its checked recipe to its report: machines and processes, raised, watched,
//! replaced and given back; what is shown goes to a [`talk::Screen`] that it is given. Never prints,
//! never exits, and never computes a gradient.
//!
//! # Layout
//! - [`cluster`]: a run on many processes, in front or detached
//! - [`training`]: a run in one process
//! - [`scripts`]: the user's own script on the machines of a pool
//! - [`agents`]: what each process of a run does
//! - [`holdings`]: what runs hold on machines, and how it is given back
//! - [`source`]: a coded run's rows for its workers
//! - [`survey`]: a recipe's data; [`size`]: processes and threads; [`memory`]: whether it fits;
//!   [`program`]: what processes are started from
//! - [`stopping`]: whether this process was asked to stop; [`stop`], [`scale`]: asks another; [`talk`]: what is shown; [`drawing`]:
//!   as bytes

pub mod agents;
pub mod cluster;
pub mod drawing;
pub mod holdings;
pub mod memory;
pub mod program;
pub mod scale;
pub mod scripts;
pub mod size;
pub mod source;
pub mod stop;
pub mod stopping;
pub mod survey;
pub mod talk;
pub mod training;
