//! What must hold of every run, checked as it happens.
//!
//! Owns the lineage: which steps count, told by the events in their order. Never knows how anything
//! came about.

use crate::lab::Bench;
use crate::lab::truth::{Broken, timeless_state, timeless_what};
use planaria_learn::Weights;
use planaria_numerics::digest::Digest;
use planaria_protocol::bytes::as_bytes;
use planaria_protocol::checkpoint::Checkpoint;
use planaria_protocol::event::What;
use planaria_protocol::message::{HeldOut, Outcome};
use std::collections::BTreeSet;

/// How the last session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// `completed`, `interrupted`, `failed`.
    pub outcome: Outcome,
    /// Why, where that is not all.
    pub reason: String,
    /// Steps done.
    pub step: u64,
}

/// Steps that count at some moment.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// By the last record.
    recorded: Option<u64>,
    /// By what some server has committed.
    committed: u64,
    /// Whether it was decided by another coordinator.
    is_retold: bool,
}

/// Everything that is known of a run.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Ranges of steps that count: first, end, epoch and what was read.
    lineage: Vec<(u64, u64, u64, Digest)>,
    /// The generation whose commits have taken effect last.
    generation: u64,
    /// Steps that some server has committed, in this lineage.
    committed: u64,
    /// Steps of the last record that was kept, and by which generation.
    recorded: Option<u64>,
    kept: Option<(u64, u64)>,
    /// Whether events wait for the disk.
    waiting: bool,
    /// Whether events were lost with a coordinator while neither the disk took them nor a record
    /// held them: then what counted cannot be known.
    is_blind: bool,
    /// Checkpoints that were made whole.
    saved: BTreeSet<u64>,
    /// The scores that were told last.
    scored: Option<(HeldOut, serde_json::Value)>,
    /// How the last session ended.
    pub ended: Option<Ended>,
}

impl Verdict {
    /// A coordinator of this generation has kept a record.
    pub fn kept(&mut self, generation: u64, step: u64) {
        self.recorded = Some(step);
        self.kept = Some((generation, step));
    }

    /// The record is gone, or not the last.
    pub fn record_lost(&mut self) {
        (self.recorded, self.kept) = (None, None);
        self.is_blind |= self.waiting;
    }

    /// Whether there is a record to go on from.
    pub fn has_record(&self) -> bool {
        self.recorded.is_some()
    }

    /// Whether events wait for the disk.
    pub fn waits(&mut self, waiting: bool) {
        self.waiting = waiting;
    }

    /// A coordinator has ended.
    pub fn coordinator_lost(&mut self) {
        self.is_blind |= self.waiting && self.recorded.is_none();
    }

    /// A coordinator of this generation says that a step counts: its record must say so already.
    pub fn commit_said(&self, generation: u64, step: u64) -> Result<(), Broken> {
        match self.kept {
            Some((by, kept)) if by == generation && kept < step + 1 => {
                broken(format!("the commit of step {step} was said before its record ({kept})"))
            }
            _ => Ok(()),
        }
    }

    /// A server has done what a coordinator of this generation said.
    pub fn server_committed(&mut self, generation: u64, step: u64) -> Result<(), Broken> {
        if generation < self.generation {
            return broken(format!(
                "generation {generation} has committed step {step} after generation {}",
                self.generation
            ));
        }
        self.generation = generation;
        if let Some((by, kept)) = self.kept
            && by == generation
            && kept < step + 1
        {
            return broken(format!("step {step} was committed before it was recorded ({kept})"));
        }
        self.committed = self.committed.max(step + 1);
        Ok(())
    }

    /// A session begins; its generations are its own, for it has a secret of its own.
    pub fn session_begins(&mut self) {
        self.generation = 0;
    }

    /// Something was decided that is to be written down: what counts at that moment. What another
    /// coordinator has decided is only told.
    pub fn decided(&mut self, what: &What, is_retold: bool) -> Counts {
        let counts = Counts { recorded: self.recorded, committed: self.committed, is_retold };
        if is_retold {
            return counts;
        }
        match what {
            What::Started(started) => self.committed = started.step,
            What::Recovered { step, .. } => self.committed = *step,
            _ => {}
        }
        counts
    }

    /// A checkpoint is whole on the disk.
    pub fn finished(&mut self, step: u64) {
        self.saved.insert(step);
    }

