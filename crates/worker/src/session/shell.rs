//! A worker's process: a thin loop around [`Worker`] that does what it says, with a link to the
//! coordinator and threads.
//!
//! One thread reads the coordinator's orders into the inbox, one sends heartbeats, and this one does
//! one effect after another: so a worker that computes for long is heard, and hears. Threads of a
//! session end with it. A link that breaks ends a session, never the process.

use super::inbox::{Beat, Heard, Inbox};
use super::method::{Batch, Effect, Method};
use super::worker::Worker;
use super::{ALIVE, FLUSH_WITHIN};
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::link::{self, Receiver, Sender};
use planaria_protocol::message::{Agent, FromWorker, Join, ToWorker, Trouble};
use planaria_protocol::{Credentials, Error, frame_loss};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// Where log lines go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Largest bulk of an order.
const BULK_BYTES_MAX: usize = 1 << 30;

/// What every session of a process has in common.
pub struct Setting<'a> {
    /// Where the coordinator listens.
    pub address: String,
    /// What is shown to the others.
    pub credentials: Credentials,
    /// What is said on connecting.
    pub join: Join,
    pub clock: &'a dyn Clock,
    pub log: Log,
}

impl<'a> Setting<'a> {
    /// Of the worker with this number.
    pub fn of(
        launch: &Launch,
        index: u32,
        clock: &'a dyn Clock,
        log: Log,
    ) -> Result<Self, Trouble> {
        let join = Join {
            machine: launch.station.machine.clone(),
            ..Join::new(Agent::Worker(index), launch.build.clone(), launch.station.pid())
        };
        let credentials = Credentials::of(launch).map_err(Trouble::new)?;
        let address = launch.coordinator.clone().unwrap_or_default();
        Ok(Self { address, credentials, join, clock, log })
    }
}

/// Does what a method asks for. One for the life of the process.
pub trait Hands<M: Method> {
    /// Opens the data and compiles the network.
    fn prepare(&mut self) -> Result<M::Prepared, Trouble>;

    /// A session has begun, of this generation; what its threads hear goes into the inbox.
    fn begin(&mut self, inbox: &Arc<Inbox<M::Event>>, generation: u64) -> Arc<dyn AtOnce>;

    /// Does what the method asks for, and says what came of it.
    fn act(&mut self, effect: M::Effect) -> Result<Option<M::Event>, Trouble>;

    /// The scores of a batch, as JSON; nothing where it cannot be scored.
    fn score(&mut self, batch: Batch) -> Result<Option<Vec<u8>>, Trouble>;

    /// The process has waited so long for something to come in.
    fn waited(&mut self, _time: Duration) {}

    /// Closes the session's links and ends its threads.
    fn leave(&mut self);
}

/// What is done on the thread that reads orders, while the main thread may be busy.
pub trait AtOnce: Send + Sync {
    /// Looks at an order as it comes; the reason if it cannot be carried out at all.
    fn look_at(&self, _order: &ToWorker) -> Result<(), &'static str> {
        Ok(())
    }

    /// No more orders come: closes links on which a sender may be blocked.
    fn hang_up(&self) {}
}

/// Works until the coordinator says that the run is over.
pub fn run<M: Method>(
    setting: &Setting<'_>,
    method: M,
    hands: &mut dyn Hands<M>,
) -> Result<(), Trouble> {
    let worker = Worker::new(method, &setting.address, setting.clock.now());
    std::thread::scope(|scope| Process { scope, setting, worker, hands, link: None }.run())
}

struct Process<'scope, 'env, 'h, M: Method> {
    scope: &'scope Scope<'scope, 'env>,
    setting: &'env Setting<'env>,
    worker: Worker<M>,
    hands: &'h mut dyn Hands<M>,
    link: Option<Link<'scope>>,
}

/// The link to the coordinator, and its threads.
struct Link<'scope> {
    coordinator: Sender,
    ended: Arc<Ended>,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
}

/// Whether a session has ended.
#[derive(Default)]
struct Ended {
    is_so: Mutex<bool>,
    changed: Condvar,
}

impl<'scope, M: Method> Process<'scope, '_, '_, M> {
    fn run(mut self) -> Result<(), Trouble> {
        loop {
            let now = self.setting.clock.now();
            match self.worker.next(now) {
                None => self.wait(now),
                Some(Effect::End(how)) => {
                    if let Some(link) = &self.link {
                        // It may be what went away.
                        let _ = link.coordinator.flush_and_close(FLUSH_WITHIN);
                    }
                    self.leave();
                    return how;
                }
                Some(effect) => {
                    if let Err(trouble) = self.act(effect) {
                        self.worker.fail(trouble);
                    }
                }
            }
        }
    }

    fn wait(&mut self, now: Duration) {
        let timeout = self.worker.wake_at().map(|at| at.saturating_sub(now));
        self.worker.inbox().wait(timeout);
        let then = self.setting.clock.now();
        frame_loss::tick(then);
        self.hands.waited(then.saturating_sub(now));
    }

