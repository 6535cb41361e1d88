//! Held-out parts, scored by all workers.

use super::course::{End, Validation};
use super::method::{Batches, Method};
use super::scoring::Scoring;
use super::{Phase, Run, Scored};
use planaria_protocol::message::{HeldOut, Trouble};
use std::time::Duration;

/// Times scores are waited for before all workers may be suspected at once.
const PATIENT_TIMES: u32 = 3;

/// The last weights have no loss: whatever they are, they are not what was to be learned.
fn overflowed(part: HeldOut, step: u64, remedy: &str) -> Trouble {
    Trouble::new(format!(
        "training failed: after step {step} the loss on the {part} part is not a finite number"
    ))
    .hint(format!("{remedy}; earlier checkpoints may still be good"))
}

impl<M: Method> Run<M> {
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
        let active = self.active();
        let Phase::Scoring(scoring, _) = &mut self.phase else { return };
        for worker in scoring.holders() {
            if !active.contains(&worker) {
                scoring.release(worker);
                scoring.progressed = now;
            }
        }
        self.deal_batches("the workers that had them do not");
    }

    fn deal_batches(&mut self, why: &'static str) {
        let active = self.active();
        let step = self.course.state().step;
        if self.paused.is_some() || active.is_empty() {
            return;
        }
        let Phase::Scoring(scoring, _) = &mut self.phase else { return };
        let part = scoring.part;
        let dealt = scoring.deal(&active);
        // Each worker's own come first; then those of others, as many times as work is copied.
        let copies = M::copies(self).min(active.len() as u32 - 1) as usize;
        for turn in 0..=copies {
            for (worker, batches) in &dealt {
                let at = active.iter().position(|other| other == worker).unwrap_or(0);
                let worker = active[(at + turn) % active.len()];
                let batches = Batches { part, step, batches: batches.clone() };
                M::evaluate(self, worker, batches, why);
            }
        }
    }

    pub(super) fn scored(&mut self, now: Duration, scored: Scored) -> Result<(), Trouble> {
        let own = self.course.state().step;
        let Phase::Scoring(scoring, end) = &mut self.phase else { return Ok(()) };
        if scoring.part != scored.part || scored.step != own {
            return Ok(());
        }
        let taken = scoring.take(now, scored.batch, scored.scores).map_err(Trouble::new)?;
        self.longest_batch = scoring.longest;
        let Some(scores) = taken else { return Ok(()) };
        let end = end.take();
        let figures = Validation::of(&scores);
        if end.is_some() && figures.loss.is_none() && scores.examples() > 0 {
            let rate = self.course.learning_rate(own.saturating_sub(1));
            let remedy = self.course.setup().remedy.at(rate);
            return Err(overflowed(scored.part, own, &remedy));
        }
        self.scores = Some((scored.part, scores));
        (self.phase, self.stepped) = (Phase::Training, now);
        self.let_go();
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

    pub(super) fn look_for_late_scores(&mut self, now: Duration) -> Result<(), Trouble> {
        let others = self.active();
        let Phase::Scoring(scoring, _) = &mut self.phase else { return Ok(()) };
        if self.paused.is_some() || !scoring.is_late(now) {
            return Ok(());
        }
        let late = scoring.holders();
        scoring.progressed = now;
        scoring.times_late += 1;
        // If all are late it is the machine, or no other could help.
        let are_all_late = others.iter().all(|worker| late.contains(worker));
        if are_all_late && scoring.times_late < PATIENT_TIMES {
            return Ok(());
        }
        let lag = now.saturating_sub(self.stepped);
        late.into_iter().try_for_each(|worker| self.suspect(now, worker, lag))
    }
}
