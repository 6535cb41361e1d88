//! Everything that happens is taken in here, and passed on to the part of the cluster it concerns.

use super::{Action, Cluster, Input, Phase};
use crate::decide::course::End;
use crate::decide::gather::Counted;
use crate::decide::member::Standing;
use planaria_protocol::event::What;
use planaria_protocol::message::{FromServer, FromWorker, Trouble};
use planaria_protocol::methods::{self, sync};
use std::time::Duration;

impl Cluster {
    pub(super) fn take(&mut self, now: Duration, input: Input) -> Result<(), Trouble> {
        match input {
            Input::Joined(join) => self.joined(now, join),
            Input::Left { agent, pid, how, ended } => self.left(now, agent, pid, how, ended),
            Input::Worker(worker, said) => self.worker_said(now, worker, said),
            // Coded runs are decided elsewhere.
            Input::Coded(..) => Ok(()),
            Input::Server(server, said, squares) => self.server_said(now, server, said, squares),
            Input::Scored(worker, part, step, batch, scores) => {
                self.heard_worker(worker, now);
                self.scored(now, part, (step, batch), scores)
            }
            Input::ManifestWritten(written) => self.manifest_written(now, written),
            Input::Scale(workers) => self.scale(now, workers),
            Input::Report(what) => {
                self.record(*what, "the controller tells it");
                Ok(())
            }
            Input::Tick => self.tick(now),
            Input::Stop(reason) => {
                if !self.course.stopping() {
                    self.course.stop();
                    self.record(What::Stopping { reason: reason.clone() }, reason);
                }
                match self.phase {
                    // What was kept must be saved, as soon as the servers have it again.
                    Phase::Gathering if self.recovering => {
                        if self.members.servers_are(Standing::Ready) {
                            self.begin_training(now)?;
                        }
                    }
                    // Nothing is under way that could be finished.
                    Phase::Gathering => self.end(End::Interrupted),
                    // What is leased is finished first, if there is anybody to; scores are given up.
                    Phase::Training if !self.leases.is_empty() && !self.paused => {}
                    // The weights are saved; `resume` scores them.
                    Phase::Scoring(_, Some(_)) => self.finish(End::Interrupted),
                    Phase::Training | Phase::Scoring(_, None) => {
                        self.leases.clear();
                        self.go_on(now)?;
                    }
                    Phase::Ending(_) | Phase::Failing(_) | Phase::Over => {}
                }
                Ok(())
            }
        }
    }

    fn worker_said(&mut self, now: Duration, worker: u32, said: FromWorker) -> Result<(), Trouble> {
        self.heard_worker(worker, now);
        match said {
            FromWorker::Ready { engine, threads } => {
                self.worker_ready(now, worker, engine, threads)
            }
            FromWorker::Method(methods::Report::Sync(said)) => self.sync_said(now, worker, said),
            FromWorker::Revoked { ticket } => self.revoked(now, worker, ticket),
            FromWorker::Failed(trouble) if trouble.fix_input => Err(Trouble {
                message: format!("worker-{worker} cannot go on: {}", trouble.message),
                ..trouble
            }),
            // It ends now; that it did, and why, is told by its link.
            FromWorker::Failed(trouble) => self.lose_worker(now, worker, trouble.message, false),
            // The shell passes it on as `Input::Scored`.
            FromWorker::Evaluated { .. } | FromWorker::Method(_) | FromWorker::Alive => Ok(()),
        }
    }

    fn sync_said(&mut self, now: Duration, worker: u32, said: sync::Report) -> Result<(), Trouble> {
        match said {
            sync::Report::Pace { step, examples, busy_seconds, waiting_seconds } => {
                let per_shard = self.config.batch.div_ceil(u64::from(self.config.shards)).max(1);
                let shards = examples as f64 / per_shard as f64;
                if let Some(member) = self.members.workers.get_mut(&worker) {
                    member.kept_up(step);
                    member.pace((examples, shards), busy_seconds, waiting_seconds);
                }
                Ok(())
            }
            sync::Report::Holds { step, sha256 } => self.holds(now, worker, step, sha256),
            sync::Report::Behind { step } => self.behind(now, worker, step),
            sync::Report::Cut { server, why } => self.cut(now, worker, server, &why),
        }
    }

    fn server_said(
        &mut self,
        now: Duration,
        server: u32,
        said: FromServer,
        squares: Vec<f64>,
    ) -> Result<(), Trouble> {
        let at = server as usize;
        let Some(member) = self.members.servers.get_mut(at) else { return Ok(()) };
        self.gap = self.gap.max(now.saturating_sub(member.heard));
        member.heard = now;
        match said {
            FromServer::Ready => self.server_ready(now, server),
            FromServer::Summed { step } => {
                if !self.is_gathered(server, step)? {
                    return Ok(());
                }
                self.gather.squares(at, squares).map_err(Trouble::new)?;
                self.clip(step)
            }
            FromServer::Applied { step } => {
                if !self.is_gathered(server, step)? {
                    return Ok(());
                }
                if self.config.clip_norm.is_none() {
                    self.gather.squares(at, squares).map_err(Trouble::new)?;
                }
                self.gather.applied(at);
                self.commit(now)
            }
            FromServer::Counted { step, loss_sum, correct, read } => {
                if !self.is_gathered(server, step)? {
                    return Ok(());
                }
                self.gather.counted(Counted { loss_sum, correct, read });
                self.commit(now)
            }
            FromServer::Load { seconds, busy_seconds, bytes_out, .. } => {
                member.load(seconds, busy_seconds, bytes_out);
                Ok(())
            }
            FromServer::Missing { step, segments, shards } => {
                self.missing(now, server, step, (segments, shards));
                Ok(())
            }
            FromServer::Pulled { worker, step, sha256 } => {
                self.pulled(now, server, worker, step, sha256)
            }
            FromServer::Saved { step, file, sha256, bytes } => {
                self.part_saved(now, server, step, Ok((file, sha256, bytes)))
            }
            FromServer::NotSaved { step, why } => {
                let why = format!("server-{server} cannot write its part: {why}");
                self.part_saved(now, server, step, Err(why))
            }
            FromServer::Alive => Ok(()),
            // The checkpoint may be damaged. A coordinator without a record compares all of it, and
            // goes back further.
            FromServer::Failed(trouble)
                if !trouble.fix_input
                    && self.unproven
                    && matches!(self.phase, Phase::Gathering) =>
            {
                self.decide(Action::Forget, trouble.message.clone());
                self.lose_server(now, server, trouble.message, false)
            }
            // It ends now; another takes its place, unless it cannot even begin.
            FromServer::Failed(trouble)
                if !trouble.fix_input && !matches!(self.phase, Phase::Gathering) =>
            {
                self.lose_server(now, server, trouble.message, false)
            }
            FromServer::Failed(trouble) => Err(Trouble {
                message: format!("server-{server} cannot go on: {}", trouble.message),
                ..trouble
            }),
        }
    }
}
