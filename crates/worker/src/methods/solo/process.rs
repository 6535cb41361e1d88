//! The worker of a run in one process, with what it trains: the end of the in-process link that a
//! worker's process is in a run on many.

use super::learner::Learner;
use super::{Do, Solo};
use crate::session::{Batch, Effect, Worker};
use planaria_learn::Scores;
use planaria_protocol::message::{FromWorker, ToWorker, Trouble};
use planaria_protocol::methods::solo::Report;
use std::path::Path;
use std::time::Duration;

/// A worker without a thread: it takes commands, and computes when asked for its answers.
pub struct Process {
    worker: Worker<Solo>,
    pub learner: Learner,
    /// Scores of a batch that the coordinator is about to be told.
    scores: Option<(Batch, Scores)>,
}

/// What the coordinator is to be told.
#[derive(Debug)]
pub enum Said {
    Join,
    /// A batch is scored. Scores are handed over as they are: they may be long.
    Scored(Batch, Scores),
    Message(FromWorker),
}

impl Process {
    pub fn new(learner: Learner) -> Self {
        let worker = Worker::new(Solo::default(), "", Duration::ZERO);
        Self { worker, learner, scores: None }
    }

    /// The coordinator says something.
    pub fn hear(&self, now: Duration, order: ToWorker) {
        self.worker.inbox().hear(now, order, Vec::new());
    }

    /// Works until there is something to say; nothing where there is nothing to do.
    pub fn next(&mut self, now: Duration) -> Result<Option<Said>, Trouble> {
        while let Some(effect) = self.worker.next(now) {
            match effect {
                Effect::Join => {
                    self.worker.joined();
                    return Ok(Some(Said::Join));
                }
                Effect::Prepare => self.worker.prepared(()),
                Effect::Own(Do::Step(step)) => {
                    let report = self.learner.step(step)?;
                    self.worker.answer(report);
                }
                Effect::Own(Do::Save { step, folder }) => {
                    let written = self.learner.save(step, Path::new(&folder));
                    self.worker.answer(Report::Saved { step, written });
                }
                Effect::Score(batch) => {
                    self.scores = Some((batch, self.learner.score(batch)?));
                    self.worker.scored(batch, Some(Vec::new()));
                }
                Effect::Tell(FromWorker::Evaluated { .. }, _) => {
                    let scored = self.scores.take();
                    return Ok(scored.map(|(batch, scores)| Said::Scored(batch, scores)));
                }
                Effect::Tell(said, _) => return Ok(Some(Said::Message(said))),
                Effect::Log(_) | Effect::Leave | Effect::End(_) => {}
            }
        }
        Ok(None)
    }
}
