//! A simulated worker's part in a coded run: the real rows, cache and messages, on simulated links.
//!
//! Each worker is on a machine of its own, whose cache of blocks outlives it. The source is beside
//! the coordinator: without a link to that nothing can be fetched.

use super::{Done, Hands, Me, Session};
use crate::lab::coded::CodedData;
use crate::net::{LinkId, Msg, Pid};
use crate::world::{Dial, Timer, World};
use planaria_numerics::coding::Slot;
use planaria_numerics::coding::exact::Residue;
use planaria_protocol::message::{LinkPurpose, Trouble};
use planaria_protocol::methods::coded::{Tallied, Travel};
use planaria_protocol::{Credentials, Secret};
use planaria_worker::methods::coded::cache::Cache;
use planaria_worker::methods::coded::peers::{IDLE, RETRY};
use planaria_worker::methods::coded::round::{Arithmetic, Times};
use planaria_worker::methods::coded::rows::Rows;
use planaria_worker::methods::coded::source::{Source, Watch};
use planaria_worker::methods::coded::unacknowledged::Unacknowledged;
use planaria_worker::methods::coded::{Coded, Do, Event, Seated};
use planaria_worker::session::shell::Log;
use planaria_worker::session::{Batch, Inbox};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a worker of a coded run has, for the life of its process.
pub struct Peers {
    rows: Shared,
    data: Rc<CodedData>,
    cache: Cache,
    inbox: Option<Arc<Inbox<Event>>>,
    coordinator: Option<LinkId>,
    /// Weights to score with, and the step that they are after.
    model: Option<(u64, Vec<f64>)>,
    connections: BTreeMap<Pid, Connection>,
    /// What has come, by link.
    heard: BTreeMap<LinkId, Heard>,
}

/// What has come on a link of another worker.
struct Heard {
    messages: u64,
    at: Duration,
    /// When the worker next checks whether the link is silent.
    look_at: Duration,
}

/// To another worker; it lasts over several links.
#[derive(Default)]
struct Connection {
    unacknowledged: Unacknowledged,
    link: Option<LinkId>,
    is_dialing: bool,
}

/// What takes time.
pub enum Work {
    Sit { slot: u16, cached: bool },
    Batch(Batch, Vec<f64>),
}

/// Rows that the value computes with, and the process fetches.
#[derive(Clone)]
pub struct Shared(Rc<RefCell<Timed>>);

struct Timed {
    rows: Rows<Residue>,
    /// Computed since it was last asked.
    busy: Duration,
}

impl Arithmetic<Residue> for Shared {
    fn multiply(
        &self,
        places: &Range<usize>,
        weights: &[Residue],
    ) -> Result<Vec<Residue>, Trouble> {
        self.0.borrow().rows.multiply(places, weights)
    }

    fn decode(
        &mut self,
        places: &Range<usize>,
        inputs: &[Slot],
        outputs: &[Slot],
        products: &[&[Residue]],
    ) -> Result<(Vec<Residue>, Tallied), Trouble> {
        self.0.borrow_mut().rows.decode(places, inputs, outputs, products)
    }

    fn add(&self, places: &Range<usize>, entries: &[Residue]) -> Result<Vec<Residue>, Trouble> {
        self.0.borrow().rows.add(places, entries)
    }

    fn times(&mut self) -> Times {
        let busy = std::mem::take(&mut self.0.borrow_mut().busy);
        Times { busy, ..Times::default() }
    }
}

impl Peers {
    /// Of the worker with this number.
    pub fn new(world: &World<'_>, index: u32) -> Self {
        let data = world.bench.coded().clone();
        let launch = world.bench.launch(&world.plan);
        let secret = Secret::from_hex(&"ab".repeat(32)).expect("as long as a secret");
        let digest = launch.facts.coding.as_ref().map_or("", |coding| &coding.digest);
        let me = Me { pid: 0, index };
        let Msg::Join(join) = me.join(LinkPurpose::Blocks) else { unreachable!("it is a join") };
        let source = Source::new("nowhere", &Credentials::plain(secret), &join, digest);
        let cache = Cache::within(&world.disk.machine(index), digest);
        let rows = Rows::prepare(&launch, source).expect("a recipe of ours");
        let rows = rows.with_cache(Cache::within(&world.disk.machine(index), digest));
        let timed = Timed { rows, busy: Duration::ZERO };
        Self {
            rows: Shared(Rc::new(RefCell::new(timed))),
            data,
            cache,
            inbox: None,
            coordinator: None,
            model: None,
            connections: BTreeMap::new(),
            heard: BTreeMap::new(),
        }
    }