    fn act(&mut self, effect: Effect<M::Effect>) -> Result<(), Trouble> {
        match effect {
            Effect::Join => match self.join() {
                Ok(link) => {
                    self.link = Some(link);
                    self.worker.joined();
                }
                Err(error) => {
                    self.leave();
                    self.worker.not_joined(self.setting.clock.now(), &error.to_string());
                }
            },
            Effect::Prepare => {
                let prepared = self.hands.prepare()?;
                self.worker.prepared(prepared);
            }
            Effect::Tell(message, bulk) => {
                if let Some(link) = &self.link {
                    tell(&link.coordinator, &message, &bulk);
                }
            }
            Effect::Score(batch) => {
                let scores = self.hands.score(batch)?;
                self.worker.scored(batch, scores);
            }
            Effect::Log(line) => (self.setting.log)(&line),
            Effect::Own(effect) => {
                if let Some(event) = self.hands.act(effect)? {
                    self.worker.answer(event);
                }
            }
            Effect::Leave | Effect::End(_) => self.leave(),
        }
        Ok(())
    }

    /// Joins the coordinator. From now on it hears that this process lives.
    fn join(&mut self) -> Result<Link<'scope>, Error> {
        let setting = self.setting;
        let (coordinator, orders) =
            link::connect(&setting.address, &setting.credentials, Agent::Coordinator, None)?;
        coordinator.send(&setting.join)?;
        let inbox = self.worker.inbox().clone();
        let at_once = self.hands.begin(&inbox, coordinator.generation());
        let ended = Arc::new(Ended::default());
        let mut link = Link { coordinator, ended, threads: Vec::new() };
        let (reader, beats) = (inbox.clone(), (link.coordinator.clone(), link.ended.clone()));
        link.spawn(self.scope, "orders", move || read(setting, orders, &reader, &*at_once))?;
        link.spawn(self.scope, "alive", move || beat(setting.clock, &beats.0, &beats.1, &inbox))?;
        Ok(link)
    }

    fn leave(&mut self) {
        // First the thread that reads orders: what it announces is forgotten after it.
        self.link = None;
        self.hands.leave();
    }
}

impl<'scope> Link<'scope> {
    fn spawn(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        f: impl FnOnce() + Send + 'scope,
    ) -> Result<(), Error> {
        let thread = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, f);
        let failed = |source| Error::Io { what: "starting a thread", source };
        self.threads.push(thread.map_err(failed)?);
        Ok(())
    }

    fn end(&self) {
        *self.ended.is_so.lock().expect("no thread panics with it") = true;
        self.ended.changed.notify_all();
        self.coordinator.close();
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        self.end();
        for thread in self.threads.drain(..) {
            // It has no result, and its panic has been shown.
            let _ = thread.join();
        }
    }
}

/// If the coordinator cannot be told, the thread that reads its orders finds out.
fn tell(coordinator: &Sender, message: &FromWorker, bulk: &[u8]) {
    if coordinator.send_with(message, bulk).is_err() {
        coordinator.close();
    }
}

/// The thread that reads orders, until there are no more.
fn read<E>(setting: &Setting<'_>, orders: Receiver, inbox: &Inbox<E>, at_once: &dyn AtOnce) {
    let why = match read_orders(setting.clock, orders, inbox, at_once) {
        Ok(why) => why.to_owned(),
        Err(error) => error.to_string(),
    };
    // Not for one that never answered: it is tried many times.
    if inbox.was_spoken_to() {
        (setting.log)(&format!("the link to the coordinator has ended: {why}"));
    }
    inbox.orphan();
    at_once.hang_up();
}

fn read_orders<E>(
    clock: &dyn Clock,
    mut orders: Receiver,
    inbox: &Inbox<E>,
    at_once: &dyn AtOnce,
) -> Result<&'static str, Error> {
    while let Some(incoming) = orders.receive::<ToWorker>()? {
        let bulk = orders.bulk_vec(BULK_BYTES_MAX)?;
        let order = incoming.message;
        if let Err(why) = at_once.look_at(&order) {
            return Ok(why);
        }
        match inbox.hear(clock.now(), order, bulk) {
            Heard::Kept => {}
            Heard::Last => at_once.hang_up(),
            Heard::Fault(fault) => frame_loss::set(fault, clock.now()),
        }
    }
    Ok("the link has ended")
}

/// The thread that says that this process lives, and notices that the coordinator does not.
fn beat<E>(clock: &dyn Clock, coordinator: &Sender, ended: &Ended, inbox: &Inbox<E>) {
    loop {
        let is_so = ended.is_so.lock().expect("no thread panics with it");
        let waited = ended.changed.wait_timeout_while(is_so, ALIVE, |is_so| !*is_so);
        if *waited.expect("no thread panics with it").0 {
            return;
        }
        let now = clock.now();
        frame_loss::tick(now);
        match inbox.beat(now) {
            Beat::Alive => tell(coordinator, &FromWorker::Alive, &[]),
            Beat::Silent => coordinator.close(),
        }
    }
}
