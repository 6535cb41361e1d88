//! Logs of agents on other machines, as those machines pass them on.
//!
//! Owns the files, and of which agents a machine may speak: those that were placed there. A machine
//! may be what it should not be, so each log has a bound.

use planaria_protocol::message::Agent;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// What one agent may log here in a session.
const BYTES_MAX: usize = 64 << 20;

/// The logs of a pool's agents.
pub struct Logs {
    folder: PathBuf,
    open: BTreeMap<Agent, Log>,
    /// By the attempt that raised the machine, which agents were placed on it.
    placed: BTreeSet<(u64, Agent)>,
}

struct Log {
    file: File,
    /// What may still be added.
    room_bytes: usize,
}

impl Logs {
    /// Nothing is open yet.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, open: BTreeMap::new(), placed: BTreeSet::new() }
    }

    /// An agent is started on the machine that this attempt has raised.
    pub fn place(&mut self, attempt: u64, agent: Agent) {
        self.placed.insert((attempt, agent));
    }

    /// Whether the machine of this attempt may speak of an agent.
    pub fn is_placed(&self, attempt: u64, agent: Agent) -> bool {
        self.placed.contains(&(attempt, agent))
    }

    /// Where an agent's log is.
    pub fn path(&self, agent: Agent) -> PathBuf {
        self.folder.join(format!("{agent}.log"))
    }

    /// Adds to an agent's log here what it logged there. A full disk costs the log.
    pub fn add(&mut self, agent: Agent, bytes: &[u8]) {
        let path = self.path(agent);
        if let std::collections::btree_map::Entry::Vacant(entry) = self.open.entry(agent) {
            let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
            let Ok(file) = opened else { return };
            entry.insert(Log { file, room_bytes: BYTES_MAX });
        }
        if let Some(log) = self.open.get_mut(&agent) {
            log.add(bytes);
        }
    }
}

impl Log {
    fn add(&mut self, bytes: &[u8]) {
        if self.room_bytes == 0 {
            return;
        }
        let taken = bytes.len().min(self.room_bytes);
        self.room_bytes -= taken;
        let _ = self.file.write_all(&bytes[..taken]);
        if self.room_bytes == 0 {
            let most = BYTES_MAX >> 20;
            let _ = writeln!(self.file, "\n[more than {most} MiB: the rest is left out]");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_machine_speaks_of_its_own_agents() {
        let mut logs = Logs::new(PathBuf::new());
        logs.place(7, Agent::Worker(2));
        assert!(logs.is_placed(7, Agent::Worker(2)));
        assert!(!logs.is_placed(7, Agent::Worker(1)), "another machine's");
        assert!(!logs.is_placed(8, Agent::Worker(2)), "the machine that came in its place");
        assert!(!logs.is_placed(7, Agent::Coordinator));
    }

    #[test]
    fn a_log_is_bounded_and_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut logs = Logs::new(folder.path().to_path_buf());
        let piece = vec![b'x'; 1 << 20];
        (0..66).for_each(|_| logs.add(Agent::Worker(2), &piece));
        let about = folder.path().join("worker-2.log").metadata().unwrap();
        let end = "\n[more than 64 MiB: the rest is left out]\n".len() as u64;
        assert_eq!((about.len(), about.mode() & 0o777), ((64 << 20) + end, 0o600));
    }
}
