//! Who may talk: takes connections in and lets those through that know the secret.
//!
//! Owns the listening thread and the few short-lived ones that check who is there: certificate, secret,
//! and that both fit who it says to be. Strangers cost one of [`UNKNOWN`] places for at most a few
//! seconds, and leave one line for each address. Never decides what a peer is for.

use crate::auth::Knows;
use crate::credentials::Credentials;
use crate::error::Error;
use crate::identity::Identity;
use crate::link::{self, Receiver, Sender};
use crate::message::{Agent, Join};
use crate::places::{PLACES, Place, Places, Taking};
use crate::refusals::Refusals;
use crate::ticks::Ticks;
use crate::transport::wait;
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, PipeReader, PipeWriter};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Connections at a time that have not shown yet who they are.
pub const UNKNOWN: usize = PLACES;

/// How long a caller may take to send its first byte: peers send at once.
pub const FIRST_BYTE: Duration = Duration::from_secs(2);

/// How long to leave the system alone when it cannot take a connection (too many open files).
const PAUSE: Duration = Duration::from_millis(100);

/// A listening thread; it ends when this is dropped.
pub struct Listening {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    /// Its end is the thread's.
    wake: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// Takes connections in, on a thread of its own.
///
/// Peers are of the generation in force when they connect. `on_link` is called for each peer that
/// knows the secret and has joined as who it is, on a thread that is the callee's for as long as it
/// likes (to read the link, say). `on_refused` is told why connections were not let in: the first
/// from an address, and then how many there were, as strangers may call as often as they like.
pub fn serve(
    listener: TcpListener,
    credentials: Credentials,
    generation: Arc<AtomicU64>,
    on_link: impl Fn(Join, Sender, Receiver) + Send + Sync + 'static,
    on_refused: impl Fn(String) + Send + Sync + 'static,
) -> Result<Listening, Error> {
    let address = listener.local_addr().map_err(Error::io("asking for the own address"))?;
    listener.set_nonblocking(true).map_err(Error::io("listening without waiting"))?;
    let (end, wake) = io::pipe().map_err(Error::io("making a pipe"))?;
    let stopped = Arc::new(AtomicBool::new(false));
    let door = Arc::new(Door {
        credentials,
        refusals: Mutex::default(),
        generation,
        stopped: stopped.clone(),
        unknown: Mutex::default(),
        on_link: Box::new(on_link),
        on_refused: Box::new(on_refused),
    });
    let thread = Builder::new()
        .name("listener".to_string())
        .spawn(move || door.keep(&listener, &end))
        .map_err(Error::io("starting a thread"))?;
    Ok(Listening { address, stopped, wake: Some(wake), thread: Some(thread) })
}

impl Listening {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the listening; no peer is let in after this. Links that were made go on.
    pub fn stop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            // It has no result, and its panic has been shown.
            let _ = thread.join();
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Door {
    credentials: Credentials,
    refusals: Mutex<Refusals>,
    /// The one in force, which may be raised.
    generation: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
    unknown: Mutex<Unknown>,
    on_link: Box<dyn Fn(Join, Sender, Receiver) + Send + Sync>,
    on_refused: Box<dyn Fn(String) + Send + Sync>,
}

/// Connections that are not authenticated yet.
#[derive(Default)]
struct Unknown {
    places: Places,
    /// Their connections, to end those that have to go.
    connections: BTreeMap<Place, TcpStream>,
}

/// The place of a connection that is not authenticated yet.
struct Held {
    door: Arc<Door>,
    place: Place,
}

impl Held {
    /// A place, if there is one; the connection that has to go for it is ended.
    fn take(door: &Arc<Door>, stream: &TcpStream, from: SocketAddr) -> Result<Self, Error> {
        let handle = stream.try_clone().map_err(Error::io("taking a connection in"))?;
        let mut unknown = door.unknown();
        let place = match unknown.places.take(from.ip()) {
            Taking::Free(place) => place,
            Taking::Instead(place, goes) => {
                if let Some(goes) = unknown.connections.remove(&goes) {
                    // It may have gone by itself.
                    let _ = goes.shutdown(Shutdown::Both);
                }
                place
            }
            Taking::Full => return Err(Error::NoPlace(UNKNOWN)),
        };
        unknown.connections.insert(place, handle);
        Ok(Self { door: door.clone(), place })
    }

