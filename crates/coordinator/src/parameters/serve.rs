//! A server's process: its links to the coordinator and the workers, over generations.
//!
//! One thread per link reads straight into the store; whoever completes a chunk sends it on. What
//! is kept stays while coordinators come and go: the process joins each, until it is told that the
//! run is over. Never decides when a step counts.

pub use super::Log;
use super::chunk::Bulk;
use super::keeper::{Keeper, Outlet, Peer};
use super::parcels::{self, Carrier};
use super::region::{self, Backing, Identity, Place};
use super::snapshot::Snapshot;
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::link::{self, Receiver, Sender};
use planaria_protocol::message::{Agent, Errand, FromServer, Join, Pull, Push, ToServer, Trouble};
use planaria_protocol::transfer::Fault;
use planaria_protocol::{Error, Passport, bytes, listen, weather};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Builder;
use std::time::Duration;

/// How long a last word may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// Least time between reports of a server's load.
const LOAD_EVERY: Duration = Duration::from_millis(100);
/// How long to wait before a coordinator that was not reached is tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// How long a server goes on without a coordinator.
const LEASE: Duration = Duration::from_secs(30);
/// A coordinator that has said nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(10);
/// How often a server says that it lives.
const ALIVE_EVERY: Duration = Duration::from_millis(250);
/// More than this never waits for a worker: links hold back senders at 64 MiB.
const WAITING_BYTES_MAX: usize = 48 << 20;
/// What may wait for a worker besides two steps' parameters.
const WAITING_BYTES_SPARE: usize = 1 << 20;
/// Bytes read at a time of what is not wanted.
const SKIPPED_BYTES: usize = 16 << 10;

/// What the threads of a server share.
struct Server {
    log: Log,
    keeper: Keeper,
    /// The one in force.
    session: Mutex<Option<Arc<Session>>>,
    /// Links so far.
    links: AtomicU64,
    /// To the run's checkpoints, where this machine does not have them.
    carrier: Option<Carrier>,
}

/// The links of one generation: what a thread of an older one says reaches nobody.
struct Session {
    /// See [`Keeper::session`].
    number: u64,
    coordinator: Sender,
    /// By worker. Shared, so that nobody holds the lock while sending.
    workers: Mutex<Arc<BTreeMap<u32, Link>>>,
    /// Bytes that may wait for a worker that follows.
    waiting_bytes_max: AtomicU64,
}

#[derive(Clone)]
struct Link {
    number: u64,
    sender: Sender,
}

/// How a coordinator's orders ended.
enum Ended {
    /// The run is over.
    Finished,
    /// The coordinator is gone.
    Lost(String),
}

/// Serves until a coordinator says that the run is over.
pub fn run(launch: &Launch, index: u32, clock: &dyn Clock, log: Log) -> Result<(), Trouble> {
    let (passport, station) = (Passport::of(launch).map_err(Trouble::new)?, &launch.station);
    let door = station.listen(0);
    let listener = TcpListener::bind(&door)
        .map_err(|e| Trouble::new(format!("cannot listen on {door}: {e}")))?;
    let own = listener.local_addr().map_err(Trouble::new)?;
    let place = place(launch, index, &log);
    let server = Arc::new(Server {
        log: log.clone(),
        keeper: Keeper::new(&launch.recipe, &launch.facts, place, log.clone())?,
        session: Mutex::default(),
        links: AtomicU64::new(0),
        carrier: Carrier::of(launch, index, &passport),
    });
    let generation = Arc::new(AtomicU64::new(launch.generation));
    let (serving, refusing) = (server.clone(), log);
    let _listening = listen::serve(
        listener,
        passport.clone(),
        generation.clone(),
        move |join, sender, receiver| serving.link(&join, sender, receiver),
        move |reason| refusing(&format!("refused a connection: {reason}")),
    )
    .map_err(Trouble::new)?;
    let address = launch.coordinator.as_deref().unwrap_or_default();
    let ended = loop {
        let joined = server.reach(address, &passport, clock).and_then(|(sender, orders)| {
            generation.store(sender.generation(), Ordering::SeqCst);
            let join = Join {
                agent: Agent::Server(index),
                build: launch.build.clone(),
                pid: station.pid(),
                machine: station.machine.clone(),
                address: Some(station.address(own)),
                kept: server.keeper.kept(),
                errand: Errand::Work,
            };
            server.serve_generation(&join, sender, orders, clock)
        });
        match joined {
            Ok(Ended::Lost(why)) => {
                (server.log)(&format!("{why}; joining again"));
                // What is kept is to stay what the next coordinator is told.
                server.end_session();
                server.keeper.compare();
            }
            // What is kept is removed by whoever knows how the run has ended: a run whose last
            // checkpoint could not be written goes on from it.
            Ok(Ended::Finished) => break Ok(()),
            Err(trouble) => break Err(trouble),
        }
    };
    server.end_session();
    ended
}

