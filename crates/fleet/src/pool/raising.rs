//! Machines of a pool that are raised or released, on threads.
//!
//! Asks for many at once, and reports the result of each. One machine is [`raise`](super::raise)'s.

use super::raise::{Attempt, Progress};
use super::roster::Input;
use super::{END_WITHIN, LOOK_EVERY, Live, News, Pool};
use crate::log_end;
use crate::messages::{AgentNews, ToHost};
use crate::provider::{Fault, Machine, Made};
use crate::remote::Told;
use planaria_protocol::event::MachineState;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

impl Pool {
    pub(super) fn attempt(&mut self, number: u32, machine: Machine) -> Numbered {
        self.attempts += 1;
        let (attempt, over) = (self.attempts, Arc::new(AtomicBool::new(false)));
        self.raising.insert(number, over.clone());
        self.change(&machine.name, MachineState::Raising, None);
        let (announce, room) = (Mutex::new(self.announce.clone()), self.room.clone());
        let tell = move |progress| {
            if let Progress::Told(Told::Agent(AgentNews::Log { bytes, .. })) = &progress {
                room.enter(bytes.len());
            }
            let announce = announce.lock().expect("no thread panics with it");
            // Where the pool is gone, it has given everything back.
            let _ = announce.send(News::Progress { number, attempt, progress });
        };
        let (means, resources) = (self.means.clone(), Some(self.resources.clone()));
        let tell = Arc::new(tell);
        let raising = Attempt { machine, means, resources, tell, over, was_left: false };
        let announce = self.announce.clone();
        let at_work = AtWork::begin(&self.at_work);
        Numbered { number, which: attempt, attempt: raising, announce, _at_work: at_work }
    }

    /// Raises machines: written down, asked for all at once, and then each on a thread of its own.
    pub(super) fn raise(&self, due: Vec<Numbered>) {
        let means = self.means.clone();
        let work = move |due: Vec<Numbered>| {
            let begun: Mutex<BTreeMap<String, Numbered>> = Mutex::default();
            std::thread::scope(|scope| {
                for one in due {
                    scope.spawn(|| {
                        let Some(one) = one.begin() else { return };
                        let name = one.attempt.machine.name.clone();
                        begun.lock().expect("no thread panics with them").insert(name, one);
                    });
                }
            });
            let machines: Vec<Machine> = {
                let begun = begun.lock().expect("no thread panics with them");
                begun.values().map(|one| one.attempt.machine.clone()).collect()
            };
            means.provider.create_many(&means.run, &machines, &|machine, made| {
                let one = begun.lock().expect("no thread panics with them").remove(&machine.name);
                if let Some(one) = one {
                    on_thread(one, move |one| one.finish(made), Numbered::fail);
                }
            });
            for one in begun.into_inner().expect("no thread panics with them").into_values() {
                one.fail("its provider said nothing of it");
            }
        };
        on_thread(due, work, |due, why| due.into_iter().for_each(|one| one.fail(why)));
    }

    /// Gives a machine back that is no longer wanted.
    pub(super) fn release(&mut self, number: u32) {
        if let Some(over) = self.raising.get(&number) {
            over.store(true, Ordering::SeqCst);
            if let Some(remote) = self.opened.remove(&number) {
                remote.close();
            }
            return;
        }
        let Some(live) = self.live.remove(&number) else { return };
        self.forget_place(&live.route);
        self.notes.push(format!("{}: released, and given back", live.machine.name));
        self.change(&live.machine.name, MachineState::Released, None);
        self.end_processes(number);
        self.hand_back(live, Some(number));
    }

