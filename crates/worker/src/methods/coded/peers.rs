//! The links from one worker of a coded run to the others: products and entries.
//!
//! What was sent and is not known to have come is in [`Letters`]; this makes links for it, and makes
//! them again. Never knows what letters are for.

pub use super::letters::Letter;
use super::letters::Letters;
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
/// Largest bulk of a letter.
const BULK_BYTES_MAX: usize = 1 << 30;

/// Takes a letter in.
type Slot = Arc<dyn Fn(Letter) + Send + Sync>;

/// Where other workers reach this one, for as long as its process lives.
pub struct Door {
    address: String,
    slot: Arc<Mutex<Option<Slot>>>,
    _listening: Listening,
}

impl Door {
    /// Listens for other workers.
    pub fn open(launch: &Launch, credentials: &Credentials, log: Log) -> Result<Self, Trouble> {
        let place = launch.station.listen(0);
        let cannot = |e: &dyn std::fmt::Display| {
            Trouble::new(format!("cannot listen on {place} for other workers: {e}"))
        };
        let listener = TcpListener::bind(&place).map_err(|e| cannot(&e))?;
        let bound = listener.local_addr().map_err(|e| cannot(&e))?;
        let slot: Arc<Mutex<Option<Slot>>> = Arc::default();
        let inner = slot.clone();
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
        Ok(Self { address: launch.station.address(bound), slot, _listening: listening })
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Letters come here from now on.
    pub fn read_by(&self, slot: impl Fn(Letter) + Send + Sync + 'static) {
        *self.slot.lock().expect("no thread panics with the letters") = Some(Arc::new(slot));
    }

    /// Letters are not read for now; those that come are lost.
    pub fn close(&self) {
        *self.slot.lock().expect("no thread panics with the letters") = None;
    }
}

/// Reads a link, and says what has come.
fn read(slot: &Mutex<Option<Slot>>, sender: &Sender, mut receiver: Receiver) -> Result<(), Error> {
    receiver.set_timeout(Some(IDLE))?;
    let mut count = 0;
    while let Some(incoming) = receiver.receive::<ToPeer>()? {
        let bulk = receiver.bulk_vec(BULK_BYTES_MAX)?;
        // It may wait for room, and the lock must not.
        let slot = slot.lock().expect("no thread panics with the letters").clone();
        if let Some(slot) = slot {
            slot((incoming.message, bulk));
        }
        count += 1;
        sender.send(&Received(count))?;
    }
    Ok(())
}

/// The links to other workers.
pub struct Peers(Arc<Office>);

struct Office {
    credentials: Credentials,
    join: Join,
    posts: Mutex<BTreeMap<String, Arc<Post>>>,
    is_over: AtomicBool,
}

/// The way to one of them.
#[derive(Default)]
struct Post {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    letters: Letters,
    link: Option<Sender>,
    /// Links that there were.
    links: u64,
}

impl Peers {
    /// No peer is known yet.
    pub fn new(credentials: &Credentials, join: &Join) -> Self {
        let join = Join { purpose: LinkPurpose::Peer, ..join.clone() };
        let (credentials, posts) = (credentials.clone(), Mutex::default());
        Self(Arc::new(Office { credentials, join, posts, is_over: AtomicBool::new(false) }))
    }

    /// Sends a letter, now or as soon as its reader can be reached.
    pub fn post(&self, address: &str, letter: Letter) -> Result<(), Trouble> {
        let mut posts = self.0.posts();
        let is_new = !posts.contains_key(address);
        let post = posts.entry(address.to_owned()).or_default().clone();
        let mut state = post.state();
        drop(posts);
        if let Some(letter) = state.letters.put(letter) {
            state.send(&letter);
        }
        drop(state);
        post.changed.notify_all();
        if is_new {
            let (office, address) = (self.0.clone(), address.to_owned());
            let thread = Builder::new().name("peer".into());
            let started = thread.spawn(move || office.keep(&address, &post));
            started.map_err(|e| Trouble::new(format!("cannot start a thread: {e}")))?;
        }
        Ok(())
    }

    /// What is of older rounds need not come any more.
    pub fn retire(&self, round: u64) {
        for post in self.0.posts().values() {
            let mut state = post.state();
            if state.letters.retire(round) {
                state.hang_up();
            }
            post.changed.notify_all();
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        for post in self.0.posts().values() {
            post.state().hang_up();
            post.changed.notify_all();
        }
    }
}

impl Office {
    fn posts(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Post>>> {
        self.posts.lock().expect("no thread panics with the peers")
    }

    /// The thread of one peer: makes its link, and makes it again, while there is something to send.
    fn keep(&self, address: &str, post: &Arc<Post>) {
        loop {
            // In this order, as the sender takes them.
            let mut posts = self.posts();
            let state = post.state();
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            if state.link.is_none() && state.letters.is_empty() {
                posts.remove(address);
                return;
            }
            drop(posts);
            if state.link.is_some() {
                drop(post.wait(state, IDLE));
                continue;
            }
            drop(state);
            if self.connect(address, post).is_err() {
                drop(post.wait(post.state(), RETRY));
            }
        }
    }

    fn connect(&self, address: &str, post: &Arc<Post>) -> Result<(), Error> {
        let (sender, receiver) = link::connect(address, &self.credentials, Whom::Worker, None)?;
        sender.send(&self.join)?;
        let mut state = post.state();
        state.links += 1;
        state.link = Some(sender);
        let number = state.links;
        for letter in state.letters.linked() {
            state.send(&letter);
        }
        drop(state);
        let listened = post.clone();
        let thread = Builder::new().name("peer-heard".into());
        let started = thread.spawn(move || listened.hear(number, receiver));
        started.map_err(|source| Error::Io { what: "starting a thread", source })?;
        Ok(())
    }
}

impl Post {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with a peer")
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).expect("no thread panics with a peer").0
    }

    /// The thread that hears what has come, until its link ends.
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
            state.letters.received(count);
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
    fn send(&mut self, letter: &Letter) {
        let Some(link) = &self.link else { return };
        if link.send_with(&letter.0, &letter.1).is_err() {
            self.hang_up();
        }
    }

    fn hang_up(&mut self) {
        self.letters.unlinked();
        if let Some(link) = self.link.take() {
            link.close();
        }
    }
}

#[cfg(test)]
mod tests;