/// Where the values of this run's server are kept.
fn place(launch: &Launch, index: u32, log: &Log) -> Place {
    let mut tag = Sha256::new();
    let parts = [serde_json::to_vec(&launch.recipe), serde_json::to_vec(&launch.facts)];
    for part in parts {
        let part = part.expect("a launch has string keys only");
        tag.update((part.len() as u64).to_le_bytes());
        tag.update(part);
    }
    tag.update(&launch.build);
    let tag = tag.finalize().into();
    let (boot, backing) = match (&launch.state, region::boot_id()) {
        (Some(folder), Ok(boot)) => {
            // Where it cannot be made, making a file in it says why.
            let _ = std::fs::create_dir_all(folder);
            (boot, Backing::Folder(PathBuf::from(folder)))
        }
        (Some(_), Err(error)) => {
            log(&format!(
                "cannot tell this boot of the machine from another ({error}): values are in \
                 memory alone, and losing this server will go back to the last checkpoint"
            ));
            ([0; 16], Backing::Memory)
        }
        (None, _) => ([0; 16], Backing::Memory),
    };
    Place { index, identity: Identity { tag, boot }, backing }
}

impl Server {
    /// Connects to the coordinator, which may have to be started first.
    fn reach(
        &self,
        address: &str,
        passport: &Passport,
        clock: &dyn Clock,
    ) -> Result<(Sender, Receiver), Trouble> {
        let since = clock.now();
        // Nobody ever sends: it is what is waited on.
        let (_keep, pause) = mpsc::channel::<()>();
        loop {
            weather::tick(clock.now());
            let error = match link::connect(address, passport, None) {
                Ok(link) => return Ok(link),
                Err(error) => error,
            };
            if clock.now() - since >= LEASE {
                return Err(Trouble::new(format!(
                    "there is no coordinator: it was not reached for {} s: {error}",
                    LEASE.as_secs()
                )));
            }
            let _ = pause.recv_timeout(AGAIN);
        }
    }

