//! Links over real sockets under TLS, as they are between machines.

#[path = "links/cases.rs"]
mod cases;

use planaria_protocol::tls::Authority;
use planaria_protocol::{Credentials, Secret};

/// What the two ends show to each other.
fn credentials() -> (Credentials, Credentials) {
    let authority = Authority::new("test").expect("an authority");
    let secret = Secret::random().expect("random bytes");
    let credentials = |name: &str| {
        let trust = authority.issue(name).expect("a certificate");
        Credentials::new(secret.clone(), Some(&trust), None).expect("a credentials")
    };
    (credentials("worker-0"), credentials("server-0"))
}
