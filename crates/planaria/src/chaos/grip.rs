//! Processes that are stopped for a while: each has a thread here that lets go of it.
//!
//! Owns that everything which was stopped goes on, in time and when this is dropped, however the
//! command ends short of being killed itself.

use crate::chaos::processes::{Family, Process};
use planaria_runs::clock::Stopwatch;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A slowed process runs for the first of these and is stopped for the second: a fiftieth.
const SLOW: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(98));
/// Poll interval for the time to let go.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How a process is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It does not run.
    Stopped,
    /// It runs for a fiftieth of the time.
    Slowed,
}

/// Processes that are held.
#[derive(Debug, Default)]
pub struct Grip {
    held: BTreeMap<u32, JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Grip {
    /// Whether a process is held now.
    pub fn holds(&mut self, pid: u32) -> bool {
        self.held.retain(|_, thread| !thread.is_finished());
        self.held.contains_key(&pid)
    }

    /// Whether any process is held now.
    pub fn is_holding(&mut self) -> bool {
        self.held.retain(|_, thread| !thread.is_finished());
        !self.held.is_empty()
    }

    /// Holds a process for a while; says whether it was still there.
    pub fn hold(
        &mut self,
        family: &Family,
        process: &Process,
        how: Hold,
        lasts: Duration,
    ) -> io::Result<bool> {
        if self.holds(process.pid) || !family.signal(process, Signal::STOP)? {
            return Ok(false);
        }
        let (over, watch) = (self.over.clone(), Stopwatch::start());
        let (owned, victim) = (family.clone(), process.clone());
        let work = move || {
            let release = Release { family: &owned, process: &victim };
            while watch.elapsed() < lasts && !over.load(Ordering::SeqCst) {
                match how {
                    Hold::Stopped => std::thread::park_timeout(LOOK_EVERY),
                    Hold::Slowed => {
                        std::thread::park_timeout(SLOW.1);
                        release.now();
                        std::thread::park_timeout(SLOW.0);
                        if !matches!(owned.signal(&victim, Signal::STOP), Ok(true)) {
                            return;
                        }
                    }
                }
            }
        };
        match std::thread::Builder::new().name("grip".into()).spawn(work) {
            Ok(thread) => {
                self.held.insert(process.pid, thread);
                Ok(true)
            }
            Err(e) => {
                Release { family, process }.now();
                Err(e)
            }
        }
    }
}

impl Drop for Grip {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        for (_, thread) in std::mem::take(&mut self.held) {
            thread.thread().unpark();
            // A thread that broke down has let go all the same.
            let _ = thread.join();
        }
    }
}

/// Lets a process go on when it is dropped, however that comes about.
struct Release<'a> {
    family: &'a Family,
    process: &'a Process,
}

impl Release<'_> {
    fn now(&self) {
        // If it is gone there is nothing to undo.
        let _ = self.family.signal(self.process, Signal::CONT);
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::message::Agent;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// A process with an agent's arguments that does nothing.
    fn agent(dir: &std::path::Path) -> Child {
        // `cat` takes its arguments for files: a copy of it waits on a pipe of that name.
        let made = Command::new("mkfifo").arg(dir.join("agent")).status().unwrap();
        assert!(made.success());
        Command::new("cat")
            .arg0("planaria")
            .args(["agent", "worker", "3", "net-7"])
            .current_dir(dir)
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn state(pid: u32) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat[stat.rfind(')').unwrap() + 2..][..1].to_owned()
    }

    fn wait_for(what: impl Fn() -> bool) {
        let watch = Stopwatch::start();
        while !what() {
            assert!(watch.seconds() < 10.0, "it takes too long");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_was_stopped_goes_on_in_time_and_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = agent(dir.path());
        let family = Family { run_id: "net-7".into(), parent: std::process::id() };
        let process = Process { agent: Agent::Worker(3), pid: child.id() };
        wait_for(|| family.living().contains(&process));

        let mut grip = Grip::default();
        let moment = Duration::from_millis(50);
        assert!(grip.hold(&family, &process, Hold::Stopped, moment).unwrap());
        assert!(!grip.hold(&family, &process, Hold::Stopped, moment).unwrap(), "once is enough");
        wait_for(|| state(process.pid) != "T");

        for how in [Hold::Stopped, Hold::Slowed] {
            let mut grip = Grip::default();
            let long = Duration::from_secs(3600);
            assert!(grip.hold(&family, &process, how, long).unwrap());
            wait_for(|| state(process.pid) == "T");
            drop(grip);
            assert_ne!(state(process.pid), "T", "{how:?}");
        }
        assert!(family.signal(&process, Signal::KILL).unwrap());
        child.wait().unwrap();
        assert!(!Grip::default().hold(&family, &process, Hold::Stopped, moment).unwrap());
    }
}