    /// Something was written down; this counted when it was decided.
    pub fn recorded(&mut self, bench: &Bench, what: &What, counts: Counts) -> Result<(), Broken> {
        match what {
            What::Started(started) => {
                self.cut(started.step)?;
                self.ended = None;
            }
            What::Recovered { step, superseded, source, .. } => {
                if source == "kept" && *step < counts.committed && !counts.is_retold {
                    let committed = counts.committed;
                    return broken(format!("{committed} steps were committed: {what:?}"));
                }
                let done = self.end().max(counts.recorded.unwrap_or(0)).max(*step);
                if done - step != *superseded && !self.is_blind && !counts.is_retold {
                    return broken(format!("{done} steps had counted: {what:?}"));
                }
                self.cut(*step)?;
                // Its coordinator may have been lost with the last word.
                self.ended = None;
            }
            What::Committed { epoch, first_step, end_step, read } => {
                let follows = *first_step == self.end() || self.is_blind;
                if !follows || end_step <= first_step {
                    return broken(format!("steps up to {} had counted: {what:?}", self.end()));
                }
                let per_epoch = bench.steps_per_epoch();
                if first_step / per_epoch != *epoch || (end_step - 1) / per_epoch != *epoch {
                    return broken(format!("these are not of one epoch: {what:?}"));
                }
                self.lineage.push((*first_step, *end_step, *epoch, *read));
            }
            What::Steps(figures) => {
                let truth =
                    bench.truth.figures.iter().find(
                        |what| matches!(what, What::Steps(truth) if truth.step == figures.step),
                    );
                same(truth, what)?;
                if figures.step != self.end() && !self.is_blind {
                    return broken(format!("steps up to {} were told: {what:?}", self.end()));
                }
            }
            What::Epoch { figures, read, exact, .. } => {
                let epoch = figures.epoch - 1;
                let truth = bench.truth.figures.iter().find(
                    |what| matches!(what, What::Epoch { figures: truth, .. } if truth.epoch == figures.epoch),
                );
                same(truth, what)?;
                let own = self.lineage.iter().filter(|range| range.2 == epoch);
                let told = own.fold(Digest::default(), |sum, range| sum.combine(range.3));
                let same = told == *read || self.is_blind;
                if !exact || !same || *read != bench.facts.digest {
                    return broken(format!(
                        "an epoch's examples were not each read once: {told}, {what:?}"
                    ));
                }
            }
            What::Saved { step, .. } if !self.saved.contains(step) => {
                return broken(format!("it is not on the disk: {what:?}"));
            }
            What::Scored { part, scores, .. } => self.scored = Some((*part, scores.clone())),
            What::Ended { outcome, reason, step, state, .. } => {
                let before = self.ended.as_ref().map(|ended| (ended.outcome, ended.step));
                // Where the last word of a run that is complete was not heard, a stop may come.
                let is_other = |(said, at): (Outcome, u64)| {
                    at != *step || said != *outcome && said != Outcome::Completed
                };
                if before.is_some_and(is_other) {
                    return broken(format!("a session has ended twice: {before:?}, {what:?}"));
                }
                if *outcome != Outcome::Failed && *step > 0 && !self.saved.contains(step) {
                    return broken(format!("{step} steps were done and {:?} saved", self.saved));
                }
                if *outcome == Outcome::Completed {
                    let state = state.as_deref().cloned().map(timeless_state);
                    if state.as_ref() != Some(&bench.truth.state) {
                        return broken(format!(
                            "it ended at {state:?}, not {:?}",
                            bench.truth.state
                        ));
                    }
                    let truth = bench.truth.scores.as_ref();
                    let truth =
                        truth.map(|(part, s)| (*part, serde_json::to_value(s).unwrap_or_default()));
                    if self.scored.take() != truth {
                        return broken("the scores are not those of the plain run".into());
                    }
                    if self.end() != bench.steps() && !self.is_blind {
                        return broken(format!("only {} steps were told", self.end()));
                    }
                }
                let (outcome, reason) = (*outcome, reason.clone().unwrap_or_default());
                self.ended = Some(Ended { outcome, reason, step: *step });
            }
            _ => {}
        }
        Ok(())
    }

    /// A coordinator keeps the weights of a coded run: they must be what the run had.
    pub fn kept_state(&self, bench: &Bench, step: u64, bytes: &[u8]) -> Result<(), Broken> {
        let truth = bench.truth.weights.get(step as usize);
        match truth.is_some_and(|truth| as_bytes(&truth.state) == bytes) {
            true => Ok(()),
            false => broken(format!("other weights are kept after step {step}")),
        }
    }

    /// A checkpoint was made whole: what can be read from it must be what the run had.
    pub fn saved(&self, bench: &Bench, read: &Checkpoint) -> Result<(), Broken> {
        let step = read.manifest.step;
        let Some(Weights { parameters, state, optimizer }) = bench.truth.weights.get(step as usize)
        else {
            return broken(format!("there is no step {step}"));
        };
        let same = |a: &[f32], b: &[f32]| as_bytes(a) == as_bytes(b);
        let weights = &read.weights;
        if !same(parameters, &weights.parameters) || !same(state, &weights.state) {
            return broken(format!("the checkpoint of step {step} has other weights"));
        }
        let slots = optimizer.iter().zip(&weights.optimizer);
        if optimizer.len() != weights.optimizer.len() || slots.clone().any(|(a, b)| !same(a, b)) {
            return broken(format!("the checkpoint of step {step} has another optimizer"));
        }
        Ok(())
    }

    /// Steps that count, as far as they were told.
    pub fn end(&self) -> u64 {
        self.lineage.last().map_or(0, |range| range.1)
    }

    /// What lies beyond `step` does not count.
    fn cut(&mut self, step: u64) -> Result<(), Broken> {
        if self.is_blind {
            self.lineage =
                (step > 0).then_some((0, step, 0, Digest::default())).into_iter().collect();
            return Ok(());
        }
        while self.lineage.last().is_some_and(|range| range.0 >= step) {
            self.lineage.pop();
        }
        if self.end() != step {
            return broken(format!("{} steps were told, and it goes on from {step}", self.end()));
        }
        Ok(())
    }
}

/// Whether figures are those of the plain run, to the last bit.
fn same(truth: Option<&What>, what: &What) -> Result<(), Broken> {
    match truth {
        Some(truth) if *truth == timeless_what(what.clone()) => Ok(()),
        truth => broken(format!("the figures {what:?} are not those of the plain run: {truth:?}")),
    }
}

fn broken<T>(why: String) -> Result<T, Broken> {
    Err(Broken(why))
}
