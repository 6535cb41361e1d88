//! Losses, and workers that are late: what they had goes to others, at once.

use super::{Action, Cluster, Phase};
use crate::decide::member::{Standing, Worker};
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, ToWorker, Trouble};
use std::time::Duration;

/// A loss that is not written down yet: whoever started the process may know how it ended.
#[derive(Debug)]
pub(super) struct Mourned {
    agent: Agent,
    pid: u32,
    how: String,
    since: Duration,
}

/// How long whoever started a process may take to say how it ended.
const MOURNING: Duration = Duration::from_millis(150);

/// Losses that are remembered, so as not to be written down twice.
const BURIED_MAX: usize = 64;

/// Something that holds the run up until the next commit.
#[derive(Debug)]
pub(super) struct Wound {
    pub after: String,
    pub recomputed: u32,
}

/// A revocation that was answered so soon was not needed.
const FALSE_ALARM: Duration = Duration::from_millis(250);

impl Cluster {
    pub(super) fn left(
        &mut self,
        now: Duration,
        agent: Agent,
        pid: u32,
        how: String,
        ended: bool,
    ) -> Result<(), Trouble> {
        if ended
            && let Some(at) = self.mourned.iter().position(|m| m.agent == agent && m.pid == pid)
        {
            let Mourned { agent, pid, .. } = self.mourned.swap_remove(at);
            self.bury(agent, pid, how);
            return Ok(());
        }
        match agent {
            Agent::Worker(worker) => match self.members.workers.get(&worker) {
                Some(member) if member.pid == pid && member.standing != Standing::Awaited => {
                    self.lose_worker(now, worker, how, ended)
                }
                _ => self.lost_unseen(agent, pid, how, ended),
            },
            Agent::Server(server) => match self.members.servers.get(server as usize) {
                Some(member) if member.pid == pid && member.standing != Standing::Awaited => {
                    self.lose_server(now, server, how, ended)
                }
                _ => self.lost_unseen(agent, pid, how, ended),
            },
            Agent::Coordinator | Agent::Console | Agent::Task(_) => Ok(()),
        }
    }

    /// A process has ended that this coordinator has not seen, or no longer: if it was not written
    /// down, it is now.
    fn lost_unseen(
        &mut self,
        agent: Agent,
        pid: u32,
        how: String,
        ended: bool,
    ) -> Result<(), Trouble> {
        if ended && !self.buried.contains(&(agent, pid)) {
            self.bury(agent, pid, how);
        }
        Ok(())
    }

    /// A server's parameters cannot be reached any more: another coordinator goes on from what is
    /// kept.
    pub(super) fn lose_server(
        &mut self,
        _now: Duration,
        server: u32,
        how: String,
        _ended: bool,
    ) -> Result<(), Trouble> {
        let (agent, pid) = (Agent::Server(server), self.members.servers[server as usize].pid);
        self.bury_all();
        self.bury(agent, pid, how.clone());
        self.phase = Phase::Over;
        self.decide(Action::Restart, format!("{agent} was lost: {how}"));
        Ok(())
    }

    pub(super) fn lose_worker(
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
        // Nobody computes any more at the end; what is left to do is the servers' and the disk's.
        if matches!(self.phase, Phase::Ending(_)) {
            return Ok(());
        }
        if ended {
            self.bury(agent, pid, how.clone());
        } else {
            self.mourned.push(Mourned { agent, pid, how: how.clone(), since: now });
        }
        self.take_from(now, worker, format!("{agent} was lost: {how}"))
    }

    /// Gives a worker's shards and batches to others.
    pub(super) fn take_from(
        &mut self,
        now: Duration,
        worker: u32,
        why: String,
    ) -> Result<(), Trouble> {
        let recomputed = self.leases.release(worker, self.course.state().step);
        if recomputed > 0 {
            self.wounded(&why, recomputed);
        }
        self.maybe_pause();
        self.give_out(now);
        self.score_again(now);
        self.let_go();
        Ok(())
    }

    /// Takes a worker for late, by so much: others compute what it has, and it is asked to begin
    /// anew.
    pub(super) fn suspect(
        &mut self,
        now: Duration,
        worker: u32,
        late: Duration,
    ) -> Result<(), Trouble> {
        let step = self.course.state().step;
        let seconds = late.as_secs_f64();
        let round = self.leases.round(step);
        let shards = round.and_then(|r| r.loads().get(&worker).copied()).unwrap_or(0);
        let Some(member) = self.members.workers.get_mut(&worker) else { return Ok(()) };
        member.suspected.get_or_insert(now);
        let hopeless = member.is_hopeless();
        member.strike(now, shards, seconds);
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

    /// Takes a worker's leases away; it is given none until it has said that it knows.
    pub(super) fn revoke(&mut self, worker: u32, why: String) {
        let Some(member) = self.members.workers.get_mut(&worker) else { return };
        self.tickets += 1;
        member.follows_from = None;
        member.entering.clear();
        member.lags = None;
        member.revoking = Some(self.tickets);
        self.tell_worker(worker, ToWorker::Revoke { ticket: self.tickets }, why);
    }

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

    /// A worker has missed parameters: it enters again.
    pub(super) fn behind(&mut self, now: Duration, worker: u32, step: u64) -> Result<(), Trouble> {
        let why = format!("worker-{worker} has missed the parameters after step {step}");
        self.revoke(worker, why.clone());
        self.take_from(now, worker, why)
    }

    /// A worker has lost a server, or the server was lost, which would be known soon.
    pub(super) fn cut(
        &mut self,
        now: Duration,
        worker: u32,
        server: u32,
        how: &str,
    ) -> Result<(), Trouble> {
        let Some(member) = self.members.workers.get_mut(&worker) else { return Ok(()) };
        member.cut.get_or_insert(now);
        member.follows_from = None;
        member.entering.clear();
        member.lags = None;
        self.take_from(now, worker, format!("worker-{worker} has lost server-{server}: {how}"))
    }

    /// From here to the next commit is not training as usual.
    pub(super) fn wounded(&mut self, after: &str, recomputed: u32) {
        match &mut self.wound {
            Some(wound) => wound.recomputed += recomputed,
            None => self.wound = Some(Wound { after: after.to_owned(), recomputed }),
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
