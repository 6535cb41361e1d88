//! Rounds, leases and commits.

use super::{Action, Cluster, Phase};
use crate::decide::course::{Done, Next};
use crate::decide::deal::{deal, redeal};
use crate::decide::gather::Counted;
use planaria_numerics::aggregate::clip_factor;
use planaria_protocol::event::What;
use planaria_protocol::message::{Steps, ToServer, ToWorker, Trouble};
use std::time::Duration;

/// How long a round should take: short enough to stop soon and to deal anew, long enough that
/// nobody waits for leases.
const ROUND_SECONDS: f64 = 0.05;
/// Most steps of a round.
const ROUND_STEPS_MAX: u64 = 256;
/// Rounds that are leased at a time: the one under way and the next.
const ROUNDS_AHEAD: usize = 2;
/// Seconds between looks at whether the shards should be dealt anew.
const REDEAL_SECONDS: f64 = 0.5;

impl Cluster {
    pub(super) fn begin_training(&mut self, now: Duration) -> Result<(), Trouble> {
        let speeds: Vec<_> = (0..self.config.workers).map(|w| (w, 1.0)).collect();
        self.shares = deal(self.config.shards, &speeds);
        let step = self.course.state().step;
        self.record_deal(step, "workers count as equally fast until they are measured".into());
        self.phase = Phase::Training;
        (self.stepped, self.redealt) = (now, now);
        self.go_on(now)
    }

    /// Once all squares are there, lets every server update.
    pub(super) fn clip(&mut self, step: u64) -> Result<(), Trouble> {
        let (Some(norm), Some(limit)) = (self.gather.norm(), self.config.clip_norm) else {
            return Ok(());
        };
        self.check_finite("the gradient's norm", norm)?;
        let factor = clip_factor(norm, limit);
        for server in 0..self.config.servers {
            if self.config.blocks_of(server).is_empty() {
                continue;
            }
            let clip = ToServer::Clip { step, factor };
            self.decide(Action::ToServer(server, clip), "every block is summed");
        }
        Ok(())
    }

    /// Commits the step if everything is there.
    pub(super) fn commit(&mut self, now: Duration) -> Result<(), Trouble> {
        let Some(counted) = self.gather.complete() else { return Ok(()) };
        self.check_finite("the loss", counted.loss_sum)?;
        if let Some(norm) = self.gather.norm() {
            self.check_finite("the gradient's norm", norm)?;
        }
        let step = self.course.state().step;
        for server in 0..self.config.servers {
            let commit = ToServer::Commit { step };
            self.decide(Action::ToServer(server, commit), "every server has applied the step");
        }
        self.gather.clear();
        // Scores are of weights that are no longer the last.
        self.scores = None;
        let seconds = now.saturating_sub(self.stepped).as_secs_f64();
        self.stepped = now;
        let typical = self.step_seconds.get_or_insert(seconds);
        *typical += 0.2 * (seconds - *typical);
        let examples = counted.read.count;
        let Counted { loss_sum, correct, read } = counted;
        let done = Done { loss_sum, correct, examples, seconds, read };
        if let Some(what) = self.course.stepped(self.seconds(now), &done) {
            self.record(what, "a line is due");
        }
        let step = step + 1;
        self.leased.retain(|round| round.steps().end > step);
        self.go_on(now)
    }

    /// Leases rounds ahead, within what the course wants trained.
    pub(super) fn lease(&mut self, now: Duration) {
        let Next::Train(segment) = self.course.next() else { return };
        while self.leased.len() < ROUNDS_AHEAD {
            let from = self.leased.last().map_or(segment.first_step, |r| r.steps().end);
            let left = segment.steps().end.saturating_sub(from);
            if left == 0 {
                break;
            }
            self.maybe_redeal(now, from);
            let first = segment.batches.start + (from - segment.first_step);
            let batches = first..first + self.round_steps().min(left);
            let round = Steps { epoch: segment.epoch, batches, first_step: from };
            for server in 0..self.config.servers {
                let (steps, shares) = (round.clone(), self.shares.clone());
                let round = ToServer::Round { steps, shares };
                self.decide(Action::ToServer(server, round), "the round before is under way");
            }
            for share in self.shares.clone().into_iter().filter(|s| !s.shards.is_empty()) {
                let (steps, shards) = (round.clone(), share.shards);
                let lease = ToWorker::Lease { steps, shards, enter: false };
                self.decide(Action::ToWorker(share.worker, lease), "the round before is under way");
            }
            self.leased.push(round);
        }
    }

    pub(super) fn round_steps(&self) -> u64 {
        let fit = self.step_seconds.map_or(1.0, |seconds| ROUND_SECONDS / seconds);
        (fit as u64).clamp(1, ROUND_STEPS_MAX)
    }

    pub(super) fn maybe_redeal(&mut self, now: Duration, step: u64) {
        if now.saturating_sub(self.redealt).as_secs_f64() < REDEAL_SECONDS {
            return;
        }
        self.redealt = now;
        let Some(speeds) = self.members.speeds() else { return };
        if let Some((shares, reason)) = redeal(self.config.shards, &speeds, &self.shares) {
            self.shares = shares;
            self.record_deal(step, reason);
        }
    }

    pub(super) fn record_deal(&mut self, step: u64, reason: String) {
        let shares = self.shares.clone();
        self.record(What::Dealt { step, shares, reason: reason.clone() }, reason);
    }

    /// Messages of a step can only be of the one that is being gathered.
    pub(super) fn expect_step(&self, server: u32, step: u64) -> Result<(), Trouble> {
        let own = self.course.state().step;
        if step == own {
            return Ok(());
        }
        Err(Trouble::new(format!(
            "server-{server} speaks of step {step} while step {own} is gathered"
        )))
    }

    pub(super) fn check_finite(&self, what: &str, value: f64) -> Result<(), Trouble> {
        if value.is_finite() {
            return Ok(());
        }
        let step = self.course.state().step;
        let rate = self.course.learning_rate(step);
        Err(Trouble {
            // Steps count from 1 for people.
            message: format!("training failed at step {}: {what} is {value}", step + 1),
            hint: Some(format!(
                "lower the learning rate (it was {rate}), add `warmup_steps` or set `clip_norm`"
            )),
            fix_input: false,
        })
    }
}
