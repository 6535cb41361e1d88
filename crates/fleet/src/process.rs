//! Processes by their numbers: signals, and waiting for children.
//!
//! A thin layer over `rustix`: numbers as the rest of the crate has them, and no error where a process
//! is gone already.

pub use rustix::process::Signal;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group, waitid, waitpid,
};

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

/// Kills a child that nobody else waits for, and waits for it.
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
    while matches!(wait(), Err(rustix::io::Errno::INTR)) {}
}