    /// Joins a coordinator and obeys it to the end of its link.
    fn serve_generation(
        self: &Arc<Self>,
        join: &Join,
        coordinator: Sender,
        mut orders: Receiver,
        clock: &dyn Clock,
    ) -> Result<Ended, Trouble> {
        let session = Arc::new(Session {
            number: self.keeper.session(),
            coordinator: coordinator.clone(),
            workers: Mutex::default(),
            waiting_bytes_max: AtomicU64::new(0),
        });
        *self.lock_session() = Some(session.clone());
        let lost = |error: Error| Ok(Ended::Lost(format!("lost the coordinator ({error})")));
        if let Err(error) = orders.set_timeout(Some(SILENCE)).and_then(|()| coordinator.send(join))
        {
            return lost(error);
        }
        (self.log)(&format!(
            "joined the coordinator of generation {}; listening on {}",
            coordinator.generation(),
            join.address.as_deref().unwrap_or_default()
        ));
        let (_alive, ended) = mpsc::channel::<()>();
        let saying = coordinator.clone();
        let say = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(ALIVE_EVERY) {
                if saying.send(&FromServer::Alive).is_err() {
                    break;
                }
            }
        };
        start("alive", say)?;
        let obeyed = self.obey(&session, &mut orders, clock);
        match &obeyed {
            // The coordinator may be what went away.
            Err(trouble) => {
                let _ = coordinator.send(&FromServer::Failed(trouble.clone()));
                let _ = coordinator.flush_and_close(FAREWELL);
            }
            Ok(_) => coordinator.close(),
        }
        obeyed
    }

    fn obey(
        self: &Arc<Self>,
        session: &Arc<Session>,
        orders: &mut Receiver,
        clock: &dyn Clock,
    ) -> Result<Ended, Trouble> {
        let mut load = Load::new(clock);
        loop {
            let order = match orders.receive::<ToServer>() {
                Ok(Some(order)) => order.message,
                Ok(None) => return Ok(Ended::Lost("the coordinator hung up".into())),
                Err(error) => return Ok(Ended::Lost(format!("lost the coordinator ({error})"))),
            };
            weather::tick(clock.now());
            match &order {
                ToServer::Begin { blocks, source, step } => {
                    let what = format!("blocks {blocks:?} after step {step} from {source:?}");
                    (self.log)(&format!("taking {what}"));
                }
                ToServer::Save { step, folder } => {
                    (self.log)(&format!("saving step {step} to {folder}"));
                }
                ToServer::Weather(weather) => {
                    (self.log)(&format!("asked to suffer {weather:?}"));
                    weather::set(*weather, clock.now());
                }
                ToServer::Finish => return Ok(Ended::Finished),
                _ => {}
            }
            let (order, fetched) = match self.bring(session, order) {
                Ok(brought) => brought,
                Err(Fault::Link(error)) => {
                    return Ok(Ended::Lost(format!("lost the coordinator's machine ({error})")));
                }
                Err(fault) => return Err(Trouble::new(fault)),
            };
            let ordered = self.keeper.order(&order, &**session);
            let explain = |trouble| match &fetched {
                Some(fetched) => fetched.explain(trouble),
                None => trouble,
            };
            if let Some(snapshot) = ordered.map_err(explain)? {
                self.write(snapshot, session.clone())?;
            }
            match order {
                ToServer::Begin { .. } => {
                    let two = 2 * self.keeper.parameter_bytes() + WAITING_BYTES_SPARE;
                    let most = two.min(WAITING_BYTES_MAX) as u64;
                    session.waiting_bytes_max.store(most, Ordering::Relaxed);
                    (self.log)("ready; serving workers");
                }
                ToServer::Commit { .. } => {
                    for peer in self.keeper.due() {
                        self.begin_following(peer, session.clone())?;
                    }
                    let sent = || (session.bytes_out(), self.keeper.take_late());
                    if let Some(report) = load.report(clock, sent) {
                        session.coordinator(&report, &[]);
                    }
                }
                _ => {}
            }
        }
    }

    /// An order as it can be followed here, and what was fetched for it.
    fn bring(
        &self,
        session: &Session,
        order: ToServer,
    ) -> Result<(ToServer, Option<parcels::Folder>), Fault> {
        match &self.carrier {
            Some(carrier) => carrier.bring(session.coordinator.generation(), order),
            None => Ok((order, None)),
        }
    }

    /// Writes a copy, or sends it, while training goes on.
    fn write(self: &Arc<Self>, snapshot: Snapshot, session: Arc<Session>) -> Result<(), Trouble> {
        let server = self.clone();
        start("save", move || {
            let message = match &server.carrier {
                Some(carrier) => carrier.save(session.coordinator.generation(), &snapshot),
                None => snapshot.write(),
            };
            // The next copy may be made as soon as the coordinator has heard of this one.
            drop(snapshot);
            session.coordinator(&message, &[]);
        })
    }

    /// Serves one worker's link until it ends.
    fn link(&self, join: &Join, sender: Sender, mut receiver: Receiver) {
        let Agent::Worker(worker) = join.agent else {
            return (self.log)(&format!("refused a connection: {} is no worker", join.agent));
        };
        let session = self.lock_session().clone();
        let generation = sender.generation();
        let session = session.filter(|s| s.coordinator.generation() == generation);
        let Some(session) = session else {
            sender.close();
            return (self.log)(&format!(
                "refused a connection: worker-{worker} is of generation {generation}"
            ));
        };
        let link = self.links.fetch_add(1, Ordering::Relaxed);
        let peer = Peer { worker, link, session: session.number };
        (self.log)(&format!("worker-{worker} connected"));
        session.add(peer, sender.clone());
        // Whoever ends the session ends the links that it finds.
        let current = self.lock_session().clone();
        if !current.is_some_and(|current| Arc::ptr_eq(&current, &session)) {
            session.remove(peer);
            return sender.close();
        }
        if let Err(trouble) = self.serve(peer, &session, &mut receiver) {
            (self.log)(&format!("worker-{worker}: {}", trouble.message));
        }
        session.remove(peer);
        // Whoever still sends on it is let go before it is waited for.
        sender.close();
        self.keeper.left(peer);
    }

    fn serve(&self, peer: Peer, session: &Session, receiver: &mut Receiver) -> Result<(), Trouble> {
        while let Some(incoming) = receiver.receive::<Push>().map_err(Trouble::new)? {
            let mut bulk = Incoming { receiver, bytes: incoming.bulk_bytes };
            self.keeper.push(peer, &incoming.message, &mut bulk, session)?;
        }
        Ok(())
    }

    /// Lets a worker follow whose step has come. The coordinator's orders do not wait for it.
    fn begin_following(self: &Arc<Self>, peer: Peer, session: Arc<Session>) -> Result<(), Trouble> {
        let server = self.clone();
        start("follow", move || {
            if let Err(trouble) = server.keeper.begin_following(peer, &*session) {
                (server.log)(&format!("worker-{}: {}", peer.worker, trouble.message));
                session.close(peer);
            }
        })
    }

    /// Ends all links of the generation in force; those who wait for a step are let go.
    fn end_session(&self) {
        let Some(session) = self.lock_session().take() else { return };
        session.coordinator.close();
        // First, so that nobody hangs in sending with what closing the keeper needs.
        session.workers().values().for_each(|link| link.sender.close());
        self.keeper.close();
    }

    fn lock_session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().expect("no thread panics with the session")
    }
}

