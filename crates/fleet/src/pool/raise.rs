//! From a name to a machine that is ready: written down, created, opened, reached, set up.
//!
//! Owns one machine on a thread of its own, and gives it back where it does not become ready. Never
//! decides whether it is tried again.

use crate::host::remote::{Remote, Told};
use crate::pool::resources::Resources;
use crate::program::Program;
use crate::provider::{Fault, LOOPBACK, Machine, Provider, Tag};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

/// A clock that is off by more than so many seconds is told of.
const SKEW_SECONDS_MAX: f64 = 60.0;
/// Free space below which a machine will not do: the program, logs and what servers keep.
pub const DISK_BYTES_MIN: u64 = 64 << 20;

/// What every machine of a pool is raised with.
pub struct Means {
    /// Where machines come from.
    pub provider: Arc<dyn Provider>,
    pub run: Tag,
    /// What goes to machines.
    pub program: Program,
    /// Addresses of the controller's machine, without port, the preferred first.
    pub addresses: Vec<String>,
    /// The coordinator's port; nothing where there is none, and nobody needs to reach it.
    pub port: Option<u16>,
    /// Where the first machine that was opened can be tried by the others.
    pub first: Mutex<Option<String>>,
    /// Does the set-up.
    pub prepare: Prepare,
    /// Seconds since 1970, by the controller's clock.
    pub unix_seconds: fn() -> f64,
}

/// Does the set-up of a machine; what takes long is told.
pub type Prepare =
    Box<dyn Fn(&Machine, &Remote, &(dyn Fn(String) + Sync)) -> Result<(), Fault> + Send + Sync>;

/// How processes on a machine meet the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The machine's name.
    pub machine: String,
    /// The controller's address as the machine reaches it, without port.
    pub controller: String,
    /// The proxy through which it reaches everybody, where it cannot by itself.
    pub via: Option<String>,
    /// The machine's address, for those who reach it.
    pub advertise: String,
    /// Folder of the run on that machine.
    pub folder: String,
    pub cores: u32,
    pub what: String,
}

/// A machine that is ready.
pub struct Raised {
    pub machine: Machine,
    /// Which attempt at it this was.
    pub attempt: u64,
    pub remote: Arc<Remote>,
    /// How processes on it meet the others.
    pub route: Route,
}

/// What came of an attempt.
pub enum News {
    /// To be told to people.
    Note(String),
    /// The host answers.
    Opened {
        number: u32,
        /// Whether it reaches the controller by itself.
        is_direct: bool,
        /// The host, which is set up next.
        remote: Arc<Remote>,
    },
    /// The machine is ready.
    Ready {
        number: u32,
        /// What there is.
        raised: Box<Raised>,
    },
    /// The machine did not become ready, and was given back as far as possible.
    Failed { number: u32, fault: Fault },
    /// A host told something.
    Told {
        number: u32,
        /// Of which attempt.
        attempt: u64,
        told: Told,
    },
}

/// An attempt at a machine.
pub struct Raising {
    pub number: u32,
    pub attempt: u64,
    /// What it is to be.
    pub machine: Machine,
    pub means: Arc<Means>,
    /// Where it is written down.
    pub resources: Arc<Mutex<Resources>>,
    /// Who is told.
    pub announce: Sender<News>,
    /// Whether nobody needs it any more.
    pub over: Arc<AtomicBool>,
    /// Whether something of before may be left on it that could not be given back.
    pub was_left: bool,
    /// Where others may try whether they reach it, once that is known.
    pub probe: Option<String>,
}

impl Raising {
    /// To the end.
    pub fn run(mut self) {
        let number = self.number;
        let news = match self.raise() {
            Ok(raised) if !self.is_over() => News::Ready { number, raised: Box::new(raised) },
            Ok(raised) => {
                raised.remote.close();
                self.give_back();
                return;
            }
            Err(fault) => {
                // Whoever comes next must not try to reach one that is given up.
                let mut first = self.means.first.lock().expect("no thread panics with it");
                first.take_if(|first| self.is_first(first));
                drop(first);
                match fault.is_untouched && !self.was_left {
                    true => self.cross_out(),
                    false => self.give_back(),
                }
                News::Failed { number, fault }
            }
        };
        // Nobody listens where the pool is gone, which has given everything back.
        let _ = self.announce.send(news);
    }

