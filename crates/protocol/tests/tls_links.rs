//! Links over real sockets under TLS, as they are between machines.

#[path = "links/cases.rs"]
mod cases;

use planaria_protocol::tls::Authority;
use planaria_protocol::{Passport, Secret};

/// What the two ends show to each other.
fn passports() -> (Passport, Passport) {
    let authority = Authority::new("test").expect("an authority");
    let secret = Secret::random().expect("random bytes");
    let passport = |name: &str| {
        let trust = authority.issue(name).expect("a certificate");
        Passport::new(secret.clone(), Some(&trust), None).expect("a passport")
    };
    (passport("worker-0"), passport("server-0"))
}
