//! A second copy of the newest checkpoint, on another machine than the controller's.
//!
//! Owns when it is made, where, and under which names: `checkpoints/one` and `two` in turn, so that one
//! is whole at every moment, `checkpoints/best`, and the events. A run that is left to its machines has
//! one; it is what goes on where the controller's machine is lost. Never holds the training up.

use planaria_fleet::files::copy::{BEST, SLOTS};
use planaria_fleet::pool::{Pool, ReadyMachine};
use planaria_fleet::provider::Fault;
use planaria_fleet::remote::Remote;
use planaria_protocol::checkpoint::manifest;
use planaria_protocol::{durable, journal};
use planaria_runs::run_dir::CHECKPOINTS;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// The figures along the way.
const METRICS: &str = "metrics.jsonl";

/// The copies of a run.
pub struct Copies {
    run: PathBuf,
    /// The controller's machine, which gets none.
    own: String,
    /// Where they are, and which checkpoint is in which slot.
    there: Option<There>,
    under_way: Option<Receiver<(There, Result<(), Fault>)>>,
    is_due: bool,
    /// What was said last, so that it is said once.
    said: Option<String>,
}

/// What a machine has of the copies.
#[derive(Clone, Default)]
struct There {
    machine: String,
    /// Names of checkpoints by slot, and of the best.
    slots: [Option<String>; 2],
    best: Option<String>,
    next: usize,
}

impl Copies {
    /// Of the run in a folder on this machine.
    pub fn new(run: &Path, own: &str) -> Self {
        Self {
            run: run.to_path_buf(),
            own: own.to_owned(),
            there: None,
            under_way: None,
            is_due: false,
            said: None,
        }
    }

    /// A checkpoint is whole.
    pub fn saved(&mut self) {
        self.is_due = true;
    }

    /// Sees to what is due, and says what people are to be told.
    pub fn look(&mut self, pool: &Pool) -> Option<String> {
        let told = self.take_in();
        if self.is_due && self.under_way.is_none() {
            let standing = pool.standing();
            let others: Vec<&ReadyMachine> =
                standing.iter().filter(|one| one.machine.name != self.own).collect();
            // The first, as that is the one that succeeds the controller first.
            if let Some(first) = others.first() {
                self.is_due = false;
                self.begin(&first.machine.name, first.remote.clone());
            }
        }
        told
    }

    fn take_in(&mut self) -> Option<String> {
        let (there, done) = match self.under_way.as_ref()?.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                self.under_way = None;
                return None;
            }
        };
        self.under_way = None;
        let machine = there.machine.clone();
        let text = match done {
            Ok(()) => {
                self.there = Some(there);
                format!("checkpoints are copied to {machine} too")
            }
            Err(fault) => {
                // What it has is not known; with the next checkpoint it begins anew.
                self.there = None;
                format!("warning: {machine} has no copy of the newest checkpoint: {}", fault.what)
            }
        };
        let is_new = self.said.as_ref() != Some(&text);
        self.said = Some(text.clone());
        is_new.then_some(text)
    }

    fn begin(&mut self, machine: &str, remote: std::sync::Arc<Remote>) {
        let known = self.there.clone().filter(|there| there.machine == machine);
        let mut there = known.unwrap_or_default();
        there.machine = machine.to_owned();
        let (run, (tell, told)) = (self.run.clone(), channel());
        let work = move || {
            let done = copy(&run, &remote, &mut there);
            let _ = tell.send((there, done));
        };
        // Without a thread there is no copy this time.
        if std::thread::Builder::new().name("copy".into()).spawn(work).is_ok() {
            self.under_way = Some(told);
        }
    }
}

fn copy(run: &Path, remote: &Remote, there: &mut There) -> Result<(), Fault> {
    let folder = run.join(CHECKPOINTS);
    let linked = |name: &str| durable::linked(&folder.join(name));
    let Some(last) = linked("last") else { return Ok(()) };
    if !there.slots.contains(&Some(last.clone())) {
        let slot = there.next;
        there.slots[slot] = None;
        checkpoint(&folder.join(&last), SLOTS[slot], remote)?;
        there.slots[slot] = Some(last.clone());
        there.next = 1 - slot;
    }
    if let Some(best) =
        linked("best").filter(|best| *best != last && there.best.as_ref() != Some(best))
    {
        there.best = None;
        checkpoint(&folder.join(&best), BEST, remote)?;
        there.best = Some(best);
    }
    for file in [journal::FILE, METRICS] {
        let path = run.join(file);
        if path.exists() {
            remote.copy(&path, file)?;
        }
    }
    Ok(())
}

/// Copies a checkpoint: the manifest last, as it is written.
fn checkpoint(from: &Path, slot: &str, remote: &Remote) -> Result<(), Fault> {
    let names = files(from)
        .map_err(|e| Fault::fix(remote.machine(), format!("`{}`: {e}", from.display()), ""))?;
    for name in names {
        remote.copy(&from.join(&name), &format!("{CHECKPOINTS}/{slot}/{name}"))?;
    }
    Ok(())
}

/// Names of a checkpoint's files, the manifest last.
fn files(checkpoint: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(checkpoint)? {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort_by_key(|name| (name == manifest::FILE, name.clone()));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_is_copied_last() {
        let folder = tempfile::tempdir().unwrap();
        for name in [manifest::FILE, "part-1", "part-0", "z"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let names = files(folder.path()).unwrap();
        assert_eq!(names, ["part-0", "part-1", "z", manifest::FILE]);
    }
}
