//! Connecting to a coordinator that was started just now, or has dropped the link to it.
//!
//! Owns a thread that tries, so that the controller looks after the other processes meanwhile. Never
//! tries for longer than [`PATIENCE`].

use crate::live::console::{Console, Watching};
use planaria_protocol::Credentials;
use planaria_protocol::event::Seen;
use planaria_runs::clock::Stopwatch;
use std::io::{BufRead, BufReader, Result};
use std::process::ChildStdout;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long a coordinator may take to begin to listen.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two attempts.
const BETWEEN: Duration = Duration::from_millis(20);

/// The coordinator to reach.
pub struct Target {
    /// Where it listens; else it says so in its first line.
    pub address: Option<String>,
    /// Its standard output, where it was started just now. It must not find it closed.
    pub stdout: Option<ChildStdout>,
    /// What is shown to it.
    pub credentials: Credentials,
    /// Which build it is.
    pub build: String,
    /// Which generation it is; another is not the one that is meant.
    pub generation: u64,
    /// The events that have been seen.
    pub seen: Seen,
}

/// An attempt to reach a coordinator.
pub struct Connecting {
    passed: Receiver<Option<(String, Console)>>,
    is_off: Arc<AtomicBool>,
}

/// What has come of it.
pub enum Connected {
    /// It is still tried.
    NotYet,
    /// Where the coordinator listens, and the link to it.
    There(String, Console),
    /// It could not be reached.
    Failed,
}

impl Connecting {
    /// Begins to try.
    pub fn begin(target: Target) -> Result<Self> {
        let (pass, passed) = channel();
        let is_off = Arc::new(AtomicBool::new(false));
        let off = is_off.clone();
        let connect = move || {
            // The other side may have stopped waiting.
            let _ = pass.send(reach(target, &off));
        };
        std::thread::Builder::new().name("connecting".into()).spawn(connect)?;
        Ok(Self { passed, is_off })
    }

    /// What has come of it, waited for at most so long.
    pub fn result(&self, wait: Duration) -> Connected {
        match self.passed.recv_timeout(wait) {
            Ok(Some((address, console))) => Connected::There(address, console),
            Err(RecvTimeoutError::Timeout) => Connected::NotYet,
            Ok(None) | Err(RecvTimeoutError::Disconnected) => Connected::Failed,
        }
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.is_off.store(true, Ordering::Relaxed);
    }
}

fn reach(target: Target, is_off: &AtomicBool) -> Option<(String, Console)> {
    let since = Stopwatch::start();
    let mut stdout = target.stdout.map(BufReader::new);
    let address = target.address.or_else(|| {
        let mut line = String::new();
        let read = stdout.as_mut()?.read_line(&mut line);
        matches!(read, Ok(1..)).then(|| line.trim().to_owned())
    })?;
    while !is_off.load(Ordering::Relaxed) && since.elapsed() < PATIENCE {
        let watching = Watching { supervises: true, seen: target.seen };
        match Console::join(&address, &target.credentials, &target.build, watching) {
            Ok(console) if console.generation() == target.generation => {
                return Some((address, console));
            }
            _ => std::thread::park_timeout(BETWEEN),
        }
    }
    None
}