impl Session {
    /// A worker's link; an older one ends.
    fn add(&self, peer: Peer, sender: Sender) {
        let link = Link { number: peer.link, sender };
        let older = Arc::make_mut(&mut self.lock_workers()).insert(peer.worker, link);
        if let Some(older) = older {
            older.sender.close();
        }
    }

    fn remove(&self, peer: Peer) {
        let mut workers = self.lock_workers();
        if workers.get(&peer.worker).is_some_and(|link| link.number == peer.link) {
            Arc::make_mut(&mut workers).remove(&peer.worker);
        }
    }

    fn close(&self, peer: Peer) {
        if let Some(link) = self.workers().get(&peer.worker).filter(|l| l.number == peer.link) {
            link.sender.close();
        }
    }

    fn workers(&self) -> Arc<BTreeMap<u32, Link>> {
        self.lock_workers().clone()
    }

    fn lock_workers(&self) -> MutexGuard<'_, Arc<BTreeMap<u32, Link>>> {
        self.workers.lock().expect("no thread panics with the links")
    }

    /// Bytes sent to the workers so far; what comes in is as much again.
    fn bytes_out(&self) -> u64 {
        self.workers().values().map(|link| link.sender.bytes_sent()).sum()
    }
}

impl Outlet for Session {
    fn coordinator(&self, message: &FromServer, squares: &[f64]) {
        // That it is gone is noticed by the one who reads its orders.
        let _ = self.coordinator.send_with(message, bytes::as_bytes(squares));
    }

    fn answer(&self, to: Peer, message: &Pull, values: &[f32]) -> bool {
        let workers = self.workers();
        let link = workers.get(&to.worker).filter(|link| link.number == to.link);
        link.is_some_and(|link| link.sender.send_with(message, bytes::as_bytes(values)).is_ok())
    }

    fn hand_out(&self, to: Peer, message: &Pull, values: &[f32]) -> bool {
        let workers = self.workers();
        let Some(link) = workers.get(&to.worker).filter(|link| link.number == to.link) else {
            return false;
        };
        let waiting = link.sender.bytes_waiting() as u64;
        waiting <= self.waiting_bytes_max.load(Ordering::Relaxed)
            // What waits may have grown since; a chunk is held, and nobody is waited for with it.
            && matches!(link.sender.try_send_with(message, bytes::as_bytes(values)), Ok(true))
    }
}

/// What follows a message on a link.
struct Incoming<'a> {
    receiver: &'a mut Receiver,
    bytes: usize,
}

impl Bulk for Incoming<'_> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn read(&mut self, into: &mut [f32]) -> Result<(), Error> {
        let into = bytes::as_bytes_mut(into);
        self.bytes = self.bytes.saturating_sub(into.len());
        self.receiver.read_bulk(into)
    }

    fn skip(&mut self, values: usize) -> Result<(), Error> {
        let mut left = values * size_of::<f32>();
        let mut unwanted = [0; SKIPPED_BYTES];
        while left > 0 {
            let some = left.min(unwanted.len());
            self.receiver.read_bulk(&mut unwanted[..some])?;
            left -= some;
            self.bytes = self.bytes.saturating_sub(some);
        }
        Ok(())
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Trouble> {
    let thread = Builder::new().name(name.into()).spawn(work);
    thread.map(drop).map_err(|e| Trouble::new(format!("cannot start a thread: {e}")))
}

/// When load was last reported, and how much there was by then.
struct Load {
    at: Duration,
    cpu: Duration,
    bytes_out: u64,
}

impl Load {
    fn new(clock: &dyn Clock) -> Self {
        Self { at: clock.now(), cpu: clock.cpu(), bytes_out: 0 }
    }

    fn report(
        &mut self,
        clock: &dyn Clock,
        count: impl FnOnce() -> (u64, u64),
    ) -> Option<FromServer> {
        let now = clock.now();
        if now - self.at < LOAD_EVERY {
            return None;
        }
        let (cpu, (bytes_out, late)) = (clock.cpu(), count());
        let report = FromServer::Load {
            seconds: (now - self.at).as_secs_f64(),
            busy_seconds: (cpu - self.cpu).as_secs_f64(),
            bytes_out: bytes_out.saturating_sub(self.bytes_out),
            late,
        };
        *self = Self { at: now, cpu, bytes_out };
        Some(report)
    }
}
