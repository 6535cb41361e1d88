//! The processes of a run, as the system knows them, and signals to them.
//!
//! A process is the run's if it is an agent whose arguments name the run and whose parent is the
//! process that holds the run's lock. That is checked again before every signal, through a handle
//! that cannot come to mean another process. Never signals anything else.

use planaria_protocol::message::Agent;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

/// A process of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub agent: Agent,
    pub pid: u32,
}

/// What makes a process one of the run's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// The run's name, as it is in the arguments.
    pub run_id: String,
    /// Who holds the run's lock.
    pub parent: u32,
}

impl Family {
    /// Its processes that live.
    pub fn living(&self) -> Vec<Process> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let number = |name: std::ffi::OsString| name.to_str()?.parse::<u32>().ok();
        let pids = entries.flatten().filter_map(|entry| number(entry.file_name()));
        pids.filter_map(|pid| Some(Process { agent: self.agent(pid)?, pid })).collect()
    }

    /// Signals a process, if it still is the one that was meant; says whether it was.
    pub fn signal(&self, process: &Process, signal: Signal) -> io::Result<bool> {
        let Some(handle) = open(process.pid)? else { return Ok(false) };
        // After the handle is there, so that the checked process is the one that gets the signal.
        if self.agent(process.pid) != Some(process.agent) {
            return Ok(false);
        }
        send(&handle, signal)
    }

    /// Which of the run's agents a process is.
    fn agent(&self, pid: u32) -> Option<Agent> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        if parent_of_living(&stat)? != self.parent {
            return None;
        }
        agent_of(&fs::read(format!("/proc/{pid}/cmdline")).ok()?, &self.run_id)
    }
}

/// Which agent of the run a process with these arguments is: `planaria agent worker 2 RUN`.
fn agent_of(arguments: &[u8], run_id: &str) -> Option<Agent> {
    let arguments = str::from_utf8(arguments).ok()?;
    let words: Vec<&str> = arguments.trim_end_matches('\0').split('\0').collect();
    match words[..] {
        [_, "agent", "coordinator", run] if run == run_id => Some(Agent::Coordinator),
        [_, "agent", "server", n, run] if run == run_id => Some(Agent::Server(n.parse().ok()?)),
        [_, "agent", "worker", n, run] if run == run_id => Some(Agent::Worker(n.parse().ok()?)),
        _ => None,
    }
}

/// The parent of a process that has not ended, from `/proc/PID/stat`. The name in it may hold
/// anything, also brackets.
fn parent_of_living(stat: &str) -> Option<u32> {
    let mut words = stat[stat.rfind(')')? + 1..].split_whitespace();
    match words.next()? {
        "Z" | "X" => None,
        _ => words.next()?.parse().ok(),
    }
}

/// A handle on a process; nothing if it is gone.
fn open(pid: u32) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = Pid::from_raw(pid as i32) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => Ok(Some(handle)),
        Err(Errno::SRCH) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn send(handle: &OwnedFd, signal: Signal) -> io::Result<bool> {
    match pidfd_send_signal(handle, signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that looks like an agent of a run, and is a shell that sleeps.
    pub fn pretend(arguments: &[&str]) -> Child {
        Command::new("sh")
            .args(["-c", "read x"])
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    }

    #[test]
    fn agents_are_told_by_their_arguments() {
        for (arguments, expect) in [
            ("planaria agent worker 2 net-1", Some(Agent::Worker(2))),
            ("/x/planaria agent server 0 net-1", Some(Agent::Server(0))),
            ("planaria agent coordinator net-1", Some(Agent::Coordinator)),
            ("planaria agent worker 2 net-12", None),
            ("planaria agent worker x net-1", None),
            ("planaria agent worker 2 net-1 more", None),
            ("planaria train net-1", None),
            ("net-1", None),
            ("", None),
        ] {
            let bytes = arguments.replace(' ', "\0") + "\0";
            assert_eq!(agent_of(bytes.as_bytes(), "net-1"), expect, "{arguments}");
        }
    }

    #[test]
    fn parents_are_read_behind_any_name() {
        assert_eq!(parent_of_living("12 (planaria) S 7 12 12"), Some(7));
        assert_eq!(parent_of_living("12 (a) Z 1 (b) R 7 12"), Some(7));
        assert_eq!(parent_of_living("12 (planaria) Z 7 12 12"), None, "it has ended");
        assert_eq!(parent_of_living("12"), None);
    }

    #[test]
    fn what_is_not_the_runs_is_never_signalled() {
        let family = Family { run_id: "net-1".into(), parent: std::process::id() };
        // A shell says what it runs first: it is no agent.
        let mut other = pretend(&["agent", "worker", "0", "net-1"]);
        let pid = other.id();
        let process = Process { agent: Agent::Worker(0), pid };
        assert!(!family.signal(&process, Signal::KILL).unwrap());
        assert!(other.try_wait().unwrap().is_none(), "it lives");
        assert!(!family.living().contains(&process));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!family.signal(&process, Signal::KILL).unwrap(), "it is gone");
    }
}
