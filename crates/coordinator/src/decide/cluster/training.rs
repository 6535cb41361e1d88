//! Rounds, leases and commits.

use super::losing::Wound;
use super::{Action, Cluster, Phase};
use crate::decide::course::{Done, Next};
use crate::decide::deal::{copies, deal, redeal};
use crate::decide::gather::Counted;
use crate::decide::record::Pending;
use planaria_numerics::aggregate::clip_factor;
use planaria_protocol::event::What;
use planaria_protocol::message::{Share, Steps, ToServer, ToWorker, Trouble};
use planaria_protocol::methods::sync;
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
        for server in (0..self.config.servers).filter(|s| self.has_blocks(*s)).collect::<Vec<_>>() {
            let clip = ToServer::Clip { step, factor };
            self.decide(Action::ToServer(server, clip), "every block is summed");
        }
        Ok(())
    }

    /// Commits the step if everything is there.
    pub(super) fn commit(&mut self, now: Duration) -> Result<(), Trouble> {
        let Some(counted) = self.gather.complete() else { return Ok(()) };
        // A stop may have given up what was under way; the state before it is being saved.
        if self.leases.round(self.course.state().step).is_none() {
            return Ok(());
        }
        self.check_finite("the loss", counted.loss_sum)?;
        if let Some(norm) = self.gather.norm() {
            self.check_finite("the gradient's norm", norm)?;
        }
        let (step, epoch) = (self.course.state().step, self.course.state().epoch);
        for server in 0..self.config.servers {
            let commit = ToServer::Commit { step };
            self.decide(Action::ToServer(server, commit), "every server has applied the step");
        }
        self.unkept = true;
        self.gather.clear();
        self.inquiry = None;
        // Scores are of weights that are no longer the last.
        self.scores = None;
        let seconds = now.saturating_sub(self.stepped).as_secs_f64();
        self.healed(now, step);
        if self.wound.take().is_none() {
            self.patience.measured(seconds);
        }
        self.stepped = now;
        let examples = counted.read.count;
        let Counted { loss_sum, correct, read } = counted;
        let done = Done { loss_sum, correct, examples, seconds, read };
        let line = self.course.stepped(self.seconds(now), &done);
        self.count(Pending { epoch, first_step: step, end_step: step + 1, read });
        if let Some(what) = line {
            self.tell_pending();
            self.record(what, "a line is due");
        }
        self.note_lags(now, step + 1);
        self.leases.committed(step + 1);
        self.let_go();
        self.rest();
        self.go_on(now)
    }

    /// Says how long a loss has held the run up, with the first commit after it.
    fn healed(&mut self, now: Duration, step: u64) {
        let Some(Wound { after, recomputed }) = &self.wound else { return };
        let usual = self.patience.typical().unwrap_or(0.0);
        let took = self.seconds(now) - self.course.state().seconds_total;
        let healed = What::Healed {
            step,
            after: after.clone(),
            stalled_seconds: (took - usual).max(0.0),
            recomputed_shards: *recomputed,
            shard_seconds: self.members.shard_seconds().unwrap_or(0.0),
        };
        self.record(healed, "it is the first step after that");
    }

    /// Adds a step to those that an event is to tell.
    fn count(&mut self, step: Pending) {
        match &mut self.pending {
            Some(pending) if pending.epoch == step.epoch && pending.end_step == step.first_step => {
                pending.end_step = step.end_step;
                pending.read = pending.read.combine(step.read);
            }
            _ => {
                self.tell_pending();
                self.pending = Some(step);
            }
        }
    }

    /// Tells the committed steps that no event has told.
    pub(super) fn tell_pending(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.unkept = true;
            self.record(pending.event(), "they are committed");
        }
    }

    /// Leases rounds ahead, within what the course wants trained.
    pub(super) fn lease(&mut self, now: Duration) {
        let Next::Train(segment) = self.course.next() else { return };
        while self.leases.len() < ROUNDS_AHEAD && !self.paused {
            let from = self.leases.end().unwrap_or(segment.first_step);
            let left = segment.steps().end.saturating_sub(from);
            if left == 0 {
                break;
            }
            self.maybe_redeal(now, from);
            if self.shares.is_empty() {
                break;
            }
            let first = segment.batches.start + (from - segment.first_step);
            let batches = first..first + self.round_steps().min(left);
            let round = Steps { epoch: segment.epoch, batches, first_step: from };
            for server in 0..self.config.servers {
                let (steps, shares) = (round.clone(), self.shares.clone());
                let round = ToServer::Round { steps, shares };
                self.decide(Action::ToServer(server, round), "the round before is under way");
            }
            // Everyone's own come first, so that they are computed first.
            let dealt: Vec<Share> =
                self.dealt().filter(|s| !s.shards.is_empty()).cloned().collect();
            for Share { worker, shards } in dealt {
                self.lease_to(worker, round.clone(), shards, "the round before is under way");
            }
            self.leases.add(self.config.shards, round, &self.shares, &self.copies);
        }
    }

    fn lease_to(
        &mut self,
        worker: u32,
        steps: Steps,
        shards: std::ops::Range<u32>,
        why: &'static str,
    ) {
        let enter = self.must_enter(worker, steps.first_step);
        self.tell_worker(
            worker,
            ToWorker::from(sync::Command::Lease { steps, shards, enter }),
            why,
        );
    }

    /// Leases every segment that nobody has to whoever would be done with it the soonest.
    pub(super) fn give_out(&mut self, _now: Duration) {
        let active = self.members.active(self.wanted);
        if self.paused || active.is_empty() {
            return;
        }
        let (step, speeds) = (self.course.state().step, self.members.speeds(&active));
        let mut given = Vec::new();
        for round in self.leases.rounds_mut() {
            let mut loads = round.loads();
            let rest = round.rest(step);
            for held in round.held.iter_mut().filter(|held| held.holders.is_empty()) {
                let shards = held.count();
                let done = |(worker, speed): &&(u32, f64)| {
                    f64::from(loads.get(worker).copied().unwrap_or(0) + shards) / speed
                };
                let soonest = speeds.iter().min_by(|a, b| done(a).total_cmp(&done(b)));
                let Some((worker, _)) = soonest else { continue };
                *loads.entry(*worker).or_insert(0) += shards;
                held.holders.push(*worker);
                given.push((*worker, rest.clone(), held.shards.clone()));
            }
        }
        for (worker, steps, shards) in given {
            self.lease_to(worker, steps, shards, "whoever had them does not");
        }
    }

    /// Workers without shards need no parameters.
    fn rest(&mut self) {
        let mut busy = self.leases.holders();
        busy.extend(self.dealt().filter(|s| !s.shards.is_empty()).map(|s| s.worker));
        let idle = self.members.workers.iter().filter(|(worker, member)| {
            member.follows_from.is_some() && member.is_active() && !busy.contains(worker)
        });
        let idle: Vec<u32> = idle.map(|(worker, _)| *worker).collect();
        idle.into_iter().for_each(|worker| self.revoke(worker, "it stands by".into()));
    }

    fn round_steps(&self) -> u64 {
        let fit = self.patience.typical().map_or(1.0, |seconds| ROUND_SECONDS / seconds);
        (fit as u64).clamp(1, ROUND_STEPS_MAX)
    }

    /// Deals anew where others take part than before, and now and then by measured speeds.
    fn maybe_redeal(&mut self, now: Duration, step: u64) {
        let active = self.members.active(self.wanted);
        let same = self.shares.iter().map(|s| s.worker).eq(active.iter().copied());
        if same && now.saturating_sub(self.redealt).as_secs_f64() < REDEAL_SECONDS {
            return;
        }
        // Also where others come and go so often that nothing else is ever looked at.
        let mut forgiven = false;
        for worker in &active {
            let member = self.members.workers.get_mut(worker);
            forgiven |= member.is_some_and(|member| member.forgive(now));
        }
        self.redealt = now;
        let speeds = self.members.speeds(&active);
        let dealt = if same && !forgiven {
            redeal(self.config.shards, &speeds, &self.shares)
        } else {
            let reason = match (self.shares.is_empty(), forgiven) {
                (_, true) => "a worker that was slow is tried again",
                (true, false) => "workers count as equally fast until they are measured",
                (false, false) => "other workers take part than before",
            };
            Some((deal(self.config.shards, &speeds), reason.to_owned()))
        };
        if let Some((shares, reason)) = dealt.filter(|(shares, _)| *shares != self.shares) {
            self.copies = copies(&shares, &speeds, self.config.redundancy);
            self.shares = shares;
            let reason = self.with_redundancy(reason);
            if !self.shares.is_empty() {
                self.record_deal(step, reason);
            }
        }
    }

    /// What everyone computes: their own first, then what others have as well.
    pub(super) fn dealt(&self) -> impl Iterator<Item = &Share> {
        self.shares.iter().chain(&self.copies)
    }

    /// Workers beyond the first that compute each shard, as many as there are.
    pub(super) fn redundancy(&self) -> u32 {
        self.config.redundancy.min((self.shares.len() as u32).saturating_sub(1))
    }

    /// The reason of a deal, with how often each shard is dealt where that is not once.
    fn with_redundancy(&self, reason: String) -> String {
        let (asked, each) = (self.config.redundancy + 1, self.redundancy() + 1);
        match (asked, each) {
            (1, _) => reason,
            (asked, each) if each < asked => {
                format!("{reason}; each shard is on {each} of the {asked} workers asked for")
            }
            (_, each) => format!("{reason}; each shard is on {each} workers"),
        }
    }

    /// Steps are committed, with or without everyone who has shards of them.
    fn note_lags(&mut self, now: Duration, step: u64) {
        if self.config.redundancy == 0 {
            return;
        }
        for worker in self.leases.holders_until(step) {
            if let Some(member) = self.members.workers.get_mut(&worker) {
                member.note_lag(now, step);
            }
        }
    }

    fn record_deal(&mut self, step: u64, reason: String) {
        let shares = self.shares.clone();
        self.record(What::Dealt { step, shares, reason: reason.clone() }, reason);
    }

    /// Whether what a server says of a step is to be listened to. It can only be of the one that is
    /// being gathered, or be said again of one that was.
    pub(super) fn is_gathered(&self, server: u32, step: u64) -> Result<bool, Trouble> {
        let own = self.course.state().step;
        if step <= own {
            return Ok(step == own);
        }
        Err(Trouble::new(format!(
            "server-{server} speaks of step {step} while step {own} is gathered"
        )))
    }

    fn check_finite(&self, what: &str, value: f64) -> Result<(), Trouble> {
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
