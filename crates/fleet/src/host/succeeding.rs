//! When a host takes the place of its run's controller.
//!
//! Owns what a host knows that may do so: orders, and which others have lost the controller too. They
//! call it, because it comes after the controller in the list of those that they call. Whoever is
//! cut off from the controller may take its place by mistake: two controllers then compute the same
//! bits from the same checkpoint, so that costs work and nothing else, and a majority makes it rare.
//! Never becomes the controller itself.

use crate::host::calling::{Calling, GENERATION, Succession};
use crate::host::serve::Detaching;
use crate::messages::Next;
use planaria_protocol::listen::{self, Listening};
use planaria_protocol::message::Join;
use planaria_protocol::{Credentials, Secret};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many machines may succeed a controller, one after the other.
pub const SUCCESSORS_MAX: usize = 2;
/// How long the first of them waits for a controller that most of the others have lost too; a host
/// takes a controller for lost after [`LEASE`](crate::host::serve::LEASE) at most.
const WITH_OTHERS: Duration = Duration::from_secs(20);
/// How long where they have not said so, or where it has no copy to go on from.
const ALONE: Duration = Duration::from_secs(120);
/// Name of the file, in a run's folder on a machine, with the number of the host's process while it
/// may succeed the controller.
const PID_FILE: &str = "successor.pid";

/// A host that may succeed the controller.
pub struct Successor {
    succession: Succession,
    listener: TcpListener,
    /// Other machines that have called since the controller was last heard.
    callers: Arc<Mutex<BTreeSet<String>>>,
    pid_file: PathBuf,
    run: PathBuf,
    _listening: Listening,
}

impl Successor {
    /// Takes calls from now on. The run's folder is on this machine.
    pub fn new(calling: &Calling, listener: TcpListener, run: &Path) -> io::Result<Option<Self>> {
        let Some(succession) = calling.succession.clone() else { return Ok(None) };
        let secret = Secret::from_hex(&calling.secret).map_err(io::Error::other)?;
        let credentials = Credentials::new(secret, Some(&succession.trust), None);
        let credentials = credentials.map_err(io::Error::other)?;
        let callers = Arc::new(Mutex::new(BTreeSet::new()));
        let (heard, own) = (callers.clone(), calling.machine.clone());
        let on_link = move |join: Join, _, _| {
            // The link ends at once: this is no controller yet.
            if let Some(machine) = join.machine.filter(|machine| *machine != own) {
                heard.lock().expect("no thread panics with the callers").insert(machine);
            }
        };
        let generation = Arc::new(AtomicU64::new(GENERATION));
        let taking = listener.try_clone()?;
        let listening = listen::serve(taking, credentials, generation, on_link, |_| {});
        let listening = listening.map_err(io::Error::other)?;
        DirBuilder::new().recursive(true).mode(0o700).create(run)?;
        let pid_file = run.join(PID_FILE);
        fs::write(&pid_file, std::process::id().to_string())?;
        let run = run.to_path_buf();
        let successor =
            Self { succession, listener, callers, pid_file, run, _listening: listening };
        Ok(Some(successor))
    }

    /// The controller was heard.
    pub fn heard(&self) {
        self.callers.lock().expect("no thread panics with the callers").clear();
    }

    /// Whether its time has come, when the controller has not been heard for so long.
    pub fn is_due(&self, silent: Duration, has_copy: bool) -> bool {
        let callers = self.callers.lock().expect("no thread panics with the callers").len();
        silent >= patience(&self.succession, callers, has_copy)
    }

    /// What it becomes now.
    pub fn take_place(self) -> io::Result<Detaching> {
        let (listener, orders) = (self.listener.try_clone()?, self.succession.orders.clone());
        Ok(Detaching { orders, next: Next::Controller, listener: Some(listener) })
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.pid_file);
        // Where nothing else is in it.
        let _ = fs::remove_dir(&self.run);
    }
}

/// How long a host waits for a controller that it does not hear, when so many others have called it.
fn patience(succession: &Succession, callers: usize, has_copy: bool) -> Duration {
    let others = succession.machines.saturating_sub(1);
    let is_majority = 2 * (1 + callers) > others;
    let wait = if is_majority && has_copy { WITH_OTHERS } else { ALONE };
    wait * (1 + succession.rank)
}

/// Whether a host waits on this machine that may succeed the controller, by the run's folder here.
pub fn waits(run: &Path) -> bool {
    let pid = fs::read_to_string(run.join(PID_FILE)).ok().and_then(|pid| pid.parse::<u32>().ok());
    // What a killed one has left says nothing.
    pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::launch::Trust;

    #[test]
    fn most_of_the_others_must_have_lost_the_controller_too() {
        let trust = Trust {
            authority: String::new(),
            certificate: String::new(),
            key: String::new(),
            issued: 0,
        };
        let wait = |machines, rank, callers, has_copy| {
            let succession =
                Succession { orders: Vec::new(), trust: trust.clone(), machines, rank };
            patience(&succession, callers, has_copy)
        };
        // Of two machines the other one is the controller's.
        assert_eq!(wait(2, 0, 0, true), WITH_OTHERS);
        assert_eq!(wait(2, 0, 0, false), ALONE);
        assert_eq!(wait(3, 0, 0, true), ALONE);
        assert_eq!(wait(3, 0, 1, true), WITH_OTHERS);
        assert_eq!(wait(5, 0, 1, true), ALONE, "two of four are no majority");
        assert_eq!(wait(5, 0, 2, true), WITH_OTHERS);
        assert_eq!(wait(5, 1, 2, true), WITH_OTHERS * 2, "the first one may be about to");
    }
}
