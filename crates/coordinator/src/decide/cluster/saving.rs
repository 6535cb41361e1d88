//! Checkpoints on their way to the disk.

use super::{Action, Cluster, Phase, Saving};
use planaria_protocol::event::What;
use planaria_protocol::message::Trouble;
use std::time::Duration;

impl Cluster {
    pub(super) fn save(&mut self, is_best: bool, reason: String) {
        let state = self.course.state().clone();
        let step = state.step;
        let parts = vec![None; self.config.servers as usize];
        self.saving = Some(Saving { state, is_best, reason: reason.clone(), parts });
        self.course.saved();
        self.decide(Action::Save(step), reason);
    }

    pub(super) fn part_saved(&mut self, server: u32, step: u64, part: (String, String, u64)) {
        let Some(saving) = self.saving.as_mut().filter(|s| s.state.step == step) else { return };
        saving.parts[server as usize] = Some(part);
        if saving.parts.iter().all(Option::is_some) {
            let saving = Box::new(saving.clone());
            self.decide(Action::WriteManifest(saving), "every part is on the disk");
        }
    }

    /// Writes down that the checkpoint is whole, or says why it is not. Either way it is done with.
    pub(super) fn checkpoint_written(
        &mut self,
        written: Result<String, String>,
    ) -> Result<(), String> {
        let Some(Saving { state, is_best, reason, .. }) = self.saving.take() else { return Ok(()) };
        let saved = What::Saved { step: state.step, is_best, folder: written?, reason };
        self.record(saved, "its manifest is on the disk");
        Ok(())
    }

    pub(super) fn manifest_written(
        &mut self,
        now: Duration,
        written: Result<String, String>,
    ) -> Result<(), Trouble> {
        self.checkpoint_written(written).map_err(Trouble::new)?;
        match &self.phase {
            Phase::Ending(end) => self.end(end.clone()),
            // Another checkpoint may have waited for this one.
            Phase::Training if self.leased.is_empty() => self.go_on(now)?,
            _ => {}
        }
        Ok(())
    }
}
