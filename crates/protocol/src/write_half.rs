//! The right to write to a link, with the bytes that come next.
//!
//! Owns the order of a frame's beginning and its bulk. Never waits longer than it is
//! told.

use crate::transport::Writing;
use std::io::{self, IoSlice};
use std::time::Duration;

/// Written at a time, so that threads that wait for room see it.
const CHUNK: usize = 1 << 20;

/// A socket's writing half and what is to be written before anything else.
pub(crate) struct WriteHalf {
    writing: Box<dyn Writing>,
    /// What comes next, from `at`; a caller's bulk comes after it.
    pub(crate) next: Vec<u8>,
    at: usize,
}

impl WriteHalf {
    pub(crate) fn new(writing: Box<dyn Writing>) -> Self {
        Self { writing, next: Vec::new(), at: 0 }
    }

    /// Writes what fits at once of its own bytes and then of `bulk`.
    pub(crate) fn write_now(&mut self, bulk: &[u8]) -> io::Result<usize> {
        let own = &self.next[self.at..];
        self.writing.write_now(&[IoSlice::new(own), IoSlice::new(bulk)])
    }

    /// Waits for room and writes some of its own bytes and then of `bulk`; 0 when there was no room.
    pub(crate) fn write_within(&mut self, bulk: &[u8], within: Duration) -> io::Result<usize> {
        let own = &self.next[self.at..];
        let own = &own[..own.len().min(CHUNK)];
        let bulk = &bulk[..bulk.len().min(CHUNK - own.len())];
        self.writing.write_within(&[IoSlice::new(own), IoSlice::new(bulk)], within)
    }

    /// Tells the peer that everything was written.
    pub(crate) fn finish(&mut self) {
        self.writing.finish();
    }

    /// Counts `written` bytes and gives the bulk that is left.
    pub(crate) fn advance<'a>(&mut self, written: usize, bulk: &'a [u8]) -> &'a [u8] {
        let own = written.min(self.left());
        self.at += own;
        &bulk[written - own..]
    }

    /// Bytes of its own that are not written.
    pub(crate) fn left(&self) -> usize {
        self.next.len() - self.at
    }

    /// Forgets what was written, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.next.clear();
        self.at = 0;
    }
}