    /// A process has found that its machine lacks what it needs: the machine is given up.
    pub(super) fn unfit(&mut self, now: Duration, process: u32) {
        let Some((number, agent)) = self.processes.get(&process).copied() else { return };
        let Some(live) = self.live.remove(&number) else { return };
        let log = format!("{agent}.log");
        let said = log_end::last_line(&self.logs.path(agent)).unwrap_or_default();
        let (what, hint) = said.split_once("  hint: ").unwrap_or((&said, ""));
        let what = match what.trim_start_matches("error: ") {
            "" => format!("it lacks what {agent} needs; `logs/{log}` says what"),
            what => what.to_owned(),
        };
        let hint = if hint.is_empty() { format!("its log is `logs/{log}`") } else { hint.into() };
        let fault = Fault::replace(&live.machine.name, what, hint);
        self.forget_place(&live.route);
        // At once, so that none of them meets the one that takes its place. How they ended says
        // nothing of how others would do.
        let there = self.processes.iter().filter(|(_, (machine, _))| *machine == number);
        for process in there.map(|(process, _)| *process) {
            live.remote.say(ToHost::Kill { process });
        }
        self.end_processes(number);
        self.hand_back(live, None);
        self.step(now, Input::Unfit { number, fault });
    }

    /// Gives back a machine that was ready; where it can be raised again, announces its `number`.
    pub(super) fn hand_back(&self, live: Live, number: Option<u32>) {
        live.remote.say(ToHost::End);
        let (means, resources) = (self.means.clone(), self.resources.clone());
        let (announce, at_work) = (self.announce.clone(), AtWork::begin(&self.at_work));
        let work = move || {
            let _at_work = at_work;
            for _ in 0..END_WITHIN.as_millis() / LOOK_EVERY.as_millis() {
                if live.remote.has_said_bye() {
                    break;
                }
                std::thread::park_timeout(LOOK_EVERY);
            }
            live.remote.close();
            if means.provider.destroy(&means.run, &live.machine).is_ok() {
                let mut resources = resources.lock().expect("no thread panics with them");
                // It is asked for once more otherwise, which is no error.
                let _ = resources.gone(&live.machine.name);
            }
            if let Some(number) = number {
                let _ = announce.send(News::Released(number));
            }
        };
        let _ = Builder::new().name("release".into()).spawn(work);
    }
}

/// An attempt, and where what came of it is told.
pub(super) struct Numbered {
    number: u32,
    /// Which attempt of the pool's.
    which: u64,
    attempt: Attempt,
    announce: Sender<News>,
    _at_work: AtWork,
}

impl Numbered {
    /// Writes the machine down; nothing where that failed, which is announced.
    fn begin(mut self) -> Option<Self> {
        match self.attempt.begin() {
            Ok(()) => Some(self),
            Err(fault) => {
                self.finish(Err(fault));
                None
            }
        }
    }

    fn finish(self, made: Result<Made, Fault>) {
        let Self { number, which, attempt, announce, _at_work } = self;
        let raised = Box::new(attempt.finish(made));
        // Where the pool is gone, it has given everything back.
        let _ = announce.send(News::Raised { number, attempt: which, raised });
    }

    fn fail(self, why: &str) {
        let fault = Fault::retry(&self.attempt.machine.name, why);
        self.finish(Err(fault));
    }
}

/// Counts a thread as long as it lives.
pub(super) struct AtWork(Arc<AtomicUsize>);

impl AtWork {
    pub(super) fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Does something on a thread of its own, or `otherwise` where no thread can be started.
fn on_thread<T: Send + 'static>(
    what: T,
    work: impl FnOnce(T) + Send + 'static,
    otherwise: impl FnOnce(T, &str),
) {
    let held = Arc::new(Mutex::new(Some(what)));
    let taken = held.clone();
    let take = |held: &Mutex<Option<T>>| held.lock().expect("no thread panics with it").take();
    let started = Builder::new().name("raise".into()).spawn(move || {
        if let Some(what) = take(&taken) {
            work(what);
        }
    });
    if let Err(e) = started
        && let Some(what) = take(&held)
    {
        otherwise(what, &format!("cannot start a thread: {e}"));
    }
}
