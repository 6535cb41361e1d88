//! Losses, and workers that are late: what they had goes to others, at once.

use super::members::{Standing, Worker};
use super::method::Method;
use super::{Action, Left, Phase, Run};
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, ToWorker, Trouble};
use std::time::Duration;

/// A loss that no event has told yet: the supervisor may know how the process ended.
#[derive(Debug)]
pub(super) struct Loss {
    agent: Agent,
    pid: u32,
    how: String,
    since: Duration,
}

/// How long the supervisor may take to say how a process ended.
const EXPLAIN_WITHIN: Duration = Duration::from_millis(150);

/// Losses that are remembered, so as not to be told twice.
const TOLD_MAX: usize = 64;

/// Something that holds the run up until the next commit.
#[derive(Debug)]
pub(super) struct Stall {
    pub after: String,
    pub recomputed: u32,
}

/// A revocation that was answered so soon was not needed.
const FALSE_ALARM: Duration = Duration::from_millis(250);

impl<M: Method> Run<M> {
    pub(super) fn left(&mut self, now: Duration, left: Left) -> Result<(), Trouble> {
        let Left { agent, pid, how, ended } = left;
        if ended && let Some(at) = self.losses.iter().position(|l| l.agent == agent && l.pid == pid)
        {
            self.losses.swap_remove(at);
            self.tell_loss(agent, pid, how);
            return Ok(());
        }
        let member = match agent {
            Agent::Worker(worker) => {
                self.members.workers.get(&worker).map(|member| (member.pid, member.standing))
            }
            Agent::Server(server) => {
                let server = self.members.servers.get(server as usize);
                server.map(|member| (member.pid, member.standing))
            }
            Agent::Coordinator
            | Agent::Console
            | Agent::Task(_)
            | Agent::Host
            | Agent::Controller => return Ok(()),
        };
        let is_member =
            member.is_some_and(|(own, standing)| own == pid && standing != Standing::Awaited);
        match agent {
            Agent::Worker(worker) if is_member => return self.lose_worker(now, worker, how, ended),
            Agent::Server(server) if is_member => self.lose_server(server, how),
            // This coordinator has not seen it, or no longer: if it was not told, it is now.
            _ if ended && !self.told_losses.contains(&(agent, pid)) => {
                self.tell_loss(agent, pid, how);
            }
            _ => {}
        }
        Ok(())
    }

    /// A server's parameters cannot be reached any more: another coordinator goes on from what is
    /// kept.
    pub(crate) fn lose_server(&mut self, server: u32, how: String) {
        let (agent, pid) = (Agent::Server(server), self.members.servers[server as usize].pid);
        self.tell_losses();
        self.tell_loss(agent, pid, how.clone());
        self.phase = Phase::Over;
        self.decide(Action::Restart, format!("{agent} was lost: {how}"));
    }

    /// A worker is gone; `ended` says whether the supervisor says so.
    pub(crate) fn lose_worker(
        &mut self,
        now: Duration,
        worker: u32,
        how: String,
        ended: bool,
    ) -> Result<(), Trouble> {
        let agent = Agent::Worker(worker);
        let Some(member) = self.members.workers.get_mut(&worker) else { return Ok(()) };
        let pid = member.pid;
        *member = Worker::default();
        // No worker computes any more at the end; what is left to do is the servers' and the disk's.
        if matches!(self.phase, Phase::Ending(_)) {
            M::left(self, worker);
            return Ok(());
        }
        match ended {
            true => self.tell_loss(agent, pid, how.clone()),
            false => self.losses.push(Loss { agent, pid, how: how.clone(), since: now }),
        }
        let released = M::release(self, worker);
        M::left(self, worker);
        self.reassign(now, released, format!("{agent} was lost: {how}"))
    }

    /// Gives what a worker has to others.
    pub(crate) fn take_from(
        &mut self,
        now: Duration,
        worker: u32,
        why: String,
    ) -> Result<(), Trouble> {
        let released = M::release(self, worker);
        self.reassign(now, released, why)
    }