    /// Takes the rows of a slot, once they have come.
    fn sit(&mut self, world: &mut World<'_>, me: Me, slot: u16, cached: bool) -> Event {
        if !cached {
            let is_there = self.coordinator.is_some_and(|link| world.is_open(me.pid, link));
            if !is_there {
                return Event::SourceLost;
            }
            world.act(me.pid);
            let kept = self.cache.write(slot, &self.data.block(slot));
            kept.and_then(|()| self.cache.write_labels(self.data.labels()))
                .expect("a machine has room for its rows");
        }
        let log: Log = Arc::new(|_: &str| {});
        let watch = Watch { log: &log, is_over: &|| false };
        let seated = self.rows.0.borrow_mut().rows.sit(slot, watch);
        let seated = seated.expect("what is in the cache is not asked for");
        let downloaded = if cached { 0 } else { 1000 };
        Event::Seated(Seated { cached, downloaded, ..seated })
    }

    /// Something has come on a link.
    fn note(&mut self, world: &mut World<'_>, me: Me, link: LinkId) -> &mut Heard {
        let (at, look_at) = (world.now, world.now + IDLE);
        let heard = self.heard.entry(link).or_insert_with(|| {
            world.timer(me.pid, IDLE, Timer::Own);
            Heard { messages: 0, at, look_at }
        });
        heard.at = at;
        heard
    }

    /// Ends links on which nothing came for long, as their readers do: what was lost on the way comes
    /// on the next.
    fn hang_up_on_silent(&mut self, world: &mut World<'_>, pid: Pid) {
        let now = world.now;
        for (link, heard) in self.heard.iter_mut().filter(|(_, heard)| now >= heard.look_at) {
            heard.look_at = heard.at + IDLE;
            match heard.look_at <= now {
                true => world.cut(*link),
                false => world.timer(pid, heard.look_at - now, Timer::Own),
            }
        }
    }

    /// Reaches the peers that messages wait for.
    fn dial(&mut self, world: &mut World<'_>, me: Me) {
        for (pid, connection) in &mut self.connections {
            if connection.link.is_none()
                && !connection.is_dialing
                && !connection.unacknowledged.is_empty()
            {
                connection.is_dialing = true;
                world.dial(me.pid, Dial::Process(*pid), None);
            }
        }
    }
}

impl Hands for Peers {
    type Method = Coded<Residue, Shared>;
    type Work = Work;

    fn method(&self) -> Self::Method {
        Coded::new(self.rows.clone())
    }

    fn start(&mut self, world: &mut World<'_>, me: Me) {
        if let Some(process) = world.process(me.pid) {
            process.listens = true;
        }
    }

