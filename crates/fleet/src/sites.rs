//! Where the processes of a run live: the controller's machine, and those of a pool.
//!
//! Owns that both are used alike: started, ended and seen to end. Never decides what to start.

use crate::Error;
use crate::local::{Exit, Local, Started};
use crate::pool::{Change, Pool, Spot};
use crate::provider::Fault;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Agent;
use std::time::Duration;

/// Poll interval for exits on machines.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The controller's machine, and those of a pool.
pub struct Sites {
    here: Local,
    pool: Option<Pool>,
}

impl Sites {
    /// Nothing is started yet.
    pub fn new(here: Local, pool: Option<Pool>) -> Self {
        Self { here, pool }
    }

    /// The machines of the pool, where there is one.
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    pub fn pool_mut(&mut self) -> Option<&mut Pool> {
        self.pool.as_mut()
    }

    /// Takes the pool out: nothing of it is given back here.
    pub fn take_pool(&mut self) -> Option<Pool> {
        self.pool.take()
    }

    /// What the processes of scripts have written since the last time.
    pub fn take_said(&mut self) -> Vec<(Agent, Vec<u8>)> {
        self.pool.as_mut().map_or_else(Vec::new, Pool::take_said)
    }

    /// Takes in what has happened on other machines. Says what people are to be told.
    pub fn look(&mut self, now: Duration) -> Vec<String> {
        let Some(pool) = &mut self.pool else { return Vec::new() };
        pool.look(now);
        pool.take_notes()
    }

    /// Why no machine is available.
    pub fn take_failure(&mut self) -> Option<Fault> {
        self.pool.as_mut()?.take_failure()
    }

    /// So many workers are wanted from now on.
    pub fn set_workers(&mut self, workers: u32) {
        if let Some(pool) = &mut self.pool {
            pool.set_workers(workers);
        }
    }

    /// So many machines are wanted from now on.
    pub fn resize(&mut self, now: Duration, machines: usize) {
        if let Some(pool) = &mut self.pool {
            pool.resize(now, machines);
        }
    }

    /// What became of machines since the last time.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.pool.as_mut().map_or_else(Vec::new, Pool::take_changes)
    }

    /// Where a process goes; it takes the place.
    pub fn place(&mut self, now: Duration, agent: Agent) -> Spot {
        self.pool.as_mut().map_or(Spot::Here, |pool| pool.place(now, agent))
    }

    /// An address of the controller's machine that others reach; nothing where there are no others.
    pub fn controller(&self) -> Option<String> {
        self.pool.as_ref().map(Pool::controller)
    }

    /// The number that a process at this spot will be known by, where its machine does not say.
    pub fn next_process(&self, spot: &Spot) -> Option<u32> {
        match (spot, &self.pool) {
            (Spot::There(..), Some(pool)) => Some(pool.next_process()),
            _ => None,
        }
    }

    /// Starts a process and tells it what to do.
    pub fn start(
        &mut self,
        spot: &Spot,
        agent: Agent,
        run: &str,
        launch: &Launch,
    ) -> Result<Started, Error> {
        let (Spot::There(number, _), Some(pool)) = (spot, &mut self.pool) else {
            return self.here.start(agent, run, launch);
        };
        let failed = |why: std::io::Error| Error::Start { agent, why };
        let orders = serde_json::to_vec(launch).map_err(|e| failed(e.into()))?;
        let pid =
            pool.start(*number, agent, orders).map_err(|e| failed(std::io::Error::other(e)))?;
        Ok(Started { pid, stdout: None })
    }

    /// Processes that have ended since the last time.
    pub fn exits(&mut self) -> Vec<Exit> {
        let mut exits = self.here.exits(Duration::ZERO);
        exits.extend(self.pool.as_mut().map_or_else(Vec::new, Pool::take_exits));
        exits
    }

    /// Processes that run, and the names of their machines; nothing for the controller's own.
    pub fn processes(&self) -> Vec<(Agent, u32, Option<String>)> {
        let here = self.here.processes().into_iter().map(|(agent, pid)| (agent, pid, None));
        let there = self.pool.as_ref().map_or_else(Vec::new, Pool::processes);
        let there = there.into_iter().map(|(agent, pid, machine)| (agent, pid, Some(machine)));
        here.chain(there).collect()
    }

    /// Writes a line to a process' standard input, after its orders.
    pub fn say(&mut self, pid: u32, line: &[u8]) {
        self.here.say(pid, line);
        if let Some(pool) = &self.pool {
            pool.say(pid, line);
        }
    }

    /// Ends one process at once.
    pub fn kill(&self, agent: Agent, pid: u32) {
        self.here.kill(agent, pid);
        if let Some(pool) = &self.pool {
            pool.kill(pid);
        }
    }

    /// Waits for all processes to end by themselves, ends those that do not in time, and says how
    /// those ended that did.
    pub fn end(&mut self, patience: Duration, now: &dyn Fn() -> Duration) -> Vec<Exit> {
        let until = now() + patience;
        let mut exits = Vec::new();
        while let Some(pool) = &mut self.pool
            && pool.running() > 0
            && now() < until
        {
            pool.look(now());
            exits.extend(pool.take_exits());
            std::thread::park_timeout(LOOK_EVERY);
        }
        exits.extend(self.here.end(patience));
        exits
    }

    /// Ends all processes here, at once.
    pub fn kill_all(&mut self) {
        self.here.kill_all();
    }

    /// Gives the machines back, with all that still runs on them; says what could not be.
    pub fn give_back(&mut self) -> Vec<Fault> {
        self.pool.as_mut().map_or_else(Vec::new, Pool::end)
    }
}
