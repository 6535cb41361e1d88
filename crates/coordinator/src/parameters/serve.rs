//! A server's process: sockets, threads and the clock around [`Server`].
//!
//! One thread per link reads straight into the blocks; the one that completes a chunk sends it on. The
//! main thread reads the coordinator's orders and does what the server says. Never decides anything
//! itself.

pub use super::Log;
use super::chunk::Bulk;
use super::part_files::Carrier;
use super::region::{self, Backing, Identity, Place};
use super::server::{ALIVE_EVERY, Effect, Event, Outlet, Peer, SILENCE, Server, Used};
use super::snapshot::Snapshot;
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::link::{self, Receiver, Sender};
use planaria_protocol::message::{Agent, FromServer, Join, Kept, Pull, Push, ToServer, Trouble};
use planaria_protocol::transfer::Fault;
use planaria_protocol::{Credentials, Error, bytes, frame_loss, listen};
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Builder;
use std::time::Duration;

/// How long sending what waits may take before a link is closed.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
/// Bytes read at a time of what is not wanted.
const SKIPPED_BYTES: usize = 16 << 10;

/// What the threads of the process share.
struct Process {
    log: Log,
    clock: Arc<dyn Clock>,
    server: Server,
    /// By number. Shared, so that no thread holds the lock while sending.
    workers: Mutex<Arc<BTreeMap<u64, Sender>>>,
    /// Of the session in force, or the last.
    session: Mutex<Arc<Session>>,
    /// Links so far.
    links: AtomicU64,
    /// To the run's checkpoints, where this machine does not have them.
    carrier: Option<Carrier>,
}

/// The way to one coordinator: what a thread of an older session says is lost.
#[derive(Default)]
struct Session {
    /// See [`Server::session`].
    number: u64,
    coordinator: Option<Sender>,
}

/// What a server says in a session.
struct Wire<'a> {
    process: &'a Process,
    session: &'a Session,
}

/// Serves until a coordinator says that the run is over.
pub fn run(launch: &Launch, index: u32, clock: Arc<dyn Clock>, log: Log) -> Result<(), Trouble> {
    let (credentials, station) = (Credentials::of(launch).map_err(Trouble::new)?, &launch.station);
    let door = station.listen(0);
    let listener = TcpListener::bind(&door)
        .map_err(|e| Trouble::new(format!("cannot listen on {door}: {e}")))?;
    let own = listener.local_addr().map_err(Trouble::new)?;
    let place = place(launch, index, &log);
    let process = Arc::new(Process {
        log: log.clone(),
        clock,
        server: Server::new(&launch.recipe, &launch.facts, place, log.clone())?,
        workers: Mutex::default(),
        session: Mutex::default(),
        links: AtomicU64::new(0),
        carrier: Carrier::of(launch, index, &credentials),
    });
    let generation = Arc::new(AtomicU64::new(launch.generation));
    let (serving, refusing) = (process.clone(), log);
    let _listening = listen::serve(
        listener,
        credentials.clone(),
        generation.clone(),
        move |join, sender, receiver| serving.link(&join, sender, receiver),
        move |reason| refusing(&format!("refused a connection: {reason}")),
    )
    .map_err(Trouble::new)?;
    let _alive = send_heartbeats(process.clone())?;
    let join = Join {
        machine: station.machine.clone(),
        address: Some(station.address(own)),
        ..Join::new(Agent::Server(index), launch.build.clone(), station.pid())
    };
    let address = launch.coordinator.as_deref().unwrap_or_default();
    Orders { process, address, credentials: &credentials, join, generation, orders: None }.follow()
}

/// The main thread: reads the coordinator's orders, and does what the server says.
struct Orders<'a> {
    process: Arc<Process>,
    /// Of the coordinator.
    address: &'a str,
    credentials: &'a Credentials,
    /// What this process says first.
    join: Join,
    /// Of links that are taken.
    generation: Arc<AtomicU64>,
    orders: Option<Receiver>,
}

