//! Processes that join, what they are told first, and where the run goes on from.

use super::saving::Save;
use super::{Action, Cluster, Phase};
use crate::decide::course::Course;
use crate::decide::member::{Standing, Worker};
use crate::decide::patience::Patience;
use crate::decide::record::Record;
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, Join, Shelf, Source, ToServer, ToWorker, Trouble};
use planaria_protocol::methods::sync;
use planaria_protocol::state::State;
use std::time::Duration;

/// Most workers that a run may have.
pub const WORKERS_MAX: u32 = 4096;

/// Longest name of a machine that is kept, in characters; every pulse repeats them.
const MACHINE_MAX: usize = 64;

impl Cluster {
    pub(super) fn joined(&mut self, now: Duration, join: Join) -> Result<(), Trouble> {
        let agent = join.agent;
        if join.build != self.config.build {
            let (build, own) = (&join.build, &self.config.build);
            return Err(Trouble {
                message: format!("{agent} runs build {build}, but the run began with {own}"),
                hint: Some("the program was replaced while it started; start the run again".into()),
                fix_input: true,
            });
        }
        match agent {
            Agent::Worker(worker) if worker >= WORKERS_MAX => Ok(()),
            Agent::Worker(worker) => self.worker_joined(now, worker, join),
            Agent::Server(server) => self.server_joined(now, server, join),
            Agent::Coordinator | Agent::Console | Agent::Task(_) => Ok(()),
        }
    }

    fn worker_joined(&mut self, now: Duration, worker: u32, join: Join) -> Result<(), Trouble> {
        if self.standing(worker) != Standing::Awaited {
            let how = format!("process {} has come in its place", join.pid);
            self.lose_worker(now, worker, how, false)?;
        }
        self.members.workers.insert(worker, Worker::joined(join.pid, machine(join.machine), now));
        if worker >= self.wanted {
            self.tell_worker(worker, ToWorker::Finish, "so many workers are not wanted");
        } else if self.members.servers_are(Standing::Ready) {
            self.begin_worker(worker);
        }
        Ok(())
    }

    fn server_joined(&mut self, now: Duration, server: u32, join: Join) -> Result<(), Trouble> {
        let Some(member) = self.members.servers.get_mut(server as usize) else {
            return Err(Trouble::new(format!("server-{server} is not part of the run")));
        };
        if member.standing != Standing::Awaited {
            let how = format!("process {} has come in its place", join.pid);
            return self.lose_server(now, server, how, false);
        }
        member.standing = Standing::Joined;
        (member.pid, member.heard, member.kept) = (join.pid, now, join.kept);
        member.machine = machine(join.machine);
        member.address = join.address.unwrap_or_default();
        if self.members.servers_are(Standing::Joined) {
            self.begin_servers();
        }
        Ok(())
    }

    /// Every server is there: what they have kept decides where the run goes on.
    fn begin_servers(&mut self) {
        let record = self.origin.record.take();
        let all_have = |step: u64| (0..self.config.servers).all(|s| self.has_kept(s, step));
        // One from before what was told would have steps count twice.
        let told = self.origin.told;
        let is_newest = |step: u64| step >= told && all_have(step);
        let kept = record.as_ref().is_some_and(|record| is_newest(record.state.step));
        let before = record.as_ref().map_or(0, |record| record.state.step).max(told);
        let source = match (&self.origin.checkpoint, kept) {
            (_, true) => Source::Kept,
            (Some(folder), false) => Source::Checkpoint(folder.clone()),
            (None, false) => Source::Seed,
        };
        if let Some(record) = record.as_ref().filter(|_| kept) {
            self.restore(record);
        }
        // Where there is a record, nobody waits for a look at all parts.
        self.unproven = record.is_some() && matches!(source, Source::Checkpoint(_));
        let step = self.course.state().step;
        let lost = (record.is_some() && !kept)
            .then(|| "what was kept does not fit, or is not whole".to_owned());
        if let Some(after) = self.origin.after.take().or(lost) {
            let from = match &source {
                Source::Kept => "kept".to_owned(),
                Source::Checkpoint(folder) => folder.clone(),
                Source::Seed => "the seed".into(),
            };
            let superseded = before.saturating_sub(step);
            self.wounded(&after, 0);
            let reason = after.clone();
            self.record(What::Recovered { step, superseded, source: from, reason }, after);
        }
        // What another has left was told, and must not be told again by whoever comes next.
        self.unkept = true;
        for server in 0..self.config.servers {
            let blocks = self.config.blocks_of(server);
            let begin = ToServer::Begin { blocks, source: source.clone(), step };
            self.decide(Action::ToServer(server, begin), "every server has joined");
        }
    }

