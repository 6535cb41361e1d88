//! What an ended session could not remove, for example because its disk failed: files that mark it
//! as live, the state of its processes, and processes.
//!
//! Owns which of these no process needs any more, and their removal by a later command. It leaves the
//! `state/` of a killed session: `resume` continues from it. Never touches a live run.

use crate::live::control;
use planaria_fleet::process::{Signal, signal};
use planaria_protocol::event::What;
use planaria_protocol::journal;
use planaria_runs::run_dir::LOGS;
use planaria_runs::run_dir::lock::{Holder, Lock};
use planaria_runs::traces::report::Outcome;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The folder of what processes keep for others of their kind.
const STATE: &str = "state";
/// Times processes are killed, and the time between two.
const KILLS_MAX: u32 = 50;
const KILL_EVERY: Duration = Duration::from_millis(20);

/// Cleans up after a run that no process works on; says what was done.
pub fn look(folder: &Path, tell: &mut dyn FnMut(&str)) {
    let is_free = || Holder::of(folder).is_ok_and(|holder| !holder.is_live());
    // Without a lock, such as on a disk that is read-only, nothing can be taken away either.
    if (has_files(folder) || !processes(folder).is_empty())
        && is_free()
        && let Ok(_lock) = Lock::take(folder)
    {
        clear(folder, tell);
    }
}

/// The same for a command that holds the run's lock.
pub fn clear(folder: &Path, tell: &mut dyn FnMut(&str)) {
    let left = processes(folder);
    if !left.is_empty() {
        end(folder);
        let names: Vec<String> =
            left.iter().map(|(pid, agent)| format!("{agent} (process {pid})")).collect();
        tell(&format!("ended what an earlier session had left running: {}", names.join(", ")));
    }
    let mut removed = |name: &str, done: std::io::Result<()>| match done {
        Ok(()) => tell(&format!("removed `{name}`, which an earlier session could not")),
        Err(why) => {
            let path = folder.join(name);
            tell(&format!(
                "warning: `{}` is left of an earlier session, and cannot be removed: {why}",
                path.display()
            ));
        }
    };
    // It names a session that lives, and none does.
    let file = folder.join(control::FILE);
    if fs::symlink_metadata(&file).is_ok() {
        removed(control::FILE, fs::remove_file(&file));
    }
    let state = folder.join(STATE);
    if is_over(folder) && fs::symlink_metadata(&state).is_ok_and(|found| found.is_dir()) {
        removed(STATE, fs::remove_dir_all(&state));
    }
}

/// Whether the last session has said that no other will go on from what processes kept.
fn is_over(folder: &Path) -> bool {
    let events = journal::read(&folder.join(journal::FILE)).unwrap_or_default();
    let last = events.last().map(|event| &event.what);
    matches!(last, Some(What::Ended { outcome: Outcome::Completed | Outcome::StoppedEarly, .. }))
}

/// Whether there are files that may be left.
fn has_files(folder: &Path) -> bool {
    let is_there = |name| fs::symlink_metadata(folder.join(name)).is_ok();
    is_there(control::FILE) || (is_there(STATE) && is_over(folder))
}

/// Agents on this machine that log into the run's folder, and what each is.
fn processes(folder: &Path) -> Vec<(u32, String)> {
    let Ok(logs) = folder.join(LOGS).canonicalize() else { return Vec::new() };
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let agent = |pid: u32| {
        let log = fs::read_link(format!("/proc/{pid}/fd/2")).ok()?;
        if pid == own || log.parent() != Some(&logs) {
            return None;
        }
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        // The one that is left behind on purpose is no agent, and would hold the lock.
        let is_agent = line.split(|byte| *byte == 0).any(|word| word == b"agent");
        is_agent.then(|| (pid, log.file_stem().unwrap_or_default().to_string_lossy().into_owned()))
    };
    pids.filter_map(agent).collect()
}

/// Ends them, and waits for it.
fn end(folder: &Path) {
    for _ in 0..KILLS_MAX {
        let left = processes(folder);
        if left.is_empty() {
            return;
        }
        left.iter().for_each(|(pid, _)| signal(*pid, Signal::KILL));
        std::thread::park_timeout(KILL_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::journal::Journal;
    use std::process::{Command, Stdio};

    /// The folder of a run that has ended so.
    fn ended(outcome: Outcome) -> tempfile::TempDir {
        let run = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&run.path().join(journal::FILE), 1).unwrap();
        let what = What::Ended {
            outcome,
            reason: None,
            step: 3,
            weights_sha256: None,
            trouble: None,
            state: None,
        };
        journal.record(1.0, 1e9, what).unwrap();
        fs::write(run.path().join(control::FILE), "{}").unwrap();
        fs::create_dir(run.path().join(STATE)).unwrap();
        run
    }

    fn told(run: &Path) -> Vec<String> {
        let mut told = Vec::new();
        look(run, &mut |text| told.push(text.to_owned()));
        told
    }

    #[test]
    fn what_could_not_be_removed_is_removed_later_and_said() {
        let run = ended(Outcome::Completed);
        let held = Lock::take(run.path()).unwrap();
        assert!(told(run.path()).is_empty(), "it lives");
        drop(held);
        let said = told(run.path());
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(!run.path().join(control::FILE).exists());
        assert!(!run.path().join(STATE).exists());
        assert!(told(run.path()).is_empty());
        // `resume` needs the `state/` of a failed run; its `control.json` names a process that has ended.
        let run = ended(Outcome::Failed);
        assert_eq!(told(run.path()).len(), 1);
        assert!(run.path().join(STATE).exists());
        // So does that of one that was killed, or whose disk did not take its last event.
        let run = tempfile::tempdir().unwrap();
        fs::write(run.path().join(control::FILE), "{}").unwrap();
        fs::create_dir(run.path().join(STATE)).unwrap();
        assert_eq!(told(run.path()).len(), 1);
        assert!(!run.path().join(control::FILE).exists() && run.path().join(STATE).exists());
    }

    #[test]
    fn what_can_still_not_be_removed_is_said() {
        let run = ended(Outcome::Completed);
        fs::remove_file(run.path().join(control::FILE)).unwrap();
        fs::create_dir(run.path().join(control::FILE)).unwrap();
        let said = told(run.path());
        assert!(said[0].starts_with("warning: ") && said[0].contains(control::FILE), "{said:?}");
    }

    #[test]
    fn processes_that_a_session_left_are_ended() {
        let run = tempfile::tempdir().unwrap();
        let logs = run.path().join(LOGS);
        fs::create_dir(&logs).unwrap();
        let start = |log: &str, word: &str| {
            let log = fs::File::create(logs.join(log)).unwrap();
            let mut sh = Command::new("sh");
            sh.args(["-c", "read line", word, "worker", "0", "run"]).stderr(log);
            sh.stdin(Stdio::piped()).spawn().unwrap()
        };
        let (mut agent, mut other) = (start("worker-0.log", "agent"), start("x.log", "editor"));
        let said = loop {
            // Until it has become the shell.
            let said = told(run.path());
            if !said.is_empty() {
                break said;
            }
        };
        assert_eq!(
            said,
            [format!(
                "ended what an earlier session had left running: worker-0 (process {})",
                agent.id()
            )]
        );
        assert!(!agent.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
