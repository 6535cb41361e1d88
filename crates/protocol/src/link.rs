//! Two processes that talk: messages in order, each with its bulk.
//!
//! Owns how a link is made. [`Sender`] and [`Receiver`] do the rest. Never knows what is said.

use crate::agent::Agent;
use crate::auth::{self, Knows};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::gate;
use crate::haste;
use crate::identity::Identity;
pub use crate::receiver::{Incoming, Receiver};
pub use crate::sender::Sender;
use crate::socket::Socket;
use crate::ticks::Ticks;
use crate::tls;
use crate::transport::Transport;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long an address may take to answer.
pub const CONNECT: Duration = Duration::from_secs(5);

/// The process that is to be reached; under TLS its certificate must say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    Agent(Agent),
    Worker,
}

impl From<Agent> for Whom {
    fn from(agent: Agent) -> Self {
        Self::Agent(agent)
    }
}

impl Whom {
    fn check(self, identity: &Identity) -> Result<(), Error> {
        let (is_it, whom) = match self {
            Self::Agent(agent) => (identity.agent == agent, agent.to_string()),
            Self::Worker => (matches!(identity.agent, Agent::Worker(_)), "a worker".to_owned()),
        };
        match is_it {
            true => Ok(()),
            false => Err(Error::OtherProcess { whom, certified: identity.to_string() }),
        }
    }
}

/// Connects to a process that listens, and which must be of `generation` where one is given.
pub fn connect(
    address: &str,
    credentials: &Credentials,
    whom: impl Into<Whom>,
    generation: Option<u64>,
) -> Result<(Sender, Receiver), Error> {
    let mut ticks = Ticks::new();
    let stream: Socket = match credentials.via() {
        None => reach(address)?.into(),
        Some(gate) => gate::connect(gate, address, &mut ticks)?,
    };
    let (mut stream, identity): Admitted = match credentials.trusted() {
        Some(trusted) => known(tls::client(stream, &trusted, &mut ticks)?),
        None => (Box::new(stream), None),
    };
    if let Some(identity) = &identity {
        whom.into().check(identity)?;
        credentials.standing().check(identity)?;
    }
    let generation = auth::client(&mut *stream, credentials.secret(), generation, &mut ticks)?;
    over_kept(stream, generation, credentials, identity)
}

/// Asks the process that listens at an address who it is, by its certificate, and hangs up.
pub fn identify(address: SocketAddr, credentials: &Credentials) -> Result<Identity, Error> {
    let trusted = credentials.trusted().ok_or(Error::Plain)?;
    let mut ticks = Ticks::new();
    let stream = reach(&address.to_string())?;
    let (_, identity) = tls::client(stream.into(), &trusted, &mut ticks)?;
    credentials.standing().check(&identity)?;
    Ok(identity)
}

/// A connection, and who is at its other end, where there are certificates.
pub(crate) type Admitted = (Box<dyn Transport>, Option<Identity>);

fn known((stream, identity): (Box<dyn Transport>, Identity)) -> Admitted {
    (stream, Some(identity))
}

/// Makes a link of a connection that came in.
pub fn accept(
    stream: TcpStream,
    credentials: &Credentials,
    generation: u64,
) -> Result<(Sender, Receiver), Error> {
    let mut ticks = Ticks::new();
    let admitted = admit(stream, credentials, &mut ticks)?;
    welcome(admitted, credentials, generation, &mut ticks).map(|(link, _)| link)
}

/// Asks the connecting process for its certificate, where there are any; one of a machine that was
/// given up is refused.
pub(crate) fn admit(
    stream: TcpStream,
    credentials: &Credentials,
    ticks: &mut Ticks,
) -> Result<Admitted, Error> {
    haste::hasten(&stream).map_err(Error::io("sending without delay"))?;
    let Some(trusted) = credentials.trusted() else { return Ok((Box::new(stream), None)) };
    let (stream, identity) = tls::server(stream.into(), &trusted, ticks)?;
    credentials.standing().check(&identity)?;
    Ok((stream, Some(identity)))
}

/// Asks the connecting process for a secret, and says whose it knows.
pub(crate) fn welcome(
    (mut stream, identity): Admitted,
    credentials: &Credentials,
    generation: u64,
    ticks: &mut Ticks,
) -> Result<((Sender, Receiver), Knows), Error> {
    let (secret, consoles) = (credentials.secret(), credentials.consoles());
    let knows = auth::server(&mut *stream, secret, consoles, generation, ticks)?;
    Ok((over_kept(stream, generation, credentials, identity)?, knows))
}

/// Makes a link that ends when the other end's machine is given up.
fn over_kept(
    stream: Box<dyn Transport>,
    generation: u64,
    credentials: &Credentials,
    identity: Option<Identity>,
) -> Result<(Sender, Receiver), Error> {
    let (sender, receiver) = over(stream, generation)?;
    if let Some(identity) = identity {
        credentials.standing().keep(identity, &sender.outbox())?;
    }
    Ok((sender, receiver))
}

fn reach(address: &str) -> Result<TcpStream, Error> {
    let failed = |why: String| Error::Connect { address: address.to_string(), why };
    let addresses = address.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let mut why = "it names no machine".to_string();
    for candidate in addresses {
        match haste::connect(&candidate, CONNECT) {
            Ok(stream) => {
                // The proofs are small writes that must not wait for each other.
                haste::hasten(&stream).map_err(Error::io("sending without delay"))?;
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
