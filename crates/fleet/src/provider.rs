//! Where machines come from.
//!
//! Owns the trait that every provider implements and the words for a machine. `docs/providers.md`
//! says how to write another; `planaria/tests/pools/conformance.rs` is what each must pass.

use crate::channel::Channel;
use crate::program::Program;
pub use planaria_recipe::pool::{NAME_BYTES_MAX, is_name};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// A run, as providers and machines know it: what everything of it is tagged with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tag(String);

impl Tag {
    /// A run's name, if it can be one: letters, digits, `-`, `_` and `.`, not at the beginning.
    pub fn new(run: &str) -> Option<Self> {
        is_name(run).then(|| Self(run.to_owned()))
    }

    /// The run's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A machine of a pool, as it is written down before it exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// What people call it; no other machine of the run has it.
    pub name: String,
    /// What its provider knows it by: `lab@10.0.0.2:22`, a container's name.
    pub handle: String,
    /// Groups it belongs to, besides `all`: for set-up steps, and for placing servers.
    pub groups: Vec<String>,
    /// Which of the pool's providers it comes from, where it has several.
    #[serde(default, skip_serializing_if = "is_first")]
    pub supply: usize,
}

impl Machine {
    /// Of the pool's only provider, or its first.
    pub fn new(name: impl Into<String>, handle: impl Into<String>, groups: Vec<String>) -> Self {
        Self { name: name.into(), handle: handle.into(), groups, supply: 0 }
    }
}

fn is_first(supply: &usize) -> bool {
    *supply == 0
}

/// The program, run once on a machine: `planaria ARGUMENTS…`.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub program: &'a Program,
    pub arguments: &'a [&'a str],
    /// Its standard input.
    pub input: &'a [u8],
    /// How long it may take.
    pub within: Duration,
}

impl Call<'_> {
    /// The fault of one that took too long.
    pub fn timed_out(&self, machine: &str) -> Fault {
        let (words, seconds) = (self.arguments.join(" "), self.within.as_secs());
        Fault::retry(machine, format!("`planaria {words}` took longer than {seconds} s"))
    }
}

/// What became of a command on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code; 128 and the signal where one ended it.
    pub code: i32,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
}

/// What came of asking for a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// It is there, and can be opened.
    There,
    /// It will be there later.
    Pending {
        /// What it waits for, as its provider says: `the queue is full`.
        why: String,
    },
}

/// A machine is about to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The machine's name.
    pub machine: String,
    /// How long it will still be there, about.
    pub within: Duration,
    pub why: String,
}

/// The addresses of a channel's two ends, as far as its provider tells them to a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends {
    pub controller: Option<String>,
    /// The host's own.
    pub own: Option<String>,
}

/// Something that a provider still holds for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leak {
    pub run: String,
    /// What it is: `container digits-…-m1 (running)`.
    pub what: String,
    /// The machine, to be destroyed.
    pub machine: Machine,
    /// Whether a host is at work there. One without a controller ends itself; so it has one, or had
    /// one a moment ago.
    pub busy: bool,
}

/// Where every machine reaches itself.
pub const LOOPBACK: &str = "127.0.0.1";

/// Where machines come from. Calls wait, but never for longer than they say; any may come from any
/// thread, and several at a time for different machines.
pub trait Provider: Send + Sync {
    /// As recipes write it.
    fn name(&self) -> &'static str;

    /// Whether it can provide machines at all: the program or service it needs is there. Creates
    /// nothing.
    fn check(&self) -> Result<(), Fault>;

    /// What people should know before machines are asked for, where something is not as it should be.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Machines there can be at a time; nothing where there is no end to them.
    fn capacity(&self) -> Option<usize>;

    /// What machine number `number` of a run would be. Creates nothing; numbers from 0, each is
    /// another machine. Numbers beyond the capacity are spares, where there are such; else nothing.
    fn plan(&self, run: &Tag, number: u32) -> Option<Machine>;

    /// Makes a machine, or asks for one that is queued for. Making one that exists does nothing; one
    /// that is pending is asked for again every few seconds, until it is there.
    fn create(&self, run: &Tag, machine: &Machine) -> Result<Made, Fault>;

    /// Makes several machines; `told` hears what came of each, once, as soon as it is known. For
    /// services that take one request for many: by itself each is made on a thread of its own.
    fn create_many(
        &self,
        run: &Tag,
        machines: &[Machine],
        told: &(dyn Fn(&Machine, Result<Made, Fault>) + Sync),
    ) {
        std::thread::scope(|scope| {
            for machine in machines {
                scope.spawn(move || told(machine, self.create(run, machine)));
            }
        });
    }

