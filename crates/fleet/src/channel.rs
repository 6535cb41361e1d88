//! The bytes between a controller and the host on a machine.
//!
//! Owns both directions and the end of them. Never knows what is said ([`crate::messages`]).

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

/// Bytes kept of standard error.
const STDERR_BYTES_MAX: usize = 4096;

/// Both directions of a channel. Dropping the writing half tells the host to end.
pub struct Channel {
    /// From the host.
    pub reading: Box<dyn Read + Send>,
    /// To the host.
    pub writing: Box<dyn Write + Send>,
    /// Ends it at once, also while it is read or written; more than once is no error.
    pub closing: Arc<dyn Fn() + Send + Sync>,
    /// What `ssh`, the engine or the host wrote to standard error, to explain its end by.
    pub stderr_tail: StderrTail,
}

/// The end of what was written to standard error.
#[derive(Debug, Clone, Default)]
pub struct StderrTail(Arc<Mutex<Vec<u8>>>);

impl StderrTail {
    pub fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().expect("no thread panics with the tail");
        kept.extend_from_slice(bytes);
        let over = kept.len().saturating_sub(STDERR_BYTES_MAX);
        kept.drain(..over);
    }

    /// The end of it, as text.
    pub fn text(&self) -> String {
        let kept = self.0.lock().expect("no thread panics with the tail");
        String::from_utf8_lossy(&kept).trim().to_owned()
    }
}
