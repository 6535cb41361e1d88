//! Two processes that talk: messages in order, each with its bulk.
//!
//! Owns how a link is made. [`Sender`] and [`Receiver`] do the rest. Never knows what is said.

use crate::auth;
use crate::error::Error;
pub use crate::receiver::{Incoming, Receiver};
use crate::secret::Secret;
pub use crate::sender::Sender;
use crate::transport::Transport;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long an address may take to answer.
pub const CONNECT: Duration = Duration::from_secs(5);

/// Connects to a process that listens, and which must be of `generation` where one is given.
pub fn connect(
    address: &str,
    secret: &Secret,
    generation: Option<u64>,
) -> Result<(Sender, Receiver), Error> {
    let failed = |why: String| Error::Connect { address: address.to_string(), why };
    let addresses = address.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let mut why = "it names no machine".to_string();
    for candidate in addresses {
        match TcpStream::connect_timeout(&candidate, CONNECT) {
            Ok(stream) => {
                // The code of the secret is three small writes that must not wait for each other.
                stream.set_nodelay(true).map_err(Error::io("sending without delay"))?;
                let mut stream: Box<dyn Transport> = Box::new(stream);
                let generation = auth::client(&mut *stream, secret, generation)?;
                return over(stream, generation);
            }
            Err(error) => why = error.to_string(),
        }
    }
    Err(failed(why))
}

/// Makes a link of a connection that came in.
pub fn accept(
    stream: TcpStream,
    secret: &Secret,
    generation: u64,
) -> Result<(Sender, Receiver), Error> {
    stream.set_nodelay(true).map_err(Error::io("sending without delay"))?;
    let mut stream: Box<dyn Transport> = Box::new(stream);
    auth::server(&mut *stream, secret, generation)?;
    over(stream, generation)
}

/// Makes a link of a connection whose ends know each other already.
pub fn over(stream: Box<dyn Transport>, generation: u64) -> Result<(Sender, Receiver), Error> {
    let halves = stream.split().map_err(Error::io("setting up a connection"))?;
    let sender = Sender::new(halves.writing, halves.closing, generation);
    let receiver = Receiver::new(halves.reading, sender.outbox(), generation);
    Ok((sender, receiver))
}
