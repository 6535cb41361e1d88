//! The controller of a job of any kind: the loop around its machines and processes.
//!
//! Owns the order of things: it polls machines, collects processes that have ended, passes on a
//! stop, and in the end, however it comes, gives everything back. What each means is the job kind's
//! to say. Never starts a process itself.

use crate::jobs::pooling::failure;
use crate::stopping;
use planaria_fleet::local::Exit;
use planaria_fleet::pool::Change;
use planaria_fleet::provider::Fault;
use planaria_fleet::sites::Sites;
use planaria_protocol::message::Agent;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::Result;
use std::time::Duration;

/// Poll interval for machines, processes and stop requests.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a kind of job does about what happens.
pub trait Kind {
    /// How its processes can have come to their end.
    type End;

    /// Where its processes live.
    fn sites(&mut self) -> &mut Sites;
    /// Something about machines that people should know.
    fn note(&mut self, text: &str);
    /// A machine has become ready, was lost, and so on.
    fn machine(&mut self, _: Change) {}
    /// A process has written something.
    fn wrote(&mut self, _: Agent, _: &[u8]) {}
    /// A process has ended.
    fn exited(&mut self, _: Duration, _: Exit) {}
    /// The user wants the job to stop; said at every look from then on.
    fn stop(&mut self, now: Duration) -> Result<()>;
    /// Does what is due, and waits for at most [`LOOK_EVERY`]. The end, once it has come.
    fn look(&mut self, now: Duration) -> Result<Option<Self::End>>;
    /// What is done once it has ended, before machines are given back.
    fn leave(&mut self, _: &Result<Self::End>) {}
    /// What is said of a machine that could not be given back.
    fn kept(&self, fault: &Fault, run: &str) -> String {
        kept(fault, run)
    }
}

/// Follows a job to its end, and gives its machines back. Nothing is left running.
pub fn follow<K: Kind>(kind: &mut K, run: &str, clock: Stopwatch) -> Result<K::End> {
    let ended = watch(kind, clock);
    kind.leave(&ended);
    give_back(kind, run);
    ended
}

/// The same, but that machines are left as they are where it ends well.
pub fn raise<K: Kind>(kind: &mut K, run: &str) -> Result<K::End> {
    let ended = watch(kind, Stopwatch::steady());
    if ended.is_err() {
        give_back(kind, run);
    }
    ended
}

fn give_back<K: Kind>(kind: &mut K, run: &str) {
    for fault in kind.sites().give_back() {
        let text = kind.kept(&fault, run);
        kind.note(&text);
    }
}

/// What is said of a machine that could not be given back.
pub fn kept(fault: &Fault, run: &str) -> String {
    format!("warning: {fault}; it may still run something: `planaria down {run}` tries again")
}

fn watch<K: Kind>(kind: &mut K, clock: Stopwatch) -> Result<K::End> {
    loop {
        let now = clock.elapsed();
        for note in kind.sites().look(now) {
            kind.note(&note);
        }
        for (agent, bytes) in kind.sites().take_said() {
            kind.wrote(agent, &bytes);
        }
        for exit in kind.sites().exits() {
            kind.exited(now, exit);
        }
        // Before a failure, so that what led to it is written down too.
        for change in kind.sites().take_changes() {
            kind.machine(change);
        }
        if let Some(fault) = kind.sites().take_failure() {
            return Err(failure(fault));
        }
        if stopping::asked() {
            kind.stop(now)?;
        }
        if let Some(end) = kind.look(now)? {
            return Ok(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_fleet::local::Local;
    use planaria_runs::failure::Failure;
    use std::path::Path;

    /// A job of no process, which ends or fails at its third look.
    struct Idle {
        sites: Sites,
        looks: u32,
        fails: bool,
        left: Option<bool>,
    }

    impl Kind for Idle {
        type End = u32;

        fn sites(&mut self) -> &mut Sites {
            &mut self.sites
        }

        fn note(&mut self, text: &str) {
            panic!("there are no machines to tell of: {text}");
        }

        fn stop(&mut self, _: Duration) -> Result<()> {
            panic!("no stop was asked for");
        }

        fn look(&mut self, _: Duration) -> Result<Option<u32>> {
            assert_eq!(self.left, None, "it has ended");
            self.looks += 1;
            match (self.looks, self.fails) {
                (3, true) => Err(Failure::failed("as it should")),
                (looks, _) => Ok((looks == 3).then_some(looks)),
            }
        }

        fn leave(&mut self, ended: &Result<u32>) {
            self.left = Some(ended.is_ok());
        }
    }

    #[test]
    fn a_job_is_looked_after_until_it_ends_and_left_once() {
        for fails in [false, true] {
            let sites = Sites::new(Local::new(Path::new("none"), Path::new("none")), None);
            let mut job = Idle { sites, looks: 0, fails, left: None };
            let ended = follow(&mut job, "run-1", Stopwatch::start());
            assert_eq!((ended.ok(), job.left), ((!fails).then_some(3), Some(!fails)));
        }
    }
}
