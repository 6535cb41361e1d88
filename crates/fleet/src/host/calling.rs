//! How a host finds a controller that does not come to it.
//!
//! Owns where the controller is and what is shown to it. It goes to the host over its first channel
//! and lies in no file, argument or environment. Never decides for how long to try.

use planaria_protocol::launch::Trust;
use planaria_protocol::message::{Agent, Join};
use planaria_protocol::{Credentials, Error, Receiver, Secret, Sender, connect};
use serde::{Deserialize, Serialize};
use std::net::UdpSocket;

/// The one generation of calls.
pub const GENERATION: u64 = 1;

/// What a host is told that is to call.
#[derive(Clone, Serialize, Deserialize)]
pub struct Calling {
    /// The machine, by the name that the controller knows.
    pub machine: String,
    /// Where the controller may be reached, `address:port` each, the preferred first; then where those
    /// may be that succeed it.
    pub addresses: Vec<String>,
    /// What both know, in hexadecimal.
    pub secret: String,
    /// The machine's certificate.
    pub trust: Option<Trust>,
    /// What it must know to succeed the controller, where it may.
    pub succession: Option<Succession>,
}

/// What a host is told that may succeed the controller.
#[derive(Clone, Serialize, Deserialize)]
pub struct Succession {
    /// For the standard input of the controller that it becomes.
    pub orders: Vec<u8>,
    /// The controller's certificate.
    pub trust: Trust,
    /// Machines of the run.
    pub machines: usize,
    /// 0 for the first that succeeds.
    pub rank: u32,
}

/// A controller that was reached.
pub struct Reached {
    /// Its address, without port.
    pub controller: String,
    /// The address of this machine that leads there.
    pub own: Option<String>,
    pub sender: Sender,
    pub receiver: Receiver,
}

impl Calling {
    pub fn call(&self, build: &str) -> Result<Reached, Error> {
        let secret = Secret::from_hex(&self.secret)?;
        let credentials = Credentials::new(secret, self.trust.as_ref(), None)?;
        let mut failed = None;
        for address in &self.addresses {
            match connect(address, &credentials, Agent::Controller, Some(GENERATION)) {
                Ok((sender, receiver)) => {
                    sender.send(&self.join(build))?;
                    let controller = address.rsplit_once(':').map_or("", |(host, _)| host);
                    let own = own_address(address);
                    return Ok(Reached {
                        controller: controller.to_owned(),
                        own,
                        sender,
                        receiver,
                    });
                }
                Err(error) => failed = Some(error),
            }
        }
        let nowhere = || Error::Connect { address: String::new(), why: "it has none".into() };
        Err(failed.unwrap_or_else(nowhere))
    }

    fn join(&self, build: &str) -> Join {
        Join {
            machine: Some(self.machine.clone()),
            ..Join::new(Agent::Host, build.to_owned(), std::process::id())
        }
    }
}

/// The address that what goes there comes from. Nothing is sent.
fn own_address(there: &str) -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(there).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}