    /// Whether a place to be tried by others is this machine's.
    fn is_first(&self, place: &str) -> bool {
        self.probe.as_deref() == Some(place)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn raise(&mut self) -> Result<Raised, Fault> {
        let means = self.means.clone();
        let Means { provider, run, program, .. } = &*means;
        let machine = &self.machine.clone();
        if self.is_held() {
            // What is left of an attempt or a session before must not meet this one. A machine that
            // cannot be reached says so below.
            self.was_left = provider.destroy(run, machine).is_err();
        }
        self.write_down()?;
        self.unless_over()?;
        provider.create(run, machine)?;
        self.unless_over()?;
        let channel = provider.open(run, machine, program)?;
        let (announce, number, attempt) = (self.announce.clone(), self.number, self.attempt);
        let tell = move |told| drop(announce.send(News::Told { number, attempt, told }));
        let remote = Arc::new(Remote::meet(&machine.name, channel, &program.build, tell)?);
        self.inspect(&remote)?;
        let route = self.route(&remote)?;
        self.probe = remote.hello.probe.map(|port| format!("{}:{port}", route.advertise));
        let is_direct = route.via.is_none() && self.reaches_first(&remote)?;
        let _ = self.announce.send(News::Opened { number, is_direct, remote: remote.clone() });
        self.unless_over()?;
        let announce = Mutex::new(self.announce.clone());
        let tell = move |note: String| {
            let announce = announce.lock().expect("no thread panics with it");
            let _ = announce.send(News::Note(note));
        };
        (self.means.prepare)(machine, &remote, &tell)?;
        Ok(Raised { machine: machine.clone(), attempt, remote, route })
    }

    fn is_held(&self) -> bool {
        let resources = self.resources.lock().expect("no thread panics with them");
        resources.holds(&self.machine.name)
    }

    fn write_down(&self) -> Result<(), Fault> {
        let mut resources = self.resources.lock().expect("no thread panics with them");
        resources.will(&self.machine).map_err(|e| {
            let what = format!("cannot write `{}`: {e}", super::resources::FILE);
            let hint = "nothing is created that is not written down; is the disk full?";
            Fault::fix(&self.machine.name, what, hint)
        })
    }

    fn unless_over(&self) -> Result<(), Fault> {
        match self.is_over() {
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
            let _ = self.announce.send(News::Note(note));
        }
        Ok(())
    }

    fn route(&self, remote: &Remote) -> Result<Route, Fault> {
        let Means { provider, run, addresses, port, .. } = &*self.means;
        let (name, hello) = (&self.machine.name, &remote.hello);
        let is_near =
            provider.is_here(&self.machine) || hello.controller.as_deref() == Some(LOOPBACK);
        let near = is_near.then(|| LOOPBACK.to_owned());
        let mut candidates: Vec<String> = near.into_iter().chain(addresses.clone()).collect();
        candidates.extend(hello.controller.clone().filter(|address| !candidates.contains(address)));
        let found = match port {
            None => Some(LOOPBACK.to_owned()),
            Some(port) => {
                let target = |address: &String| format!("{}:{port}", bracketed(address));
                let found = remote.reach(candidates.iter().map(target).collect())?;
                found.and_then(|found| found.rsplit_once(':').map(|(host, _)| host.to_owned()))
            }
        };
        let (controller, via) = match found {
            Some(controller) => (controller, None),
            None => match provider.tunnel(run, &self.machine)? {
                Some(via) => (LOOPBACK.to_owned(), Some(via)),
                None => {
                    let tried = candidates.join(", ");
                    let port = port.unwrap_or_default();
                    let what = format!("it cannot reach this machine (tried {tried}, port {port})");
                    let hint = "set `pool.address` to an address of this machine that it reaches";
                    return Err(Fault::fix(name, what, hint));
                }
            },
        };
        let way = if via.is_some() { ", through a tunnel" } else { "" };
        let what = format!("{} cores, {} GiB{way}", hello.cores, hello.memory_bytes >> 30);
        let own = hello.addresses.first().filter(|_| !provider.is_here(&self.machine));
        let own = own.map_or(LOOPBACK, String::as_str);
        let (machine, folder, cores) = (name.clone(), hello.folder.clone(), hello.cores);
        Ok(Route { machine, controller, via, advertise: bracketed(own), folder, cores, what })
    }

    /// Whether machines reach each other, and not only the controller: the first is tried by all
    /// others.
    fn reaches_first(&self, remote: &Remote) -> Result<bool, Fault> {
        let own = self.probe.clone();
        let mut first = self.means.first.lock().expect("no thread panics with it");
        let Some(target) = first.clone() else {
            *first = own;
            return Ok(true);
        };
        drop(first);
        let reached = remote.reach(vec![target])?.is_some();
        if !reached && self.means.port.is_none() {
            let target = first_of(&self.means);
            let what = format!("it cannot reach another machine of the pool ({target})");
            let hint = "processes of a script connect to each other: open the way between them";
            return Err(Fault::fix(&self.machine.name, what, hint));
        }
        if !reached {
            let name = &self.machine.name;
            let note = format!("{name}: it cannot reach the others, so servers stay here");
            let _ = self.announce.send(News::Note(note));
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
        let mut resources = self.resources.lock().expect("no thread panics with them");
        // Where it cannot be crossed out it is destroyed once more, which is no error.
        let _ = resources.gone(&self.machine.name);
    }
}

/// Where the first machine is tried.
fn first_of(means: &Means) -> String {
    means.first.lock().expect("no thread panics with it").clone().unwrap_or_default()
}

/// What is said of a machine whose clock is so many seconds ahead.
fn skewed(machine: &str, seconds: f64) -> Option<String> {
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
