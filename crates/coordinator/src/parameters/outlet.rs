//! The peers of a server, and where its messages go: all that it knows of its links.

use planaria_protocol::message::{FromServer, Pull};
use std::time::Duration;

/// Who pushes. A worker that connects again is another link, and what the old one brought by
/// halves is not mixed with what the new one brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Number of the worker.
    pub worker: u32,
    /// Number of its link, which no other link has or had.
    pub link: u64,
    /// What [`session`](super::server::Server::session) was when the link was taken in.
    pub session: u64,
}

/// Where what a server says goes. A peer that cannot be reached is no error here.
pub trait Outlet: Sync {
    /// To the coordinator; the bulk of `Summed` and `Applied` is squares.
    fn coordinator(&self, message: &FromServer, squares: &[f64]);

    /// To a worker that has asked, on the thread that reads its link or one for it alone: may wait
    /// for it. False if it cannot be reached.
    fn answer(&self, to: Peer, message: &Pull, values: &[f32]) -> bool;

    /// To a worker that follows, on the thread of another: must not wait. False if it is behind,
    /// with more than `waiting_max` bytes that wait for it, or cannot be reached; it then follows
    /// no more.
    fn hand_out(&self, to: Peer, message: &Pull, values: &[f32], waiting_max: usize) -> bool;

    /// Ends a worker's link, by its number, and lets go of the thread that sends on it.
    fn close(&self, link: u64);

    /// What the process has used so far.
    fn used(&self) -> Used;
}

/// What a process has used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    pub cpu: Duration,
    /// Sent to workers; what comes in is as much again.
    pub bytes_out: u64,
}
