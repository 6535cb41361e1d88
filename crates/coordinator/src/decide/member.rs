//! Who takes part, how far each has come, and how fast each is.

use planaria_protocol::event::{ServerPulse, WorkerPulse};
use planaria_protocol::message::{Agent, Share};

/// Weight of the newest measurement of a speed.
const NEWEST: f64 = 0.3;

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Not heard of.
    Awaited,
    /// Connected.
    Joined,
    /// Has all it needs.
    Ready,
}

#[derive(Debug, Clone)]
struct Member {
    standing: Standing,
    pid: u32,
    address: Option<String>,
    /// Shards per second of computing; of a server, share of a core.
    speed: Option<f64>,
    /// Examples per second of computing; of a server, bytes per second.
    rate: Option<f64>,
    /// Share of the time that it computes.
    busy: Option<f64>,
}

/// The processes of a run.
#[derive(Debug)]
pub struct Members {
    workers: Vec<Member>,
    servers: Vec<Member>,
}

impl Members {
    /// Nobody has joined yet.
    pub fn new(workers: u32, servers: u32) -> Self {
        let member = Member {
            standing: Standing::Awaited,
            pid: 0,
            address: None,
            speed: None,
            rate: None,
            busy: None,
        };
        let list = |n: u32| vec![member.clone(); n as usize];
        Self { workers: list(workers), servers: list(servers) }
    }

    /// A process has joined; an error if there is no such place, or it is taken.
    pub fn join(&mut self, agent: Agent, pid: u32, address: Option<String>) -> Result<(), String> {
        let member = self.member(agent).ok_or_else(|| format!("{agent} is not part of the run"))?;
        if member.standing != Standing::Awaited {
            return Err(format!("{agent} has joined twice (process {pid} and {})", member.pid));
        }
        (member.standing, member.pid, member.address) = (Standing::Joined, pid, address);
        Ok(())
    }

    /// A process has all it needs.
    pub fn ready(&mut self, agent: Agent) -> Result<(), String> {
        let member = self.member(agent).ok_or_else(|| format!("{agent} is not part of the run"))?;
        member.standing = Standing::Ready;
        Ok(())
    }

    /// Whether every server has come so far.
    pub fn servers_are(&self, standing: Standing) -> bool {
        self.servers.iter().all(|s| s.standing >= standing)
    }

    /// Whether nobody is waited for.
    pub fn everyone_is_ready(&self) -> bool {
        let mut all = self.workers.iter().chain(&self.servers);
        all.all(|m| m.standing == Standing::Ready)
    }

    /// Workers that are connected.
    pub fn joined_workers(&self) -> Vec<u32> {
        let joined = |m: &Member| m.standing >= Standing::Joined;
        (0..).zip(&self.workers).filter(|(_, m)| joined(m)).map(|(w, _)| w).collect()
    }

    /// What is waited for, in words.
    pub fn waiting_for(&self) -> String {
        let missing = |list: &[Member]| {
            (list.iter().filter(|m| m.standing != Standing::Ready).count(), list.len())
        };
        match (missing(&self.servers), missing(&self.workers)) {
            ((0, _), (missing, all)) => format!("waiting for {missing} of {all} workers"),
            ((missing, all), _) => format!("waiting for {missing} of {all} servers"),
        }
    }

    /// Where a server listens.
    pub fn address(&self, server: u32) -> String {
        self.servers[server as usize].address.clone().unwrap_or_default()
    }

    /// A process' number in the system.
    pub fn pid(&mut self, agent: Agent) -> u32 {
        self.member(agent).map_or(0, |m| m.pid)
    }

    /// A worker told its pace: examples and shards computed, and seconds of computing and waiting.
    pub fn pace(&mut self, worker: u32, (examples, shards): (u64, f64), busy: f64, waiting: f64) {
        let Some(member) = self.workers.get_mut(worker as usize) else { return };
        if busy <= 0.0 {
            return;
        }
        blend(&mut member.speed, shards / busy);
        blend(&mut member.rate, examples as f64 / busy);
        blend(&mut member.busy, busy / (busy + waiting));
    }

    /// A server told its load.
    pub fn load(&mut self, server: u32, seconds: f64, busy: f64, bytes: u64) {
        let Some(member) = self.servers.get_mut(server as usize) else { return };
        if seconds > 0.0 {
            blend(&mut member.busy, busy / seconds);
            blend(&mut member.rate, bytes as f64 / seconds);
        }
    }

    /// Shards per second of each worker, if all are known.
    pub fn speeds(&self) -> Option<Vec<(u32, f64)>> {
        (0..).zip(&self.workers).map(|(w, m)| m.speed.map(|speed| (w, speed))).collect()
    }

    /// Every process for display.
    pub fn pulses(&self, phase: &str, shares: &[Share]) -> (Vec<WorkerPulse>, Vec<ServerPulse>) {
        let worker = |(worker, m): (u32, &Member)| {
            let own = shares.iter().find(|s| s.worker == worker);
            let shards = own.map_or(0, |s| s.shards.end - s.shards.start);
            let state = match (m.standing, phase) {
                (Standing::Awaited, _) => "starting",
                (Standing::Joined, _) => "getting ready",
                (Standing::Ready, "training") if shards == 0 => "standby",
                (Standing::Ready, "training") => "computing",
                (Standing::Ready, "validating" | "testing") => "evaluating",
                (Standing::Ready, _) => "ready",
            };
            let (state, examples_per_second, busy) = (state.into(), m.rate, m.busy);
            WorkerPulse { worker, state, shards, examples_per_second, busy }
        };
        let server = |(server, m): (u32, &Member)| {
            let state = if m.standing == Standing::Ready { "serving" } else { "starting" };
            let (state, busy, bytes_per_second) = (state.into(), m.busy, m.rate);
            ServerPulse { server, state, busy, bytes_per_second }
        };
        let workers = (0..).zip(&self.workers).map(worker).collect();
        (workers, (0..).zip(&self.servers).map(server).collect())
    }

    fn member(&mut self, agent: Agent) -> Option<&mut Member> {
        match agent {
            Agent::Worker(n) => self.workers.get_mut(n as usize),
            Agent::Server(n) => self.servers.get_mut(n as usize),
            Agent::Coordinator | Agent::Console => None,
        }
    }
}

fn blend(old: &mut Option<f64>, new: f64) {
    let value = old.get_or_insert(new);
    *value += NEWEST * (new - *value);
}
