//! A worker as a value: joins, works, is revoked, joins again, ends.
//!
//! Told what has happened, it says what to do, one [`Effect`] after another; the process
//! ([`super::shell`]) and the simulation do the same things for the same value. Time is passed in.

use super::LEASE;
use super::inbox::Inbox;
use super::method::{Batch, Effect, Incoming, Input, Method, Session, Todo};
use planaria_protocol::message::{FromWorker, ToWorker, Trouble};
use planaria_protocol::retry::retry_after;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A worker's process, as a value.
pub struct Worker<M: Method> {
    method: M,
    /// Where the coordinator listens, for what is said to people.
    address: String,
    stage: Stage,
    inbox: Arc<Inbox<M::Event>>,
    /// What came of effects.
    answers: VecDeque<Input<M::Event>>,
    todo: Todo<M>,
    is_prepared: bool,
    /// When a coordinator was last heard.
    heard_at: Duration,
    /// It was said that the coordinator cannot be reached.
    has_complained: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not joined; tries to at this time.
    Away {
        until: Duration,
    },
    Joining,
    Preparing,
    Working,
    /// The process ends.
    Over,
}

impl<M: Method> Worker<M> {
    /// A worker that has just been started.
    pub fn new(method: M, address: &str, now: Duration) -> Self {
        Self {
            method,
            address: address.to_owned(),
            stage: Stage::Away { until: now },
            inbox: Arc::new(Inbox::new(now, M::arrived)),
            answers: VecDeque::new(),
            todo: VecDeque::new(),
            is_prepared: false,
            heard_at: now,
            has_complained: false,
        }
    }

    /// Where what comes in this session is put.
    pub fn inbox(&self) -> &Arc<Inbox<M::Event>> {
        &self.inbox
    }

    /// What to do next; nothing while there is something to wait for: that something comes in, the
    /// answer to what was said last, or the time [`Self::wake_at`].
    pub fn next(&mut self, now: Duration) -> Option<Effect<M::Effect>> {
        loop {
            if let Some(effect) = self.todo.pop_front() {
                return Some(effect);
            }
            match self.stage {
                Stage::Away { until } if now >= until => {
                    self.stage = Stage::Joining;
                    self.inbox = Arc::new(Inbox::new(now, M::arrived));
                    return Some(Effect::Join);
                }
                Stage::Working => {
                    if !self.take_in(now) {
                        return None;
                    }
                }
                _ => return None,
            }
        }
    }

    /// When [`Self::next`] has something to do even if nothing comes in.
    pub fn wake_at(&self) -> Option<Duration> {
        match self.stage {
            Stage::Away { until } => Some(until),
            Stage::Working => self.method.wake_at(),
            _ => None,
        }
    }

    /// The coordinator is reached, and knows who this is. From now on it is to hear heartbeats.
    pub fn joined(&mut self) {
        self.has_complained = false;
        if self.is_prepared {
            return self.begin();
        }
        self.stage = Stage::Preparing;
        self.todo.push_back(Effect::Prepare);
    }

    /// The coordinator cannot be reached.
    pub fn not_joined(&mut self, now: Duration, why: &str) {
        if !std::mem::replace(&mut self.has_complained, true) {
            self.log(format!("cannot join the coordinator yet: {why}"));
        }
        self.try_again(now, why);
    }

    /// Data and engine are there. What has come meanwhile was kept.
    pub fn prepared(&mut self, prepared: M::Prepared) {
        self.is_prepared = true;
        self.method.prepared(prepared);
        self.begin();
    }

    /// The scores of a batch, as JSON; nothing where it cannot be scored.
    pub fn scored(&mut self, batch: Batch, scores: Option<Vec<u8>>) {
        let Batch { part, step, batch } = batch;
        let is_scored = scores.is_some();
        if let Some(scores) = scores {
            self.todo.push_back(Effect::Tell(FromWorker::Evaluated { part, step, batch }, scores));
        }
        self.answers.push_back(Input::Scored { step, is_scored });
    }

    /// The result of an effect. It is handled after messages, so that work that is no longer wanted
    /// is not continued.
    pub fn answer(&mut self, event: M::Event) {
        self.answers.push_back(Input::Own(event));
    }

    /// The process cannot go on.
    pub fn fail(&mut self, trouble: Trouble) {
        self.todo.clear();
        self.todo.push_back(Effect::Tell(FromWorker::Failed(trouble.clone()), Vec::new()));
        self.end(Err(trouble));
    }

    fn begin(&mut self) {
        self.stage = Stage::Working;
        self.method.joined(&mut self.todo);
    }

    /// Takes in what has come, from others first; false where nothing has.
    fn take_in(&mut self, now: Duration) -> bool {
        if let Some(incoming) = self.inbox.take() {
            self.hear(now, incoming);
        } else if let Some(answer) = self.answers.pop_front() {
            self.tell_method(now, answer);
        } else if self.method.wake_at().is_some_and(|at| now >= at) {
            self.tell_method(now, Input::Woken);
        } else {
            return false;
        }
        true
    }

    fn hear(&mut self, now: Duration, incoming: Incoming<M::Event>) {
        match incoming {
            Incoming::Own(event) => self.tell_method(now, Input::Own(event)),
            Incoming::Orphaned => self.leave(now),
            Incoming::Order(order, bulk) => match order {
                ToWorker::Method(command) => self.tell_method(now, Input::Command(command, bulk)),
                ToWorker::Evaluate { part, step, batches, enter } => {
                    self.tell_method(now, Input::Evaluate { part, step, batches, enter });
                }
                ToWorker::Revoke { ticket } => self.revoke(ticket),
                ToWorker::Rejoin => self.leave(now),
                ToWorker::Finish => self.end(Ok(())),
                // The inbox has dealt with them.
                ToWorker::Alive | ToWorker::FrameLoss(_) => {}
            },
        }
    }

    fn tell_method(&mut self, now: Duration, input: Input<M::Event>) {
        match self.method.on(now, input, &mut self.todo) {
            Ok(Session::GoesOn) => {}
            Ok(Session::IsOver) => self.leave(now),
            Err(trouble) => self.fail(trouble),
        }
    }

    fn revoke(&mut self, ticket: u64) {
        self.method.revoke(&mut self.todo);
        self.log("all orders are revoked".into());
        self.todo.push_back(Effect::Tell(FromWorker::Revoked { ticket }, Vec::new()));
    }

    /// Ends the session, to join again.
    fn leave(&mut self, now: Duration) {
        self.todo.push_back(Effect::Leave);
        self.answers.clear();
        self.inbox.close();
        if self.inbox.was_spoken_to() {
            self.heard_at = now;
            self.log("this session is over; joining again".into());
        }
        self.try_again(now, "it hung up");
    }

    fn try_again(&mut self, now: Duration, why: &str) {
        let away = now.saturating_sub(self.heard_at);
        self.stage = Stage::Away { until: now + retry_after(away) };
        if away > LEASE {
            let (address, seconds) = (&self.address, LEASE.as_secs());
            let message =
                format!("no word from a coordinator at {address} for {seconds} seconds: {why}");
            self.end(Err(Trouble::new(message)));
        }
    }

    fn end(&mut self, how: Result<(), Trouble>) {
        self.stage = Stage::Over;
        self.inbox.close();
        self.todo.push_back(Effect::End(how));
    }

    fn log(&mut self, line: String) {
        self.todo.push_back(Effect::Log(line));
    }
}

#[cfg(test)]
mod tests;
