//! The links of a session, and the threads that read them.
//!
//! One thread reads orders, and announces leases to the read-ahead as they come; one per server
//! fills the board; one says that this process lives. All of them put what happens in the mail, and
//! end when the links are closed.

use crate::ahead::Wanted;
use crate::board::{Writer, Wrong};
use crate::duty::Input;
use crate::mail::Mail;
use planaria_protocol::clock::Clock;
use planaria_protocol::link::{Receiver, Sender};
use planaria_protocol::message::{FromWorker, Pull, ToWorker, Weather};
use planaria_protocol::methods::{self, sync};
use planaria_protocol::weather;
use planaria_protocol::{Error, bytes};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How often this process says that it lives.
const ALIVE: Duration = Duration::from_millis(250);

/// How long the coordinator, which says twice a second that it lives, may be silent.
pub const SILENCE: Duration = Duration::from_secs(10);

/// The links of a session.
pub struct Links {
    coordinator: Sender,
    state: Mutex<State>,
    changed: Condvar,
    heard: AtomicBool,
}

#[derive(Default)]
struct State {
    servers: Vec<Sender>,
    /// The servers are not spoken to any more.
    has_hung_up: bool,
    has_ended: bool,
}

impl Links {
    /// With a link to the coordinator alone.
    pub fn new(coordinator: Sender) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { coordinator, state, changed, heard: AtomicBool::new(false) })
    }

    /// The generation of all links.
    pub fn generation(&self) -> u64 {
        self.coordinator.generation()
    }

    /// Tells the coordinator. If it cannot be told, the thread that reads orders finds out.
    pub fn tell(&self, message: &FromWorker, bulk: &[u8]) {
        if self.coordinator.send_with(message, bulk).is_err() {
            self.coordinator.close();
        }
    }

    /// Waits until the coordinator has been told everything, so long at most.
    pub fn flush(&self, within: Duration) {
        // It may be what went away.
        let _ = self.coordinator.flush_and_close(within);
    }

    /// The coordinator has said something.
    pub fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether the coordinator has said anything.
    pub fn was_spoken_to(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// One more server; its link is closed at once if the servers are not spoken to any more.
    pub fn add(&self, server: Sender) {
        let mut state = self.state();
        if state.has_hung_up {
            server.close();
        }
        state.servers.push(server);
    }

    /// Closes the links to all servers, so that whoever waits to be heard by one is let go.
    pub fn hang_up(&self) {
        let mut state = self.state();
        state.has_hung_up = true;
        state.servers.iter().for_each(Sender::close);
        self.changed.notify_all();
    }

    /// Closes all links.
    pub fn end(&self) {
        self.hang_up();
        self.state().has_ended = true;
        self.changed.notify_all();
        self.coordinator.close();
    }

    /// Waits so long; true, and at once, if the servers are not spoken to any more.
    pub fn pause(&self, time: Duration) -> bool {
        let waited =
            self.changed.wait_timeout_while(self.state(), time, |state| !state.has_hung_up);
        waited.expect("no thread panics with the links").0.has_hung_up
    }

    /// The thread that says that this process lives.
    pub fn live(&self, clock: &dyn Clock) {
        loop {
            let waited =
                self.changed.wait_timeout_while(self.state(), ALIVE, |state| !state.has_ended);
            if waited.expect("no thread panics with the links").0.has_ended {
                return;
            }
            clear_up(clock.now());
            self.tell(&FromWorker::Alive, &[]);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the links")
    }
}

/// Where orders go.
pub struct Ear<'a> {
    /// The links of the session.
    pub links: &'a Links,
    pub mail: &'a Mail,
    /// What is to be read ahead.
    pub wanted: &'a Wanted,
}

