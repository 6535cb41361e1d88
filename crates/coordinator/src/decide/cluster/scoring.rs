//! Held-out parts, scored by all workers.

use super::{Cluster, Phase};
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

    pub(super) fn score(
        &mut self,
        now: Duration,
        part: HeldOut,
        end: Option<End>,
        why: &'static str,
    ) {
        let batches = self.config.held_out[usize::from(part == HeldOut::Test)];
        let scoring = Scoring::new(part, batches, now, self.longest_batch);
        self.phase = Phase::Scoring(scoring, end);
        self.deal_batches(why);
    }

    /// Gives out again what workers had that are no longer there.
    pub(super) fn score_again(&mut self, now: Duration) {
        let active = self.members.active(self.wanted);
        let Phase::Scoring(scoring, _) = &mut self.phase else { return };
        for worker in scoring.holders() {
            if !active.contains(&worker) {
                scoring.release(worker);
                scoring.progressed = now;
            }
        }
        self.deal_batches("whoever had them does not");
    }

    fn deal_batches(&mut self, why: &'static str) {
        let active = self.members.active(self.wanted);
        let step = self.course.state().step;
        if self.paused || active.is_empty() {
            return;
        }
        let Phase::Scoring(scoring, _) = &mut self.phase else { return };
        let part = scoring.part;
        let dealt = scoring.deal(&active);
        // Everybody's own come first; then those of others, as many times as shards are copied.
        let copies = self.config.redundancy.min(active.len() as u32 - 1) as usize;
        for turn in 0..=copies {
            for (worker, batches) in &dealt {
                let at = active.iter().position(|other| other == worker).unwrap_or(0);
                let worker = active[(at + turn) % active.len()];
                let enter = self.must_enter(worker, step);
                let evaluate = ToWorker::Evaluate { part, step, batches: batches.clone(), enter };
                self.tell_worker(worker, evaluate, why);
            }
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
        self.phase = Phase::Training;
        self.let_go();
        match end {
            Some(end) => self.finish(end),
            None => {
                let what = self.course.validated(self.seconds(now), Some(figures));
                self.unkept = true;
                self.tell_pending();
                self.record(what, "every batch of the validation part is scored");
                self.go_on(now)?;
                self.stepped = now;
            }
        }
        Ok(())
    }
}
