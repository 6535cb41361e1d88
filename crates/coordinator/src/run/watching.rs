//! What follows from time alone: which members hang, which have lost a link, when to begin.

use super::members::Standing;
use super::method::Method;
use super::{Action, GRACE_FOR_ABSENT, Phase, Run};
use planaria_protocol::message::{Agent, ToWorker, Trouble};
use std::time::Duration;

/// Between two things that happen; if more, this process did not run, and no other is to blame.
const ASLEEP: Duration = Duration::from_millis(500);
/// How long a member may not be heard, heartbeats coming every quarter of a second: at least and at
/// most, and in between so many times the longest silence of live members.
const SILENCE_MIN: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(20);
const SILENCE_TIMES: u32 = 8;
/// How long a worker without a link that it needs is left alone: if a server is lost, everything
/// begins anew anyway.
const CUT: Duration = Duration::from_millis(300);

impl<M: Method> Run<M> {
    /// Notes that it is `now`. If this process did not run for a while, others are not blamed.
    pub(super) fn awake(&mut self, now: Duration) {
        let slept = now.saturating_sub(self.now);
        self.now = now.max(self.now);
        if slept < ASLEEP || M::IS_ONE_PROCESS {
            return;
        }
        let workers = self.members.workers.values_mut().map(|w| &mut w.heard);
        let servers = self.members.servers.iter_mut().map(|s| &mut s.heard);
        workers.chain(servers).for_each(|heard| *heard += slept);
        self.stepped += slept;
        M::slept(self, slept);
        if let Phase::Scoring(scoring, _) = &mut self.phase {
            scoring.progressed += slept;
        }
    }

    pub(super) fn heard_worker(&mut self, worker: u32, now: Duration) {
        if let Some(member) = self.members.workers.get_mut(&worker) {
            self.gap = self.gap.max(now.saturating_sub(member.heard));
            member.heard = now;
        }
    }

    pub(super) fn tick(&mut self, now: Duration) -> Result<(), Trouble> {
        self.tell_late_losses(now);
        self.maybe_begin(now);
        self.look_for_hung(now)?;
        self.mend_cuts(now);
        M::look_for_late(self, now)?;
        self.look_for_late_scores(now)?;
        // What is saved is the servers'.
        if self.members.servers_are(Standing::Ready) {
            self.save_again(now);
        }
        Ok(())
    }

    /// Begins when all workers are there, or enough of them and the others take their time.
    pub(super) fn maybe_begin(&mut self, now: Duration) {
        let gathering = matches!(self.phase, Phase::Gathering);
        if !gathering || !self.members.servers_are(Standing::Ready) {
            return;
        }
        let ready = self.active().len() as u32;
        if ready < M::workers_min(self) {
            self.enough_since = None;
            return;
        }
        let since = *self.enough_since.get_or_insert(now);
        let most = self.wanted.min(M::workers_max(self));
        if ready >= most || now.saturating_sub(since) >= self.patience_for_others() {
            self.begin_training(now);
        }
    }

    /// How long the workers that are not ready are waited for once enough are.
    fn patience_for_others(&self) -> Duration {
        let mut others = self.members.workers.range(..self.wanted).map(|(_, worker)| worker);
        match others.any(|worker| worker.standing == Standing::Joined) {
            true => self.grace,
            false => self.grace.min(GRACE_FOR_ABSENT),
        }
    }

    pub(super) fn begin_training(&mut self, now: Duration) {
        (self.phase, self.stepped) = (Phase::Training, now);
    }

    fn look_for_hung(&mut self, now: Duration) -> Result<(), Trouble> {
        self.gap = self.gap.min(Duration::from_secs(2)).mul_f64(0.999);
        let limit = (self.gap * SILENCE_TIMES).clamp(SILENCE_MIN, SILENCE_MAX);
        let silent = |heard: Duration| now.saturating_sub(heard) > limit;
        let how = |heard: Duration| {
            format!("it was not heard for {:.1} s", now.saturating_sub(heard).as_secs_f64())
        };
        let hung = self.members.workers.iter();
        let hung = hung.filter(|(_, w)| w.has_joined() && silent(w.heard));
        let hung: Vec<_> = hung.map(|(number, w)| (*number, w.pid, how(w.heard))).collect();
        for (worker, pid, how) in hung {
            self.decide(Action::Kill(Agent::Worker(worker), pid), how.clone());
            self.lose_worker(now, worker, how, true)?;
        }
        let hung = (0..).zip(&self.members.servers);
        let hung = hung.filter(|(_, s)| s.standing != Standing::Awaited && silent(s.heard));
        let hung: Vec<_> = hung.map(|(number, s)| (number, s.pid, how(s.heard))).collect();
        for (server, pid, how) in hung {
            self.decide(Action::Kill(Agent::Server(server), pid), how.clone());
            self.lose_server(server, how);
        }
        Ok(())
    }

    fn mend_cuts(&mut self, now: Duration) {
        let is_due = |since: Duration| now.saturating_sub(since) >= CUT;
        let cut = self.members.workers.iter().filter(|(_, w)| w.cut.is_some_and(is_due));
        let cut: Vec<u32> = cut.map(|(worker, _)| *worker).collect();
        for worker in cut {
            self.tell_worker(worker, ToWorker::Rejoin, "it has lost a link that it needs");
            if let Some(member) = self.members.workers.get_mut(&worker) {
                // Asked once; if it does not come back it is hung.
                member.cut = Some(now + SILENCE_MAX);
            }
        }
    }
}