impl Ear<'_> {
    /// The thread that reads orders, until there are no more; says why. A step has so many shards.
    pub fn obey(&self, orders: Receiver, shards: u32, clock: &dyn Clock) -> String {
        let why = self.hear(orders, shards, clock);
        self.mail.put(Input::Orphaned);
        // Whoever waits to be heard by a server is let go.
        self.links.hang_up();
        why.map_or_else(|error| error.to_string(), |why| why.into())
    }

    fn hear(
        &self,
        mut orders: Receiver,
        shards: u32,
        clock: &dyn Clock,
    ) -> Result<&'static str, Error> {
        let mut leases = 0;
        while let Some(incoming) = orders.receive::<ToWorker>()? {
            let order = incoming.message;
            self.links.hear();
            orders.skip_bulk()?;
            if !can_be(&order, shards) {
                return Ok("it leases what cannot be");
            }
            match &order {
                ToWorker::Alive => continue,
                ToWorker::Weather(weather) => {
                    suffer(*weather, clock.now());
                    continue;
                }
                ToWorker::Method(methods::Command::Sync(sync::Command::Lease {
                    steps,
                    shards,
                    ..
                })) => {
                    self.wanted.lease(leases, steps, shards);
                    leases += 1;
                }
                _ => {}
            }
            let ends = matches!(order, ToWorker::Rejoin | ToWorker::Finish);
            self.mail.put(Input::Order(order));
            if ends {
                self.links.hang_up();
            }
        }
        Ok("the link has ended")
    }
}

/// Whether an order can be carried out at all; who says another is not to be listened to.
fn can_be(order: &ToWorker, all: u32) -> bool {
    match order {
        ToWorker::Method(methods::Command::Sync(sync::Command::Lease {
            steps, shards, ..
        })) => {
            let batches = steps.batches.end.checked_sub(steps.batches.start);
            let end = batches.and_then(|batches| steps.first_step.checked_add(batches));
            end.is_some() && shards.start <= shards.end && shards.end <= all
        }
        _ => true,
    }
}

/// Loses frames on purpose.
fn suffer(weather: Weather, now: Duration) {
    weather::set(weather, now);
}

/// Time has passed.
pub(crate) fn clear_up(now: Duration) {
    weather::tick(now);
}

/// The state that server 0 sent last.
#[derive(Default)]
pub struct StateBox(Mutex<(Option<u64>, Vec<f32>)>);

impl StateBox {
    /// Does something with the state after `step` steps, if that is what it is.
    pub fn with<R>(&self, step: u64, f: impl FnOnce(&[f32]) -> R) -> Option<R> {
        let state = self.0.lock().expect("no thread panics with the state");
        (state.0 == Some(step)).then(|| f(&state.1))
    }

    fn put(
        &self,
        step: u64,
        read: impl FnOnce(&mut Vec<f32>) -> Result<(), Unfilled>,
    ) -> Result<(), Unfilled> {
        let mut state = self.0.lock().expect("no thread panics with the state");
        state.0 = None;
        read(&mut state.1)?;
        state.0 = Some(step);
        Ok(())
    }
}

/// Where what comes from a server goes.
pub struct Filler {
    pub server: u32,
    /// Its place on the board.
    pub writer: Writer,
    pub state: Arc<StateBox>,
    /// Values of the state.
    pub state_count: usize,
    pub mail: Arc<Mail>,
}

impl Filler {
    /// The thread that hears one server.
    pub fn hear(mut self, mut receiver: Receiver, sender: &Sender) {
        let why = match self.fill(&mut receiver) {
            Ok(()) => "it went away".into(),
            Err(why) => why.0,
        };
        self.mail.put(Input::Ended { server: self.server, why });
        // Whoever waits to be heard is let go.
        sender.close();
    }

    fn fill(&mut self, receiver: &mut Receiver) -> Result<(), Unfilled> {
        while let Some(incoming) = receiver.receive::<Pull>()? {
            let bytes = incoming.bulk_bytes;
            match incoming.message {
                Pull::Parameters { step, first_block } => {
                    self.writer.fill(step, first_block as usize, bytes, |values| {
                        match values {
                            Some(values) => receiver.read_bulk(bytes::as_bytes_mut(values))?,
                            None => receiver.skip_bulk()?,
                        }
                        Ok::<(), Unfilled>(())
                    })?;
                }
                Pull::Gone { step } => {
                    receiver.skip_bulk()?;
                    self.mail.put(Input::Gone { step });
                }
                Pull::State { step } => {
                    if bytes != self.state_count * 4 {
                        return Err(Unfilled(format!("a state of {bytes} bytes")));
                    }
                    self.state.put(step, |values| {
                        values.resize(self.state_count, 0.0);
                        Ok(receiver.read_bulk(bytes::as_bytes_mut(values))?)
                    })?;
                    self.mail.put(Input::State { step });
                }
            }
        }
        Ok(())
    }
}

/// Why hearing a server ended.
struct Unfilled(String);

impl From<Wrong> for Unfilled {
    fn from(wrong: Wrong) -> Self {
        Self(wrong.to_string())
    }
}

impl From<Error> for Unfilled {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}
