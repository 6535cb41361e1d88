//! Everything that happens is taken in here, and passed on to the part of the run it concerns.

use super::course::End;
use super::members::Standing;
use super::method::Method;
use super::{Action, Begun, Input, Phase, Run};
use planaria_protocol::checkpoint::PartInfo;
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, FromServer, FromWorker, Trouble};
use std::time::Duration;

impl<M: Method> Run<M> {
    pub(super) fn take(&mut self, now: Duration, input: Input) -> Result<(), Trouble> {
        match input {
            Input::Joined(join) => self.joined(now, join),
            Input::Left(left) => self.left(now, left),
            Input::Worker { worker, said, bulk } => self.worker_said(now, worker, said, &bulk),
            Input::Server(server, said, squares) => self.server_said(now, server, said, squares),
            Input::Scored(scored) => {
                self.heard_worker(scored.worker, now);
                self.scored(now, *scored)
            }
            Input::CheckpointBegun(begun) => {
                self.checkpoint_begun(now, begun);
                Ok(())
            }
            Input::PartWritten { step, written } => {
                self.part_saved(now, 0, step, written);
                Ok(())
            }
            Input::ManifestWritten(written) => {
                self.manifest_written(now, written);
                Ok(())
            }
            Input::Scale(workers) => self.scale(now, workers),
            Input::Report(what) => {
                self.record(*what, "the controller tells it");
                Ok(())
            }
            Input::Tick => self.tick(now),
            Input::Stop(reason) => {
                self.stop(now, reason);
                Ok(())
            }
        }
    }

    fn stop(&mut self, now: Duration, reason: String) {
        if !self.course.stopping() {
            self.course.stop();
            self.record(What::Stopping { reason: reason.clone() }, reason);
        }
        match self.phase {
            // What was kept must be saved, as soon as the servers have it again.
            Phase::Gathering if self.recovering => {
                if self.members.servers_are(Standing::Ready) {
                    self.begin_training(now);
                }
            }
            // Nothing is under way that could be finished.
            Phase::Gathering => self.end(End::Interrupted),
            // The weights are saved; `resume` scores them.
            Phase::Scoring(_, Some(_)) => self.finish(End::Interrupted),
            Phase::Training => M::stop(self),
            Phase::Scoring(_, None) => {
                self.phase = Phase::Training;
                M::stop(self);
            }
            Phase::Ending(_) | Phase::Failing(_) | Phase::Over => {}
        }
    }

    fn worker_said(
        &mut self,
        now: Duration,
        worker: u32,
        said: FromWorker,
        bulk: &[u8],
    ) -> Result<(), Trouble> {
        self.heard_worker(worker, now);
        match said {
            FromWorker::Method(report) => M::reported(self, now, worker, report, bulk),
            FromWorker::Ready { engine, threads } => {
                self.worker_ready(now, worker, engine, threads)
            }
            FromWorker::Revoked { ticket } => self.revoked(now, worker, ticket),
            FromWorker::Failed(trouble)
                if trouble.fix_input && !self.is_apart(worker, &trouble) =>
            {
                Err(of_another(Agent::Worker(worker), trouble))
            }
            // It ends now; that it did, and why, is told by its link. Where its machine is to blame,
            // the controller gives that up.
            FromWorker::Failed(trouble) => self.lose_worker(now, worker, trouble.message, false),
            // The shell passes scores on as `Input::Scored`.
            FromWorker::Evaluated { .. } | FromWorker::Alive => Ok(()),
        }
    }

    /// Whether a trouble is that of a machine of a pool alone: others may have what it lacks.
    fn is_apart(&self, worker: u32, trouble: &Trouble) -> bool {
        let member = self.members.workers.get(&worker);
        trouble.of_machine && member.is_some_and(|member| member.machine.is_some())
    }

    fn server_said(
        &mut self,
        now: Duration,
        server: u32,
        said: FromServer,
        squares: Vec<f64>,
    ) -> Result<(), Trouble> {
        let Some(member) = self.members.servers.get_mut(server as usize) else { return Ok(()) };
        self.gap = self.gap.max(now.saturating_sub(member.heard));
        member.heard = now;
        match said {
            FromServer::Ready => self.server_ready(now, server),
            FromServer::Load { seconds, busy_seconds, bytes_out, .. } => {
                member.load(seconds, busy_seconds, bytes_out);
                Ok(())
            }
            FromServer::Saved { step, file, sha256, bytes } => {
                self.part_saved(now, server, step, Ok(PartInfo { file, sha256, bytes }));
                Ok(())
            }
            FromServer::NotSaved { step, why } => {
                let why = format!("server-{server} cannot write its part: {why}");
                self.part_saved(now, server, step, Err(why));
                Ok(())
            }
            FromServer::Alive => Ok(()),
            FromServer::Failed(trouble) => self.server_failed(server, trouble),
            said @ (FromServer::Summed { .. }
            | FromServer::Applied { .. }
            | FromServer::Counted { .. }
            | FromServer::Missing { .. }
            | FromServer::Pulled { .. }) => M::server_reported(self, now, server, said, squares),
        }
    }

    fn server_failed(&mut self, server: u32, trouble: Trouble) -> Result<(), Trouble> {
        let gathering = matches!(self.phase, Phase::Gathering);
        let machine = self.members.servers.get(server as usize).and_then(|s| s.machine.as_ref());
        // Its machine is to blame, which the controller gives up: another takes its place.
        if trouble.of_machine && machine.is_some() {
            self.lose_server(server, trouble.message);
            return Ok(());
        }
        // The checkpoint may be damaged. A coordinator without a record compares all of it, and
        // goes back further.
        if !trouble.fix_input && self.unproven && gathering {
            self.decide(Action::Forget, trouble.message.clone());
        // It ends now; another takes its place, unless it cannot even begin.
        } else if trouble.fix_input || gathering {
            return Err(of_another(Agent::Server(server), trouble));
        }
        self.lose_server(server, trouble.message);
        Ok(())
    }

    fn checkpoint_begun(&mut self, now: Duration, begun: Begun) {
        let Begun { step, folder, vanished } = begun;
        if let Some(folder) = vanished {
            self.record(What::Vanished { folder }, "a checkpoint is to be written");
        }
        match folder {
            Ok(folder) if self.is_saving(step) => M::write_parts(self, step, &folder),
            Ok(_) => {}
            Err(why) => {
                let why = format!("cannot make a checkpoint of step {step}: {why}");
                self.manifest_written(now, Err(why));
            }
        }
    }
}

/// The trouble of a process, as the coordinator passes it on.
fn of_another(agent: Agent, trouble: Trouble) -> Trouble {
    let message = format!("{agent} cannot go on: {}", trouble.message);
    Trouble { message, agent: Some(agent.to_string()), ..trouble }
}
