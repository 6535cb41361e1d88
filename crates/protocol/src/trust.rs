//! What a process is given to show who it is.
//!
//! Owns a certificate as it crosses a pipe. Never shows its key: `Debug` prints nothing.

use serde::{Deserialize, Serialize};

/// A process' certificate, its key, and the authority of the run, each in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// Certificate of the run's authority: peers need one that it signed.
    pub authority: String,
    /// This process' certificate: it names its role, number and machine.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// When it was issued, in seconds since 1970, by the authority's clock: the time of the run as
    /// this process knows it, at which others' certificates must be valid.
    pub issued: u64,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trust(…)")
    }
}
