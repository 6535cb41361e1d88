//! A worker's weights are compared with the servers' before it computes anything.

use super::SyncRun;
use super::follower::Entering;
use planaria_protocol::message::{Sha256, ToWorker, Trouble};
use planaria_protocol::methods::sync::Command;
use std::time::Duration;

/// Steps at which a worker may be entering at a time; the oldest are forgotten.
const ENTERING_MAX: usize = 4;

impl SyncRun {
    /// Whether an order for `step` must let the worker in first; it counts as let in from then on.
    pub(super) fn must_enter(&mut self, worker: u32, step: u64) -> bool {
        if !self.members.workers.contains_key(&worker) {
            return false;
        }
        let follower = self.method.followers.entry(worker).or_default();
        match follower.follows_from {
            // It has the parameters, or will have them.
            Some(from) if from <= step => false,
            _ => {
                follower.follows_from = Some(step);
                true
            }
        }
    }

    pub(super) fn holds(
        &mut self,
        now: Duration,
        worker: u32,
        step: u64,
        sha256: Vec<Sha256>,
    ) -> Result<(), Trouble> {
        self.entering(worker, step, |entering| entering.holds = Some(sha256));
        self.maybe_enter(now, worker, step)
    }

    pub(super) fn pulled(
        &mut self,
        now: Duration,
        server: u32,
        worker: u32,
        step: u64,
        sha256: Sha256,
    ) -> Result<(), Trouble> {
        let note = |entering: &mut Entering| entering.pulled[server as usize] = Some(sha256);
        self.entering(worker, step, note);
        self.maybe_enter(now, worker, step)
    }

    /// Which step a worker enters at it says itself; that it may has been decided with its lease.
    fn entering(&mut self, worker: u32, step: u64, note: impl FnOnce(&mut Entering)) {
        let servers = self.config.servers as usize;
        if !self.members.workers.contains_key(&worker) {
            return;
        }
        let follower = self.method.followers.entry(worker).or_default();
        let new = || Entering { holds: None, pulled: vec![None; servers] };
        note(follower.entering.entry(step).or_insert_with(new));
        while follower.entering.len() > ENTERING_MAX {
            follower.entering.pop_first();
        }
    }

    fn maybe_enter(&mut self, now: Duration, worker: u32, step: u64) -> Result<(), Trouble> {
        let Some(follower) = self.method.followers.get_mut(&worker) else { return Ok(()) };
        let Some(Entering { holds: Some(holds), pulled }) = follower.entering.get(&step) else {
            return Ok(());
        };
        let Some(pulled) = pulled.iter().copied().collect::<Option<Vec<Sha256>>>() else {
            return Ok(());
        };
        let same = *holds == pulled;
        follower.entering.remove(&step);
        if same {
            self.tell_worker(worker, Command::Entered { step }, "its weights are the run's");
            return Ok(());
        }
        let how = format!("its weights after step {step} were not the run's");
        self.tell_worker(worker, ToWorker::Rejoin, "its weights are not the run's");
        self.lose_worker(now, worker, how, false)
    }
}
