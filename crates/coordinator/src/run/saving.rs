//! Checkpoints on their way to the disk: a folder, its parts, its manifest. One that fails is tried
//! again while training goes on.

use super::method::Method;
use super::{Action, Phase, Run, Saving};
use planaria_protocol::checkpoint::PartInfo;
use planaria_protocol::event::What;
use planaria_protocol::message::Trouble;
use std::time::Duration;

/// Time before a checkpoint that failed is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// Times that the last checkpoint of a run is tried.
const TRIES: u32 = 5;

/// A checkpoint under way.
#[derive(Debug)]
pub(super) struct Save {
    pub saving: Saving,
    /// Parts that are waited for.
    waiting: Vec<bool>,
    /// Why it will not come about this time.
    failed: Option<String>,
    /// When it is tried again; nothing while it is under way.
    again: Option<Duration>,
    tries: u32,
}

impl Save {
    /// One that is to be tried at once.
    pub fn new(mut saving: Saving, parts: u32) -> Self {
        saving.parts = vec![None; parts as usize];
        let waiting = vec![false; parts as usize];
        Self { saving, waiting, failed: None, again: Some(Duration::ZERO), tries: 0 }
    }

    /// Whether it waits to be tried again.
    pub fn has_failed(&self) -> bool {
        self.again.is_some() && self.tries > 0
    }

    /// Whether every part is on the disk.
    pub fn is_whole(&self) -> bool {
        self.saving.parts.iter().all(Option::is_some)
    }
}

impl<M: Method> Run<M> {
    pub(super) fn save(&mut self, is_best: bool, reason: String) {
        self.tell_pending();
        M::tell_figures(self);
        let state = self.course.state().clone();
        let saving = Saving { state, is_best, reason, parts: Vec::new() };
        self.save = Some(Save::new(saving, M::parts(self)));
        self.course.saved();
        self.unkept = true;
        self.try_to_save();
    }

    /// Tries a checkpoint again that has failed, or that another coordinator has left.
    pub(super) fn save_again(&mut self, now: Duration) {
        let due = |save: &Save| save.again.is_some_and(|at| at <= now);
        if self.save.as_ref().is_some_and(due) {
            self.try_to_save();
        }
    }

    fn try_to_save(&mut self) {
        let Some(step) = self.save.as_ref().map(|save| save.saving.state.step) else { return };
        if !M::can_save(self, step) {
            // What it was of is gone; the next checkpoint holds what came of it.
            self.save = None;
            self.course.not_saved();
            return;
        }
        let Some(save) = self.save.as_mut() else { return };
        save.waiting.fill(true);
        save.saving.parts.fill(None);
        (save.failed, save.again) = (None, None);
        save.tries += 1;
        let reason = save.saving.reason.clone();
        self.decide(Action::BeginCheckpoint { step }, reason);
    }

    /// Whether a checkpoint of these steps is under way and waits for its parts.
    pub(super) fn is_saving(&self, step: u64) -> bool {
        let save = self.save.as_ref().filter(|save| save.saving.state.step == step);
        save.is_some_and(|save| save.waiting.contains(&true))
    }

    pub(crate) fn part_saved(
        &mut self,
        now: Duration,
        part: u32,
        step: u64,
        written: Result<PartInfo, String>,
    ) {
        let Some(save) = self.save.as_mut().filter(|s| s.saving.state.step == step) else { return };
        if !std::mem::replace(&mut save.waiting[part as usize], false) {
            return;
        }
        match written {
            Ok(info) => save.saving.parts[part as usize] = Some(info),
            Err(why) => save.failed = Some(why),
        }
        if save.waiting.contains(&true) {
            return;
        }
        match save.failed.take() {
            None => {
                let saving = Box::new(save.saving.clone());
                self.decide(Action::WriteManifest(saving), "every part is on the disk");
            }
            Some(why) => self.not_saved(now, why),
        }
    }

    /// Writes down that the checkpoint is whole, or says why it is not.
    pub(super) fn checkpoint_written(
        &mut self,
        written: Result<String, String>,
    ) -> Result<(), String> {
        let Some(save) = self.save.as_ref() else { return Ok(()) };
        let folder = written?;
        let Saving { state, is_best, reason, .. } = save.saving.clone();
        self.save = None;
        self.unkept = true;
        let saved = What::Saved { step: state.step, is_best, folder, reason };
        self.record(saved, "its manifest is on the disk");
        Ok(())
    }

    fn not_saved(&mut self, now: Duration, why: String) {
        if self.save.is_some() {
            self.decide(Action::Abandon, why.clone());
        }
        let ending = matches!(self.phase, Phase::Ending(_));
        let Some(save) = self.save.as_mut() else { return };
        let step = save.saving.state.step;
        save.saving.parts.fill(None);
        save.waiting.fill(false);
        save.again = Some(now + AGAIN);
        if ending && save.tries >= TRIES {
            let trouble = Trouble {
                message: format!("cannot write a checkpoint of step {step}, the last one: {why}"),
                hint: Some(
                    "free some space or make the folder writable, then `planaria resume RUN` goes on from \
                     the checkpoint before"
                        .into(),
                ),
                fix_input: false,
                of_machine: false,
            agent: None,
            };
            return self.failed(trouble);
        }
        let first = save.tries == 1;
        self.course.not_saved();
        if first {
            self.record(What::NotSaved { step, reason: why.clone() }, why);
        }
    }

    pub(super) fn manifest_written(&mut self, now: Duration, written: Result<String, String>) {
        if let Err(why) = self.checkpoint_written(written) {
            self.not_saved(now, why);
        }
        if let Phase::Ending(end) = &self.phase
            && self.save.is_none()
        {
            self.end(end.clone());
        }
    }
}
