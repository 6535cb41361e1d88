//! The links from one worker of a coded run to the others: products and entries.
//!
//! Makes links, and makes them again after a loss, for what is [`Unacknowledged`]. Never knows what
//! messages are for.

pub use super::unacknowledged::PeerMessage;
use super::unacknowledged::Unacknowledged;
use crate::session::shell::Log;
use planaria_protocol::launch::Launch;
use planaria_protocol::link::{self, Receiver, Sender};
use planaria_protocol::listen::{self, Listening};
use planaria_protocol::message::{Agent, Join, LinkPurpose, Trouble};
use planaria_protocol::methods::coded::{Received, ToPeer};
use planaria_protocol::{Credentials, Error, Whom};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Builder;
use std::time::Duration;

/// Between two tries to reach a peer.
pub const RETRY: Duration = Duration::from_millis(100);
/// How long a link may be silent; it is made again when it is needed.
pub const IDLE: Duration = Duration::from_secs(60);
/// Largest bulk of a message.
const BULK_BYTES_MAX: usize = 1 << 30;

/// Takes a message in.
type Handler = Arc<dyn Fn(PeerMessage) + Send + Sync>;

/// Where other workers reach this one, for as long as its process lives.
pub struct PeerListener {
    address: String,
    handler: Arc<Mutex<Option<Handler>>>,
    _listening: Listening,
}

impl PeerListener {
    /// Listens for other workers.
    pub fn open(launch: &Launch, credentials: &Credentials, log: Log) -> Result<Self, Trouble> {
        let place = launch.station.listen(0);
        let cannot = |e: &dyn std::fmt::Display| {
            Trouble::new(format!("cannot listen on {place} for other workers: {e}"))
        };
        let listener = TcpListener::bind(&place).map_err(|e| cannot(&e))?;
        let bound = listener.local_addr().map_err(|e| cannot(&e))?;
        let handler: Arc<Mutex<Option<Handler>>> = Arc::default();
        let inner = handler.clone();
        let on_link = move |join: Join, sender: Sender, receiver: Receiver| {
            if join.purpose == LinkPurpose::Peer && matches!(join.agent, Agent::Worker(_)) {
                // Its sender notices that the link has ended, and makes another.
                let _ = read(&inner, &sender, receiver);
            }
        };
        let generation = Arc::new(AtomicU64::new(launch.generation));
        let listening =
            listen::serve(listener, credentials.clone(), generation, on_link, move |why| {
                log(&format!("a connection was refused: {why}"));
            })
            .map_err(|e| cannot(&e))?;
        Ok(Self { address: launch.station.address(bound), handler, _listening: listening })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Passes messages on to this handler from now on.
    pub fn read_by(&self, handler: impl Fn(PeerMessage) + Send + Sync + 'static) {
        *self.handler.lock().expect("no thread panics with the handler") = Some(Arc::new(handler));
    }

    /// Drops the messages that arrive from now on.
    pub fn close(&self) {
        *self.handler.lock().expect("no thread panics with the handler") = None;
    }
}

/// Reads a link, and says what has come.
fn read(
    handler: &Mutex<Option<Handler>>,
    sender: &Sender,
    mut receiver: Receiver,
) -> Result<(), Error> {
    receiver.set_timeout(Some(IDLE))?;
    let mut count = 0;
    while let Some(incoming) = receiver.receive::<ToPeer>()? {
        let bulk = receiver.bulk_vec(BULK_BYTES_MAX)?;
        // It may wait for room, and the lock must not.
        let handler = handler.lock().expect("no thread panics with the handler").clone();
        if let Some(handler) = handler {
            handler((incoming.message, bulk));
        }
        count += 1;
        sender.send(&Received(count))?;
    }
    Ok(())
}

/// The links to other workers.
pub struct Peers(Arc<Inner>);

struct Inner {
    credentials: Credentials,
    join: Join,
    connections: Mutex<BTreeMap<String, Arc<Connection>>>,
    is_over: AtomicBool,
}

/// To one of them; it lasts over several links.
#[derive(Default)]
struct Connection {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    unacknowledged: Unacknowledged,
    link: Option<Sender>,
    /// Links that there were.
    links: u64,
}

impl Peers {
    /// No peer is known yet.
    pub fn new(credentials: &Credentials, join: &Join) -> Self {
        let join = Join { purpose: LinkPurpose::Peer, ..join.clone() };
        let (credentials, connections) = (credentials.clone(), Mutex::default());
        Self(Arc::new(Inner { credentials, join, connections, is_over: AtomicBool::new(false) }))
    }

