//! Who takes part, how far each has come, how fast each is, and when it was last heard.
//!
//! What only one method knows of a worker is the method's.

use planaria_protocol::event::{Doing, ServerPulse};
use planaria_protocol::message::Kept;
use planaria_recipe::words::counted;
use std::collections::BTreeMap;
use std::time::Duration;

/// Weight of the newest measurement of a speed.
const NEWEST: f64 = 0.3;

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Standing {
    /// Nothing was heard from it yet.
    #[default]
    Awaited,
    Joined,
    /// Has all it needs.
    Ready,
}

#[derive(Debug, Clone, Default)]
pub struct Worker {
    /// How far it has come.
    pub standing: Standing,
    pub pid: u32,
    /// Its machine; nothing for the controller's own.
    pub machine: Option<String>,
    /// When it was last heard.
    pub heard: Duration,
    /// The revocation that it has not answered.
    pub revoking: Option<u64>,
    /// Since when it is taken for late.
    pub suspected: Option<Duration>,
    /// Since when it lacks a link that it needs.
    pub cut: Option<Duration>,
    /// Times it was late since it was last in time.
    pub strikes: u32,
    /// Examples per second of computing.
    pub rate: Option<f64>,
    /// Share of the time that it computes.
    pub busy: Option<f64>,
}

/// What a worker did in a while.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pace {
    pub examples: u64,
    /// Time spent computing.
    pub busy_seconds: f64,
    pub waiting_seconds: f64,
}

impl Worker {
    /// One that has just connected.
    pub fn joined(pid: u32, machine: Option<String>, now: Duration) -> Self {
        Self { standing: Standing::Joined, pid, machine, heard: now, ..Self::default() }
    }

    /// Whether it is connected.
    pub fn has_joined(&self) -> bool {
        self.standing != Standing::Awaited
    }

    /// Whether it has all it needs.
    pub fn is_ready(&self) -> bool {
        self.standing == Standing::Ready
    }

    /// Whether it can be given work.
    pub fn is_active(&self) -> bool {
        self.standing == Standing::Ready && self.revoking.is_none() && self.cut.is_none()
    }

    /// It has done something of what it was given.
    pub fn keep_up(&mut self) {
        if self.suspected.is_none() {
            self.strikes = 0;
        }
    }

    /// It told its pace.
    pub fn pace(&mut self, pace: Pace) {
        let Pace { examples, busy_seconds, waiting_seconds } = pace;
        if busy_seconds <= 0.0 {
            return;
        }
        self.keep_up();
        blend(&mut self.rate, examples as f64 / busy_seconds);
        blend(&mut self.busy, busy_seconds / (busy_seconds + waiting_seconds));
    }

    /// Whether it has failed more than once in a row to keep up.
    pub fn is_hopeless(&self) -> bool {
        self.strikes >= 2
    }
}

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
    /// No process has joined yet.
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
    pub fn ready(&self) -> u32 {
        self.workers.values().filter(|w| w.standing == Standing::Ready).count() as u32
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
            return waiting(servers, self.servers.len(), "server");
        }
        let ready = self.workers.range(..wanted).filter(|(_, w)| w.standing == Standing::Ready);
        waiting(wanted as usize - ready.count(), wanted as usize, "worker")
    }

    /// Every server for display.
    pub fn server_pulses(&self) -> Vec<ServerPulse> {
        let pulse = |(server, m): (u32, &Server)| {
            let state = match m.standing {
                Standing::Awaited => Doing::Starting,
                Standing::Joined => Doing::GettingReady,
                Standing::Ready => Doing::Serving,
            };
            ServerPulse {
                server,
                state,
                busy: m.busy,
                bytes_per_second: m.rate,
                machine: m.machine.clone(),
            }
        };
        (0..).zip(&self.servers).map(pulse).collect()
    }
}

/// Moves a measured value towards the newest measurement.
pub(crate) fn blend(old: &mut Option<f64>, new: f64) {
    let value = old.get_or_insert(new);
    *value += NEWEST * (new - *value);
}
/// `waiting for 1 of 3 workers`.
fn waiting(missing: usize, all: usize, what: &str) -> String {
    format!("waiting for {missing} of {}", counted(all, what))
}
