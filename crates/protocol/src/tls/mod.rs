//! TLS 1.3 between the processes of a run, each of which shows a certificate of the run's authority.
//!
//! Owns who is believed and how bytes are sealed. The handshake is rustls'; after it, its keys seal
//! and open records here, because a link is read and written by different threads at full speed:
//! each direction has a key of its own, nothing is locked, copied twice or allocated for a record.
//! Never decides what a peer may do, and never falls back to a plain connection.
//!
//! # Layout
//! - `authority`: makes certificates; `trusted`: what a process is given of them
//! - `handshake`: two strangers become peers; `record`: one sealed piece; `stream`: many

mod authority;
mod handshake;
mod record;
mod stream;
#[cfg(test)]
mod tests;
mod trusted;

pub use authority::{Authority, LIFETIME, RENEW_EVERY};
pub(crate) use handshake::{client, server};
pub(crate) use trusted::Trusted;

/// The name in every certificate. Addresses change and are many; what counts is the authority, and
/// the [identity](crate::identity::Identity) beside this name.
const NAME: &str = "planaria.run";