    fn prepare(&mut self, _world: &mut World<'_>) {}

    fn begin(&mut self, session: &Session<Self>, _now: Duration) {
        (self.inbox, self.coordinator) = (Some(session.inbox.clone()), Some(session.coordinator));
    }

    fn act(&mut self, world: &mut World<'_>, me: Me, effect: Do) -> Done<Self> {
        match effect {
            Do::Look => {
                let slots = self.rows.0.borrow().rows.kept();
                let address = me.pid.to_string();
                return Done::Answer(Event::Found { slots, address });
            }
            Do::Sit { slot } => {
                let cached = self.rows.0.borrow().rows.kept().contains(&slot);
                return Done::Busy(Work::Sit { slot, cached });
            }
            Do::KeepModel { step, weights } => {
                let weights = f64::take(&weights).expect("the coordinator sends numbers");
                self.model = Some((step, weights));
            }
            Do::Send { address, message, bulk } => {
                let pid = address.parse().unwrap_or(0);
                let connection = self.connections.entry(pid).or_default();
                match (connection.unacknowledged.put((message, bulk)), connection.link) {
                    (Some(message), Some(link)) => {
                        world.send(me.pid, link, Msg::ToPeer(message));
                    }
                    _ => self.dial(world, me),
                }
            }
            Do::Retire { round } => {
                for connection in self.connections.values_mut() {
                    if connection.unacknowledged.retire(round)
                        && let Some(link) = connection.link.take()
                    {
                        connection.unacknowledged.unlinked();
                        world.close(me.pid, link);
                    }
                }
            }
        }
        Done::Nothing
    }

    fn score(&mut self, _world: &mut World<'_>, batch: Batch) -> Option<Work> {
        let (_, weights) = self.model.as_ref().filter(|(of, _)| *of == batch.step)?;
        Some(Work::Batch(batch, weights.clone()))
    }

    fn time(&self, world: &World<'_>, work: &Work) -> Duration {
        match work {
            Work::Sit { cached: true, .. } => Duration::from_millis(1),
            Work::Sit { .. } => Duration::from_millis(40),
            Work::Batch(..) => world.plan.shard / 2,
        }
    }

    fn worked(&mut self, world: &mut World<'_>, me: Me, work: Work) -> Done<Self> {
        match work {
            Work::Sit { slot, cached } => Done::Answer(self.sit(world, me, slot, cached)),
            Work::Batch(batch, weights) => {
                let scores = serde_json::to_vec(&self.data.score(&weights));
                Done::Scores(batch, scores.expect("scores have string keys only"))
            }
        }
    }

    fn dialed(
        &mut self,
        world: &mut World<'_>,
        me: Me,
        dial: Dial,
        link: Result<LinkId, String>,
    ) -> Done<Self> {
        let Dial::Process(pid) = dial else { return Done::Nothing };
        let Some(connection) = self.connections.get_mut(&pid) else { return Done::Nothing };
        connection.is_dialing = false;
        match link {
            Ok(link) => {
                connection.link = Some(link);
                world.send(me.pid, link, me.join(LinkPurpose::Peer));
                for message in connection.unacknowledged.linked() {
                    world.send(me.pid, link, Msg::ToPeer(message));
                }
            }
            Err(_) => world.timer(me.pid, RETRY, Timer::Own),
        }
        Done::Nothing
    }

    fn hear(&mut self, world: &mut World<'_>, me: Me, link: LinkId, msg: Msg) {
        match msg {
            Msg::ToPeer(message) => {
                // They are not read between two sessions; those that come then are lost.
                if let Some(inbox) = &self.inbox {
                    let (message, bulk) = (message.0.clone(), message.1.clone());
                    inbox.put(Event::FromPeer(message, bulk));
                }
                let heard = self.note(world, me, link);
                heard.messages += 1;
                let count = heard.messages;
                world.send(me.pid, link, Msg::Received(count));
            }
            Msg::Received(count) => {
                let connection =
                    self.connections.values_mut().find(|connection| connection.link == Some(link));
                if let Some(connection) = connection {
                    connection.unacknowledged.received(count);
                }
            }
            Msg::Join(_) => {
                self.note(world, me, link);
            }
            _ => {}
        }
    }

    fn ended(&mut self, world: &mut World<'_>, me: Me, link: LinkId, _why: &str) {
        self.heard.remove(&link);
        if let Some(connection) =
            self.connections.values_mut().find(|connection| connection.link == Some(link))
        {
            connection.unacknowledged.unlinked();
            connection.link = None;
            world.timer(me.pid, RETRY, Timer::Own);
        }
    }

    fn due(&mut self, world: &mut World<'_>, me: Me) {
        self.hang_up_on_silent(world, me.pid);
        self.dial(world, me);
    }

    fn pace(&mut self, world: &World<'_>) -> Option<Duration> {
        let time = world.plan.shard / 4;
        self.rows.0.borrow_mut().busy += time;
        Some(time)
    }

    fn leave(&mut self, _world: &mut World<'_>, _me: Me) {
        (self.inbox, self.coordinator) = (None, None);
    }
}
