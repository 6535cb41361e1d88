//! Held-out parts, scored by all workers.

use super::{Action, Cluster, Phase};
use crate::decide::course::End;
use crate::decide::scoring::Scoring;
use planaria_learn::Scores;
use planaria_protocol::message::{HeldOut, ToWorker, Trouble};
use std::time::Duration;

impl Cluster {
    /// The part to score at the end, if the scores at hand are not of it.
    pub(super) fn last_part(&self) -> Option<HeldOut> {
        let [validation, test] = self.config.held_out;
        match (validation > 0, test > 0) {
            (_, true) => Some(HeldOut::Test),
            (true, false) if self.scores.is_none() => Some(HeldOut::Validation),
            _ => None,
        }
    }

    pub(super) fn score(&mut self, part: HeldOut, end: Option<End>, why: &'static str) {
        let batches = self.config.held_out[usize::from(part == HeldOut::Test)];
        let scoring = Scoring::new(part, batches);
        let step = self.course.state().step;
        for (worker, batches) in (0..).zip(scoring.deal(self.config.workers as usize)) {
            if !batches.is_empty() {
                let evaluate = ToWorker::Evaluate { part, step, batches, enter: false };
                self.decide(Action::ToWorker(worker, evaluate), why);
            }
        }
        self.phase = Phase::Scoring(scoring, end);
    }

    pub(super) fn scored(
        &mut self,
        now: Duration,
        part: HeldOut,
        batch: u64,
        scores: Scores,
    ) -> Result<(), Trouble> {
        let Phase::Scoring(scoring, end) = &mut self.phase else { return Ok(()) };
        if scoring.part != part {
            return Ok(());
        }
        let taken = scoring.take(batch, scores).map_err(Trouble::new)?;
        let Some(scores) = taken else { return Ok(()) };
        let end = end.take();
        let figures = (scores.loss(), scores.accuracy());
        self.scores = Some((part, scores));
        match end {
            Some(end) => self.finish(end),
            None => {
                self.phase = Phase::Training;
                let what = self.course.validated(self.seconds(now), Some(figures));
                self.record(what, "every batch of the validation part is scored");
                self.go_on(now)?;
                self.stepped = now;
            }
        }
        Ok(())
    }
}