    /// Whether it is worth asking for notices.
    fn gives_notice(&self) -> bool {
        false
    }

    /// Machines of the run that are known to be about to go: preempted, reclaimed, shut down. Asked
    /// every second; to tell the same twice is to tell it once.
    fn notices(&self, run: &Tag) -> Result<Vec<Notice>, Fault> {
        let _ = run;
        Ok(Vec::new())
    }

    /// Starts the host on a machine, with the program delivered first where it has not got it, and
    /// gives the channel to it. The first bytes on the channel are the host's.
    fn open(&self, run: &Tag, machine: &Machine, program: &Program) -> Result<Channel, Fault>;

    /// Runs the program on a machine, and waits for its end.
    fn run(&self, run: &Tag, machine: &Machine, call: &Call<'_>) -> Result<Ran, Fault>;

    /// A machine that is being opened is not needed any more. Where it has not answered yet, the
    /// attempt ends at once, with a fault that says that nothing of it was touched.
    fn abandon(&self, machine: &Machine) {
        let _ = machine;
    }

    /// Machines of the run that exist, as the provider sees them.
    fn list(&self, run: &Tag) -> Result<Vec<Machine>, Fault>;

    /// Gives a machine back: nothing of the run is left on it, or of it. One that is gone already
    /// is no fault.
    fn destroy(&self, run: &Tag, machine: &Machine) -> Result<(), Fault>;

    /// What is held for any run.
    fn leaks(&self) -> Result<Vec<Leak>, Fault>;

    /// Makes a way for a machine to reach this one through its channel's own connection, where it
    /// cannot otherwise: connections to the Unix socket `there`, which only the user there can make,
    /// lead to the socket of the [gate](crate::gate) here. False where the provider has no such way.
    fn tunnel(
        &self,
        run: &Tag,
        machine: &Machine,
        there: &str,
        gate: &Path,
    ) -> Result<bool, Fault> {
        let _ = (run, machine, there, gate);
        Ok(false)
    }

    /// Whether a machine is this one, so that it and the controller reach each other over loopback,
    /// which stays when other addresses go.
    fn is_here(&self, machine: &Machine) -> bool {
        let _ = machine;
        false
    }

    /// Whether nothing is left of a machine whose host has said goodbye, so that it need not be
    /// destroyed.
    fn leaves_with_host(&self, machine: &Machine) -> bool {
        let _ = machine;
        false
    }

    /// The variables by which `ansible` reaches a machine, as `key=value` words of an inventory.
    fn inventory(&self, machine: &Machine) -> String;
}

/// Why a machine could not be made or used. Kinds follow the reaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{machine}: {what}")]
pub struct Fault {
    /// Which machine, or the provider's name.
    pub machine: String,
    /// What failed, in words.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
    pub remedy: Remedy,
    /// Whether it came before anything was begun on the machine, which then need not be given back.
    pub is_untouched: bool,
    /// Whether the provider's other machines are this same computer, where it would only come again.
    pub is_everywhere: bool,
}

/// What helps against a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// The user must change something: no machine of this provider will do better.
    Fix,
    /// Another machine; this one will not do.
    Replace,
    /// Trying again in a moment.
    Retry,
}

impl Fault {
    /// A fault that another attempt may get over.
    pub fn retry(machine: impl Into<String>, what: impl Into<String>) -> Self {
        let (machine, what) = (machine.into(), what.into());
        let (remedy, is_untouched, is_everywhere) = (Remedy::Retry, false, false);
        Self { machine, what, hint: None, remedy, is_untouched, is_everywhere }
    }

    /// A fault of this machine, with what to do about it.
    pub fn replace(
        machine: impl Into<String>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let hint = Some(hint.into());
        Self { hint, remedy: Remedy::Replace, ..Self::retry(machine, what) }
    }

    /// A fault of the recipe or of the provider's settings.
    pub fn fix(
        machine: impl Into<String>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { remedy: Remedy::Fix, ..Self::replace(machine, what, hint) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere() {
        for good in ["digits-20250131-120000", "node1", "10.0.0.2", "a_b"] {
            assert!(is_name(good), "{good}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for bad in ["", ".", "..", "../x", "a/b", "-rf", "a b", "a\nb", "ä", "a;b", &long] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
