//! A worker of a coded run, joined once: orders come in, answers go out, in turn.
//!
//! One thread reads orders, one says that this process lives, and this one works. Orders of a step
//! that is over, and those from before a revocation, are passed over. Links that break end a
//! session, never the process.

use super::Value;
use super::bench::Bench;
use crate::links::{Links, SILENCE};
use crate::run::Log;
use planaria_numerics::coding::Slot;
use planaria_protocol::clock::Clock;
use planaria_protocol::coded::{FromCoded, ToCoded, Travel};
use planaria_protocol::launch::Launch;
use planaria_protocol::link::{self, Receiver};
use planaria_protocol::message::{FromWorker, Join, ToWorker, Trouble};
use planaria_protocol::{Error, Passport, weather};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// How long a last word may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// Orders that may wait.
const WAITING_MAX: usize = 1 << 12;
/// Largest bulk of an order.
const BULK_BYTES_MAX: usize = 1 << 30;

/// What every session of a process has in common.
pub struct Setting<'a> {
    /// Where the coordinator listens.
    pub address: &'a str,
    /// What is shown to the others.
    pub passport: &'a Passport,
    /// What is said on connecting.
    pub join: &'a Join,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Log lines.
    pub log: &'a Log,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The run is over.
    Finished,
    /// Join again.
    Again,
}

/// An order, its bulk, and how many steps and revocations had begun by then.
struct Order {
    message: ToWorker,
    bulk: Vec<u8>,
    turn: u64,
}

/// A worker joined once.
pub struct Session<'scope, 'env> {
    setting: &'env Setting<'env>,
    links: Arc<Links>,
    orders: mpsc::Receiver<Order>,
    /// Steps and revocations that the reading thread has seen.
    turn: Arc<AtomicU64>,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
}

/// What a step needs.
struct Step<E> {
    number: Option<u64>,
    weights: Vec<E>,
    sums: BTreeMap<u64, Vec<E>>,
    model: (Option<u64>, Vec<f64>),
    rows: u64,
    busy: Duration,
    waiting: Duration,
}

impl<'scope, 'env> Session<'scope, 'env> {
    /// Joins the coordinator. From now on it hears that this process lives.
    pub fn join(
        scope: &'scope Scope<'scope, '_>,
        setting: &'env Setting<'env>,
    ) -> Result<Self, Error>
    where
        'env: 'scope,
    {
        let (coordinator, mut receiver) = link::connect(setting.address, setting.passport, None)?;
        receiver.set_timeout(Some(SILENCE))?;
        coordinator.send(setting.join)?;
        let links = Links::new(coordinator);
        let (post, orders) = mpsc::sync_channel(WAITING_MAX);
        let turn = Arc::new(AtomicU64::new(0));
        let mut session =
            Self { setting, links: links.clone(), orders, turn: turn.clone(), threads: Vec::new() };
        let hearing = links.clone();
        let hear = move || {
            let why = match hear(&hearing, receiver, &post, &turn, setting.clock) {
                Ok(()) => "the link has ended".to_owned(),
                Err(error) => error.to_string(),
            };
            // One that lets nobody in is tried many times.
            if hearing.was_spoken_to() {
                (setting.log)(&format!("the coordinator is not heard any more: {why}"));
            }
        };
        session.spawn(scope, "orders", hear)?;
        session.spawn(scope, "alive", move || links.live(setting.clock))?;
        Ok(session)
    }

    /// Whether the coordinator has said anything.
    pub fn was_spoken_to(&self) -> bool {
        self.links.was_spoken_to()
    }

    /// The process cannot go on: tells the coordinator.
    pub fn fail(&self, trouble: &Trouble) {
        self.links.tell(&FromWorker::Failed(trouble.clone()), &[]);
        self.links.flush(FAREWELL);
    }

    /// Works until the run or the session is over. Fails if the process cannot go on.
    pub fn work<E: Value>(
        &mut self,
        launch: &Launch,
        bench: &mut Option<Bench<E>>,
    ) -> Result<End, Trouble> {
        let log = self.setting.log;
        let bench = match bench {
            Some(bench) => bench,
            None => {
                let (address, data) = (self.setting.address, &launch.recipe.data.train);
                log(&format!("joined the coordinator at {address}; opening `{data}`"));
                bench.insert(Bench::prepare(launch)?)
            }
        };
        self.say(FromCoded::Offer { slots: bench.kept() }, &[]);
        let mut step = Step::new();
        loop {
            let since = self.setting.clock.now();
            let order = match self.orders.recv_timeout(SILENCE) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(End::Again),
            };
            let began = self.setting.clock.now();
            step.waiting += began.saturating_sub(since);
            let is_current = order.turn == self.turn.load(Ordering::SeqCst);
            match order.message {
                ToWorker::Finish => {
                    self.links.flush(FAREWELL);
                    return Ok(End::Finished);
                }
                ToWorker::Rejoin => return Ok(End::Again),
                ToWorker::Revoke { ticket } => {
                    let model = std::mem::take(&mut step.model);
                    step = Step { model, ..Step::new() };
                    log("what was asked for is revoked");
                    self.links.tell(&FromWorker::Revoked { ticket }, &[]);
                }
                ToWorker::Evaluate { part, step: number, batches, .. }
                    if step.model.0 == Some(number) =>
                {
                    for batch in batches {
                        let scores = bench.score(part, batch, &step.model.1)?;
                        let told = FromWorker::Evaluated { part, step: number, batch };
                        self.links.tell(&told, &scores);
                    }
                }
                ToWorker::Coded(ToCoded::Seat { slot }) => self.sit(bench, slot)?,
                ToWorker::Coded(ToCoded::Model { step: number }) => {
                    step.model = (Some(number), numbers(&order.bulk)?);
                }
                ToWorker::Coded(message) if is_current => {
                    if let Some((answer, bulk)) = step.obey(bench, message, &order.bulk)? {
                        self.say(answer, &bulk);
                    }
                }
                _ => {}
            }
            step.busy += self.setting.clock.now().saturating_sub(began);
        }
    }

    fn sit<E: Value>(&self, bench: &mut Bench<E>, slot: u16) -> Result<(), Trouble> {
        let log = self.setting.log;
        log(&format!("taking slot {slot}"));
        let cached = bench.sit(slot, log)?;
        let from = if cached { "as they were kept" } else { "encoded anew" };
        log(&format!("ready with the rows of slot {slot}, {from}"));
        let ready = FromCoded::Ready { slot, engine: bench.engine(), threads: 1, cached };
        self.say(ready, &bench.bounds());
        Ok(())
    }

    fn say(&self, message: FromCoded, bulk: &[u8]) {
        self.links.tell(&FromWorker::Coded(message), bulk);
    }

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
}

