//! The only worker of a run in one process: holds the parameters itself and takes whole steps, one
//! after another.
//!
//! # Layout
//! - [`Solo`]: what it does and when, as a value
//! - [`learner`]: what is trained: a network or a [`linear`] model
//! - [`process`]: both together, as the coordinator in the same process sees them

pub mod learner;
pub mod linear;
pub mod process;

use crate::session::method::{Effect, Input, Method, Session, Todo};
use crate::session::scoring::Scoring;
use planaria_protocol::message::{FromWorker, Steps, Trouble};
use planaria_protocol::methods;
use planaria_protocol::methods::solo::{Command, Report};
use std::time::Duration;

/// A worker's part in a run in one process.
#[derive(Debug, Default)]
pub struct Solo {
    /// What is left of the steps that were ordered.
    steps: Option<Steps>,
    scoring: Scoring,
    /// Something is being done.
    is_busy: bool,
}

/// What this method asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Do {
    /// Take a step; the answer is its report.
    Step(Step),
    /// Write the parameters, which are those after `step` steps, to this folder; the answer is a
    /// report.
    Save { step: u64, folder: String },
}

/// A step to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Over the whole run.
    pub step: u64,
    pub epoch: u64,
    /// Batch of the epoch.
    pub batch: u64,
    /// When it begins.
    pub began: Duration,
}

impl Method for Solo {
    type Event = Report;
    type Effect = Do;
    /// Engine and threads, as the coordinator is told.
    type Prepared = ();

    fn prepared(&mut self, (): ()) {}

    fn joined(&mut self, todo: &mut Todo<Self>) {
        *self = Self::default();
        let ready = FromWorker::Ready { engine: String::new(), threads: 0 };
        todo.push_back(Effect::Tell(ready, Vec::new()));
    }

    fn on(
        &mut self,
        now: Duration,
        input: Input<Report>,
        todo: &mut Todo<Self>,
    ) -> Result<Session, Trouble> {
        match input {
            Input::Command(methods::Command::Solo(Command::Train(steps)), _) => {
                self.steps = Some(steps);
            }
            Input::Command(methods::Command::Solo(Command::Save { step, folder }), _) => {
                self.is_busy = true;
                todo.push_back(Effect::Own(Do::Save { step, folder }));
            }
            Input::Command(..) => {}
            Input::Woken => self.go_on(now, todo),
            Input::Evaluate { part, step, batches, .. } => self.scoring.add(part, step, batches, 0),
            Input::Scored { .. } => self.is_busy = false,
            Input::Own(report) => {
                self.is_busy = false;
                todo.push_back(Effect::Tell(report.into(), Vec::new()));
            }
        }
        Ok(Session::GoesOn)
    }

    /// At once, but after what the coordinator has said about what was done last.
    fn wake_at(&self) -> Option<Duration> {
        let has_work = self.steps.is_some() || !self.scoring.is_empty();
        (has_work && !self.is_busy).then_some(Duration::ZERO)
    }

    fn revoke(&mut self, _todo: &mut Todo<Self>) {
        self.steps = None;
        self.scoring.clear();
    }
}

impl Solo {
    fn go_on(&mut self, now: Duration, todo: &mut Todo<Self>) {
        if let Some(batch) = self.scoring.take() {
            self.is_busy = true;
            return todo.push_back(Effect::Score(batch));
        }
        let Some(steps) = &mut self.steps else { return };
        let Steps { first_step, epoch, batches } = &*steps;
        let step = Step { step: *first_step, epoch: *epoch, batch: batches.start, began: now };
        if steps.batches.is_empty() {
            self.steps = None;
            return;
        }
        steps.first_step += 1;
        steps.batches.start += 1;
        self.is_busy = true;
        todo.push_back(Effect::Own(Do::Step(step)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Batch, Worker};
    use planaria_numerics::digest::Digest;
    use planaria_protocol::message::{HeldOut, ToWorker};

    const NOW: Duration = Duration::ZERO;

    fn joined() -> Worker<Solo> {
        let mut worker = Worker::new(Solo::default(), "", NOW);
        assert_eq!(worker.next(NOW), Some(Effect::Join));
        worker.joined();
        assert_eq!(worker.next(NOW), Some(Effect::Prepare));
        worker.prepared(());
        assert!(matches!(worker.next(NOW), Some(Effect::Tell(FromWorker::Ready { .. }, _))));
        assert_eq!(worker.next(NOW), None);
        worker
    }

    fn train(worker: &Worker<Solo>, steps: std::ops::Range<u64>) {
        let steps = Steps { epoch: 0, first_step: steps.start, batches: steps };
        worker.inbox().hear(NOW, Command::Train(steps).into(), Vec::new());
    }

    fn stepped(step: u64) -> Report {
        let (loss_sum, correct, gradient_norm) = (1.0, 1, 1.0);
        let read = Digest::default();
        Report::Stepped { step, began: NOW, loss_sum, correct, gradient_norm, read }
    }

    fn step(step: u64) -> Option<Effect<Do>> {
        Some(Effect::Own(Do::Step(Step { step, epoch: 0, batch: step, began: NOW })))
    }

    fn told(step: u64) -> Option<Effect<Do>> {
        Some(Effect::Tell(stepped(step).into(), Vec::new()))
    }

    #[test]
    fn steps_are_taken_one_after_another_and_each_is_told_before_the_next() {
        let mut worker = joined();
        train(&worker, 4..6);
        assert_eq!(worker.next(NOW), step(4));
        assert_eq!(worker.next(NOW), None, "it takes one");
        worker.answer(stepped(4));
        assert_eq!([worker.next(NOW), worker.next(NOW)], [told(4), step(5)]);
        worker.answer(stepped(5));
        assert_eq!([worker.next(NOW), worker.next(NOW)], [told(5), None]);
    }

    /// What is saved after a stop is what the last step left: no other comes in between.
    #[test]
    fn a_stop_after_a_step_is_heard_before_the_next_one() {
        let mut worker = joined();
        train(&worker, 0..9);
        assert_eq!(worker.next(NOW), step(0));
        worker.answer(stepped(0));
        assert_eq!(worker.next(NOW), told(0));
        worker.inbox().hear(NOW, ToWorker::Revoke { ticket: 0 }, Vec::new());
        let save = Command::Save { step: 1, folder: "here".into() };
        worker.inbox().hear(NOW, save.into(), Vec::new());
        let effects: Vec<_> = std::iter::from_fn(|| worker.next(NOW)).collect();
        let save = Effect::Own(Do::Save { step: 1, folder: "here".into() });
        assert_eq!(effects.last(), Some(&save));
        assert!(!effects.iter().any(|e| matches!(e, Effect::Own(Do::Step(_)))), "{effects:?}");
    }

    #[test]
    fn batches_are_scored_in_order() {
        let mut worker = joined();
        let (part, step) = (HeldOut::Validation, 3);
        let order = ToWorker::Evaluate { part, step, batches: 0..2, enter: false };
        worker.inbox().hear(NOW, order, Vec::new());
        for batch in 0..2 {
            let batch = Batch { part, step, batch };
            assert_eq!(worker.next(NOW), Some(Effect::Score(batch)));
            assert_eq!(worker.next(NOW), None);
            worker.scored(batch, Some(Vec::new()));
            assert!(matches!(worker.next(NOW), Some(Effect::Tell(..))));
        }
        assert_eq!(worker.next(NOW), None);
    }
}
