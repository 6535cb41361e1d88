//! Links over real sockets, as they are on one machine.

#[path = "links/cases.rs"]
mod cases;

use planaria_protocol::{Passport, Secret};

/// What the two ends show to each other.
fn passports() -> (Passport, Passport) {
    let passport = Passport::plain(Secret::random().expect("random bytes"));
    (passport.clone(), passport)
}
