//! Decisions without a world: what happened goes in, what to do comes out, with its reason.
//!
//! Never touches files, sockets or clocks; whoever asks acts.
//!
//! # Layout
//! - [`course`]: train, validate, save, end; the same in one process and in many
//! - [`watch`]: the best epoch, and when to stop
//! - [`cluster`]: a run on many processes, with its members ([`member`]), shares ([`deal`]), who
//!   computes what ([`leases`]) and how long that may take ([`patience`]), steps on their way to a
//!   commit ([`gather`]), parts being scored ([`scoring`])
//! - [`record`]: what outlives the coordinator's process

pub mod cluster;
pub mod course;
pub mod deal;
pub mod gather;
pub mod leases;
pub mod member;
pub mod patience;
pub mod record;
pub mod scoring;
pub mod watch;
