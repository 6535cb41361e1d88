//! What has come in a session and is not taken in yet: threads that read links put it here, the main
//! thread takes it out, and waits for nothing else.
//!
//! Owns also what must be known at once, while the main thread computes: when the coordinator was
//! last heard, and whether it has spoken its last word. One inbox for each session, so that what
//! threads of an earlier one say is not heard.

use super::SILENCE;
use super::method::{Incoming, Waiting};
use planaria_protocol::message::{FrameLoss, ToWorker};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Most that may wait; a process that sends more, faster than it can be taken in, is broken.
const WAITING_MAX: usize = 1 << 14;

/// Most that may wait before senders that can be kept waiting are.
const ROOM: usize = 1 << 12;

/// What has come in a session.
pub struct Inbox<E> {
    state: Mutex<State<E>>,
    came: Condvar,
    left: Condvar,
    /// An order has come and waits behind these: some may be void by it.
    arrived: fn(&ToWorker, &mut Waiting<E>),
}

struct State<E> {
    waiting: Waiting<E>,
    has_overflowed: bool,
    /// The last order has come, or no more can.
    is_ending: bool,
    /// The session is over.
    is_closed: bool,
    heard_at: Duration,
    was_spoken_to: bool,
}

/// What is to be done at once about an order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Heard {
    Kept,
    /// It is the last: close the method's links, so that senders blocked on them are released.
    Last,
    /// Injects a fault: this process loses frames that it sends.
    Fault(FrameLoss),
}

/// What is due at a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// Tell the coordinator that this process lives.
    Alive,
    /// The coordinator has been silent for too long: close the link to it.
    Silent,
}

impl<E> Inbox<E> {
    /// Of a session that begins now; `arrived` is the method's.
    pub fn new(now: Duration, arrived: fn(&ToWorker, &mut Waiting<E>)) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            has_overflowed: false,
            is_ending: false,
            is_closed: false,
            heard_at: now,
            was_spoken_to: false,
        };
        Self { state: Mutex::new(state), came: Condvar::new(), left: Condvar::new(), arrived }
    }

    /// The coordinator said this.
    pub fn hear(&self, now: Duration, order: ToWorker, bulk: Vec<u8>) -> Heard {
        let mut state = self.state();
        state.heard_at = now;
        state.was_spoken_to = true;
        let heard = match order {
            ToWorker::Alive => return Heard::Kept,
            ToWorker::FrameLoss(fault) => return Heard::Fault(fault),
            ToWorker::Finish | ToWorker::Rejoin => Heard::Last,
            _ => Heard::Kept,
        };
        state.is_ending |= heard == Heard::Last;
        (self.arrived)(&order, &mut state.waiting);
        state.keep(Incoming::Order(order, bulk));
        self.came.notify_one();
        heard
    }

    /// The link to the coordinator has ended.
    pub fn orphan(&self) {
        let mut state = self.state();
        state.is_ending = true;
        state.keep(Incoming::Orphaned);
        self.came.notify_one();
    }

    /// Something of the method has happened. If too much waits already, the session ends.
    pub fn put(&self, event: E) {
        self.state().keep(Incoming::Own(event));
        self.came.notify_one();
    }

    /// As [`Self::put`], but waits for room.
    pub fn put_when_room(&self, event: E) {
        let full = |state: &mut State<E>| state.waiting.len() >= ROOM && !state.is_closed;
        let waited = self.left.wait_while(self.state(), full);
        let mut state = waited.expect("no thread panics with the inbox");
        if !state.is_closed {
            state.keep(Incoming::Own(event));
            self.came.notify_one();
        }
    }

    /// Time has passed.
    pub fn beat(&self, now: Duration) -> Beat {
        match now.saturating_sub(self.state().heard_at) > SILENCE {
            true => Beat::Silent,
            false => Beat::Alive,
        }
    }

    /// Waits until something has come, so long at most.
    pub fn wait(&self, timeout: Option<Duration>) {
        let empty = |state: &mut State<E>| state.waiting.is_empty();
        let state = self.state();
        match timeout {
            None => drop(self.came.wait_while(state, empty)),
            Some(timeout) => drop(self.came.wait_timeout_while(state, timeout, empty)),
        }
    }

    /// Whether the last order has come, or no more can: what takes long is to be given up.
    pub fn is_ending(&self) -> bool {
        self.state().is_ending
    }

    /// Whether the coordinator has said anything.
    pub fn was_spoken_to(&self) -> bool {
        self.state().was_spoken_to
    }

    /// The oldest, if there is one.
    pub(super) fn take(&self) -> Option<Incoming<E>> {
        let mut state = self.state();
        if state.waiting.len() == ROOM {
            self.left.notify_all();
        }
        state.waiting.pop_front()
    }

    /// Nothing more is taken in.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.waiting.clear();
        self.left.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().expect("no thread panics with the inbox")
    }
}

impl<E> State<E> {
    fn keep(&mut self, incoming: Incoming<E>) {
        if self.is_closed {
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(incoming);
        } else if !std::mem::replace(&mut self.has_overflowed, true) {
            self.waiting.push_back(Incoming::Orphaned);
        }
    }
}
