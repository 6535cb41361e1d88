//! Workers that go, hang, or are late: others make up for them at once.

use super::member::Member;
use super::{Coded, Phase, Value};
use crate::decide::cluster::Action;
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, ToWorker};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long someone may not be heard, `Alive` coming every quarter of a second.
const SILENCE: Duration = Duration::from_secs(6);
/// How long one that runs lets others wait for such a sign, nearly always.
const SIGNS: Duration = Duration::from_millis(600);
/// How long whoever started a process may take to say how it ended.
const MOURNING: Duration = Duration::from_millis(150);
/// Losses that are remembered, so as not to be written down twice.
const BURIED_MAX: usize = 64;
/// Least patience with a step: a busy machine may leave a process alone for so long.
const PATIENCE_MIN: Duration = Duration::from_millis(400);

/// A loss that is not written down yet: whoever started the process may know how it ended.
#[derive(Debug)]
pub(super) struct Mourned {
    agent: Agent,
    pid: u32,
    how: String,
    since: Duration,
}

impl<E: Value> Coded<E> {
    pub(super) fn heard(&mut self, worker: u32, now: Duration) {
        if let Some(member) = self.members.get_mut(&worker) {
            member.heard = now;
        }
    }

    pub(super) fn left(&mut self, now: Duration, agent: Agent, pid: u32, how: String, ended: bool) {
        if ended
            && let Some(at) = self.mourned.iter().position(|m| m.agent == agent && m.pid == pid)
        {
            self.mourned.swap_remove(at);
            return self.bury(agent, pid, how);
        }
        let Agent::Worker(worker) = agent else { return };
        match self.members.get(&worker) {
            Some(member) if member.pid == pid && member.has_joined() => {
                self.lose(now, worker, how, ended);
            }
            _ if ended && !self.buried.contains(&(agent, pid)) => self.bury(agent, pid, how),
            _ => {}
        }
    }

    /// A worker is gone: what it owes others compute, and its slot is free.
    pub(super) fn lose(&mut self, now: Duration, worker: u32, how: String, ended: bool) {
        let agent = Agent::Worker(worker);
        let Some(member) = self.members.get_mut(&worker) else { return };
        let Member { pid, slot, .. } = std::mem::take(member);
        if matches!(self.phase, Phase::Ending(_)) {
            return;
        }
        if let Some(slot) = slot {
            self.release(slot);
        }
        if self.work.is_some() {
            self.wound.get_or_insert_with(|| format!("{agent} was lost: {how}"));
        }
        match ended {
            true => self.bury(agent, pid, how),
            false => self.mourned.push(Mourned { agent, pid, how, since: now }),
        }
    }

    pub(super) fn look_for_hung(&mut self, now: Duration) {
        let silent = |member: &Member| now.saturating_sub(member.heard) > SILENCE;
        let hung = self.members.iter().filter(|(_, m)| m.has_joined() && silent(m));
        let hung: Vec<_> = hung.map(|(worker, m)| (*worker, m.pid, m.heard)).collect();
        for (worker, pid, heard) in hung {
            let silent = now.saturating_sub(heard).as_secs_f64();
            let how = format!("it was not heard for {silent:.1} s");
            self.decide(Action::Kill(Agent::Worker(worker), pid), how.clone());
            self.lose(now, worker, how, true);
        }
    }

    /// A step that takes much longer than steps do: those who hold it up are not waited for, if
    /// the others are enough.
    pub(super) fn look_for_late(&mut self, now: Duration) {
        let Some(work) = &mut self.work else { return };
        let waited = now.saturating_sub(work.since);
        if self.paused.is_some() || waited < self.patience.limit(work.times).max(PATIENCE_MIN) {
            return;
        }
        work.times += 1;
        let mut late = work.iteration.waiting_for();
        let (step, seated) = (self.course.state().step, self.seated());
        // Who is not heard holds up those who wait for what it was to send.
        let silent = |worker: &u32| {
            let heard = self.members.get(worker).map_or(now, |member| member.heard);
            now.saturating_sub(heard) > SIGNS
        };
        let silent: BTreeSet<_> =
            seated.iter().filter(|(_, worker)| silent(worker)).map(|(slot, _)| *slot).collect();
        if !silent.is_empty() {
            late = silent;
        }
        let others = seated.keys().filter(|slot| !late.contains(slot)).count();
        // If too many are late it is the machines, and waiting is all that helps.
        if others < self.setting.code.generator.threshold() {
            return;
        }
        for (slot, worker) in seated.iter().filter(|(slot, _)| late.contains(slot)) {
            self.tickets += 1;
            let ticket = self.tickets;
            if let Some(member) = self.members.get_mut(worker) {
                (member.revoking, member.knows) = (Some(ticket), None);
            }
            self.release(*slot);
            let agent = Agent::Worker(*worker).to_string();
            let why = format!("{agent} is late");
            let seconds = waited.as_secs_f64();
            self.record(What::Suspected { agent, step, shards: 1, seconds }, why.clone());
            self.wound.get_or_insert_with(|| why.clone());
            self.tell(*worker, ToWorker::Revoke { ticket }, why);
        }
    }

    /// A worker that was late has given up what it had.
    pub(super) fn revoked(&mut self, worker: u32, ticket: u64) {
        let Some(member) = self.members.get_mut(&worker) else { return };
        if member.revoking == Some(ticket) {
            member.revoking = None;
            let agent = Agent::Worker(worker).to_string();
            self.record(What::Regained { agent }, "it has given up what it had");
        }
    }

    /// Writes losses down whose cause nobody has told in time.
    pub(super) fn bury_late(&mut self, now: Duration) {
        while let Some(at) =
            self.mourned.iter().position(|m| now.saturating_sub(m.since) >= MOURNING)
        {
            let Mourned { agent, pid, how, .. } = self.mourned.swap_remove(at);
            self.bury(agent, pid, how);
        }
    }

    pub(super) fn bury_all(&mut self) {
        for Mourned { agent, pid, how, .. } in std::mem::take(&mut self.mourned) {
            self.bury(agent, pid, how);
        }
    }

    fn bury(&mut self, agent: Agent, pid: u32, how: String) {
        if self.buried.len() == BURIED_MAX {
            self.buried.pop_front();
        }
        self.buried.push_back((agent, pid));
        let lost = What::Lost { agent: agent.to_string(), pid, reason: how.clone() };
        self.record(lost, how);
    }
}
