//! Parameter servers, and where a run goes on from.

use super::Run;
use super::course::Course;
use super::members::Standing;
use super::method::Method;
use super::patience::Patience;
use super::record::Record;
use super::saving::Save;
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, Join, Loss, Source, ToServer, Trouble};
use planaria_protocol::state::State;
use std::time::Duration;

impl<M: Method> Run<M> {
    pub(super) fn server_joined(
        &mut self,
        now: Duration,
        server: u32,
        join: Join,
    ) -> Result<(), Trouble> {
        let Some(member) = self.members.servers.get_mut(server as usize) else { return Ok(()) };
        if member.standing != Standing::Awaited {
            let how = format!("process {} has come in its place", join.pid);
            self.lose_server(server, how);
            return Ok(());
        }
        member.standing = Standing::Joined;
        (member.pid, member.heard, member.kept) = (join.pid, now, join.kept);
        member.machine = join.machine;
        member.address = join.address.unwrap_or_default();
        self.maybe_settle();
        Ok(())
    }

    /// Decides where the run goes on, as soon as every server has said what it has kept; at once
    /// where there are no servers.
    pub(super) fn maybe_settle(&mut self) {
        if self.is_settled || !self.members.servers_are(Standing::Joined) {
            return;
        }
        self.is_settled = true;
        let told = self.origin.told;
        let step = self.origin.newest_record().map(|record| record.state.step);
        let servers_have = |step| (0..self.config.servers).all(|s| self.has_kept(s, step));
        let kept = step.is_some_and(|step| servers_have(step) && M::has_kept(self));
        let record = self.origin.record.take();
        let before = record.as_ref().map_or(0, |record| record.state.step).max(told);
        let source = match (&self.origin.checkpoint, kept) {
            (_, true) => Source::Kept,
            (Some(folder), false) => Source::Checkpoint(folder.clone()),
            (None, false) => Source::Seed,
        };
        if let Some(record) = record.as_ref().filter(|_| kept) {
            self.restore(record);
        }
        // Where there is a record, the run does not wait for a look at all parts.
        self.unproven = record.is_some() && matches!(source, Source::Checkpoint(_));
        let is_unfit = record.is_some() && !kept;
        match self.origin.after.take() {
            Some(Loss { agent, message }) => {
                self.tell_recovery(&source, before, Some(agent), message);
            }
            None if is_unfit => {
                let reason = "what was kept does not fit, or is not whole".to_owned();
                self.tell_recovery(&source, before, None, reason);
            }
            None => {}
        }
        // What another has left was told, and must not be told again by the next one.
        self.unkept = true;
        let step = self.course.state().step;
        for server in 0..self.config.servers {
            let blocks = self.config.blocks_of(server);
            let begin = ToServer::Begin { blocks, source: source.clone(), step };
            self.tell_server(server, begin, "every server has joined");
        }
    }

    fn tell_recovery(&mut self, source: &Source, before: u64, lost: Option<Agent>, reason: String) {
        let step = self.course.state().step;
        let superseded = before.saturating_sub(step);
        let source = match source {
            Source::Kept => "kept".to_owned(),
            Source::Checkpoint(folder) => folder.clone(),
            Source::Seed => "the seed".into(),
        };
        self.stalled(&reason, 0);
        let (lost, why) = (lost.map(|agent| agent.to_string()), reason.clone());
        self.record(What::Recovered { step, superseded, source, reason, lost }, why);
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
        let parts = M::parts(self);
        self.save = record.saving.map(|saving| Save::new(saving, parts));
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
        let joined = self.members.workers.iter().filter(|(_, w)| w.has_joined());
        let joined: Vec<u32> = joined.map(|(w, _)| *w).collect();
        joined.into_iter().for_each(|worker| M::welcome(self, worker));
        self.save_again(now);
        if self.course.stopping() {
            // No worker is needed for that.
            self.begin_training(now);
        }
        Ok(())
    }

    /// Whether a server holds parameters; one without has nothing to say of a step.
    pub(crate) fn has_blocks(&self, server: u32) -> bool {
        !self.config.blocks_of(server).is_empty()
    }
}
