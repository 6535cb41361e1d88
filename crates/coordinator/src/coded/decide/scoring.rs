//! Held-out parts, scored by all workers with the weights as they are.

use super::{Coded, Phase, Value};
use crate::decide::course::End;
use crate::decide::scoring::Scoring;
use planaria_learn::Scores;
use planaria_protocol::message::{HeldOut, ToWorker, Trouble};
use planaria_protocol::methods::coded::{Command, Travel};
use std::sync::Arc;
use std::time::Duration;

impl<E: Value> Coded<E> {
    /// The part to score at the end, if the scores at hand are not of it.
    pub(super) fn last_part(&self) -> Option<HeldOut> {
        let [validation, test] = self.setting.held_out;
        match (validation > 0, test > 0) {
            (_, true) => Some(HeldOut::Test),
            (true, false) if self.scores.is_none() => Some(HeldOut::Validation),
            _ => None,
        }
    }

    pub(super) fn score(
        &mut self,
        now: Duration,
        part: HeldOut,
        end: Option<End>,
        why: &'static str,
    ) {
        let batches = self.setting.held_out[usize::from(part == HeldOut::Test)];
        let scoring = Scoring::new(part, batches, now, self.longest_batch);
        self.phase = Phase::Scoring(scoring, end);
        self.deal(why);
    }

    /// Gives out again what workers had that are no longer there, or are late.
    pub(super) fn score_again(&mut self, now: Duration) {
        let active: Vec<u32> = self.seated().into_values().collect();
        let Phase::Scoring(scoring, _) = &mut self.phase else { return };
        let is_late = scoring.is_late(now);
        if is_late {
            scoring.times_late += 1;
        }
        let gone: Vec<u32> = scoring
            .holders()
            .into_iter()
            .filter(|worker| is_late || !active.contains(worker))
            .collect();
        for worker in gone {
            scoring.release(worker);
            scoring.progressed = now;
        }
        self.deal("whoever had them does not");
    }

    fn deal(&mut self, why: &'static str) {
        let active: Vec<u32> = self.seated().into_values().collect();
        let step = self.course.state().step;
        let Phase::Scoring(scoring, _) = &mut self.phase else { return };
        if active.is_empty() {
            return;
        }
        let part = scoring.part;
        for (worker, batches) in scoring.deal(&active) {
            let known = self.members.get_mut(&worker).and_then(|m| m.scores_with.replace(step));
            if known != Some(step) {
                let values = Arc::new(f64::bytes(self.learner.values()));
                self.order(worker, Command::Model { step }, values, why);
            }
            self.tell(worker, ToWorker::Evaluate { part, step, batches, enter: false }, why);
        }
    }

    pub(super) fn scored(
        &mut self,
        now: Duration,
        part: HeldOut,
        (step, batch): (u64, u64),
        scores: Scores,
    ) -> Result<(), Trouble> {
        let own = self.course.state().step;
        let Phase::Scoring(scoring, end) = &mut self.phase else { return Ok(()) };
        if scoring.part != part || step != own {
            return Ok(());
        }
        let taken = scoring.take(now, batch, scores).map_err(Trouble::new)?;
        self.longest_batch = scoring.longest;
        let Some(scores) = taken else { return Ok(()) };
        let end = end.take();
        let figures = (scores.loss(), scores.accuracy());
        self.scores = Some((part, scores));
        (self.phase, self.stepped) = (Phase::Training, now);
        match end {
            Some(end) => self.finish(end),
            None => {
                let what = self.course.validated(self.seconds(now), Some(figures));
                self.unkept = true;
                self.tell_pending();
                self.record(what, "every batch of the validation part is scored");
            }
        }
        Ok(())
    }
}