impl Orders<'_> {
    fn follow(mut self) -> Result<(), Trouble> {
        let mut effects = VecDeque::from(self.process.on(Event::Begun));
        loop {
            let event = match effects.pop_front() {
                Some(Effect::End(ended)) => {
                    self.process.leave(&ended);
                    return ended;
                }
                Some(effect) => self.act(effect).unwrap_or_else(|t| Some(Event::Failed(t))),
                None => Some(self.next()),
            };
            if let Some(event) = event {
                effects.extend(self.process.on(event));
            }
        }
    }

    /// What follows at once, if anything.
    fn act(&mut self, effect: Effect) -> Result<Option<Event>, Trouble> {
        match effect {
            Effect::Dial => Ok(Some(self.dial())),
            Effect::Pause(time) => {
                // Nothing is ever sent: it is what is waited on.
                let (_keep, pause) = mpsc::channel::<()>();
                let _ = pause.recv_timeout(time);
                Ok(Some(Event::Due))
            }
            Effect::Join(kept) => Ok(self.say_hello(kept)),
            Effect::Write(snapshot) => self.process.write(snapshot).map(|()| None),
            Effect::Follow(peer) => self.process.begin_following(peer).map(|()| None),
            Effect::LoseFrames(frame_loss) => {
                frame_loss::set(frame_loss, self.process.clock.now());
                Ok(None)
            }
            // They follow from other events than the main thread's.
            Effect::Admit(_) | Effect::Refuse(_) | Effect::End(_) => Ok(None),
        }
    }

    fn dial(&mut self) -> Event {
        frame_loss::tick(self.process.clock.now());
        match link::connect(self.address, self.credentials, Agent::Coordinator, None) {
            Ok((sender, orders)) => {
                let generation = sender.generation();
                let number = self.process.server.session();
                self.orders = Some(orders);
                *self.process.lock_session() =
                    Arc::new(Session { number, coordinator: Some(sender) });
                self.generation.store(generation, Ordering::SeqCst);
                Event::Reached
            }
            Err(error) => Event::Unreachable(error.to_string()),
        }
    }

    fn say_hello(&mut self, kept: Option<Kept>) -> Option<Event> {
        let session = self.process.session();
        let (Some(coordinator), Some(orders)) = (&session.coordinator, &mut self.orders) else {
            return None;
        };
        self.join.kept = kept;
        let said = orders.set_timeout(Some(SILENCE)).and_then(|()| coordinator.send(&self.join));
        if let Err(error) = said {
            return Some(self.lost(format!("lost the coordinator ({error})")));
        }
        (self.process.log)(&format!(
            "joined the coordinator of generation {}; listening on {}",
            coordinator.generation(),
            self.join.address.as_deref().unwrap_or_default()
        ));
        Some(Event::Joined { generation: coordinator.generation() })
    }

    /// The next order, as it can be followed on this machine.
    fn next(&mut self) -> Event {
        let Some(orders) = &mut self.orders else { return Event::Due };
        let order = match orders.receive::<ToServer>() {
            Ok(Some(order)) => order.message,
            Ok(None) => return self.lost("the coordinator hung up".into()),
            Err(error) => return self.lost(format!("lost the coordinator ({error})")),
        };
        frame_loss::tick(self.process.clock.now());
        let Some(carrier) = &self.process.carrier else { return Event::Order(order, None) };
        let generation = self.generation.load(Ordering::SeqCst);
        match carrier.bring(generation, order) {
            Ok((order, fetched)) => Event::Order(order, fetched),
            Err(Fault::Link(error)) => {
                self.lost(format!("lost the coordinator's machine ({error})"))
            }
            // Where this machine's disk takes nothing, another's may.
            Err(fault @ Fault::File(_)) => {
                Event::Failed(Trouble { of_machine: true, ..Trouble::new(fault) })
            }
            Err(fault) => Event::Failed(Trouble::new(fault)),
        }
    }

    fn lost(&mut self, why: String) -> Event {
        self.orders = None;
        self.process.session().close();
        Event::Lost(why)
    }
}