    fn reassign(
        &mut self,
        now: Duration,
        released: Option<u32>,
        why: String,
    ) -> Result<(), Trouble> {
        if let Some(recomputed) = released {
            self.stalled(&why, recomputed);
        }
        M::changed(self, now)?;
        self.score_again(now);
        self.let_go();
        Ok(())
    }

    /// Takes a worker for late, by so much: others compute what it has, and it is asked to begin
    /// anew.
    pub(crate) fn suspect(
        &mut self,
        now: Duration,
        worker: u32,
        late: Duration,
    ) -> Result<(), Trouble> {
        let step = self.course.state().step + 1;
        let seconds = late.as_secs_f64();
        if !self.members.workers.contains_key(&worker) {
            return Ok(());
        }
        let shards = M::late(self, now, worker, seconds);
        let Some(member) = self.members.workers.get_mut(&worker) else { return Ok(()) };
        member.suspected.get_or_insert(now);
        let hopeless = member.is_hopeless();
        member.strikes += 1;
        let agent = Agent::Worker(worker).to_string();
        let why = format!("{agent} is late");
        self.record(What::Suspected { agent, step, shards, seconds }, why.clone());
        self.revoke(worker, why.clone());
        if hopeless {
            // Its links may be what is wrong.
            self.tell_worker(worker, ToWorker::Rejoin, "it was late several times in a row");
        }
        self.take_from(now, worker, why)
    }

    /// Takes a worker's work away; it is given none until it has said that it knows.
    pub(crate) fn revoke(&mut self, worker: u32, why: String) {
        let Some(member) = self.members.workers.get_mut(&worker) else { return };
        self.tickets += 1;
        member.revoking = Some(self.tickets);
        M::revoked(self, worker);
        self.tell_worker(worker, ToWorker::Revoke { ticket: self.tickets }, why);
    }

    /// A worker has given up what it had.
    pub(super) fn revoked(
        &mut self,
        now: Duration,
        worker: u32,
        ticket: u64,
    ) -> Result<(), Trouble> {
        let Some(member) = self.members.workers.get_mut(&worker) else { return Ok(()) };
        if member.revoking != Some(ticket) {
            return Ok(());
        }
        member.revoking = None;
        if let Some(since) = member.suspected.take() {
            if now.saturating_sub(since) < FALSE_ALARM {
                self.patience.false_alarm();
            }
            let agent = Agent::Worker(worker).to_string();
            self.record(What::Regained { agent }, "it has given up what it had");
        }
        self.available(now)
    }

    /// From here to the next commit is not training as usual.
    pub(super) fn stalled(&mut self, after: &str, recomputed: u32) {
        match &mut self.stall {
            Some(stall) => stall.recomputed += recomputed,
            None => self.stall = Some(Stall { after: after.to_owned(), recomputed }),
        }
    }

    /// Tells losses that were not explained in time.
    pub(super) fn tell_late_losses(&mut self, now: Duration) {
        let is_late = |loss: &Loss| now.saturating_sub(loss.since) >= EXPLAIN_WITHIN;
        while let Some(at) = self.losses.iter().position(is_late) {
            let Loss { agent, pid, how, .. } = self.losses.swap_remove(at);
            self.tell_loss(agent, pid, how);
        }
    }

    /// Tells all losses that no event has told.
    pub(super) fn tell_losses(&mut self) {
        for Loss { agent, pid, how, .. } in std::mem::take(&mut self.losses) {
            self.tell_loss(agent, pid, how);
        }
    }

    fn tell_loss(&mut self, agent: Agent, pid: u32, how: String) {
        if self.told_losses.len() == TOLD_MAX {
            self.told_losses.pop_front();
        }
        self.told_losses.push_back((agent, pid));
        let lost = What::Lost { agent: agent.to_string(), pid, reason: how.clone() };
        self.record(lost, how);
    }
}
