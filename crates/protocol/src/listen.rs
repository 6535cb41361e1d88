//! Who may talk: takes connections in and lets those through that know the secret.
//!
//! Owns the listening thread and the few short-lived ones that check who is there. Strangers cost
//! one of [`UNKNOWN`] places for at most a few seconds and leave one line. Never decides what a
//! peer is for.

use crate::auth;
use crate::credentials::Credentials;
use crate::error::Error;
use crate::link::{self, Receiver, Sender};
use crate::message::Join;
use crate::ticks::Ticks;
use crate::transport::wait;
use rustix::event::{PollFd, PollFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, PipeReader, PipeWriter};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Connections at a time that have not shown yet who they are.
pub const UNKNOWN: usize = 256;

/// Addresses of strangers that are told of, under TLS.
const STRANGERS: usize = 256;

/// The same from one address, where links are under TLS.
const UNKNOWN_ALIKE: usize = 64;

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
/// Peers are of the generation in force when they connect. `on_link` is called for each peer that knows the secret and has joined, on a thread that is the
/// callee's for as long as it likes (to read the link, say). `on_refused` is given one reason for
/// each connection that was not let in; under TLS one for each address whose connections show no
/// certificate of the run, as anybody may call there as often as they like.
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
        strangers: Mutex::default(),
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
    /// Addresses of those without a certificate that were told of.
    strangers: Mutex<BTreeSet<IpAddr>>,
    /// The one in force, which may be raised.
    generation: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
    /// Those who are not known yet, by their address.
    unknown: Mutex<BTreeMap<IpAddr, usize>>,
    on_link: Box<dyn Fn(Join, Sender, Receiver) + Send + Sync>,
    on_refused: Box<dyn Fn(String) + Send + Sync>,
}

/// One of the places for those who are not known yet.
struct Place(Arc<Door>, IpAddr);

impl Place {
    /// A place, if there is one left. Where links are under TLS no one address takes them all: a
    /// peer that holds connections open without a word must not keep the run's own machines out.
    fn take(door: &Arc<Door>, from: IpAddr) -> Option<Self> {
        let mut unknown = door.unknown.lock().expect("no thread panics with the addresses");
        let all: usize = unknown.values().sum();
        let own = unknown.entry(from).or_default();
        let is_bound = door.credentials.is_trusted() && !from.is_loopback();
        let most = if is_bound { UNKNOWN_ALIKE } else { UNKNOWN };
        if all >= UNKNOWN || *own >= most {
            if *own == 0 {
                unknown.remove(&from);
            }
            return None;
        }
        *own += 1;
        Some(Self(door.clone(), from))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut unknown = self.0.unknown.lock().expect("no thread panics with the addresses");
        if let Some(own) = unknown.get_mut(&self.1) {
            *own -= 1;
            if *own == 0 {
                unknown.remove(&self.1);
            }
        }
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
        let Some(place) = Place::take(self, from.ip()) else {
            let why = format!("{UNKNOWN} connections are being checked already");
            return self.turn_away(from, &why);
        };
        let check = Builder::new().name("doorkeeper".to_string());
        let checked = check.spawn(move || {
            let door = place.0.clone();
            let result = door.check(stream, from);
            drop(place);
            match result {
                Ok(None) => {}
                Ok(_) if door.stopped.load(Ordering::SeqCst) => {}
                Ok(Some((join, sender, receiver))) => (door.on_link)(join, sender, receiver),
                Err(error) => (door.on_refused)(format!("{from}: {error}")),
            }
        });
        if let Err(error) = checked {
            (self.on_refused)(format!("{from}: starting a thread: {error}"));
        }
    }

    /// Who it is; nothing where it is a stranger, who has been turned away.
    fn check(&self, stream: TcpStream, from: SocketAddr) -> Result<Option<Peer>, Error> {
        // What a listener hands on may inherit its being without waiting.
        stream.set_nonblocking(false).map_err(Error::io("setting up a connection"))?;
        // A machine of the pool that tries whether it can reach this one says nothing.
        if self.credentials.is_trusted() && hangs_up_at_once(&stream) {
            return Ok(None);
        }
        let mut ticks = Ticks::new();
        let stream = match link::admit(stream, &self.credentials, &mut ticks) {
            Ok(stream) => stream,
            Err(error) => {
                self.turn_away(from, &error.to_string());
                return Ok(None);
            }
        };
        let generation = self.generation.load(Ordering::SeqCst);
        let (sender, mut receiver) =
            link::welcome(stream, &self.credentials, generation, &mut ticks)?;
        receiver.set_timeout(Some(auth::LIMIT))?;
        let Some(first) = receiver.receive::<Join>()? else { return Err(Error::NotJoined) };
        receiver.skip_bulk()?;
        receiver.set_timeout(None)?;
        Ok(Some((first.message, sender, receiver)))
    }

    /// Tells why somebody was not let in; under TLS once for each address, and for so many of them.
    fn turn_away(&self, from: SocketAddr, why: &str) {
        if !self.credentials.is_trusted() {
            return (self.on_refused)(format!("{from}: {why}"));
        }
        let mut strangers = self.strangers.lock().expect("no thread panics with the addresses");
        if strangers.len() >= STRANGERS || !strangers.insert(from.ip()) {
            return;
        }
        let more = match strangers.len() {
            STRANGERS => "; others from here and from anywhere will not be told of",
            _ => "; others from this address will not be told of",
        };
        drop(strangers);
        (self.on_refused)(format!("{from}: {why}{more}"));
    }
}

/// Who was let in.
type Peer = (Join, Sender, Receiver);

/// Whether the other end has hung up without a word; waits for one of both for a while.
fn hangs_up_at_once(stream: &TcpStream) -> bool {
    // Where it cannot be asked, or not in time, the handshake says what is wrong.
    stream.set_read_timeout(Some(auth::LIMIT)).is_ok() && matches!(stream.peek(&mut [0]), Ok(0))
}
