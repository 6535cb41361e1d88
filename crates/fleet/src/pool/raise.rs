//! From a name to a machine that is ready: written down, created, opened, looked at, reached, set up.
//!
//! Owns one attempt at a machine, and gives it back where it does not become ready: the one way to
//! raise a machine, for runs, scripts, detached runs and `doctor` alike. Never decides whether it is
//! tried again.

use crate::gate::Gate;
use crate::pool::resources::Resources;
use crate::program::Program;
use crate::provider::{Fault, LOOPBACK, Machine, Made, Provider, Tag};
use crate::remote::{Remote, Told};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A clock that is off by more seconds gets a warning.
const SKEW_SECONDS_MAX: f64 = 60.0;
/// Free space below which a machine will not do: the program, logs and what servers keep.
pub const DISK_BYTES_MIN: u64 = 64 << 20;
/// Time between two looks at a machine that is pending.
const PENDING_EVERY: Duration = Duration::from_secs(2);
/// Poll interval for whether the machine is still needed.
const OVER_EVERY: Duration = Duration::from_millis(50);

/// What every machine of a pool is raised with.
pub struct Means {
    /// Where machines come from.
    pub provider: Arc<dyn Provider>,
    pub run: Tag,
    /// What goes to machines.
    pub program: Program,
    /// Addresses of the controller's machine, without port, the preferred first.
    pub addresses: Vec<String>,
    /// Whom a machine must reach.
    pub reach: Reach,
    /// The way for machines that cannot reach anything by themselves.
    pub gate: Gate,
    /// Where the first machine that was opened can be tried by the others.
    pub first: Mutex<Option<String>>,
    /// Does the set-up.
    pub prepare: Prepare,
    /// Seconds since 1970, by the controller's clock.
    pub unix_seconds: fn() -> f64,
}

/// Whom a machine must reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The coordinator beside the controller, at this port; other machines where it can.
    Coordinator(u16),
    /// The other machines: processes of a script connect to each other.
    EachOther,
    NotNeeded,
}

/// Does the set-up of a machine; what takes long is told.
pub type Prepare =
    Box<dyn Fn(&Machine, &Remote, &(dyn Fn(String) + Sync)) -> Result<(), Fault> + Send + Sync>;

/// A set-up with nothing to do.
pub fn no_setup() -> Prepare {
    Box::new(|_, _, _| Ok(()))
}

/// How processes on a machine meet the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The machine's name.
    pub machine: String,
    /// The controller's address as the machine reaches it, without port.
    pub controller: String,
    /// The [gate](crate::gate) on it through which it reaches the others, where it cannot by
    /// itself.
    pub via: Option<String>,
    /// The machine's address, for the processes that reach it.
    pub advertise: String,
    /// Folder of the run on that machine.
    pub folder: String,
    pub cores: u32,
    pub what: String,
}

/// A machine that is ready.
pub struct Raised {
    pub machine: Machine,
    pub remote: Arc<Remote>,
    /// How processes on it meet the others.
    pub route: Route,
}

/// News of an attempt while it goes on.
pub enum Progress {
    /// To be shown.
    Note(String),
    /// The machine is asked for, and not there yet.
    Pending(String),
    /// The host answers, and is set up next.
    Opened {
        /// Whether it reaches the others by itself.
        is_direct: bool,
        remote: Arc<Remote>,
    },
    /// A message of the host.
    Told(Told),
}

/// An attempt at a machine.
pub struct Attempt {
    /// What it is to be.
    pub machine: Machine,
    pub means: Arc<Means>,
    /// Where it is written down; nothing for a trial, which is over before a command could ask.
    pub resources: Option<Arc<Mutex<Resources>>>,
    pub tell: Arc<dyn Fn(Progress) + Send + Sync>,
    /// Whether it is not needed any more.
    pub over: Arc<AtomicBool>,
    /// Whether something of before may be left on it that could not be given back.
    pub was_left: bool,
}

impl Attempt {
    /// To the end. A machine that does not become ready is given back.
    pub fn run(mut self) -> Result<Raised, Fault> {
        let begun = self.begin();
        let created =
            begun.and_then(|()| self.means.provider.create(&self.means.run, &self.machine));
        self.finish(created)
    }

