//! The process around a worker of a coded run: its way to the source, links to other workers, and
//! rows that [`super::Coded`] computes with.

use super::peers::{PeerListener, Peers};
use super::round::{Arithmetic, Times};
use super::rows::Rows;
use super::source::{Missed, Source, Watch};
use super::{Coded, Do, Event, Value, numbers};
use crate::session::Inbox;
use crate::session::method::Batch;
use crate::session::shell::{AtOnce, Hands, Setting};
use planaria_numerics::coding::Slot;
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Trouble;
use planaria_protocol::methods::coded::Tallied;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Works until the coordinator says that the run is over.
pub fn run<E: Value>(launch: &Launch, setting: &Setting<'_>) -> Result<(), Trouble> {
    let timed = Timed {
        rows: None,
        clock: setting.clock,
        since: setting.clock.now(),
        waited: Duration::ZERO,
        decoded: Duration::ZERO,
    };
    let rows: Shared<'_, E> = Rc::new(RefCell::new(timed));
    let mut process = Process {
        launch,
        setting,
        peer_listener: PeerListener::open(launch, &setting.credentials, setting.log.clone())?,
        peers: Peers::new(&setting.credentials, &setting.join),
        rows: rows.clone(),
        model: None,
        inbox: None,
    };
    crate::session::shell::run(setting, Coded::new(rows), &mut process)
}

/// Rows that the value computes with, and the process fetches; both on the main thread.
type Shared<'a, E> = Rc<RefCell<Timed<'a, E>>>;

/// Rows, and how long they were computed with.
struct Timed<'a, E: Value> {
    rows: Option<Rows<E>>,
    clock: &'a dyn Clock,
    /// When times were last taken.
    since: Duration,
    /// Of that, waiting and decoding.
    waited: Duration,
    decoded: Duration,
}

/// What a worker of a coded run has, for the life of its process.
struct Process<'a, E: Value> {
    launch: &'a Launch,
    setting: &'a Setting<'a>,
    /// Where other workers reach this one.
    peer_listener: PeerListener,
    /// The way to other workers.
    peers: Peers,
    rows: Shared<'a, E>,
    /// Weights to score with, and the step that they are after.
    model: Option<(u64, Vec<f64>)>,
    inbox: Option<Arc<Inbox<Event>>>,
}

impl<E: Value> Process<'_, E> {
    /// Does something with the rows that may wait for the source, for as long as the session lasts;
    /// nothing where the source is away.
    fn fetch<T>(
        &self,
        work: impl FnOnce(&mut Rows<E>, Watch<'_>) -> Result<T, Missed>,
    ) -> Result<Option<T>, Trouble> {
        let mut shared = self.rows.borrow_mut();
        let is_over = || self.inbox.as_ref().is_some_and(|inbox| inbox.is_ending());
        let watch = Watch { log: &self.setting.log, is_over: &is_over };
        match work(shared.rows_mut()?, watch) {
            Ok(found) => Ok(Some(found)),
            Err(Missed::Refused(trouble)) => Err(trouble),
            Err(Missed::Away) => Ok(None),
        }
    }
}

/// Nothing is done at once: what takes long looks at the inbox.
struct Nothing;

impl AtOnce for Nothing {}

impl<'a, E: Value> Hands<Coded<E, Shared<'a, E>>> for Process<'a, E> {
    fn prepare(&mut self) -> Result<(), Trouble> {
        let Setting { address, credentials, join, log, .. } = self.setting;
        log(&format!("joined the coordinator at {address}"));
        let digest = self.launch.facts.coding.as_ref().map_or("", |coding| &coding.digest);
        let source = Source::new(address, credentials, join, digest);
        self.rows.borrow_mut().rows = Some(Rows::prepare(self.launch, source)?);
        Ok(())
    }

    fn begin(&mut self, inbox: &Arc<Inbox<Event>>, _generation: u64) -> Arc<dyn AtOnce> {
        self.inbox = Some(inbox.clone());
        let inbox = inbox.clone();
        self.peer_listener
            .read_by(move |(message, bulk)| inbox.put_when_room(Event::FromPeer(message, bulk)));
        Arc::new(Nothing)
    }

    fn act(&mut self, effect: Do) -> Result<Option<Event>, Trouble> {
        match effect {
            Do::Look => {
                let slots = self.rows.borrow_mut().rows_mut()?.kept();
                let address = self.peer_listener.address().to_owned();
                Ok(Some(Event::Found { slots, address }))
            }
            Do::Sit { slot } => {
                let seated = self.fetch(|rows, watch| rows.sit(slot, watch))?;
                Ok(Some(seated.map_or(Event::SourceLost, Event::Seated)))
            }
            Do::KeepModel { step, weights } => {
                self.model = Some((step, numbers(&weights)?));
                Ok(None)
            }
            Do::Send { address, message, bulk } => {
                self.peers.send(&address, (message, bulk)).map(|()| None)
            }
            Do::Retire { round } => {
                self.peers.retire(round);
                Ok(None)
            }
        }
    }

    fn score(&mut self, batch: Batch) -> Result<Option<Vec<u8>>, Trouble> {
        let Batch { part, step, batch } = batch;
        let model = self.model.as_ref().filter(|(of, _)| *of == step);
        let Some((_, weights)) = model else { return Ok(None) };
        self.fetch(|rows, watch| rows.score(part, batch, weights, watch))
    }

    fn waited(&mut self, time: Duration) {
        self.rows.borrow_mut().waited += time;
    }

    fn leave(&mut self) {
        self.peer_listener.close();
        self.inbox = None;
    }
}

impl<E: Value> Timed<'_, E> {
    fn rows(&self) -> Result<&Rows<E>, Trouble> {
        self.rows.as_ref().ok_or_else(|| Trouble::new("it has no rows yet"))
    }

    fn rows_mut(&mut self) -> Result<&mut Rows<E>, Trouble> {
        self.rows.as_mut().ok_or_else(|| Trouble::new("it has no rows yet"))
    }
}

impl<E: Value> Arithmetic<E> for Shared<'_, E> {
    fn multiply(&self, places: &Range<usize>, weights: &[E]) -> Result<Vec<E>, Trouble> {
        self.borrow().rows()?.multiply(places, weights)
    }

    fn decode(
        &mut self,
        places: &Range<usize>,
        inputs: &[Slot],
        outputs: &[Slot],
        products: &[&[E]],
    ) -> Result<(Vec<E>, Tallied), Trouble> {
        let mut timed = self.borrow_mut();
        let began = timed.clock.now();
        let decoded = timed.rows_mut()?.decode(places, inputs, outputs, products);
        let ended = timed.clock.now();
        timed.decoded += ended.saturating_sub(began);
        decoded
    }

    fn add(&self, places: &Range<usize>, entries: &[E]) -> Result<Vec<E>, Trouble> {
        self.borrow().rows()?.add(places, entries)
    }

    fn times(&mut self) -> Times {
        let mut timed = self.borrow_mut();
        let now = timed.clock.now();
        let since = std::mem::replace(&mut timed.since, now);
        let waiting = std::mem::take(&mut timed.waited);
        let decoding = std::mem::take(&mut timed.decoded);
        let busy = now.saturating_sub(since).saturating_sub(waiting);
        Times { busy, decoding, waiting }
    }
}
