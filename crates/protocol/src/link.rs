//! Two processes that talk: messages in order, each with its bulk.
//!
//! Owns how a link is made. [`Sender`] and [`Receiver`] do the rest. Never knows what is said.

use crate::auth;
use crate::credentials::Credentials;
use crate::error::Error;
pub use crate::receiver::{Incoming, Receiver};
pub use crate::sender::Sender;
use crate::socks;
use crate::ticks::Ticks;
use crate::tls;
use crate::transport::Transport;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long an address may take to answer.
pub const CONNECT: Duration = Duration::from_secs(5);

/// Connects to a process that listens, and which must be of `generation` where one is given.
pub fn connect(
    address: &str,
    credentials: &Credentials,
    generation: Option<u64>,
) -> Result<(Sender, Receiver), Error> {
    let mut ticks = Ticks::new();
    let stream = match credentials.via() {
        None => reach(address)?,
        Some(proxy) => {
            let mut stream = reach(proxy)?;
            socks::connect(&mut stream, address, &mut ticks)?;
            stream
        }
    };
    let mut stream: Box<dyn Transport> = match credentials.trusted() {
        Some(trusted) => tls::client(stream, trusted, &mut ticks)?,
        None => Box::new(stream),
    };
    let generation = auth::client(&mut *stream, credentials.secret(), generation, &mut ticks)?;
    over(stream, generation)
}

/// Makes a link of a connection that came in.
pub fn accept(
    stream: TcpStream,
    credentials: &Credentials,
    generation: u64,
) -> Result<(Sender, Receiver), Error> {
    let mut ticks = Ticks::new();
    let stream = admit(stream, credentials, &mut ticks)?;
    welcome(stream, credentials, generation, &mut ticks)
}

/// Asks the connecting process for its certificate, where there are any.
pub(crate) fn admit(
    stream: TcpStream,
    credentials: &Credentials,
    ticks: &mut Ticks,
) -> Result<Box<dyn Transport>, Error> {
    stream.set_nodelay(true).map_err(Error::io("sending without delay"))?;
    match credentials.trusted() {
        Some(trusted) => tls::server(stream, trusted, ticks),
        None => Ok(Box::new(stream)),
    }
}

/// Asks the connecting process for the secret.
pub(crate) fn welcome(
    mut stream: Box<dyn Transport>,
    credentials: &Credentials,
    generation: u64,
    ticks: &mut Ticks,
) -> Result<(Sender, Receiver), Error> {
    auth::server(&mut *stream, credentials.secret(), generation, ticks)?;
    over(stream, generation)
}

fn reach(address: &str) -> Result<TcpStream, Error> {
    let failed = |why: String| Error::Connect { address: address.to_string(), why };
    let addresses = address.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let mut why = "it names no machine".to_string();
    for candidate in addresses {
        match TcpStream::connect_timeout(&candidate, CONNECT) {
            Ok(stream) => {
                // The proofs are small writes that must not wait for each other.
                stream.set_nodelay(true).map_err(Error::io("sending without delay"))?;
                return Ok(stream);
            }
            Err(error) => why = error.to_string(),
        }
    }
    Err(failed(why))
}

/// Makes a link of a connection whose ends know each other already.
pub fn over(stream: Box<dyn Transport>, generation: u64) -> Result<(Sender, Receiver), Error> {
    let halves = stream.split().map_err(Error::io("setting up a connection"))?;
    let sender = Sender::new(halves.writing, halves.closing, generation);
    let receiver = Receiver::new(halves.reading, sender.outbox(), generation);
    Ok((sender, receiver))
}
