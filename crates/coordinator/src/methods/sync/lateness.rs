//! What a step waits for that takes too long, and which workers have come to a halt.

use super::SyncRun;
use crate::run::Action;
use planaria_protocol::message::{Agent, ToServer, Trouble};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a worker that no step waits for may be behind, at least.
const LAG: Duration = Duration::from_secs(1);

/// How long a server may take to say what a step waits for: it may be deep in a slow disk.
const ANSWER: Duration = Duration::from_secs(60);
/// Times the servers are asked what a step waits for before all workers may be suspected at once.
const PATIENT_TIMES: u32 = 3;

/// Servers were asked what a step waits for.
#[derive(Debug)]
pub(super) struct Inquiry {
    step: u64,
    /// Times they were asked for this step, and when last.
    times: u32,
    asked: Duration,
    /// When those were asked first whose answer is waited for.
    pub first: Duration,
    answers: Vec<Option<Missing>>,
}

/// What a server lacks of a step.
#[derive(Debug, Clone)]
pub(super) struct Missing {
    /// First shard and number of shards of segments that lack blocks.
    pub segments: Vec<(u32, u32)>,
    /// Shards that are not counted.
    pub shards: Vec<u32>,
}

impl SyncRun {
    /// Asks the servers what a step waits for that takes too long.
    pub(super) fn ask_what_is_missing(&mut self, now: Duration) {
        let step = self.course.state().step;
        if !self.is_training() || self.method.leases.round(step).is_none() {
            self.method.inquiry = None;
            return;
        }
        if let Some((server, pid)) = self.unanswered(now) {
            let how = "it lives, and does not answer".to_owned();
            self.decide(Action::Kill(Agent::Server(server), pid), how.clone());
            return self.lose_server(server, how);
        }
        let before = self.method.inquiry.as_ref().filter(|inquiry| inquiry.step == step);
        let (times, since) = before.map_or((0, self.stepped), |i| (i.times, i.asked));
        // Where one is missing, another computes its own first.
        let limit = self.patience.limit(times) * (1 + self.redundancy());
        if now.saturating_sub(since.max(self.stepped)) < limit {
            return;
        }
        let answers = vec![None; self.config.servers as usize];
        // An answer that is waited for is not asked for anew.
        let is_open = |i: &Inquiry| i.step == step && i.answers.iter().any(Option::is_none);
        let open = self.method.inquiry.take().filter(is_open);
        let first = open.as_ref().map_or(now, |inquiry| inquiry.first);
        let answers = open.map_or(answers, |inquiry| inquiry.answers);
        self.method.inquiry = Some(Inquiry { step, times: times + 1, asked: now, first, answers });
        for server in 0..self.config.servers {
            self.tell_server(server, ToServer::Missing { step }, "the step takes too long");
        }
    }

    /// Takes those for late that have come to a halt, though no step waits for them.
    pub(super) fn look_for_lags(&mut self, now: Duration) -> Result<(), Trouble> {
        let limit = LAG.max(self.patience.limit(0) * (1 + self.redundancy()));
        let halted = self.method.followers.iter().filter_map(|(worker, follower)| {
            let strikes = self.members.workers.get(worker)?.strikes;
            Some((*worker, follower.lag(now, limit, strikes)?))
        });
        let halted: Vec<(u32, Duration)> = halted.collect();
        halted.into_iter().try_for_each(|(worker, lag)| self.suspect(now, worker, lag))
    }

    /// Steps are committed, with or without all workers that have shards of them.
    pub(super) fn note_lags(&mut self, now: Duration, step: u64) {
        if self.method.settings.redundancy == 0 {
            return;
        }
        for worker in self.method.leases.holders_until(step) {
            if self.members.workers.contains_key(&worker) {
                self.method.followers.entry(worker).or_default().note_lag(now, step);
            }
        }
    }

    /// A server that has not answered for very long, and its process.
    fn unanswered(&self, now: Duration) -> Option<(u32, u32)> {
        let inquiry = self.method.inquiry.as_ref()?;
        if now.saturating_sub(inquiry.first) < ANSWER {
            return None;
        }
        let server = inquiry.answers.iter().position(Option::is_none)?;
        Some((server as u32, self.members.servers[server].pid))
    }

    /// A server has said what a step waits for. When all have, those are suspected that are late, as
    /// long as some are not.
    pub(super) fn missing(
        &mut self,
        now: Duration,
        server: u32,
        step: u64,
        missing: Missing,
    ) -> Result<(), Trouble> {
        let own = self.course.state().step;
        let inquiry = self.method.inquiry.as_mut();
        let Some(inquiry) = inquiry.filter(|i| i.step == step && step == own) else {
            return Ok(());
        };
        inquiry.answers[server as usize] = Some(missing);
        let times = inquiry.times;
        let Some(answers) = inquiry.answers.iter().cloned().collect::<Option<Vec<Missing>>>()
        else {
            return Ok(());
        };
        let Some(round) = self.method.leases.round(step) else { return Ok(()) };
        let lacks = |shards: &std::ops::Range<u32>| {
            answers.iter().any(|missing| {
                missing.segments.iter().any(|(first, _)| shards.contains(first))
                    || missing.shards.iter().any(|shard| shards.contains(shard))
            })
        };
        let late = round.held.iter().filter(|held| lacks(&held.shards));
        let late: BTreeSet<u32> = late.flat_map(|held| held.holders.iter().copied()).collect();
        let others = self.active();
        // If all are late it is the machine, or no other could help. It may also be that they
        // wait for what will not come: in the end they are let in anew. What they have computed
        // counts all the same.
        let are_all_late = others.iter().all(|worker| late.contains(worker));
        if late.is_empty() || are_all_late && times < PATIENT_TIMES {
            return Ok(());
        }
        let lag = now.saturating_sub(self.stepped);
        late.into_iter().try_for_each(|worker| self.suspect(now, worker, lag))
    }
}
