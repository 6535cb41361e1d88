//! Machines that call by themselves: those of a detached run, whose controller is on one of them.
//!
//! Owns the place where their hosts call, and those that wait to be opened. Makes and ends no
//! machine, delivers nothing, and cannot run a command: the command that raised the machines has
//! done all that before, and gives them back.

use crate::channel::Channel;
use crate::host::calling::GENERATION;
use crate::host::carried;
use crate::messages::{ToHost, write_message};
use crate::program::Program;
use crate::provider::{Call, Fault, Leak, Machine, Made, Provider, Ran, Tag};
use planaria_protocol::listen::{self, Listening};
use planaria_protocol::message::{Agent, Join};
use planaria_protocol::{Credentials, Error, Receiver, Sender};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How long a machine may take to call; then it is tried again.
const CALL_WITHIN: Duration = Duration::from_secs(10);
/// How long telling a host that it is not needed may take.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Machines that call.
pub struct Dialled {
    machines: Vec<Machine>,
    callers: Arc<Callers>,
    /// Ends with this.
    _listening: Listening,
}

#[derive(Default)]
struct Callers {
    waiting: Mutex<BTreeMap<String, (Sender, Receiver)>>,
    came: Condvar,
}

impl Dialled {
    /// Takes calls from the hosts of these machines from now on. What is refused is told.
    pub fn new(
        machines: Vec<Machine>,
        listener: TcpListener,
        credentials: Credentials,
        on_refused: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let callers = Arc::new(Callers::default());
        let (taking, names) = (callers.clone(), names(&machines));
        let on_link = move |join: Join, sender, receiver| {
            let machine = join.machine.unwrap_or_default();
            if join.agent == Agent::Host && names.contains(&machine) {
                let mut waiting = taking.waiting.lock().expect("no thread panics with the callers");
                // A host calls again only when the link before is over.
                waiting.insert(machine, (sender, receiver));
                taking.came.notify_all();
            }
        };
        let generation = Arc::new(AtomicU64::new(GENERATION));
        let listening = listen::serve(listener, credentials, generation, on_link, on_refused)?;
        Ok(Self { machines, callers, _listening: listening })
    }
}

fn names(machines: &[Machine]) -> Vec<String> {
    machines.iter().map(|machine| machine.name.clone()).collect()
}

impl Provider for Dialled {
    fn name(&self) -> &'static str {
        "dialled"
    }

    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn capacity(&self) -> Option<usize> {
        Some(self.machines.len())
    }

    fn plan(&self, _run: &Tag, number: u32) -> Option<Machine> {
        self.machines.get(number as usize).cloned()
    }

    fn create(&self, _run: &Tag, _machine: &Machine) -> Result<Made, Fault> {
        Ok(Made::There)
    }

    fn open(&self, _run: &Tag, machine: &Machine, _program: &Program) -> Result<Channel, Fault> {
        let waiting = self.callers.waiting.lock().expect("no thread panics with the callers");
        let absent = |waiting: &mut BTreeMap<_, _>| !waiting.contains_key(&machine.name);
        let came = self.callers.came.wait_timeout_while(waiting, CALL_WITHIN, absent);
        let (mut waiting, _) = came.expect("no thread panics with the callers");
        match waiting.remove(&machine.name) {
            Some((sender, receiver)) => Ok(carried::channel(sender, receiver)),
            None => {
                let what = format!("its host has not called for {} s", CALL_WITHIN.as_secs());
                Err(Fault::retry(&machine.name, what))
            }
        }
    }

    fn run(&self, _run: &Tag, machine: &Machine, call: &Call<'_>) -> Result<Ran, Fault> {
        let what = format!("`planaria {}` cannot be run on it from here", call.arguments.join(" "));
        Err(Fault::fix(&machine.name, what, "give the command where the run was started"))
    }

    fn list(&self, _run: &Tag) -> Result<Vec<Machine>, Fault> {
        Ok(self.machines.clone())
    }

    fn destroy(&self, _run: &Tag, machine: &Machine) -> Result<(), Fault> {
        // A link that was not opened is of a host that is not wanted as it is; it calls again.
        let mut waiting = self.callers.waiting.lock().expect("no thread panics with the callers");
        if let Some((sender, _)) = waiting.remove(&machine.name) {
            sender.close();
        }
        Ok(())
    }

    fn leaks(&self) -> Result<Vec<Leak>, Fault> {
        Ok(Vec::new())
    }

    fn leaves_with_host(&self, _machine: &Machine) -> bool {
        true
    }

    fn inventory(&self, _machine: &Machine) -> String {
        String::new()
    }
}

impl Drop for Dialled {
    fn drop(&mut self) {
        // Those that called and were not wanted need not call again.
        let mut waiting = self.callers.waiting.lock().expect("no thread panics with the callers");
        for (sender, receiver) in std::mem::take(&mut *waiting).into_values() {
            let (_, mut writing) = carried::halves(sender.clone(), receiver);
            if write_message(&mut writing, &ToHost::End).is_ok() {
                let _ = sender.flush_and_close(FLUSH_WITHIN);
            }
        }
    }
}

#[cfg(test)]
mod tests;
