//! A worker of a coded run, joined once: orders and letters come in, answers go out, in turn.
//!
//! One thread reads orders, those of [`super::peers`] read what other workers send, one says that
//! this process lives, and this one works. Orders of a round that is over, and those from before a
//! revocation, are passed over. A link to the coordinator that breaks ends a session, never the
//! process.

use super::Value;
use super::bench::{Bench, Seated};
use super::peers::{Door, Letter, Peers};
use super::round::{Answer, Arithmetic, Round};
use super::source::{Missed, Source, Watch};
use crate::links::{Links, SILENCE};
use crate::run::Log;
use planaria_numerics::coding::Slot;
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::link::{self, Receiver};
use planaria_protocol::message::{FromWorker, Join, ToWorker, Trouble};
use planaria_protocol::methods;
use planaria_protocol::methods::coded::{Command, Report, Tallied, Travel};
use planaria_protocol::{Error, Passport, weather};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// Where other workers reach this one.
    pub door: &'a Door,
    /// The way to other workers.
    pub peers: &'a Peers,
    pub clock: &'a dyn Clock,
    pub log: &'a Log,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The run is over.
    Finished,
    Again,
}

/// What comes.
enum Event {
    /// An order, its bulk, and how many rounds and revocations had begun by then.
    Order(ToWorker, Vec<u8>, u64),
    /// From another worker.
    Letter(Letter),
    /// No orders come any more.
    Orphaned,
}

/// A worker joined once.
pub struct Session<'scope, 'env> {
    setting: &'env Setting<'env>,
    links: Arc<Links>,
    events: mpsc::Receiver<Event>,
    /// Rounds and revocations that the reading thread has seen.
    turn: Arc<AtomicU64>,
    /// The last order has come, or no more can.
    over: Arc<AtomicBool>,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
}

/// Weights to score with, and the step that they are after.
type Scored = (Option<u64>, Vec<f64>);

