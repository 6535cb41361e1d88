//! Links over real sockets, as they are on one machine.

#[path = "links/cases.rs"]
mod cases;

use planaria_protocol::{Credentials, Secret};

/// What the two ends show to each other.
fn credentials() -> (Credentials, Credentials) {
    let credentials = Credentials::plain(Secret::random().expect("random bytes"));
    (credentials.clone(), credentials)
}