    /// Takes over what another coordinator has left.
    fn restore(&mut self, record: &Record) {
        let resumes = self.course.state().resumes;
        let state = State { resumes, ..record.state.clone() };
        let record = Record { state, ..record.clone() };
        let stopping = self.course.stopping();
        self.course = Course::restored(self.course.setup().clone(), &record);
        if stopping {
            self.course.stop();
        }
        self.patience = Patience::new(record.step_seconds);
        self.pending = record.pending;
        self.save = record.saving.map(|saving| Save::new(saving, self.config.servers));
    }

    /// Whether a server still has what it must have to go on after `step` steps.
    fn has_kept(&self, server: u32, step: u64) -> bool {
        let blocks = self.config.blocks_of(server);
        if blocks.is_empty() && server != 0 {
            return true;
        }
        let kept = self.members.servers[server as usize].kept.as_ref();
        kept.is_some_and(|kept| kept.blocks == blocks && kept.steps.contains(&step))
    }

    pub(super) fn server_ready(&mut self, now: Duration, server: u32) -> Result<(), Trouble> {
        let member = &mut self.members.servers[server as usize];
        member.standing = Standing::Ready;
        let (agent, engine, threads) = (Agent::Server(server).to_string(), None, None);
        let (pid, machine) = (member.pid, member.machine.clone());
        let joined = What::Joined { agent, pid, engine, threads, machine, downloaded: None };
        self.record(joined, "it has its blocks");
        if !self.members.servers_are(Standing::Ready) {
            return Ok(());
        }
        let joined = self.members.workers.iter().filter(|(_, w)| w.standing >= Standing::Joined);
        let joined: Vec<u32> = joined.map(|(w, _)| *w).collect();
        joined.into_iter().for_each(|worker| self.begin_worker(worker));
        self.save_again(now);
        if self.course.stopping() {
            // Nobody needs to compute for that.
            return self.begin_training(now);
        }
        Ok(())
    }

    fn begin_worker(&mut self, worker: u32) {
        let servers = (0..).zip(&self.members.servers).map(|(server, member)| Shelf {
            server,
            address: member.address.clone(),
            blocks: self.config.blocks_of(server),
        });
        let begin = ToWorker::from(sync::Command::Begin { servers: servers.collect() });
        self.tell_worker(worker, begin, "every server is ready");
    }

    pub(super) fn worker_ready(
        &mut self,
        now: Duration,
        worker: u32,
        engine: String,
        threads: u32,
    ) -> Result<(), Trouble> {
        let Some(member) = self.members.workers.get_mut(&worker) else { return Ok(()) };
        member.standing = Standing::Ready;
        let joined = What::Joined {
            agent: Agent::Worker(worker).to_string(),
            pid: member.pid,
            engine: Some(engine),
            threads: Some(threads),
            machine: member.machine.clone(),
            downloaded: None,
        };
        self.record(joined, "it has its data and knows the servers");
        self.available(now)
    }

    /// A worker can be given work that could not before.
    pub(super) fn available(&mut self, now: Duration) -> Result<(), Trouble> {
        match self.phase {
            Phase::Gathering => self.maybe_begin(now),
            _ => self.maybe_unpause(now),
        }
    }

    /// Goes on with so many workers from now on.
    pub(super) fn scale(&mut self, now: Duration, workers: u32) -> Result<(), Trouble> {
        if workers == 0 || workers > WORKERS_MAX || workers == self.wanted {
            self.record(What::Scaled { workers: self.wanted }, "that is what there is");
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
    pub(super) fn let_go(&mut self) {
        let scoring = matches!(self.phase, Phase::Scoring(..));
        let leaving = self.members.workers.range(self.wanted..).filter(|(worker, m)| {
            m.standing != Standing::Awaited && !scoring && !self.leases.holds(**worker)
        });
        let leaving: Vec<u32> = leaving.map(|(w, _)| *w).collect();
        for worker in leaving {
            self.members.workers.remove(&worker);
            self.record(
                What::Released { agent: Agent::Worker(worker).to_string() },
                "it was asked for",
            );
            self.tell_worker(worker, ToWorker::Finish, "so many workers are not wanted");
        }
    }
}

fn machine(name: Option<String>) -> Option<String> {
    name.map(|name| name.chars().take(MACHINE_MAX).collect())
}