    /// Writes the machine down, once nothing of before is left on it.
    pub fn begin(&mut self) -> Result<(), Fault> {
        let Means { provider, run, .. } = &*self.means;
        let is_held = self.resources.as_ref().is_some_and(|resources| {
            resources.lock().expect("no thread panics with them").holds(&self.machine.name)
        });
        if is_held {
            // What is left of an attempt or a session before must not meet this one. A machine that
            // cannot be reached says so below.
            self.was_left = provider.destroy(run, &self.machine).is_err();
        }
        let Some(resources) = &self.resources else { return Ok(()) };
        let mut resources = resources.lock().expect("no thread panics with them");
        resources.will(&self.machine).map_err(|e| {
            let what = format!("cannot write `{}`: {e}", super::resources::FILE);
            let hint = "nothing is created that is not written down; is the disk full?";
            Fault::fix(&self.machine.name, what, hint)
        })?;
        drop(resources);
        self.unless_over()
    }

    /// From what came of creating it to a machine that is ready.
    pub fn finish(self, created: Result<Made, Fault>) -> Result<Raised, Fault> {
        let mut probe = None;
        let raised = created.and_then(|made| self.wait(made)).and_then(|()| self.open(&mut probe));
        let raised = raised.and_then(|raised| match self.unless_over() {
            Ok(()) => Ok(raised),
            Err(fault) => {
                raised.remote.close();
                Err(fault)
            }
        });
        raised.inspect_err(|fault| {
            // Later machines must not try to reach one that is given up.
            let mut first = self.means.first.lock().expect("no thread panics with it");
            first.take_if(|first| probe.as_deref() == Some(first.as_str()));
            drop(first);
            match fault.is_untouched && !self.was_left {
                true => self.cross_out(),
                false => self.give_back(),
            }
        })
    }

    /// Asks for the machine again until it is there.
    fn wait(&self, mut made: Made) -> Result<(), Fault> {
        let Means { provider, run, .. } = &*self.means;
        while let Made::Pending { why } = made {
            (self.tell)(Progress::Pending(why));
            for _ in 0..PENDING_EVERY.as_millis() / OVER_EVERY.as_millis() {
                self.unless_over()?;
                std::thread::park_timeout(OVER_EVERY);
            }
            made = provider.create(run, &self.machine)?;
        }
        self.unless_over()
    }

    fn open(&self, probe: &mut Option<String>) -> Result<Raised, Fault> {
        let Means { provider, run, program, .. } = &*self.means;
        let machine = &self.machine;
        let channel = provider.open(run, machine, program)?;
        let tell = self.tell.clone();
        let told = move |told| tell(Progress::Told(told));
        let remote = Arc::new(Remote::meet(&machine.name, channel, &program.build, told)?);
        self.inspect(&remote)?;
        let route = self.route(&remote)?;
        *probe = remote.hello.probe.map(|port| format!("{}:{port}", route.advertise));
        let is_direct = route.via.is_none() && self.reaches_first(&remote, probe)?;
        (self.tell)(Progress::Opened { is_direct, remote: remote.clone() });
        self.unless_over()?;
        let note = |note: String| (self.tell)(Progress::Note(note));
        (self.means.prepare)(machine, &remote, &note)?;
        Ok(Raised { machine: machine.clone(), remote, route })
    }

    fn unless_over(&self) -> Result<(), Fault> {
        match self.over.load(Ordering::SeqCst) {
            true => Err(Fault::retry(&self.machine.name, "it is not needed any more")),
            false => Ok(()),
        }
    }

    /// What is known of the machine before anything is done there.
    fn inspect(&self, remote: &Remote) -> Result<(), Fault> {
        let (name, hello) = (&self.machine.name, &remote.hello);
        if hello.disk_free_bytes < DISK_BYTES_MIN {
            let what = format!("its disk is full: {} MiB are free", hello.disk_free_bytes >> 20);
            let hint = format!("make room on it: at least {} MiB", DISK_BYTES_MIN >> 20);
            return Err(Fault::replace(name, what, hint));
        }
        if let Some(note) = skewed(name, hello.unix_seconds - (self.means.unix_seconds)()) {
            (self.tell)(Progress::Note(note));
        }
        Ok(())
    }

    fn route(&self, remote: &Remote) -> Result<Route, Fault> {
        let Means { provider, addresses, reach, .. } = &*self.means;
        let (name, hello) = (&self.machine.name, &remote.hello);
        let is_here = provider.is_here(&self.machine);
        let is_near = is_here || hello.controller.as_deref() == Some(LOOPBACK);
        let near = is_near.then(|| LOOPBACK.to_owned());
        let mut candidates: Vec<String> = near.into_iter().chain(addresses.clone()).collect();
        candidates.extend(hello.controller.clone().filter(|address| !candidates.contains(address)));
        let (controller, via) = match reach {
            Reach::EachOther | Reach::NotNeeded => (LOOPBACK.to_owned(), None),
            Reach::Coordinator(port) => {
                let target = |address: &String| format!("{}:{port}", bracketed(address));
                let found = remote.reach(candidates.iter().map(target).collect())?;
                match found
                    .and_then(|found| found.rsplit_once(':').map(|(host, _)| host.to_owned()))
                {
                    Some(controller) => (controller, None),
                    None => match self.tunnel(remote, *port)? {
                        Some(via) => (LOOPBACK.to_owned(), Some(via)),
                        None => return Err(unreachable(name, &candidates, *port)),
                    },
                }
            }
        };
        let way = if via.is_some() { ", through a tunnel" } else { "" };
        let what =
            format!("{} cores, {}{way}", hello.cores, crate::files::size(hello.memory_bytes));
        let own = hello.addresses.first().filter(|_| !is_here);
        let own = own.map_or(LOOPBACK, String::as_str);
        let (machine, folder, cores) = (name.clone(), hello.folder.clone(), hello.cores);
        Ok(Route { machine, controller, via, advertise: bracketed(own), folder, cores, what })
    }

