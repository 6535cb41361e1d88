//! One worker of a coded run: how far it has come, and where it sits.

use planaria_numerics::coding::Slot;
use planaria_protocol::event::WorkerPulse;
use std::time::Duration;

/// Seconds of computing that a measurement is made of, at least.
const MEASURED_SECONDS: f64 = 0.02;

/// Weight of the newest measurement.
const NEWEST: f64 = 0.3;

/// How far a worker has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Standing {
    /// Not heard of.
    #[default]
    Awaited,
    Joined,
    /// Has opened its data.
    Offered,
    /// Has a slot, and reads or encodes its rows.
    Seated,
    Ready,
}

/// How a worker got the rows of its slot.
#[derive(Debug, Clone, Copy)]
pub struct Fetched {
    /// Its machine had them.
    pub cached: bool,
    /// Bytes that came from the source for them.
    pub downloaded: u64,
}

/// A worker.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// How far it has come.
    pub standing: Standing,
    pub pid: u32,
    /// Its machine; nothing for the controller's own.
    pub machine: Option<String>,
    /// When it was last heard.
    pub heard: Duration,
    /// Where other workers reach it.
    pub address: String,
    /// Slots whose rows its machine has.
    pub kept: Vec<Slot>,
    /// Where it sits.
    pub slot: Option<Slot>,
    /// Where the rows of its slot came from, once they are there.
    pub fetched: Option<Fetched>,
    /// The round whose weights it was sent last.
    pub knows: Option<u64>,
    /// The step whose weights it was sent last to score with.
    pub scores_with: Option<u64>,
    /// The revocation that it has not answered: it was late.
    pub revoking: Option<u64>,
    rows: u64,
    /// Rows, and seconds of computing and waiting, that are not in a measurement yet.
    lately: (u64, f64, f64),
    rate: Option<f64>,
    busy: Option<f64>,
}

impl Member {
    /// One that has just connected.
    pub fn joined(pid: u32, machine: Option<String>, now: Duration) -> Self {
        Self { standing: Standing::Joined, pid, machine, heard: now, ..Self::default() }
    }

    /// Whether it is connected.
    pub fn has_joined(&self) -> bool {
        self.standing != Standing::Awaited
    }

    /// Whether it has its rows.
    pub fn is_ready(&self) -> bool {
        self.standing == Standing::Ready
    }

    /// Whether it can be given work.
    pub fn is_active(&self) -> bool {
        self.is_ready() && self.revoking.is_none()
    }

    /// It told its pace.
    pub fn pace(&mut self, rows: u64, busy_seconds: f64, waiting_seconds: f64) {
        self.rows += rows;
        let (all, busy, waiting) = &mut self.lately;
        (*all, *busy, *waiting) = (*all + rows, *busy + busy_seconds, *waiting + waiting_seconds);
        // A moment says nothing: what is done in it may be none of the rows, or all.
        if *busy >= MEASURED_SECONDS {
            let (rows, busy, waiting) = std::mem::take(&mut self.lately);
            blend(&mut self.rate, rows as f64 / busy);
            blend(&mut self.busy, busy / (busy + waiting));
        }
    }

    /// Rows per second of computing, lately.
    pub fn speed(&self) -> Option<f64> {
        self.rate
    }

    /// It has nothing to do, and will tell no pace: nobody knows how fast it is.
    pub fn forget_speed(&mut self) {
        self.rate = None;
    }

    /// For display.
    pub fn pulse(&self, worker: u32, leaves: bool, phase: &str) -> WorkerPulse {
        let state = match self.standing {
            _ if leaves => "leaving",
            Standing::Awaited => "starting",
            Standing::Joined | Standing::Offered if self.slot.is_none() => "getting ready",
            Standing::Joined | Standing::Offered | Standing::Seated => "fetching rows",
            Standing::Ready if self.revoking.is_some() => "late",
            Standing::Ready if phase == "training" => "computing",
            Standing::Ready if matches!(phase, "validating" | "testing") => "evaluating",
            Standing::Ready => "standby",
        };
        WorkerPulse {
            worker,
            state: state.into(),
            shards: u32::from(self.is_active()),
            examples_per_second: self.rate,
            busy: self.busy,
            machine: self.machine.clone(),
            slot: self.slot.map(|slot| slot.0),
            rows: self.has_joined().then_some(self.rows),
        }
    }
}

fn blend(old: &mut Option<f64>, new: f64) {
    let value = old.get_or_insert(new);
    *value += NEWEST * (new - *value);
}
