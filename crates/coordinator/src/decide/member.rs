//! Who takes part, how far each has come, how fast each is, and when it was last heard.

use planaria_protocol::event::{ServerPulse, WorkerPulse};
use planaria_protocol::message::{Kept, Sha256, Share};
use std::collections::BTreeMap;
use std::time::Duration;

/// Weight of the newest measurement of a speed.
const NEWEST: f64 = 0.3;
/// How long a slow worker is left alone before it is tried again; twice as long each time.
const PROBE_SECONDS: f64 = 0.5;
const PROBE_SECONDS_MAX: f64 = 60.0;

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Standing {
    /// Not heard of.
    #[default]
    Awaited,
    Joined,
    /// Has all it needs.
    Ready,
}

/// A worker that is let in at a step once its weights are known to be the run's.
#[derive(Debug, Clone, PartialEq)]
pub struct Entering {
    /// What it says it holds, by server.
    pub holds: Option<Vec<Sha256>>,
    /// What each server says it sent.
    pub pulled: Vec<Option<Sha256>>,
}

/// A worker.
#[derive(Debug, Clone, Default)]
pub struct Worker {
    /// How far it has come.
    pub standing: Standing,
    pub pid: u32,
    /// Its machine; nothing for the controller's own.
    pub machine: Option<String>,
    /// When it was last heard.
    pub heard: Duration,
    /// From which step on servers send it the parameters.
    pub follows_from: Option<u64>,
    /// By step: what is known of the weights it enters with.
    pub entering: BTreeMap<u64, Entering>,
    /// The revocation that it has not answered.
    pub revoking: Option<u64>,
    /// Since when it is taken for late.
    pub suspected: Option<Duration>,
    /// The step after the last of those that it has said it is done with.
    paced: u64,
    /// Since when it is not done with what others were done with. Where several have each shard,
    /// nobody waits for it, and nothing else tells that it has come to a halt.
    pub lags: Option<Duration>,
    /// Since when it has no link to some server.
    pub cut: Option<Duration>,
    /// Times it was late since it was last in time.
    strikes: u32,
    /// When a speed that is too low is forgotten.
    probe: Option<Duration>,
    /// Shards per second of computing.
    speed: Option<f64>,
    /// Examples per second of computing.
    rate: Option<f64>,
    /// Share of the time that it computes.
    busy: Option<f64>,
}

impl Worker {
    /// One that has just connected.
    pub fn joined(pid: u32, machine: Option<String>, now: Duration) -> Self {
        Self { standing: Standing::Joined, pid, machine, heard: now, ..Self::default() }
    }

    /// Whether it can be given work.
    pub fn is_active(&self) -> bool {
        self.standing == Standing::Ready && self.revoking.is_none() && self.cut.is_none()
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

    /// How long it lags, if longer than `limit`, which doubles each time: a worker that takes long
    /// to enter would never be let in.
    pub fn lag(&self, now: Duration, limit: Duration) -> Option<Duration> {
        let lag = now.saturating_sub(self.lags?);
        (lag > limit * (1 << self.strikes.min(6))).then_some(lag)
    }

    /// It told its pace: examples and shards computed, and seconds of computing and waiting.
    pub fn pace(&mut self, (examples, shards): (u64, f64), busy: f64, waiting: f64) {
        if busy <= 0.0 {
            return;
        }
        if self.suspected.is_none() {
            self.strikes = 0;
        }
        blend(&mut self.speed, shards / busy);
        blend(&mut self.rate, examples as f64 / busy);
        blend(&mut self.busy, busy / (busy + waiting));
    }

    /// It was late: it has not computed `shards` in so many seconds. It counts as slow for a while.
    pub fn strike(&mut self, now: Duration, shards: u32, seconds: f64) {
        let most = f64::from(shards.max(1)) / seconds.max(1e-9);
        self.speed = Some(self.speed.map_or(most, |speed| speed.min(most)));
        let wait = PROBE_SECONDS * f64::from(1u32 << self.strikes.min(8));
        self.probe = Some(now + Duration::from_secs_f64(wait.min(PROBE_SECONDS_MAX)));
        self.strikes += 1;
    }

    /// Forgets that it was slow, if it is time to see again; says whether it did.
    pub fn forgive(&mut self, now: Duration) -> bool {
        let due = self.probe.is_some_and(|at| at <= now);
        if due {
            (self.probe, self.speed) = (None, None);
        }
        due
    }

    /// Whether it has failed more than once in a row to keep up.
    pub fn is_hopeless(&self) -> bool {
        self.strikes >= 2
    }

    fn state(&self, phase: &str, shards: u32) -> &'static str {
        match (self.standing, phase) {
            _ if self.suspected.is_some() => "late",
            _ if self.cut.is_some() => "cut off",
            (Standing::Awaited, _) => "starting",
            (Standing::Joined, _) => "getting ready",
            (Standing::Ready, "training") if !self.entering.is_empty() => "entering",
            (Standing::Ready, "training") if shards == 0 => "standby",
            (Standing::Ready, "training") => "computing",
            (Standing::Ready, "validating" | "testing") => "evaluating",
            (Standing::Ready, _) => "ready",
        }
    }
}