impl Drop for Session<'_, '_> {
    fn drop(&mut self) {
        self.links.end();
        // The reading thread may wait for room.
        while self.orders.recv_timeout(Duration::ZERO).is_ok() {}
        for thread in self.threads.drain(..) {
            // It has no result, and its panic has been shown.
            let _ = thread.join();
        }
    }
}

/// The thread that reads orders, until there are no more.
fn hear(
    links: &Links,
    mut receiver: Receiver,
    post: &SyncSender<Order>,
    turn: &AtomicU64,
    clock: &dyn Clock,
) -> Result<(), Error> {
    while let Some(incoming) = receiver.receive::<ToWorker>()? {
        links.hear();
        let bulk = receiver.bulk_vec(BULK_BYTES_MAX)?;
        let message = incoming.message;
        match &message {
            ToWorker::Alive => continue,
            ToWorker::Weather(storm) => {
                weather::set(*storm, clock.now());
                continue;
            }
            // What waits of the step before is not wanted any more.
            ToWorker::Revoke { .. } | ToWorker::Coded(ToCoded::Weights { .. }) => {
                turn.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
        let turn = turn.load(Ordering::SeqCst);
        if post.send(Order { message, bulk, turn }).is_err() {
            break;
        }
    }
    Ok(())
}

impl<E: Value> Step<E> {
    fn new() -> Self {
        Self {
            number: None,
            weights: Vec::new(),
            sums: BTreeMap::new(),
            model: (None, Vec::new()),
            rows: 0,
            busy: Duration::ZERO,
            waiting: Duration::ZERO,
        }
    }

    /// Does what is asked for, and gives the answer.
    fn obey(
        &mut self,
        bench: &mut Bench<E>,
        order: ToCoded,
        bulk: &[u8],
    ) -> Result<Option<(FromCoded, Vec<u8>)>, Trouble> {
        let own = self.number;
        Ok(match order {
            ToCoded::Weights { step } => {
                (self.number, self.weights) = (Some(step), numbers(bulk)?);
                self.sums.clear();
                None
            }
            ToCoded::Multiply { step, group, places } if own == Some(step) => {
                let places = narrow(&places)?;
                self.rows += places.len() as u64;
                let product = bench.multiply(&places, &self.weights)?;
                Some((FromCoded::Product { step, group }, E::bytes(&product)))
            }
            ToCoded::Decode { step, group, places, members } if own == Some(step) => {
                let members: Vec<Slot> = members.into_iter().map(Slot).collect();
                let products: Vec<E> = numbers(bulk)?;
                let (entries, counted) = bench.decode(&narrow(&places)?, &members, &products)?;
                Some((FromCoded::Decoded { step, group, counted }, E::bytes(&entries)))
            }
            ToCoded::Add { step, ticket, places } if own == Some(step) => {
                let places = narrow(&places)?;
                self.rows += places.len() as u64;
                let sums = self.sums.entry(ticket).or_default();
                bench.add(&places, &numbers::<E>(bulk)?, sums)?;
                None
            }
            ToCoded::Deliver { step, ticket } if own == Some(step) => {
                let Some(sums) = self.sums.remove(&ticket) else { return Ok(None) };
                let sum = FromCoded::Sum {
                    step,
                    ticket,
                    rows: std::mem::take(&mut self.rows),
                    busy_seconds: std::mem::take(&mut self.busy).as_secs_f64(),
                    waiting_seconds: std::mem::take(&mut self.waiting).as_secs_f64(),
                };
                Some((sum, E::bytes(&sums)))
            }
            _ => None,
        })
    }
}

fn numbers<T: Travel>(bulk: &[u8]) -> Result<Vec<T>, Trouble> {
    T::take(bulk).ok_or_else(|| Trouble::new("the coordinator sent numbers that are none"))
}

fn narrow(places: &Range<u64>) -> Result<Range<usize>, Trouble> {
    match (usize::try_from(places.start), usize::try_from(places.end)) {
        (Ok(start), Ok(end)) if start <= end => Ok(start..end),
        _ => Err(Trouble::new(format!("there are no places {places:?}"))),
    }
}