/// A bench that knows how long it has decoded.
struct Timed<'a, E: Value> {
    bench: &'a mut Bench<E>,
    clock: &'a dyn Clock,
    decoding: Duration,
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
        let (post, events) = mpsc::sync_channel(WAITING_MAX);
        let letters = post.clone();
        setting.door.read_by(move |letter| letters.send(Event::Letter(letter)).is_ok());
        let turn = Arc::new(AtomicU64::new(0));
        let over = Arc::new(AtomicBool::new(false));
        let mut session = Self {
            setting,
            links: links.clone(),
            events,
            turn: turn.clone(),
            over: over.clone(),
            threads: Vec::new(),
        };
        let hearing = links.clone();
        let hear = move || {
            let why = match hear(&hearing, receiver, &post, (&turn, &over), setting.clock) {
                Ok(()) => "the link has ended".to_owned(),
                Err(error) => error.to_string(),
            };
            over.store(true, Ordering::SeqCst);
            // One that lets nobody in is tried many times.
            if hearing.was_spoken_to() {
                (setting.log)(&format!("the coordinator is not heard any more: {why}"));
            }
            let _ = post.send(Event::Orphaned);
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
                let Setting { address, passport, join, .. } = self.setting;
                log(&format!("joined the coordinator at {address}"));
                let digest = launch.facts.coding.as_ref().map_or("", |coding| &coding.digest);
                let source = Source::new(address, passport, join, digest);
                bench.insert(Bench::prepare(launch, source)?)
            }
        };
        let address = self.setting.door.address().to_owned();
        self.say(Report::Offer { slots: bench.kept(), address }, &[]);
        let (mut round, mut model): (Round<E>, Scored) = (Round::default(), Scored::default());
        let mut slot = Slot(0);
        let clock = self.setting.clock;
        loop {
            let since = clock.now();
            let event = match self.events.recv_timeout(SILENCE) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(End::Again),
            };
            let began = clock.now();
            round.done.waiting_seconds += began.saturating_sub(since).as_secs_f64();
            let mut desk = Timed { bench, clock, decoding: Duration::ZERO };
            match event {
                Event::Orphaned => return Ok(End::Again),
                Event::Letter((letter, bulk)) => {
                    let answers = round.letter(letter, bulk, &mut desk)?;
                    self.send(answers)?;
                }
                Event::Order(message, bulk, turn) => match message {
                    ToWorker::Finish => {
                        self.links.flush(FAREWELL);
                        return Ok(End::Finished);
                    }
                    ToWorker::Rejoin => return Ok(End::Again),
                    ToWorker::Revoke { ticket } => {
                        round.give_up();
                        log("what was asked for is revoked");
                        self.links.tell(&FromWorker::Revoked { ticket }, &[]);
                    }
                    ToWorker::Evaluate { part, step, batches, .. } if model.0 == Some(step) => {
                        for batch in batches {
                            let scored =
                                self.watched(|w| desk.bench.score(part, batch, &model.1, w));
                            let Some(scores) = come(scored)? else { return self.leave() };
                            let told = FromWorker::Evaluated { part, step, batch };
                            self.links.tell(&told, &scores);
                        }
                    }
                    ToWorker::Method(methods::Command::Coded(Command::Seat { slot: seat })) => {
                        slot = Slot(seat);
                        log(&format!("taking slot {seat}"));
                        let seated = self.watched(|watch| desk.bench.sit(seat, watch));
                        let Some(seated) = come(seated)? else { return self.leave() };
                        self.say_ready(desk.bench, seat, seated);
                    }
                    ToWorker::Method(methods::Command::Coded(Command::Model { step })) => {
                        model = (Some(step), numbers(&bulk)?);
                    }
                    ToWorker::Method(methods::Command::Coded(message))
                        if turn == self.turn.load(Ordering::SeqCst) =>
                    {
                        let answers = match message {
                            Command::Weights { round: number } => {
                                self.setting.peers.retire(number);
                                round.begin(number, slot, numbers(&bulk)?, &mut desk)?
                            }
                            order => round.order(order, &mut desk)?,
                        };
                        self.send(answers)?;
                    }
                    _ => {}
                },
            }
            round.done.decode_seconds += desk.decoding.as_secs_f64();
            round.done.busy_seconds += clock.now().saturating_sub(began).as_secs_f64();
        }
    }

    fn send(&self, answers: Vec<Answer>) -> Result<(), Trouble> {
        for answer in answers {
            match answer {
                Answer::Tell(message, bulk) => self.say(message, &bulk),
                Answer::Post(address, letter, bulk) => {
                    self.setting.peers.post(&address, (letter, bulk))?;
                }
            }
        }
        Ok(())
    }

    /// Does something that may wait for the source, for as long as the session lasts.
    fn watched<T>(&self, work: impl FnOnce(Watch<'_>) -> T) -> T {
        let is_over = || self.over.load(Ordering::SeqCst);
        work(Watch { log: self.setting.log, is_over: &is_over })
    }

    /// The source is away: the session is over, or is ended here, to join again.
    fn leave(&self) -> Result<End, Trouble> {
        let mut waiting = self.events.try_iter();
        match waiting.any(|event| matches!(event, Event::Order(ToWorker::Finish, ..))) {
            true => Ok(End::Finished),
            false => Ok(End::Again),
        }
    }

    fn say_ready<E: Value>(&self, bench: &Bench<E>, slot: u16, seated: Seated) {
        let Seated { cached, downloaded } = seated;
        let from = if cached { "as they were kept" } else { "from the source" };
        (self.setting.log)(&format!(
            "ready with the rows of slot {slot}, {from}; bytes downloaded: {downloaded}"
        ));
        self.say(Report::Rows { slot, cached, downloaded }, &bench.bounds());
        self.links.tell(&FromWorker::Ready { engine: bench.engine(), threads: 1 }, &[]);
    }

    fn say(&self, message: Report, bulk: &[u8]) {
        self.links.tell(&FromWorker::from(message), bulk);
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
        self.setting.door.close();
        // Threads that wait for room are let go.
        let (_, nothing) = mpsc::sync_channel(0);
        drop(std::mem::replace(&mut self.events, nothing));
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
    post: &SyncSender<Event>,
    (turn, over): (&AtomicU64, &AtomicBool),
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
            // What waits of the round before is not wanted any more.
            ToWorker::Revoke { .. }
            | ToWorker::Method(methods::Command::Coded(Command::Weights { .. })) => {
                turn.fetch_add(1, Ordering::SeqCst);
            }
            ToWorker::Finish | ToWorker::Rejoin => over.store(true, Ordering::SeqCst),
            _ => {}
        }
        let turn = turn.load(Ordering::SeqCst);
        if post.send(Event::Order(message, bulk, turn)).is_err() {
            break;
        }
    }
    Ok(())
}

impl<E: Value> Arithmetic<E> for Timed<'_, E> {
    fn multiply(&self, places: &Range<usize>, weights: &[E]) -> Result<Vec<E>, Trouble> {
        self.bench.multiply(places, weights)
    }

    fn decode(
        &mut self,
        places: &Range<usize>,
        inputs: &[Slot],
        outputs: &[Slot],
        products: &[&[E]],
    ) -> Result<(Vec<E>, Tallied), Trouble> {
        let began = self.clock.now();
        let decoded = self.bench.decode(places, inputs, outputs, products);
        self.decoding += self.clock.now().saturating_sub(began);
        decoded
    }

    fn add(&self, places: &Range<usize>, entries: &[E]) -> Result<Vec<E>, Trouble> {
        self.bench.add(places, entries)
    }
}

/// What came from the source; nothing where it is away.
fn come<T>(fetched: Result<T, Missed>) -> Result<Option<T>, Trouble> {
    match fetched {
        Ok(found) => Ok(Some(found)),
        Err(Missed::Refused(trouble)) => Err(trouble),
        Err(Missed::Away) => Ok(None),
    }
}

fn numbers<T: Travel>(bulk: &[u8]) -> Result<Vec<T>, Trouble> {
    T::take(bulk).ok_or_else(|| Trouble::new("the coordinator sent numbers that are none"))
}
