//! Reaching a coordinator that was started just now, or has dropped the link to it.
//!
//! Owns a thread that tries, so that the one who supervises goes on looking after the others. Never
//! tries for longer than [`PATIENCE`].

use crate::live::console::{Console, Watching};
use planaria_protocol::Passport;
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

/// Whom to reach.
pub struct Whom {
    /// Where it listens; else it says so in its first line.
    pub address: Option<String>,
    /// Its standard output, where it was started just now. It must not find it closed.
    pub stdout: Option<ChildStdout>,
    /// What is shown to it.
    pub passport: Passport,
    /// Which build it is.
    pub build: String,
    /// Which generation it is; another is not the one that is meant.
    pub generation: u64,
    /// The events that have been seen.
    pub seen: Seen,
}

/// An attempt to reach a coordinator.
pub struct Meeting {
    passed: Receiver<Option<(String, Console)>>,
    is_off: Arc<AtomicBool>,
}

/// What has come of it.
pub enum Met {
    /// It is still tried.
    NotYet,
    /// Where the coordinator listens, and the link to it.
    There(String, Console),
    /// It could not be reached.
    Nobody,
}

impl Meeting {
    /// Begins to try.
    pub fn begin(whom: Whom) -> Result<Self> {
        let (pass, passed) = channel();
        let is_off = Arc::new(AtomicBool::new(false));
        let off = is_off.clone();
        let meet = move || {
            // The other side may have stopped waiting.
            let _ = pass.send(reach(whom, &off));
        };
        std::thread::Builder::new().name("meeting".into()).spawn(meet)?;
        Ok(Self { passed, is_off })
    }

    /// What has come of it, waited for at most so long.
    pub fn result(&self, wait: Duration) -> Met {
        match self.passed.recv_timeout(wait) {
            Ok(Some((address, console))) => Met::There(address, console),
            Err(RecvTimeoutError::Timeout) => Met::NotYet,
            Ok(None) | Err(RecvTimeoutError::Disconnected) => Met::Nobody,
        }
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        self.is_off.store(true, Ordering::Relaxed);
    }
}

fn reach(whom: Whom, is_off: &AtomicBool) -> Option<(String, Console)> {
    let since = Stopwatch::start();
    let mut stdout = whom.stdout.map(BufReader::new);
    let address = whom.address.or_else(|| {
        let mut line = String::new();
        let read = stdout.as_mut()?.read_line(&mut line);
        matches!(read, Ok(1..)).then(|| line.trim().to_owned())
    })?;
    while !is_off.load(Ordering::Relaxed) && since.elapsed() < PATIENCE {
        let watching = Watching { supervises: true, seen: whom.seen };
        match Console::join(&address, &whom.passport, &whom.build, watching) {
            Ok(console) if console.generation() == whom.generation => {
                return Some((address, console));
            }
            _ => std::thread::park_timeout(BETWEEN),
        }
    }
    None
}
