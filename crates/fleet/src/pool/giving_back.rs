//! The end of a pool: every machine is given back, with all that still runs on it.
//!
//! Owns the order of it, and that it has an end. What could not be given back stays written down.

use super::raise::Progress;
use super::{END_WITHIN, LOOK_EVERY, News, Pool};
use crate::many;
use crate::messages::{AgentNews, ToHost};
use crate::provider::{Fault, Machine, Provider, Tag};
use crate::remote::Told;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long giving everything back may take.
const GIVE_BACK: Duration = Duration::from_secs(40);
/// How long no machine may be given back before the rest is given up, where there is no hurry.
/// Providers bound each by less.
pub const DESTROYING: Duration = Duration::from_secs(180);

/// A machine to be destroyed.
pub struct Unwanted {
    /// Where it comes from.
    pub provider: Arc<dyn Provider>,
    /// The run that had it.
    pub run: Tag,
    pub machine: Machine,
}

/// Destroys machines, several at a time, and tells what came of each; a fault for those that were
/// not destroyed when no other was for so long.
pub fn destroy(
    machines: Vec<Unwanted>,
    patience: Duration,
    mut done: impl FnMut(usize, Result<(), Fault>),
) {
    let names: Vec<String> = machines.iter().map(|one| one.machine.name.clone()).collect();
    let work = |one: &Unwanted| one.provider.destroy(&one.run, &one.machine);
    many::each(machines, patience, work, |number, result| {
        let late = || {
            let what = format!("nothing came of it within {} s", patience.as_secs());
            Err(Fault::retry(&names[number], what))
        };
        done(number, result.unwrap_or_else(late));
    });
}

/// Destroys all machines of a run, and has those crossed out that are gone; the others' faults.
pub fn give_back(
    provider: &Arc<dyn Provider>,
    run: &Tag,
    held: Vec<Machine>,
    patience: Duration,
    mut gone: impl FnMut(&str),
) -> Vec<Fault> {
    let names: Vec<String> = held.iter().map(|machine| machine.name.clone()).collect();
    let unwanted = |machine| Unwanted { provider: provider.clone(), run: run.clone(), machine };
    let mut faults = Vec::new();
    destroy(held.into_iter().map(unwanted).collect(), patience, |number, result| match result {
        Ok(()) => gone(&names[number]),
        Err(fault) => faults.push(fault),
    });
    faults
}

impl Pool {
    /// Gives every machine back, and says what could not be.
    pub fn end(&mut self) -> Vec<Fault> {
        self.stop_raising();
        self.room.open();
        for live in self.live.values() {
            live.remote.say(ToHost::End);
        }
        // Set-up steps under way are given up.
        std::mem::take(&mut self.opened).into_values().for_each(|remote| remote.close());
        let looks = END_WITHIN.as_millis() / LOOK_EVERY.as_millis();
        for _ in 0..looks {
            self.take_in();
            if self.live.values().all(|live| live.remote.has_said_bye()) {
                break;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        for live in std::mem::take(&mut self.live).into_values() {
            let leaves = self.means.provider.leaves_with_host(&live.machine);
            if leaves && live.remote.has_said_bye() {
                let mut resources = self.resources.lock().expect("no thread panics with them");
                // It is asked for once more otherwise, which is no error.
                let _ = resources.gone(&live.machine.name);
            }
            live.remote.close();
        }
        self.settle();
        self.give_back()
    }

    /// Waits for machines that are being raised: each gives back what it has when it sees that all
    /// is over.
    pub(super) fn settle(&mut self) {
        let looks = GIVE_BACK.as_millis() / LOOK_EVERY.as_millis();
        for _ in 0..looks {
            if self.at_work.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.take_in();
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Closes what was raised just before all was over.
    fn take_in(&mut self) {
        while let Ok(news) = self.inbox.try_recv() {
            match news {
                News::Raised { raised, .. } => {
                    if let Ok(raised) = *raised {
                        raised.remote.close();
                    }
                }
                News::Progress { progress: Progress::Opened { remote, .. }, .. } => remote.close(),
                News::Progress {
                    attempt,
                    progress: Progress::Told(Told::Agent(AgentNews::Log { agent, bytes })),
                    ..
                } => {
                    self.logged(attempt, agent, bytes);
                }
                _ => {}
            }
        }
    }

    fn give_back(&mut self) -> Vec<Fault> {
        let resources = self.resources.clone();
        let resources = || resources.lock().expect("no thread panics with them");
        let held = resources().held();
        let gone = |name: &str| drop(resources().gone(name));
        give_back(&self.means.provider, &self.means.run, held, GIVE_BACK, gone)
    }

    /// No attempt goes on, and none is begun.
    pub(super) fn stop_raising(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        for (number, over) in &self.raising {
            over.store(true, Ordering::SeqCst);
            if let Some(machine) = self.roster.machine(*number) {
                self.means.provider.abandon(machine);
            }
        }
        self.roster.end();
    }
}
