//! The end of a pool: every machine is given back, with whatever still runs on it.
//!
//! Owns the order of it, and that it has an end. What could not be given back stays written down.

use super::raise::Progress;
use super::{FAREWELL, LOOK_EVERY, News, Pool};
use crate::messages::ToHost;
use crate::provider::{Fault, Machine};
use crate::remote::Told;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long giving everything back may take.
const GIVE_BACK: Duration = Duration::from_secs(40);

impl Pool {
    /// Gives every machine back, and says what could not be.
    pub fn end(&mut self) -> Vec<Fault> {
        self.stop_raising();
        for live in self.live.values() {
            live.remote.say(ToHost::End);
        }
        // Whoever waits for a step of the set-up is let go.
        std::mem::take(&mut self.opened).into_values().for_each(|remote| remote.close());
        let looks = FAREWELL.as_millis() / LOOK_EVERY.as_millis();
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
                News::Progress { progress: Progress::Told(Told::Log(agent, bytes)), .. } => {
                    self.log(agent, &bytes);
                }
                _ => {}
            }
        }
    }

    fn give_back(&mut self) -> Vec<Fault> {
        let held = self.resources.lock().expect("no thread panics with them").held();
        let (done, results) = channel();
        let mut waiting: BTreeMap<String, Machine> = BTreeMap::new();
        for machine in held {
            waiting.insert(machine.name.clone(), machine.clone());
            let (means, done) = (self.means.clone(), done.clone());
            let destroy = move || {
                let result = means.provider.destroy(&means.run, &machine);
                let _ = done.send((machine, result));
            };
            let _ = std::thread::Builder::new().name("give-back".into()).spawn(destroy);
        }
        drop(done);
        let mut faults = Vec::new();
        while let Ok((machine, result)) = results.recv_timeout(GIVE_BACK) {
            waiting.remove(&machine.name);
            let mut resources = self.resources.lock().expect("no thread panics with them");
            match result {
                Ok(()) => drop(resources.gone(&machine.name)),
                Err(fault) => faults.push(fault),
            }
        }
        let late = |machine: &Machine| Fault::retry(&machine.name, "it could not be given back");
        faults.extend(waiting.values().map(late));
        faults
    }

    /// No attempt goes on, and none is begun.
    pub(super) fn stop_raising(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.raising.values().for_each(|over| over.store(true, Ordering::SeqCst));
        self.roster.end();
    }
}
