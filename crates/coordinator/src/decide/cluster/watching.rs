//! What follows from time alone: whom to ask after, who hangs, when to begin, wait and go on.

use super::{Action, Cluster, Phase};
use crate::decide::member::Standing;
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, ToServer, ToWorker, Trouble};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two things that happen; if more, this process did not run, and nobody is to blame.
const ASLEEP: Duration = Duration::from_millis(500);
/// How long someone may not be heard, `Alive` coming every quarter of a second: at least and at
/// most, and in between so many times the longest silence of those who live.
const SILENCE_MIN: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(20);
const SILENCE_TIMES: u32 = 8;
/// How long a worker without one of its servers is left alone: if the server is lost, everything
/// begins anew anyway.
const CUT: Duration = Duration::from_millis(300);

/// How long a worker that nobody waits for may be behind, at least.
const LAG: Duration = Duration::from_secs(1);

/// How long a server may take to say what a step waits for: it may be deep in a slow disk.
const ANSWER: Duration = Duration::from_secs(60);
/// How often a step is asked after before everyone is taken for late at once.
const PATIENT_TIMES: u32 = 3;

/// Servers were asked what a step waits for.
#[derive(Debug)]
pub(super) struct Inquiry {
    pub step: u64,
    /// How often, for this step, and when last.
    pub times: u32,
    asked: Duration,
    /// When those were asked first whose answer is waited for.
    first: Duration,
    /// By server: segments that lack blocks, and shards that are not counted.
    answers: Vec<Option<Answer>>,
}

type Answer = (Vec<(u32, u32)>, Vec<u32>);

