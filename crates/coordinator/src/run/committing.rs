//! Steps that count, and the events about them.

use super::course::Done;
use super::losing::Stall;
use super::method::Method;
use super::record::Pending;
use super::{Run, Shortage};
use planaria_numerics::digest::Digest;
use planaria_protocol::event::What;
use planaria_protocol::message::Trouble;
use std::time::Duration;

/// What was counted of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    /// Sum of the loss over the examples.
    pub loss_sum: f64,
    /// Examples whose class was right.
    pub correct: u64,
    /// The examples that were read.
    pub read: Digest,
}

impl<M: Method> Run<M> {
    /// The step under way counts, and the next one is.
    pub(crate) fn committed(&mut self, now: Duration, counted: Counted) {
        let (step, epoch) = (self.course.state().step, self.course.state().epoch);
        self.unkept = true;
        // Scores are of weights that are no longer the last.
        self.scores = None;
        let seconds = now.saturating_sub(self.stepped).as_secs_f64();
        match self.stall.take() {
            Some(stall) => self.tell_stall(now, step, stall),
            None => self.patience.measured(seconds),
        }
        self.stepped = now;
        let Counted { loss_sum, correct, read } = counted;
        let done = Done { loss_sum, correct, examples: read.count, seconds, read };
        let line = self.course.stepped(self.seconds(now), &done);
        self.count(Pending { epoch, first_step: step, end_step: step + 1, read });
        if let Some(what) = line {
            self.tell_pending();
            self.record(what, "a line is due");
        }
    }

    /// Says how long a loss has held the run up, with the first commit after it.
    fn tell_stall(&mut self, now: Duration, step: u64, stall: Stall) {
        let usual = self.patience.typical().unwrap_or(0.0);
        let took = self.seconds(now) - self.course.state().seconds_total;
        let healed = What::Healed {
            step: step + 1,
            after: stall.after,
            stalled_seconds: (took - usual).max(0.0),
            recomputed_shards: stall.recomputed,
            shard_seconds: M::shard_seconds(self).unwrap_or(0.0),
        };
        self.record(healed, "it is the first step after that");
    }

    /// Adds a step to those that an event is to tell.
    fn count(&mut self, step: Pending) {
        match &mut self.pending {
            Some(pending) if pending.epoch == step.epoch && pending.end_step == step.first_step => {
                pending.end_step = step.end_step;
                pending.read = pending.read.combine(step.read);
            }
            _ => {
                self.tell_pending();
                self.pending = Some(step);
            }
        }
    }

    /// Tells the committed steps that no event has told.
    pub(super) fn tell_pending(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.unkept = true;
            self.record(pending.event(), "they are committed");
        }
    }

    /// An error where the loss of the step under way, or the sum over its epoch, has left the range
    /// of numbers.
    pub(crate) fn check_loss(&self, loss_sum: f64) -> Result<(), Trouble> {
        self.check_finite("the loss", loss_sum)?;
        let epoch = self.course.state().this_epoch.loss_sum + loss_sum;
        self.check_finite("the sum of the epoch's losses", epoch)
    }

    /// An error where a figure of the step under way is NaN or infinity.
    pub(crate) fn check_finite(&self, what: &str, value: f64) -> Result<(), Trouble> {
        if value.is_finite() {
            return Ok(());
        }
        let step = self.course.state().step;
        let rate = self.course.learning_rate(step);
        Err(Trouble {
            // Steps count from 1 for people.
            message: format!("training failed at step {}: {what} is {value}", step + 1),
            hint: Some(self.course.setup().remedy.at(rate)),
            fix_input: false,
            of_machine: false,
            agent: None,
        })
    }

    /// Too few workers are there: nothing is updated until there are enough.
    pub(crate) fn pause(&mut self, shortage: Shortage) {
        if self.paused.replace(shortage).is_none() {
            let Shortage { have, need } = shortage;
            self.record(What::Paused { workers: have, min: need }, "too few workers are left");
        }
    }

    /// There are enough again. True where there were not.
    pub(crate) fn unpause(&mut self, now: Duration, workers: u32) -> bool {
        if self.paused.take().is_none() {
            return false;
        }
        self.stepped = now;
        self.record(What::Unpaused { workers }, "there are enough workers");
        true
    }
}
