//! What a process shows to others, and how it gets to them.
//!
//! Owns the run's secret, the certificates where links are under TLS, and the proxy where there is
//! one. Never shows any of it: `Debug` prints nothing but which of these there are.

use crate::error::Error;
use crate::launch::{Launch, Trust};
use crate::secret::Secret;
use crate::tls::Trusted;

/// What links of a process are made with. Clones are cheap and share the certificates.
#[derive(Clone)]
pub struct Credentials {
    secret: Secret,
    trusted: Option<Trusted>,
    via: Option<String>,
}

impl Credentials {
    /// Of the secret alone: links are plain, on one machine.
    pub fn plain(secret: Secret) -> Self {
        Self { secret, trusted: None, via: None }
    }

    /// Of its parts. With `trust` every link is TLS under the run's authority, both ways; `via` is
    /// a SOCKS5 proxy.
    pub fn new(secret: Secret, trust: Option<&Trust>, via: Option<String>) -> Result<Self, Error> {
        let trusted = trust.map(Trusted::new).transpose()?;
        Ok(Self { secret, trusted, via })
    }

    /// Of what a process was told when it was started.
    pub fn of(launch: &Launch) -> Result<Self, Error> {
        let station = &launch.station;
        let secret = Secret::from_hex(&launch.secret)?;
        Self::new(secret, station.trust.as_ref(), station.via.clone())
    }

    /// The run's secret.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Whether links are under TLS; then no process without a certificate is let in.
    pub fn is_trusted(&self) -> bool {
        self.trusted.is_some()
    }

    /// The certificates, for another process that is to be let in as this one is.
    pub fn trust(&self) -> Option<&Trust> {
        self.trusted.as_ref().map(Trusted::trust)
    }

    pub(crate) fn trusted(&self) -> Option<&Trusted> {
        self.trusted.as_ref()
    }

    pub(crate) fn via(&self) -> Option<&str> {
        self.via.as_deref()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (trusted, via) = (self.trusted.is_some(), &self.via);
        f.debug_struct("Credentials").field("trusted", &trusted).field("via", via).finish()
    }
}