    /// The gate's socket on the machine, where its provider can lead from there to here.
    fn tunnel(&self, remote: &Remote, coordinator: u16) -> Result<Option<String>, Fault> {
        let Means { provider, run, gate, .. } = &*self.means;
        let gate = gate.open(coordinator).map_err(|e| {
            let what = format!("no tunnel: cannot make a socket here: {e}");
            Fault::fix(
                &self.machine.name,
                what,
                "check that the temporary folder can be written to",
            )
        })?;
        let there = format!("{}/gate", remote.hello.folder);
        let is_led = provider.tunnel(run, &self.machine, &there, &gate)?;
        Ok(is_led.then_some(there))
    }

    /// Whether machines reach each other, and not only the controller: the first is tried by all
    /// others.
    fn reaches_first(&self, remote: &Remote, own: &Option<String>) -> Result<bool, Fault> {
        if self.means.reach == Reach::NotNeeded {
            return Ok(true);
        }
        let mut first = self.means.first.lock().expect("no thread panics with it");
        let Some(target) = first.clone() else {
            first.clone_from(own);
            return Ok(true);
        };
        drop(first);
        let reached = remote.reach(vec![target.clone()])?.is_some();
        if !reached && self.means.reach == Reach::EachOther {
            let what = format!("it cannot reach another machine of the pool ({target})");
            let hint = "processes of a script connect to each other: open the way between them";
            return Err(Fault::fix(&self.machine.name, what, hint));
        }
        if !reached {
            let name = &self.machine.name;
            let note = format!("{name}: it cannot reach the others, so servers stay here");
            (self.tell)(Progress::Note(note));
        }
        Ok(reached)
    }

    fn give_back(&self) {
        let Means { provider, run, .. } = &*self.means;
        if provider.destroy(run, &self.machine).is_ok() {
            self.cross_out();
        }
    }

    fn cross_out(&self) {
        if let Some(resources) = &self.resources {
            let mut resources = resources.lock().expect("no thread panics with them");
            // Where it cannot be crossed out it is destroyed once more, which is no error.
            let _ = resources.gone(&self.machine.name);
        }
    }
}

/// The fault of a machine that cannot reach the controller.
fn unreachable(machine: &str, tried: &[String], port: u16) -> Fault {
    let tried = tried.join(", ");
    let what = format!("it cannot reach this machine (tried {tried}, port {port})");
    let hint = "set `pool.address` to an address of this machine that it reaches";
    Fault::fix(machine, what, hint)
}

/// What is said of a machine whose clock is so many seconds ahead.
pub fn skewed(machine: &str, seconds: f64) -> Option<String> {
    let way = if seconds > 0.0 { "ahead" } else { "behind" };
    (seconds.abs() > SKEW_SECONDS_MAX).then(|| {
        format!(
            "{machine}: its clock is {:.0} s {way}; the training does not depend on it, but the \
             times in its logs do (set it, with NTP or `date`)",
            seconds.abs()
        )
    })
}

/// An IPv6 address as it is written before a port.
fn bracketed(address: &str) -> String {
    match address.contains(':') && !address.starts_with('[') {
        true => format!("[{address}]"),
        false => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_told_of() {
        assert_eq!(skewed("node1", 1.5), None);
        assert_eq!(skewed("node1", -59.0), None);
        let note = skewed("node1", 3700.0).expect("an hour is much");
        assert!(note.starts_with("node1: its clock is 3700 s ahead;"), "{note}");
        let note = skewed("node1", -61.0).expect("a minute is much");
        assert!(note.contains("61 s behind") && note.contains("NTP"), "{note}");
    }

    #[test]
    fn addresses_are_written_before_ports() {
        for (address, expect) in [("10.0.0.1", "10.0.0.1"), ("fe80::1", "[fe80::1]")] {
            assert_eq!(bracketed(address), expect);
        }
    }
}
