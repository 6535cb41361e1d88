//! Processes by their numbers: signals, and waiting for children.
//!
//! A thin layer over `rustix`: numbers as the rest of the crate has them, and no error where a process
//! is gone already.

use rustix::io::Errno;
pub use rustix::process::Signal;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group, waitid, waitpid,
};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The number of the signal that kills, as endings have it.
pub const SIGKILL: i32 = Signal::KILL.as_raw();
/// The number of the signal that asks to end.
pub const SIGTERM: i32 = Signal::TERM.as_raw();

/// A number, if it can be a process'.
fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// Sends a signal to a process; one that is gone is no error.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = number(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Sends a signal to all of a group; one that is gone is no error.
pub fn signal_group(group: u32, signal: Signal) {
    if let Some(group) = number(group) {
        let _ = kill_process_group(group, signal);
    }
}

/// Makes it possible to wait for children, where this process has inherited that their ends are
/// ignored.
pub(crate) fn hear_of_children() {
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Kills a child that no other thread waits for, and waits for it.
pub(crate) fn kill_and_reap(pid: u32) {
    signal(pid, Signal::KILL);
    if let Some(pid) = number(pid) {
        let _ = waitpid(Some(pid), WaitOptions::empty());
    }
}

/// Waits for a child if it has ended already, or for any that has; says whether one had.
pub(crate) fn reap(pid: Option<u32>) -> bool {
    let waited = match pid.map(number) {
        None => rustix::process::wait(WaitOptions::NOHANG),
        Some(None) => return false,
        Some(pid) => waitpid(pid, WaitOptions::NOHANG),
    };
    matches!(waited, Ok(Some(_)))
}

/// Waits until a child has ended and leaves its number taken.
pub(crate) fn wait_without_reaping(pid: u32) {
    let Some(pid) = number(pid) else { return };
    let wait = || waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    while matches!(wait(), Err(Errno::INTR)) {}
}

/// Has the kernel kill what a command starts when the thread that started it is gone.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only system calls are made, which allocate nothing.
    unsafe { command.pre_exec(move || die_with(parent)) };
}

/// In the child: lets the kernel kill it when the thread that started it is gone. Allocates nothing.
pub(crate) fn die_with(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let own = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    match own == Some(parent) {
        true => Ok(()),
        // Where the parent has gone before the first call the signal would never come.
        false => Err(Errno::SRCH.into()),
    }
}

/// A process, as the system lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed {
    pub pid: u32,
    pub parent: u32,
    pub session: u32,
}

/// All processes that can be seen.
pub(crate) fn all() -> Vec<Listed> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in brackets and may hold anything: what follows begins after the last one.
        let mut words = text.rsplit_once(')')?.1.split_whitespace().skip(1);
        let (parent, session) = (words.next()?.parse().ok()?, words.nth(1)?.parse().ok()?);
        Some(Listed { pid, parent, session })
    })
    .collect()
}

/// All processes below one, as far as their parents live.
pub(crate) fn below(root: u32, all: &[Listed]) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        let is_new = |one: &&Listed| one.parent == parent && !found.contains(&one.pid);
        let children: Vec<u32> = all.iter().filter(is_new).map(|one| one.pid).collect();
        found.extend(children);
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found() {
        let listed = |(pid, parent)| Listed { pid, parent, session: 1 };
        let all = [(2, 1), (3, 2), (4, 2), (5, 4), (6, 1), (7, 7)].map(listed);
        assert_eq!(below(2, &all), [3, 4, 5]);
        assert_eq!(below(6, &all), [0; 0]);
        assert_eq!(below(7, &all), [0; 0]);
    }
}