    /// Sends a message, now or as soon as its reader can be reached.
    pub fn send(&self, address: &str, message: PeerMessage) -> Result<(), Trouble> {
        let mut connections = self.0.connections();
        let is_new = !connections.contains_key(address);
        let connection = connections.entry(address.to_owned()).or_default().clone();
        let mut state = connection.state();
        drop(connections);
        if let Some(message) = state.unacknowledged.put(message) {
            state.send(&message);
        }
        drop(state);
        connection.changed.notify_all();
        if is_new {
            let (inner, address) = (self.0.clone(), address.to_owned());
            let thread = Builder::new().name("peer".into());
            let started = thread.spawn(move || inner.keep(&address, &connection));
            started.map_err(|e| Trouble::new(format!("cannot start a thread: {e}")))?;
        }
        Ok(())
    }

    /// Drops the messages of older rounds.
    pub fn retire(&self, round: u64) {
        for connection in self.0.connections().values() {
            let mut state = connection.state();
            if state.unacknowledged.retire(round) {
                state.hang_up();
            }
            connection.changed.notify_all();
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        for connection in self.0.connections().values() {
            connection.state().hang_up();
            connection.changed.notify_all();
        }
    }
}

impl Inner {
    fn connections(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Connection>>> {
        self.connections.lock().expect("no thread panics with the peers")
    }

    /// The thread of one peer: makes its link, and makes it again, while there is something to send.
    fn keep(&self, address: &str, connection: &Arc<Connection>) {
        loop {
            // In this order, as the sender takes them.
            let mut connections = self.connections();
            let state = connection.state();
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            if state.link.is_none() && state.unacknowledged.is_empty() {
                connections.remove(address);
                return;
            }
            drop(connections);
            if state.link.is_some() {
                drop(connection.wait(state, IDLE));
                continue;
            }
            drop(state);
            if self.connect(address, connection).is_err() {
                drop(connection.wait(connection.state(), RETRY));
            }
        }
    }

    fn connect(&self, address: &str, connection: &Arc<Connection>) -> Result<(), Error> {
        let (sender, receiver) = link::connect(address, &self.credentials, Whom::Worker, None)?;
        sender.send(&self.join)?;
        let mut state = connection.state();
        state.links += 1;
        state.link = Some(sender);
        let number = state.links;
        for message in state.unacknowledged.linked() {
            state.send(&message);
        }
        drop(state);
        let listened = connection.clone();
        let thread = Builder::new().name("peer-heard".into());
        let started = thread.spawn(move || listened.hear(number, receiver));
        started.map_err(|source| Error::Io { what: "starting a thread", source })?;
        Ok(())
    }
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with a peer")
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).expect("no thread panics with a peer").0
    }

    /// The thread that reads acknowledgements, until the link ends.
    fn hear(&self, number: u64, mut receiver: Receiver) {
        while let Ok(Some(incoming)) = receiver.receive::<Received>() {
            if receiver.skip_bulk().is_err() {
                break;
            }
            let mut state = self.state();
            let Received(count) = incoming.message;
            if state.links != number {
                return;
            }
            state.unacknowledged.received(count);
        }
        let mut state = self.state();
        if state.links == number {
            state.hang_up();
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl State {
    fn send(&mut self, message: &PeerMessage) {
        let Some(link) = &self.link else { return };
        if link.send_with(&message.0, &message.1).is_err() {
            self.hang_up();
        }
    }

    fn hang_up(&mut self) {
        self.unacknowledged.unlinked();
        if let Some(link) = self.link.take() {
            link.close();
        }
    }
}

#[cfg(test)]
mod tests;
