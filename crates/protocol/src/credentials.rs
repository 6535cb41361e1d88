//! What a process shows to others, and how it gets to them.
//!
//! Owns the secret that it knows, and the gate where there is one; the certificate, where links are
//! under TLS, is in its [`Standing`]. Never shows any of it: `Debug` prints nothing but which of these
//! there are.

use crate::error::Error;
use crate::launch::Launch;
use crate::secret::Secret;
use crate::standing::Standing;
use crate::tls::Trusted;
use crate::trust::Trust;

/// What links of a process are made with. Clones are cheap and share the certificate.
#[derive(Clone)]
pub struct Credentials {
    secret: Secret,
    /// Of the coordinator: what consoles must know.
    consoles: Option<Secret>,
    standing: Standing,
    via: Option<String>,
}

impl Credentials {
    /// Of the secret alone: links are plain, on one machine.
    pub fn plain(secret: Secret) -> Self {
        Self { secret, consoles: None, standing: Standing::default(), via: None }
    }

    /// Of its parts. With `trust` every link is TLS under the run's authority, both ways; `via` is
    /// a gate's socket (see [`crate::gate`]).
    pub fn new(secret: Secret, trust: Option<&Trust>, via: Option<String>) -> Result<Self, Error> {
        let credentials = Self { via, ..Self::plain(secret) };
        trust.map_or(Ok(()), |trust| credentials.standing.renew(trust))?;
        Ok(credentials)
    }

    /// Of what a process was told when it was started.
    pub fn of(launch: &Launch) -> Result<Self, Error> {
        let station = &launch.station;
        let standing = station.standing.clone();
        station.trust.as_ref().map_or(Ok(()), |trust| standing.renew(trust))?;
        for (machine, before) in &station.given_up {
            standing.give_up(machine, *before);
        }
        let secret = Secret::from_hex(&launch.secret)?;
        let credentials = Self { standing, via: station.via.clone(), ..Self::plain(secret) };
        Ok(match launch.course {
            Some(_) => credentials.admitting_consoles(),
            None => credentials,
        })
    }

    /// Of a coordinator, where its secret is the consoles': it lets them in with it, and members with
    /// theirs.
    pub fn admitting_consoles(self) -> Self {
        let members = self.secret.for_members();
        Self { consoles: Some(self.secret), secret: members, ..self }
    }

    /// The secret that this process shows.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Whom it believes at this moment.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Whether links are under TLS; then no process without a certificate is let in.
    pub fn is_trusted(&self) -> bool {
        self.trusted().is_some()
    }

    /// The certificate, for another process that is to be let in as this one is.
    pub fn trust(&self) -> Option<Trust> {
        self.trusted().map(|trusted| trusted.trust().clone())
    }

    pub(crate) fn consoles(&self) -> Option<&Secret> {
        self.consoles.as_ref()
    }

    pub(crate) fn trusted(&self) -> Option<Trusted> {
        self.standing.trusted()
    }

    pub(crate) fn via(&self) -> Option<&str> {
        self.via.as_deref()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (trusted, via) = (self.is_trusted(), &self.via);
        f.debug_struct("Credentials").field("trusted", &trusted).field("via", via).finish()
    }
}
