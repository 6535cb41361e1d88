//! What servers say of a step, and its commit.

use super::SyncRun;
use super::lateness::Missing;
use crate::run::Counted;
use planaria_numerics::aggregate::clip_factor;
use planaria_protocol::message::{FromServer, ToServer, Trouble};
use std::time::Duration;

impl SyncRun {
    pub(super) fn server_gathers(
        &mut self,
        now: Duration,
        server: u32,
        said: FromServer,
        squares: Vec<f64>,
    ) -> Result<(), Trouble> {
        let at = server as usize;
        match said {
            FromServer::Summed { step } => {
                if !self.is_gathered(server, step)? {
                    return Ok(());
                }
                self.method.gather.squares(at, squares).map_err(Trouble::new)?;
                self.clip(step)
            }
            FromServer::Applied { step } => {
                if !self.is_gathered(server, step)? {
                    return Ok(());
                }
                if self.method.settings.clip_norm.is_none() {
                    self.method.gather.squares(at, squares).map_err(Trouble::new)?;
                }
                self.method.gather.applied(at);
                self.commit(now)
            }
            FromServer::Counted { step, loss_sum, correct, read } => {
                if !self.is_gathered(server, step)? {
                    return Ok(());
                }
                self.method.gather.counted(Counted { loss_sum, correct, read });
                self.commit(now)
            }
            FromServer::Missing { step, segments, shards } => {
                self.missing(now, server, step, Missing { segments, shards })
            }
            FromServer::Pulled { worker, step, sha256 } => {
                self.pulled(now, server, worker, step, sha256)
            }
            _ => Ok(()),
        }
    }

    /// Once all squares are there, lets every server update.
    fn clip(&mut self, step: u64) -> Result<(), Trouble> {
        let limit = self.method.settings.clip_norm;
        let (Some(norm), Some(limit)) = (self.method.gather.norm(), limit) else {
            return Ok(());
        };
        self.check_finite("the gradient's norm", norm)?;
        let factor = clip_factor(norm, limit);
        for server in 0..self.config.servers {
            if self.has_blocks(server) {
                self.tell_server(server, ToServer::Clip { step, factor }, "every block is summed");
            }
        }
        Ok(())
    }

    /// Commits the step if everything is there.
    fn commit(&mut self, now: Duration) -> Result<(), Trouble> {
        let Some(counted) = self.method.gather.complete() else { return Ok(()) };
        let step = self.course.state().step;
        // A stop may have given up what was under way; the state before it is being saved.
        if self.method.leases.round(step).is_none() {
            return Ok(());
        }
        self.check_loss(counted.loss_sum)?;
        if let Some(norm) = self.method.gather.norm() {
            self.check_finite("the gradient's norm", norm)?;
        }
        for server in 0..self.config.servers {
            let commit = ToServer::Commit { step };
            self.tell_server(server, commit, "every server has applied the step");
        }
        self.method.gather.clear();
        self.method.inquiry = None;
        self.committed(now, counted);
        self.note_lags(now, step + 1);
        self.method.leases.committed(step + 1);
        self.let_go();
        self.rest();
        Ok(())
    }

    /// Whether what a server says of a step is to be listened to. It can only be of the one that is
    /// being gathered, or be said again of one that was.
    fn is_gathered(&self, server: u32, step: u64) -> Result<bool, Trouble> {
        let own = self.course.state().step;
        if step <= own {
            return Ok(step == own);
        }
        Err(Trouble::new(format!(
            "server-{server} speaks of step {step} while step {own} is gathered"
        )))
    }
}