impl Cluster {
    /// Notes that it is `now`. If this process did not run for a while, others are not blamed.
    pub(super) fn awake(&mut self, now: Duration) {
        let slept = now.saturating_sub(self.now);
        self.now = now.max(self.now);
        if slept < ASLEEP {
            return;
        }
        let workers = self.members.workers.values_mut();
        let workers = workers.flat_map(|w| [&mut w.heard].into_iter().chain(&mut w.lags));
        let servers = self.members.servers.iter_mut().map(|s| &mut s.heard);
        workers.chain(servers).for_each(|heard| *heard += slept);
        self.stepped += slept;
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.first += slept;
        }
        if let Phase::Scoring(scoring, _) = &mut self.phase {
            scoring.progressed += slept;
        }
    }

    pub(super) fn heard_worker(&mut self, worker: u32, now: Duration) {
        if let Some(member) = self.members.workers.get_mut(&worker) {
            self.gap = self.gap.max(now.saturating_sub(member.heard));
            member.heard = now;
        }
    }

    pub(super) fn tick(&mut self, now: Duration) -> Result<(), Trouble> {
        self.bury_late(now);
        self.maybe_begin(now)?;
        self.look_for_hung(now)?;
        self.mend_cuts(now)?;
        self.look_for_late(now)?;
        self.look_for_lags(now)?;
        self.look_for_late_scores(now)?;
        self.save_again(now);
        Ok(())
    }

    /// Begins when all workers are there, or enough of them and the others take their time.
    pub(super) fn maybe_begin(&mut self, now: Duration) -> Result<(), Trouble> {
        let gathering = matches!(self.phase, Phase::Gathering);
        if !gathering || !self.members.servers_are(Standing::Ready) {
            return Ok(());
        }
        let ready = self.members.active(self.wanted).len() as u32;
        if ready < self.config.workers_min.max(1) {
            self.enough_since = None;
            return Ok(());
        }
        let since = *self.enough_since.get_or_insert(now);
        if ready >= self.wanted || now.saturating_sub(since) >= self.grace {
            return self.begin_training(now);
        }
        Ok(())
    }

    /// Stops giving work out when too few workers are left.
    pub(super) fn maybe_pause(&mut self) {
        let ready = self.members.ready() as u32;
        let busy = matches!(self.phase, Phase::Training | Phase::Scoring(..));
        if busy && !self.paused && ready < self.config.workers_min.max(1) {
            self.paused = true;
            let min = self.config.workers_min;
            self.record(What::Paused { workers: ready, min }, "too few workers are left");
        }
    }

    /// Goes on when there are enough again, and gives out what nobody has.
    pub(super) fn maybe_unpause(&mut self, now: Duration) -> Result<(), Trouble> {
        let ready = self.members.ready() as u32;
        if self.paused {
            if ready < self.config.workers_min.max(1) {
                return Ok(());
            }
            self.paused = false;
            self.stepped = now;
            self.record(What::Unpaused { workers: ready }, "there are enough workers");
        }
        self.give_out(now);
        self.score_again(now);
        match self.phase {
            Phase::Training if self.leases.is_empty() => self.go_on(now),
            _ => Ok(()),
        }
    }

    fn look_for_hung(&mut self, now: Duration) -> Result<(), Trouble> {
        self.gap = self.gap.min(Duration::from_secs(2)).mul_f64(0.999);
        let limit = (self.gap * SILENCE_TIMES).clamp(SILENCE_MIN, SILENCE_MAX);
        let silent = |heard: Duration| now.saturating_sub(heard) > limit;
        let how = |heard: Duration| {
            format!("it was not heard for {:.1} s", now.saturating_sub(heard).as_secs_f64())
        };
        let hung = self.members.workers.iter();
        let hung = hung.filter(|(_, w)| w.standing != Standing::Awaited && silent(w.heard));
        let hung: Vec<_> = hung.map(|(number, w)| (*number, w.pid, how(w.heard))).collect();
        for (worker, pid, how) in hung {
            self.decide(Action::Kill(Agent::Worker(worker), pid), how.clone());
            self.lose_worker(now, worker, how, true)?;
        }
        let hung = (0..).zip(&self.members.servers);
        let hung = hung.filter(|(_, s)| s.standing != Standing::Awaited && silent(s.heard));
        let hung: Vec<_> = hung.map(|(number, s)| (number, s.pid, how(s.heard))).collect();
        for (server, pid, how) in hung {
            self.decide(Action::Kill(Agent::Server(server), pid), how.clone());
            self.lose_server(now, server, how, true)?;
        }
        Ok(())
    }

    fn mend_cuts(&mut self, now: Duration) -> Result<(), Trouble> {
        let cut = self
            .members
            .workers
            .iter()
            .filter(|(_, w)| w.cut.is_some_and(|since| now.saturating_sub(since) >= CUT));
        let cut: Vec<u32> = cut.map(|(worker, _)| *worker).collect();
        for worker in cut {
            self.tell_worker(worker, ToWorker::Rejoin, "it has lost a server that is there");
            if let Some(member) = self.members.workers.get_mut(&worker) {
                // Asked once; if it does not come back it is hung.
                member.cut = Some(now + SILENCE_MAX);
            }
        }
        Ok(())
    }

    /// Asks the servers what a step waits for that takes too long.
    fn look_for_late(&mut self, now: Duration) -> Result<(), Trouble> {
        let step = self.course.state().step;
        let busy = matches!(self.phase, Phase::Training) && !self.paused;
        if !busy || self.leases.round(step).is_none() {
            self.inquiry = None;
            return Ok(());
        }
        if let Some((server, pid)) = self.unanswered(now) {
            let how = "it lives, and does not answer".to_owned();
            self.decide(Action::Kill(Agent::Server(server), pid), how.clone());
            return self.lose_server(now, server, how, true);
        }
        let before = self.inquiry.as_ref().filter(|inquiry| inquiry.step == step);
        let (times, since) = before.map_or((0, self.stepped), |i| (i.times, i.asked));
        // Where one is missing, another computes its own first.
        let limit = self.patience.limit(times) * (1 + self.redundancy());
        if now.saturating_sub(since.max(self.stepped)) < limit {
            return Ok(());
        }
        let answers = vec![None; self.config.servers as usize];
        // An answer that is waited for is not asked for anew.
        let open = self.inquiry.take().filter(|i| i.step == step && i.answers.contains(&None));
        let first = open.as_ref().map_or(now, |inquiry| inquiry.first);
        let answers = open.map_or(answers, |inquiry| inquiry.answers);
        self.inquiry = Some(Inquiry { step, times: times + 1, asked: now, first, answers });
        for server in 0..self.config.servers {
            let missing = ToServer::Missing { step };
            self.decide(Action::ToServer(server, missing), "the step takes too long");
        }
        Ok(())
    }

    /// Takes whoever has come to a halt for late, though nobody waits for it.
    fn look_for_lags(&mut self, now: Duration) -> Result<(), Trouble> {
        let limit = LAG.max(self.patience.limit(0) * (1 + self.redundancy()));
        let workers = self.members.workers.iter();
        let halted = workers.filter_map(|(worker, m)| Some((*worker, m.lag(now, limit)?)));
        let halted: Vec<(u32, Duration)> = halted.collect();
        halted.into_iter().try_for_each(|(worker, lag)| self.suspect(now, worker, lag))
    }

    /// A server that has not answered for very long, and its process.
    fn unanswered(&self, now: Duration) -> Option<(u32, u32)> {
        let inquiry = self.inquiry.as_ref()?;
        if now.saturating_sub(inquiry.first) < ANSWER {
            return None;
        }
        let server = inquiry.answers.iter().position(Option::is_none)?;
        Some((server as u32, self.members.servers[server].pid))
    }

    /// A server has said what a step waits for. When all have, whoever is late is suspected, as
    /// long as somebody is not.
    pub(super) fn missing(&mut self, now: Duration, server: u32, step: u64, answer: Answer) {
        let own = self.course.state().step;
        let Some(inquiry) = self.inquiry.as_mut().filter(|i| i.step == step && step == own) else {
            return;
        };
        inquiry.answers[server as usize] = Some(answer);
        let times = inquiry.times;
        let Some(answers) = inquiry.answers.iter().cloned().collect::<Option<Vec<Answer>>>() else {
            return;
        };
        let Some(round) = self.leases.round(step) else { return };
        let lacks = |shards: &std::ops::Range<u32>| {
            answers.iter().any(|(segments, counts)| {
                segments.iter().any(|(first, _)| shards.contains(first))
                    || counts.iter().any(|shard| shards.contains(shard))
            })
        };
        let late = round.held.iter().filter(|held| lacks(&held.shards));
        let late: BTreeSet<u32> = late.flat_map(|held| held.holders.iter().copied()).collect();
        let others = self.members.active(self.wanted);
        // If everyone is late it is the machine, or nobody could help. It may also be that they
        // wait for what will not come: in the end they are let in anew. What they have computed
        // counts all the same.
        let are_all_late = others.iter().all(|worker| late.contains(worker));
        if late.is_empty() || are_all_late && times < PATIENT_TIMES {
            return;
        }
        for worker in late {
            // It cannot fail: nothing the user must change comes of it.
            let _ = self.suspect(now, worker, now.saturating_sub(self.stepped));
        }
    }

    fn look_for_late_scores(&mut self, now: Duration) -> Result<(), Trouble> {
        let Phase::Scoring(scoring, _) = &self.phase else { return Ok(()) };
        if self.paused || !scoring.is_late(now) {
            return Ok(());
        }
        let late = scoring.holders();
        let others = self.members.active(self.wanted);
        let mut times = 0;
        if let Phase::Scoring(scoring, _) = &mut self.phase {
            scoring.progressed = now;
            scoring.times_late += 1;
            times = scoring.times_late;
        }
        // As for a step.
        if others.iter().all(|worker| late.contains(worker)) && times < PATIENT_TIMES {
            return Ok(());
        }
        late.into_iter().try_for_each(|worker| {
            let lag = now.saturating_sub(self.stepped);
            self.suspect(now, worker, lag)
        })
    }
}
