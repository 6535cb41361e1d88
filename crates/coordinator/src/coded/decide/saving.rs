//! Checkpoints on their way to the disk, and the end of the run, which waits for them.

use super::{Coded, Phase, Value};
use crate::coded::keeping::Snapshot;
use crate::decide::cluster::{Action, Saving};
use crate::decide::course::End;
use planaria_protocol::event::What;
use planaria_protocol::message::{ToWorker, Trouble};
use std::time::Duration;

/// Time before a checkpoint that failed is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// Times that the last checkpoint of a run is tried.
const TRIES: u32 = 5;

/// A checkpoint under way.
#[derive(Debug)]
pub(super) struct Save {
    pub saving: Saving,
    /// What is written; nothing where another coordinator has left it.
    snapshot: Option<Snapshot>,
    /// When it is tried again; nothing while it is under way.
    again: Option<Duration>,
    tries: u32,
}

impl Save {
    /// One that another coordinator has not finished, and is to be tried at once.
    pub fn again(saving: Saving) -> Self {
        Self { saving, snapshot: None, again: Some(Duration::ZERO), tries: 0 }
    }

    /// Whether it waits to be tried again.
    pub fn has_failed(&self) -> bool {
        self.again.is_some() && self.tries > 0
    }
}

impl<E: Value> Coded<E> {
    pub(super) fn save(&mut self, is_best: bool, reason: String) {
        self.tell_pending();
        self.tell_worked();
        let state = self.course.state().clone();
        let saving = Saving { state, is_best, reason, parts: Vec::new() };
        let snapshot = Some(Snapshot::of(&self.learner));
        self.save = Some(Save { saving, snapshot, again: None, tries: 0 });
        self.course.saved();
        self.unkept = true;
        self.try_to_save();
    }

    /// Tries a checkpoint again that has failed, or that another coordinator has left.
    pub(super) fn save_again(&mut self, now: Duration) {
        let Some(save) = &mut self.save else { return };
        if save.again.is_none_or(|at| at > now) {
            return;
        }
        if save.snapshot.is_none() {
            if save.saving.state.step != self.course.state().step {
                // Its weights are gone; the next checkpoint holds what came of them.
                self.save = None;
                self.course.not_saved();
                return;
            }
            save.snapshot = Some(Snapshot::of(&self.learner));
        }
        self.try_to_save();
    }

    fn try_to_save(&mut self) {
        let Some(save) = &mut self.save else { return };
        let Some(snapshot) = save.snapshot.clone() else { return };
        save.again = None;
        save.tries += 1;
        let (saving, reason) = (Box::new(save.saving.clone()), save.saving.reason.clone());
        self.decide(Action::SaveWeights(saving, Box::new(snapshot)), reason);
    }

    pub(super) fn manifest_written(&mut self, now: Duration, written: Result<String, String>) {
        let Some(save) = &mut self.save else { return };
        let step = save.saving.state.step;
        match written {
            Ok(folder) => {
                let Saving { is_best, reason, .. } = save.saving.clone();
                self.save = None;
                self.unkept = true;
                let saved = What::Saved { step, is_best, folder, reason };
                self.record(saved, "its manifest is on the disk");
                if let Phase::Ending(end) = &self.phase {
                    self.end(end.clone());
                }
            }
            Err(why) => {
                save.again = Some(now + AGAIN);
                let (first, last) = (save.tries == 1, save.tries >= TRIES);
                if matches!(self.phase, Phase::Ending(_)) && last {
                    return self.failed(Trouble {
                        message: format!("cannot save the last checkpoint, of step {step}: {why}"),
                        hint: Some("make room or mend the folder, then `planaria resume`".into()),
                        fix_input: false,
                    });
                }
                self.course.not_saved();
                if first {
                    self.record(What::NotSaved { step, reason: why.clone() }, why);
                }
            }
        }
    }

    /// Ends as soon as nothing is on its way to the disk.
    pub(super) fn finish(&mut self, end: End) {
        match self.save {
            Some(_) => self.phase = Phase::Ending(end),
            None => self.end(end),
        }
    }

    fn end(&mut self, end: End) {
        let (outcome, reason) = match &end {
            End::Completed => ("completed", None),
            End::StoppedEarly(reason) => ("stopped_early", Some(reason.clone())),
            End::Interrupted => ("interrupted", None),
        };
        if let Some((part, scores)) = &self.scores {
            let scored = What::Scored {
                part: *part,
                examples: scores.examples(),
                loss: scores.loss(),
                accuracy: scores.accuracy(),
                scores: serde_json::to_value(scores).unwrap_or_default(),
            };
            self.record(scored, "the last weights are scored");
        }
        self.over(outcome, reason, None);
    }

    pub(super) fn failed(&mut self, trouble: Trouble) {
        self.over("failed", Some(trouble.message.clone()), Some(trouble));
    }

    fn over(&mut self, outcome: &str, reason: Option<String>, trouble: Option<Trouble>) {
        self.tell_pending();
        self.tell_worked();
        self.bury_all();
        self.phase = Phase::Over;
        let (outcome, state) = (outcome.to_owned(), self.course.state().clone());
        let (step, state) = (state.step, Some(Box::new(state)));
        let ended = What::Ended { outcome, reason, step, weights_sha256: None, trouble, state };
        self.record(ended, "nothing is left to do");
        let workers: Vec<u32> = self.members.keys().copied().collect();
        for worker in workers {
            self.tell(worker, ToWorker::Finish, "the run is over");
        }
        self.decide(Action::End, "the run is over");
    }
}
