//! Workers that join, and how many are wanted.

use super::members::{Standing, Worker};
use super::method::{Arrival, Method};
use super::{Action, Phase, Run};
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, Join, ToWorker, Trouble};
use std::time::Duration;

/// Most workers that a run may have.
pub const WORKERS_MAX: u32 = 4096;

/// Longest name of a machine that is kept, in characters; every pulse repeats them.
const MACHINE_MAX: usize = 64;

impl<M: Method> Run<M> {
    /// Why a process cannot be a member, if it cannot.
    pub fn refusal(&self, join: &Join) -> Option<String> {
        let (build, own) = (&join.build, &self.config.build);
        match join.agent {
            _ if build != own => Some(format!("it runs build {build}, and the run {own}")),
            Agent::Worker(worker) if worker < WORKERS_MAX => None,
            Agent::Server(server) if server < self.config.servers => None,
            _ => Some("the run has none of that name".into()),
        }
    }

    pub(super) fn joined(&mut self, now: Duration, mut join: Join) -> Result<(), Trouble> {
        let agent = join.agent;
        join.machine = join.machine.map(|name| name.chars().take(MACHINE_MAX).collect());
        match agent {
            Agent::Worker(worker) => self.worker_joined(now, worker, join),
            Agent::Server(server) => self.server_joined(now, server, join),
            Agent::Coordinator
            | Agent::Console
            | Agent::Task(_)
            | Agent::Host
            | Agent::Controller => Ok(()),
        }
    }

    fn worker_joined(&mut self, now: Duration, worker: u32, join: Join) -> Result<(), Trouble> {
        if self.members.workers.get(&worker).is_some_and(Worker::has_joined) {
            let how = format!("process {} has come in its place", join.pid);
            self.lose_worker(now, worker, how, false)?;
        }
        self.members.workers.insert(worker, Worker::joined(join.pid, join.machine, now));
        if worker >= self.wanted {
            self.tell_worker(worker, ToWorker::Finish, "so many workers are not wanted");
        } else if self.members.servers_are(Standing::Ready) {
            M::welcome(self, worker);
        }
        Ok(())
    }

    pub(super) fn worker_ready(
        &mut self,
        now: Duration,
        worker: u32,
        engine: String,
        threads: u32,
    ) -> Result<(), Trouble> {
        let Some(Arrival { downloaded, reason }) = M::arrived(self, worker) else { return Ok(()) };
        let Some(member) = self.members.workers.get_mut(&worker) else { return Ok(()) };
        member.standing = Standing::Ready;
        let joined = What::Joined {
            agent: Agent::Worker(worker).to_string(),
            pid: member.pid,
            engine: Some(engine),
            threads: Some(threads),
            machine: member.machine.clone(),
            downloaded,
        };
        if !M::IS_ONE_PROCESS {
            self.record(joined, reason);
        }
        self.available(now)
    }

    /// A worker can be given work that could not before.
    pub(super) fn available(&mut self, now: Duration) -> Result<(), Trouble> {
        match self.phase {
            Phase::Gathering => self.maybe_begin(now),
            _ => {
                M::changed(self, now)?;
                self.score_again(now);
            }
        }
        Ok(())
    }

    /// Goes on with so many workers from now on.
    pub(super) fn scale(&mut self, now: Duration, workers: u32) -> Result<(), Trouble> {
        let most = M::workers_max(self).min(WORKERS_MAX);
        if workers == 0 || workers > most || workers == self.wanted {
            let why = format!("there can be 1 to {most}");
            self.record(What::Scaled { workers: self.wanted }, why);
            return Ok(());
        }
        self.wanted = workers;
        // A run that is asked to be smaller than its least size has a new least size.
        self.config.workers_min = self.config.workers_min.min(workers);
        for worker in 0..workers {
            self.members.workers.entry(worker).or_default();
        }
        self.unkept = true;
        self.record(What::Scaled { workers }, "it was asked for");
        self.decide(Action::Pool(workers), "it was asked for");
        self.let_go();
        self.available(now)
    }

    /// Lets workers end that are not wanted and have nothing left to do.
    pub(crate) fn let_go(&mut self) {
        if matches!(self.phase, Phase::Scoring(..)) {
            return;
        }
        let beyond = self.members.workers.range(self.wanted..);
        let leaving = beyond.filter(|(worker, m)| m.has_joined() && !M::holds(self, **worker));
        let leaving: Vec<u32> = leaving.map(|(w, _)| *w).collect();
        for worker in leaving {
            self.members.workers.remove(&worker);
            M::release(self, worker);
            M::left(self, worker);
            let agent = Agent::Worker(worker).to_string();
            self.record(What::Released { agent }, "it was asked for");
            self.tell_worker(worker, ToWorker::Finish, "so many workers are not wanted");
        }
    }
}