/// Where the values of this run's server are kept.
fn place(launch: &Launch, index: u32, log: &Log) -> Place {
    let tag = launch.tag();
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

impl Process {
    /// Takes in what happens in the session in force.
    fn on(&self, event: Event) -> Vec<Effect> {
        self.on_in(&self.session(), event)
    }

    fn on_in(&self, session: &Session, event: Event) -> Vec<Effect> {
        self.server.on(self.clock.now(), event, &Wire { process: self, session })
    }

    /// Writes a copy, or sends it, while training goes on.
    fn write(self: &Arc<Self>, snapshot: Snapshot) -> Result<(), Trouble> {
        let (process, session) = (self.clone(), self.session());
        start("save", move || {
            let coordinator = session.coordinator.as_ref();
            let message = match (&process.carrier, coordinator) {
                (Some(carrier), Some(to)) => carrier.save(to.generation(), &snapshot),
                _ => snapshot.write(),
            };
            // The next copy may be made as soon as the coordinator has heard of this one.
            drop(snapshot);
            process.on_in(&session, Event::Written { session: session.number, message });
        })
    }

    /// Serves one worker's link until it ends.
    fn link(&self, join: &Join, sender: Sender, mut receiver: Receiver) {
        let link = self.links.fetch_add(1, Ordering::Relaxed);
        let generation = sender.generation();
        // Before it is admitted: what ends the session after that finds it.
        Arc::make_mut(&mut self.lock_workers()).insert(link, sender.clone());
        for effect in self.on(Event::Connected { link, agent: join.agent, generation }) {
            match effect {
                Effect::Admit(peer) => {
                    (self.log)(&format!("worker-{} connected", peer.worker));
                    let session = self.session();
                    if session.number == peer.session
                        && let Err(trouble) = self.serve(peer, &session, &mut receiver)
                    {
                        (self.log)(&format!("worker-{}: {}", peer.worker, trouble.message));
                    }
                    // A thread that still sends on it is let go before it is waited for.
                    sender.close();
                    self.on_in(&session, Event::Disconnected(peer));
                }
                Effect::Refuse(why) => (self.log)(&format!("refused a connection: {why}")),
                _ => {}
            }
        }
        sender.close();
        Arc::make_mut(&mut self.lock_workers()).remove(&link);
    }

    fn serve(&self, peer: Peer, session: &Session, receiver: &mut Receiver) -> Result<(), Trouble> {
        let wire = Wire { process: self, session };
        while let Some(incoming) = receiver.receive::<Push>().map_err(Trouble::new)? {
            let mut bulk = Incoming { receiver, bytes: incoming.bulk_bytes };
            self.server.push(peer, &incoming.message, &mut bulk, &wire)?;
        }
        Ok(())
    }

    /// Lets a worker follow whose step has come. The coordinator's orders do not wait for it.
    fn begin_following(self: &Arc<Self>, peer: Peer) -> Result<(), Trouble> {
        let (process, session) = (self.clone(), self.session());
        start("follow", move || {
            let wire = Wire { process: &process, session: &session };
            if let Err(trouble) = process.server.begin_following(peer, &wire) {
                (process.log)(&format!("worker-{}: {}", peer.worker, trouble.message));
                wire.close(peer.link);
            }
        })
    }

    /// Says the last word, where that is to be heard.
    fn leave(&self, ended: &Result<(), Trouble>) {
        let session = self.session();
        match (ended, &session.coordinator) {
            // The coordinator may be what went away.
            (Err(_), Some(coordinator)) => {
                let _ = coordinator.flush_and_close(FLUSH_WITHIN);
            }
            _ => session.close(),
        }
    }

    fn session(&self) -> Arc<Session> {
        self.lock_session().clone()
    }

    fn lock_session(&self) -> MutexGuard<'_, Arc<Session>> {
        self.session.lock().expect("no thread panics with the session")
    }

    fn workers(&self) -> Arc<BTreeMap<u64, Sender>> {
        self.lock_workers().clone()
    }

    fn lock_workers(&self) -> MutexGuard<'_, Arc<BTreeMap<u64, Sender>>> {
        self.workers.lock().expect("no thread panics with the links")
    }
}

impl Session {
    fn close(&self) {
        if let Some(coordinator) = &self.coordinator {
            coordinator.close();
        }
    }
}

impl Outlet for Wire<'_> {
    fn coordinator(&self, message: &FromServer, squares: &[f64]) {
        if let Some(coordinator) = &self.session.coordinator {
            // The thread that reads its orders notices that it is gone.
            let _ = coordinator.send_with(message, bytes::as_bytes(squares));
        }
    }

    fn answer(&self, to: Peer, message: &Pull, values: &[f32]) -> bool {
        let workers = self.process.workers();
        let link = workers.get(&to.link);
        link.is_some_and(|link| link.send_with(message, bytes::as_bytes(values)).is_ok())
    }

    fn hand_out(&self, to: Peer, message: &Pull, values: &[f32], waiting_max: usize) -> bool {
        let workers = self.process.workers();
        let Some(link) = workers.get(&to.link) else { return false };
        link.bytes_waiting() <= waiting_max
            // What waits may have grown since; a chunk is held, and no peer is waited for with it.
            && matches!(link.try_send_with(message, bytes::as_bytes(values)), Ok(true))
    }

    fn close(&self, link: u64) {
        if let Some(sender) = self.process.workers().get(&link) {
            sender.close();
        }
    }

    fn used(&self) -> Used {
        let bytes_out = self.process.workers().values().map(Sender::bytes_sent).sum();
        Used { cpu: self.process.clock.cpu(), bytes_out }
    }
}

/// Heartbeats, until what is returned is dropped.
fn send_heartbeats(process: Arc<Process>) -> Result<mpsc::Sender<()>, Trouble> {
    let (alive, ended) = mpsc::channel::<()>();
    start("alive", move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(ALIVE_EVERY) {
            process.on(Event::Tick);
        }
    })?;
    Ok(alive)
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