    /// Whether it has not had to go for another.
    fn is_held(&self) -> bool {
        self.door.unknown().places.has(self.place)
    }
}

/// Waits for the first byte, which is left to be read. False where the other end has hung up without
/// one.
fn first_byte(stream: &TcpStream) -> Result<bool, Error> {
    const WHAT: &str = "its first byte";
    stream.set_read_timeout(Some(FIRST_BYTE)).map_err(Error::io("setting a time-out"))?;
    match stream.peek(&mut [0]) {
        Ok(0) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => Err(match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Error::TooLate { what: WHAT, within: FIRST_BYTE }
            }
            ErrorKind::ConnectionReset => Error::HungUp(WHAT),
            _ => Error::io("reading from the other end")(error),
        }),
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut unknown = self.door.unknown();
        unknown.connections.remove(&self.place);
        unknown.places.leave(self.place);
    }
}

fn readable(of: &impl AsFd) -> PollFd<'_> {
    PollFd::new(of, PollFlags::IN)
}

impl Door {
    fn keep(self: &Arc<Self>, listener: &TcpListener, end: &PipeReader) {
        loop {
            if let Err(error) = wait(&mut [readable(end), readable(listener)], None) {
                return (self.on_refused)(format!("listening has ended: {error}"));
            }
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            match listener.accept() {
                Ok((stream, from)) => self.open(stream, from),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock
                    | ErrorKind::Interrupted
                    | ErrorKind::ConnectionAborted => {}
                    _ => {
                        (self.on_refused)(format!("taking a connection in: {error}"));
                        // The connection still waits, so listening on would come back at once.
                        let _ = wait(&mut [readable(end)], Some(PAUSE));
                    }
                },
            }
        }
    }

    /// Checks who it is on a thread of its own, so that a silent stranger keeps no other waiting.
    fn open(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let held = match Held::take(self, &stream, from) {
            Ok(held) => held,
            Err(error) => return self.refuse(from, &error),
        };
        let check = Builder::new().name("doorkeeper".to_string());
        let checked = check.spawn(move || {
            let door = held.door.clone();
            let result = door.check(stream, from);
            // What it did not get to say tells nothing once its connection was ended here.
            let result = if held.is_held() { result } else { Err(Error::Crowded) };
            drop(held);
            match result {
                Ok(None) => {}
                Ok(_) if door.stopped.load(Ordering::SeqCst) => {}
                Ok(Some((join, sender, receiver))) => (door.on_link)(join, sender, receiver),
                Err(error) => door.refuse(from, &error),
            }
        });
        if let Err(source) = checked {
            self.refuse(from, &Error::Io { what: "starting a thread", source });
        }
    }

    /// Who it is; nothing where it has hung up without a word.
    fn check(&self, stream: TcpStream, from: SocketAddr) -> Result<Option<Peer>, Error> {
        // What a listener hands on may inherit its being without waiting.
        stream.set_nonblocking(false).map_err(Error::io("setting up a connection"))?;
        if !first_byte(&stream)? {
            // A machine of the pool that tries whether it can reach this one says nothing.
            return match self.credentials.is_trusted() {
                true => Ok(None),
                false => Err(Error::HungUp("its hello")),
            };
        }
        let mut ticks = Ticks::new();
        let admitted = link::admit(stream, &self.credentials, &mut ticks)?;
        let identity = admitted.1.clone();
        let generation = self.generation.load(Ordering::SeqCst);
        let welcomed = link::welcome(admitted, &self.credentials, generation, &mut ticks);
        let ((sender, mut receiver), knows) = match (welcomed, &identity) {
            // The controller only wanted to know who listens here (`link::identify`).
            (Err(Error::HungUp(_)), Some(Identity { agent: Agent::Console, .. })) => {
                return Ok(None);
            }
            (welcomed, _) => welcomed?,
        };
        let join = receiver.first::<Join>(ticks)?.ok_or(Error::NotJoined)?;
        identity.map_or(Ok(()), |identity| identity.check(&join))?;
        fits(knows, join.agent)?;
        self.unknown().places.let_in(from.ip());
        Ok(Some((join, sender, receiver)))
    }

    /// Logs why a connection was refused, or counts it.
    fn refuse(&self, from: SocketAddr, error: &Error) {
        let told = self.refusals.lock().expect("no thread panics with them").note(from, error);
        if let Some(told) = told {
            (self.on_refused)(told);
        }
    }

    fn unknown(&self) -> MutexGuard<'_, Unknown> {
        self.unknown.lock().expect("no thread panics with the places")
    }
}

/// Who was let in.
type Peer = (Join, Sender, Receiver);

/// Consoles have a secret of their own: the one that workers and servers know lets none of them stop
/// a run.
fn fits(knows: Knows, agent: Agent) -> Result<(), Error> {
    match (knows, agent) {
        (Knows::Consoles, Agent::Console) => Ok(()),
        (Knows::Consoles, agent) => Err(Error::WrongRole { agent, of: "consoles" }),
        (Knows::Members, Agent::Console) => {
            Err(Error::WrongRole { agent, of: "workers and servers" })
        }
        (Knows::Members, _) => Ok(()),
    }
}
