//! What is known of a worker that follows the servers: which weights it has, how fast it is, and
//! whether it keeps up.

use crate::run::members::blend;
use planaria_protocol::message::Sha256;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a slow worker is left alone before it is tried again; twice as long each time.
const PROBE_SECONDS: f64 = 0.5;
const PROBE_SECONDS_MAX: f64 = 60.0;

/// A worker that is let in at a step once its weights are known to be the run's.
#[derive(Debug, Clone, PartialEq)]
pub struct Entering {
    /// What it says it holds, by server.
    pub holds: Option<Vec<Sha256>>,
    /// What each server says it sent.
    pub pulled: Vec<Option<Sha256>>,
}

/// A worker, as synchronous training knows it.
#[derive(Debug, Clone, Default)]
pub struct Follower {
    /// From which step on servers send it the parameters.
    pub follows_from: Option<u64>,
    /// By step: what is known of the weights it enters with.
    pub entering: BTreeMap<u64, Entering>,
    /// The step after the last of those that it has said it is done with.
    paced: u64,
    /// Since when it is not done with what others were done with. Where several have each shard,
    /// no step waits for it, and nothing else tells that it has come to a halt.
    pub lags: Option<Duration>,
    /// When a speed that is too low is forgotten.
    probe: Option<Duration>,
    /// Shards per second of computing.
    pub speed: Option<f64>,
}

impl Follower {
    /// Servers send it no more parameters.
    pub fn stop_following(&mut self) {
        self.follows_from = None;
        self.entering.clear();
        self.lags = None;
    }

    /// It is done with everything before `step` that it had.
    pub fn kept_up(&mut self, step: u64) {
        self.paced = self.paced.max(step);
        self.lags = None;
    }

    /// So many steps are committed: if it is not done with its part of them, it lags.
    pub fn note_lag(&mut self, now: Duration, step: u64) {
        if self.paced < step {
            self.lags.get_or_insert(now);
        }
    }

    /// How long it lags, if longer than `limit`, which doubles with each strike: a worker that takes
    /// long to enter would never be let in.
    pub fn lag(&self, now: Duration, limit: Duration, strikes: u32) -> Option<Duration> {
        let lag = now.saturating_sub(self.lags?);
        (lag > limit * (1 << strikes.min(6))).then_some(lag)
    }

    /// It has computed so many shards in so many seconds.
    pub fn pace(&mut self, shards: f64, busy_seconds: f64) {
        if busy_seconds > 0.0 {
            blend(&mut self.speed, shards / busy_seconds);
        }
    }

    /// It was late, as so many times before: it has not computed `shards` in so many seconds. It
    /// counts as slow for a while.
    pub fn strike(&mut self, now: Duration, shards: u32, seconds: f64, strikes: u32) {
        let most = f64::from(shards.max(1)) / seconds.max(1e-9);
        self.speed = Some(self.speed.map_or(most, |speed| speed.min(most)));
        let wait = PROBE_SECONDS * f64::from(1u32 << strikes.min(8));
        self.probe = Some(now + Duration::from_secs_f64(wait.min(PROBE_SECONDS_MAX)));
    }

    /// Forgets that it was slow, if it is time to see again; says whether it did.
    pub fn forgive(&mut self, now: Duration) -> bool {
        let due = self.probe.is_some_and(|at| at <= now);
        if due {
            (self.probe, self.speed) = (None, None);
        }
        due
    }
}
