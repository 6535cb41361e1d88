//! A step that takes much longer than steps do.

use super::CodedRun;
use planaria_protocol::message::Trouble;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long one that runs lets others wait for a heartbeat, nearly always.
const SIGNS: Duration = Duration::from_millis(600);
/// Least patience with a step: a busy machine may leave a process alone for so long.
const PATIENCE_MIN: Duration = Duration::from_millis(400);

impl CodedRun {
    /// Workers that hold the step up are not waited for, if the others are enough.
    pub(super) fn look_for_late_slots(&mut self, now: Duration) -> Result<(), Trouble> {
        let Some(work) = &mut self.method.work else { return Ok(()) };
        let waited = now.saturating_sub(work.since);
        let limit = self.patience.limit(work.times).max(PATIENCE_MIN);
        if self.paused.is_some() || waited < limit {
            return Ok(());
        }
        work.times += 1;
        let mut late = work.iteration.waiting_for();
        let seated = self.seated();
        // A silent worker holds up those that wait for its messages.
        let is_silent = |worker: &u32| {
            let heard = self.members.workers.get(worker).map_or(now, |member| member.heard);
            now.saturating_sub(heard) > SIGNS
        };
        let silent = seated.iter().filter(|(_, worker)| is_silent(worker)).map(|(slot, _)| *slot);
        let silent: BTreeSet<_> = silent.collect();
        if !silent.is_empty() {
            late = silent;
        }
        let others = seated.keys().filter(|slot| !late.contains(slot)).count();
        // If too many are late it is the machines, and waiting is all that helps.
        if others < self.method.settings.code.threshold() {
            return Ok(());
        }
        let late = seated.iter().filter(|(slot, _)| late.contains(slot));
        late.map(|(_, worker)| *worker).try_for_each(|worker| self.suspect(now, worker, waited))
    }
}
