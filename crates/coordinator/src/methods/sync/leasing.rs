//! Rounds of steps are leased to workers, and leased again when a worker is lost.

use super::SyncRun;
use super::deal::{copies, deal, redeal};
use crate::run::course::Next;
use planaria_protocol::event::What;
use planaria_protocol::message::{Share, Steps, ToServer};
use planaria_protocol::methods::sync::Command;
use std::ops::Range;
use std::time::Duration;

/// How long a round should take: short enough to stop soon and to deal anew, long enough that
/// no worker waits for leases.
const ROUND_SECONDS: f64 = 0.05;
/// Most steps of a round.
const ROUND_STEPS_MAX: u64 = 256;
/// Rounds that are leased at a time: the one under way and the next.
const ROUNDS_AHEAD: usize = 2;
/// Seconds between looks at whether the shards should be dealt anew.
const REDEAL_SECONDS: f64 = 0.5;

impl SyncRun {
    /// Leases rounds ahead, within what the course wants trained.
    pub(super) fn lease(&mut self, now: Duration) {
        while self.method.leases.len() < ROUNDS_AHEAD && self.paused.is_none() {
            let Next::Train(segment) = self.course.next() else { return };
            let from = self.method.leases.end().unwrap_or(segment.first_step);
            let left = segment.steps().end.saturating_sub(from);
            if left == 0 {
                return;
            }
            self.maybe_redeal(now, from);
            if self.method.shares.is_empty() {
                return;
            }
            let first = segment.batches.start + (from - segment.first_step);
            let batches = first..first + self.round_steps().min(left);
            let round = Steps { epoch: segment.epoch, batches, first_step: from };
            self.lease_round(round, "the round before is under way");
        }
    }

    fn lease_round(&mut self, round: Steps, why: &'static str) {
        for server in 0..self.config.servers {
            let (steps, shares) = (round.clone(), self.method.shares.clone());
            self.tell_server(server, ToServer::Round { steps, shares }, why);
        }
        // Each worker's own come first, so that they are computed first.
        let dealt: Vec<Share> = self.dealt().filter(|s| !s.shards.is_empty()).cloned().collect();
        for Share { worker, shards } in dealt {
            self.lease_to(worker, round.clone(), shards, why);
        }
        let super::Sync { leases, settings, shares, copies, .. } = &mut self.method;
        leases.add(settings.shards, round, shares, copies);
    }

    fn lease_to(&mut self, worker: u32, steps: Steps, shards: Range<u32>, why: &'static str) {
        let enter = self.must_enter(worker, steps.first_step);
        self.tell_worker(worker, Command::Lease { steps, shards, enter }, why);
    }

    /// Leases every segment that no worker has to the one that would be done with it the soonest.
    pub(super) fn give_out(&mut self) {
        let active = self.active();
        if self.paused.is_some() || active.is_empty() {
            return;
        }
        let (step, speeds) = (self.course.state().step, self.speeds(&active));
        let mut given = Vec::new();
        for round in self.method.leases.rounds_mut() {
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
            self.lease_to(worker, steps, shards, "the worker that had them does not");
        }
    }

    /// Workers without shards need no parameters.
    pub(super) fn rest(&mut self) {
        let mut busy = self.method.leases.holders();
        busy.extend(self.dealt().filter(|s| !s.shards.is_empty()).map(|s| s.worker));
        let follows = |worker: &u32| {
            self.method.followers.get(worker).is_some_and(|f| f.follows_from.is_some())
        };
        let idle = self.members.workers.iter().filter(|(worker, member)| {
            member.is_active() && !busy.contains(worker) && follows(worker)
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
        let active = self.active();
        let shares = &self.method.shares;
        let same = shares.iter().map(|s| s.worker).eq(active.iter().copied());
        let redealt = self.method.redealt;
        if same && now.saturating_sub(redealt).as_secs_f64() < REDEAL_SECONDS {
            return;
        }
        // Also where others come and go so often that nothing else is ever looked at.
        let mut forgiven = false;
        for worker in &active {
            let follower = self.method.followers.get_mut(worker);
            forgiven |= follower.is_some_and(|follower| follower.forgive(now));
        }
        self.method.redealt = now;
        let (speeds, settings) = (self.speeds(&active), &self.method.settings);
        let dealt = if same && !forgiven {
            redeal(settings.shards, &speeds, &self.method.shares)
        } else {
            let reason = match (self.method.shares.is_empty(), forgiven) {
                (_, true) => "a worker that was slow is tried again",
                (true, false) => "workers count as equally fast until they are measured",
                (false, false) => "other workers take part than before",
            };
            Some((deal(settings.shards, &speeds), reason.to_owned()))
        };
        if let Some((shares, reason)) = dealt.filter(|(shares, _)| *shares != self.method.shares) {
            self.method.copies = copies(&shares, &speeds, settings.redundancy);
            self.method.shares = shares;
            let reason = self.with_redundancy(reason);
            if !self.method.shares.is_empty() {
                self.record_deal(step, reason);
            }
        }
    }

    /// Shards per second of these workers. One that is not measured counts as an average one.
    fn speeds(&self, workers: &[u32]) -> Vec<(u32, f64)> {
        let speed = |worker: &u32| self.method.followers.get(worker).and_then(|w| w.speed);
        let known: Vec<f64> = workers.iter().filter_map(speed).collect();
        let mean = match known.len() {
            0 => 1.0,
            n => known.iter().sum::<f64>() / n as f64,
        };
        workers.iter().map(|w| (*w, speed(w).unwrap_or(mean))).collect()
    }

    /// What each worker computes: its own shards first, then copies.
    pub(super) fn dealt(&self) -> impl Iterator<Item = &Share> {
        self.method.shares.iter().chain(&self.method.copies)
    }

    /// Workers beyond the first that compute each shard, as many as there are.
    pub(super) fn redundancy(&self) -> u32 {
        let others = (self.method.shares.len() as u32).saturating_sub(1);
        self.method.settings.redundancy.min(others)
    }

    /// The reason of a deal, with how often each shard is dealt where that is not once.
    fn with_redundancy(&self, reason: String) -> String {
        let (asked, each) = (self.method.settings.redundancy + 1, self.redundancy() + 1);
        match (asked, each) {
            (1, _) => reason,
            (asked, each) if each < asked => {
                format!("{reason}; each shard is on {each} of the {asked} workers asked for")
            }
            (_, each) => format!("{reason}; each shard is on {each} workers"),
        }
    }

    fn record_deal(&mut self, step: u64, reason: String) {
        let shares = self.method.shares.clone();
        self.record(What::Dealt { step: step + 1, shares, reason: reason.clone() }, reason);
    }
}
