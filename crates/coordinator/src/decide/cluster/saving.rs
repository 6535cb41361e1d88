//! Checkpoints on their way to the disk. One that fails is tried again from the servers' copies,
//! while training goes on.

use super::{Action, Cluster, Decision, Phase, Saving};
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
    /// Servers that have not answered.
    waiting: Vec<bool>,
    /// Why it will not come about this time.
    failed: Option<String>,
    /// When it is tried again; nothing while it is under way.
    again: Option<Duration>,
    tries: u32,
}

impl Save {
    /// One that is to be tried at once.
    pub fn new(mut saving: Saving, servers: u32) -> Self {
        saving.parts = vec![None; servers as usize];
        let waiting = vec![false; servers as usize];
        Self { saving, waiting, failed: None, again: Some(Duration::ZERO), tries: 0 }
    }

    /// Whether it waits to be tried again.
    pub fn has_failed(&self) -> bool {
        self.again.is_some() && self.tries > 0
    }
}

/// A part of a checkpoint: file, SHA-256 and length; or why there is none.
pub(super) type Part = Result<(String, String, u64), String>;

impl Cluster {
    pub(super) fn save(&mut self, is_best: bool, reason: String) {
        self.tell_pending();
        let state = self.course.state().clone();
        let saving = Saving { state, is_best, reason, parts: Vec::new() };
        self.save = Some(Save::new(saving, self.config.servers));
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
        let Some(save) = self.save.as_mut() else { return };
        save.waiting.fill(true);
        save.saving.parts.fill(None);
        (save.failed, save.again) = (None, None);
        save.tries += 1;
        let (step, reason) = (save.saving.state.step, save.saving.reason.clone());
        self.decide(Action::Save(step), reason);
    }

    pub(super) fn part_saved(
        &mut self,
        now: Duration,
        server: u32,
        step: u64,
        part: Part,
    ) -> Result<(), Trouble> {
        let Some(save) = self.save.as_mut().filter(|s| s.saving.state.step == step) else {
            return Ok(());
        };
        if !std::mem::replace(&mut save.waiting[server as usize], false) {
            return Ok(());
        }
        match part {
            Ok(part) => save.saving.parts[server as usize] = Some(part),
            Err(why) => save.failed = Some(why),
        }
        if save.waiting.contains(&true) {
            return Ok(());
        }
        match save.failed.take() {
            None => {
                let saving = Box::new(save.saving.clone());
                self.decide(Action::WriteManifest(saving), "every part is on the disk");
                Ok(())
            }
            Some(why) => {
                self.not_saved(now, why);
                self.let_next_save(now)
            }
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
        let ending = matches!(self.phase, Phase::Ending(_));
        let Some(save) = self.save.as_mut() else { return };
        let step = save.saving.state.step;
        self.decisions.push(Decision { action: Action::Abandon, reason: why.clone().into() });
        save.saving.parts.fill(None);
        save.again = Some(now + AGAIN);
        if ending && save.tries >= TRIES {
            let trouble = Trouble {
                message: format!("cannot save the last checkpoint, of step {step}: {why}"),
                hint: Some("make room or mend the folder, then `planaria resume`".into()),
                fix_input: false,
            };
            return self.failed(trouble);
        }
        let first = save.tries == 1;
        self.course.not_saved();
        if first {
            self.record(What::NotSaved { step, reason: why.clone() }, why);
        }
    }

    pub(super) fn manifest_written(
        &mut self,
        now: Duration,
        written: Result<String, String>,
    ) -> Result<(), Trouble> {
        if let Err(why) = self.checkpoint_written(written) {
            self.not_saved(now, why);
        }
        match &self.phase {
            Phase::Ending(end) if self.save.is_none() => {
                self.end(end.clone());
                Ok(())
            }
            _ => self.let_next_save(now),
        }
    }

    /// Another checkpoint may have waited for one that is whole now, or has failed.
    fn let_next_save(&mut self, now: Duration) -> Result<(), Trouble> {
        match self.phase {
            Phase::Training if self.leases.is_empty() => self.go_on(now),
            _ => Ok(()),
        }
    }
}