/// A server.
#[derive(Debug, Clone, Default)]
pub struct Server {
    /// How far it has come.
    pub standing: Standing,
    pub pid: u32,
    /// Its machine; nothing for the controller's own.
    pub machine: Option<String>,
    /// When it was last heard.
    pub heard: Duration,
    /// Where it listens.
    pub address: String,
    /// What it has kept from before.
    pub kept: Option<Kept>,
    busy: Option<f64>,
    rate: Option<f64>,
}

impl Server {
    /// It told its load.
    pub fn load(&mut self, seconds: f64, busy: f64, bytes: u64) {
        if seconds > 0.0 {
            blend(&mut self.busy, busy / seconds);
            blend(&mut self.rate, bytes as f64 / seconds);
        }
    }
}

/// The processes of a run.
#[derive(Debug)]
pub struct Members {
    /// By number. Those beyond the wanted ones are on their way out.
    pub workers: BTreeMap<u32, Worker>,
    pub servers: Vec<Server>,
}

impl Members {
    /// Nobody has joined yet.
    pub fn new(workers: u32, servers: u32) -> Self {
        Self {
            workers: (0..workers).map(|w| (w, Worker::default())).collect(),
            servers: vec![Server::default(); servers as usize],
        }
    }

    /// Whether every server has come so far.
    pub fn servers_are(&self, standing: Standing) -> bool {
        self.servers.iter().all(|s| s.standing >= standing)
    }

    /// Workers that are ready, late ones included.
    pub fn ready(&self) -> usize {
        self.workers.values().filter(|w| w.standing == Standing::Ready).count()
    }

    /// Workers that can be given work, of the first `wanted`.
    pub fn active(&self, wanted: u32) -> Vec<u32> {
        let active = self.workers.range(..wanted).filter(|(_, w)| w.is_active());
        active.map(|(number, _)| *number).collect()
    }

    /// What is waited for, in words.
    pub fn waiting_for(&self, wanted: u32) -> String {
        let servers = self.servers.iter().filter(|s| s.standing != Standing::Ready).count();
        if servers > 0 {
            return format!("waiting for {servers} of {} servers", self.servers.len());
        }
        let ready = self.workers.range(..wanted).filter(|(_, w)| w.standing == Standing::Ready);
        format!("waiting for {} of {wanted} workers", wanted as usize - ready.count())
    }

    /// Shards per second of these workers. One that is not measured counts as an average one.
    pub fn speeds(&self, workers: &[u32]) -> Vec<(u32, f64)> {
        let speed = |worker: &u32| self.workers.get(worker).and_then(|w| w.speed);
        let known: Vec<f64> = workers.iter().filter_map(speed).collect();
        let mean = match known.len() {
            0 => 1.0,
            n => known.iter().sum::<f64>() / n as f64,
        };
        workers.iter().map(|w| (*w, speed(w).unwrap_or(mean))).collect()
    }

    /// Seconds that a shard takes a worker, if any was measured.
    pub fn shard_seconds(&self) -> Option<f64> {
        let speeds: Vec<f64> = self.workers.values().filter_map(|w| w.speed).collect();
        (!speeds.is_empty()).then(|| speeds.len() as f64 / speeds.iter().sum::<f64>())
    }

    /// Every process for display.
    pub fn pulses<'a>(
        &self,
        phase: &str,
        dealt: impl Iterator<Item = &'a Share>,
        wanted: u32,
    ) -> (Vec<WorkerPulse>, Vec<ServerPulse>) {
        let mut shards: BTreeMap<u32, u32> = BTreeMap::new();
        for share in dealt {
            *shards.entry(share.worker).or_insert(0) += share.shards.end - share.shards.start;
        }
        let worker = |(worker, m): (&u32, &Worker)| {
            let shards = shards.get(worker).copied().unwrap_or(0);
            let state = if *worker >= wanted { "leaving" } else { m.state(phase, shards) };
            let (state, examples_per_second, busy) = (state.into(), m.rate, m.busy);
            let machine = m.machine.clone();
            let worker = *worker;
            let (slot, rows) = (None, None);
            WorkerPulse { worker, state, shards, examples_per_second, busy, machine, slot, rows }
        };
        let server = |(server, m): (u32, &Server)| {
            let state = match m.standing {
                Standing::Awaited => "starting",
                Standing::Joined => "getting ready",
                Standing::Ready => "serving",
            };
            let (state, busy, bytes_per_second) = (state.into(), m.busy, m.rate);
            let machine = m.machine.clone();
            ServerPulse { server, state, busy, bytes_per_second, machine }
        };
        let seen =
            |(number, w): &(&u32, &Worker)| **number < wanted || w.standing != Standing::Awaited;
        let workers = self.workers.iter().filter(seen).map(worker).collect();
        (workers, (0..).zip(&self.servers).map(server).collect())
    }
}

fn blend(old: &mut Option<f64>, new: f64) {
    let value = old.get_or_insert(new);
    *value += NEWEST * (new - *value);
}
