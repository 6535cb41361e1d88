//! Links over real sockets under TLS, as they are between machines.

#[path = "links/cases.rs"]
mod cases;

use planaria_protocol::message::Agent;
use planaria_protocol::tls::Authority;
use planaria_protocol::{Credentials, Secret};
use std::time::Duration;

/// What the two ends show to each other.
fn credentials() -> (Credentials, Credentials) {
    let authority = Authority::new("test", 1.8e9).expect("an authority");
    let secret = Secret::random().expect("random bytes");
    let credentials = |agent| {
        let trust = authority.issue(agent, None, Duration::ZERO).expect("a certificate");
        Credentials::new(secret.clone(), Some(&trust), None).expect("a credentials")
    };
    (credentials(Agent::Worker(0)), credentials(Agent::Server(0)))
}
