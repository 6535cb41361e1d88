//! The end of a link that speaks.
//!
//! Owns nothing but a share of the link's outbox, and lets go of it when the last clone is dropped.

use crate::error::Error;
use crate::outbox::Outbox;
use crate::transport::{Closing, Writing};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The end of a link that speaks; clones speak on the same link, one frame at a time. When the last
/// is gone, what waits is still written, and then the peer hears the end.
#[derive(Clone)]
pub struct Sender(Arc<Handle>);

/// Tells the last sender from the writing thread and the receiver, which share the rest.
struct Handle(Arc<Outbox>);

impl Sender {
    pub(crate) fn new(
        writing: Box<dyn Writing>,
        closing: Box<dyn Closing>,
        generation: u64,
    ) -> Self {
        Self(Arc::new(Handle(Arc::new(Outbox::new(writing, closing, generation)))))
    }

    pub(crate) fn outbox(&self) -> Arc<Outbox> {
        self.0.0.clone()
    }

    /// The generation that both ends are of.
    pub fn generation(&self) -> u64 {
        self.0.0.generation()
    }

    pub fn send<M: Serialize>(&self, message: &M) -> Result<(), Error> {
        self.send_with(message, &[])
    }

    /// Sends a message and its bulk. Waits only while the peer is taking what is before
    /// it, or while as much waits for the peer as may (64 MiB).
    pub fn send_with<M: Serialize>(&self, message: &M, bulk: &[u8]) -> Result<(), Error> {
        self.0.0.send(message, bulk)
    }

    /// As [`Sender::send_with`], but never waits for room: false, and nothing is sent, where so much
    /// waits for the peer already.
    pub fn try_send_with<M: Serialize>(&self, message: &M, bulk: &[u8]) -> Result<bool, Error> {
        self.0.0.try_send(message, bulk)
    }

    /// Waits until the peer's socket has taken all that waits, at most `timeout`, and tells the peer
    /// that no more comes. This end still hears. Past the time the link is closed both ways.
    pub fn flush_and_close(&self, timeout: Duration) -> Result<(), Error> {
        self.0.0.flush(timeout)
    }

    /// Ends the link at once, both ways, and wakes the threads that wait on it. What waits is lost.
    pub fn close(&self) {
        self.0.0.close();
    }

    /// Bytes of all frames so far, those that wait included.
    pub fn bytes_sent(&self) -> u64 {
        self.0.0.bytes_sent()
    }

    /// Bytes that were copied and wait for the peer.
    pub fn bytes_waiting(&self) -> usize {
        self.0.0.bytes_waiting()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.let_go();
    }
}
