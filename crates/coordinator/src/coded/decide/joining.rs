//! Workers that come, and where they sit.

use super::member::{Fetched, Member, Standing};
use super::{Coded, Phase, Value};
use crate::decide::cluster::Action;
use planaria_numerics::coding::{Slot, handover};
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, Join, ToWorker, Trouble};
use planaria_protocol::methods::coded::Command;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Most workers that a run may have.
const WORKERS_MAX: u32 = 4096;

/// Longest name of a machine that is kept, in characters; every pulse repeats them.
const MACHINE_MAX: usize = 64;

impl<E: Value> Coded<E> {
    pub(super) fn joined(&mut self, now: Duration, join: Join) -> Result<(), Trouble> {
        let agent = join.agent;
        if join.build != self.setting.build {
            let (build, own) = (&join.build, &self.setting.build);
            return Err(Trouble {
                message: format!("{agent} runs build {build}, but the run began with {own}"),
                hint: Some("the program was replaced while it started; start the run again".into()),
                fix_input: true,
            });
        }
        let Agent::Worker(worker) = agent else { return Ok(()) };
        if worker >= WORKERS_MAX {
            return Ok(());
        }
        if self.members.get(&worker).is_some_and(Member::has_joined) {
            let how = format!("process {} has come in its place", join.pid);
            self.lose(now, worker, how, false);
        }
        let machine = join.machine.map(|name| name.chars().take(MACHINE_MAX).collect());
        self.members.insert(worker, Member::joined(join.pid, machine, now));
        if worker >= self.wanted {
            self.tell(worker, ToWorker::Finish, "so many workers are not wanted");
        }
        Ok(())
    }

    /// Gives every worker that has none a slot: one whose rows its machine has, else the lowest.
    pub(super) fn seat(&mut self) {
        let mut taken: BTreeSet<Slot> = self.members.values().filter_map(|m| m.slot).collect();
        let machines = self.setting.code.generator.machines();
        let mut seated = Vec::new();
        for (worker, member) in self.members.range_mut(..self.wanted) {
            if member.standing != Standing::Offered {
                continue;
            }
            let Some(slot) = handover::seat(machines, &taken, &member.kept) else { break };
            taken.insert(slot);
            (member.slot, member.standing) = (Some(slot), Standing::Seated);
            seated.push((*worker, slot));
        }
        for (worker, slot) in seated {
            let seat = Command::Seat { slot: slot.0 };
            self.order(worker, seat, Arc::default(), "the slot is free");
        }
    }

    pub(super) fn offered(&mut self, worker: u32, slots: Vec<u16>, address: String) {
        if let Some(member) = self.members.get_mut(&worker)
            && member.standing == Standing::Joined
        {
            member.kept = slots.into_iter().map(Slot).collect();
            member.address = address;
            member.standing = Standing::Offered;
        }
    }

    /// A worker's rows are there, and with them what bounds products.
    pub(super) fn fetched(
        &mut self,
        worker: u32,
        slot: Slot,
        rows: Fetched,
        bounds: &[u8],
    ) -> Result<(), Trouble> {
        let Some(member) = self.members.get_mut(&worker) else { return Ok(()) };
        if member.standing != Standing::Seated || member.slot != Some(slot) {
            return Ok(());
        }
        member.fetched = Some(rows);
        if self.bounds.is_none() && !bounds.is_empty() {
            let bounds = serde_json::from_slice(bounds).map_err(|e| {
                Trouble::new(format!("worker-{worker}: its columns cannot be read: {e}"))
            })?;
            self.bounds = Some(bounds);
        }
        Ok(())
    }

    pub(super) fn ready(&mut self, worker: u32, engine: String, threads: u32) {
        let Some(member) = self.members.get_mut(&worker) else { return };
        let (Standing::Seated, Some(slot), Some(rows)) =
            (member.standing, member.slot, member.fetched)
        else {
            return;
        };
        member.standing = Standing::Ready;
        let Fetched { cached, downloaded } = rows;
        let joined = What::Joined {
            agent: Agent::Worker(worker).to_string(),
            pid: member.pid,
            engine: Some(engine),
            threads: Some(threads),
            machine: member.machine.clone(),
            downloaded: Some(downloaded),
        };
        let from = if cached { "its machine had them" } else { "from the source" };
        let reason = format!("it has the rows of slot {}: {from}, {downloaded} bytes sent", slot.0);
        self.record(joined, reason);
    }

    /// Begins when all workers are there, or enough of them and the others take their time.
    pub(super) fn maybe_begin(&mut self, now: Duration) {
        if !matches!(self.phase, Phase::Gathering) {
            return;
        }
        let ready = self.seated().len();
        if ready < self.setting.code.generator.threshold() {
            self.enough_since = None;
            return;
        }
        let since = *self.enough_since.get_or_insert(now);
        let most = (self.wanted as usize).min(self.setting.code.generator.machines());
        if ready >= most || now.saturating_sub(since) >= self.grace {
            (self.phase, self.stepped) = (Phase::Training, now);
        }
    }

    /// Goes on with so many workers from now on.
    pub(super) fn scale(&mut self, workers: u32) {
        let most = self.setting.code.generator.machines() as u32;
        if workers == 0 || workers > most || workers == self.wanted {
            let why = format!("there can be 1 to {most}");
            return self.record(What::Scaled { workers: self.wanted }, why);
        }
        self.wanted = workers;
        for worker in 0..workers {
            self.members.entry(worker).or_default();
        }
        self.unkept = true;
        self.record(What::Scaled { workers }, "it was asked for");
        self.decide(Action::Pool(workers), "it was asked for");
        let leaving: Vec<u32> = self.members.range(workers..).map(|(w, _)| *w).collect();
        for worker in leaving {
            let Some(member) = self.members.remove(&worker) else { continue };
            if let Some(slot) = member.slot {
                self.release(slot);
            }
            if member.has_joined() {
                let agent = Agent::Worker(worker).to_string();
                self.record(What::Released { agent }, "it was asked for");
                self.tell(worker, ToWorker::Finish, "so many workers are not wanted");
            }
        }
    }

    /// Whoever sat there is not waited for any longer.
    pub(super) fn release(&mut self, slot: Slot) {
        if let Some(work) = &mut self.work {
            work.iteration.lost(slot);
        }
    }
}
