//! Makes the certificates of one run.
//!
//! Owns the authority's private key, in memory only: it is gone with the process that made it, and
//! so is the right to make another. Each certificate names a role, a number and a machine, and is
//! valid for [`LIFETIME`]. Never writes anything down, and never asks a clock: who asks for a
//! certificate says how old the authority is.

use super::NAME;
use crate::agent::Agent;
use crate::error::Error;
use crate::identity::Identity;
use crate::trust::Trust;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a certificate is valid.
pub const LIFETIME: Duration = DAY.saturating_mul(7);

/// Interval at which live processes get new certificates.
pub const RENEW_EVERY: Duration = DAY;

/// How long the authority's own certificate is valid, on paper: it ends with its process.
const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(366);

/// Who says which processes belong to a run.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// When it was made, in seconds since 1970.
    made: Duration,
    /// Of the next certificate.
    next: AtomicU64,
}

impl Authority {
    /// A new one, with a key of its own, made at this time in seconds since 1970.
    pub fn new(run: &str, unix_seconds: f64) -> Result<Self, Error> {
        let made = Duration::try_from_secs_f64(unix_seconds).unwrap_or_default();
        let mut params = parameters(&format!("planaria run {run}"), made, AUTHORITY_LIFETIME)?;
        // It makes certificates of processes, and none that make others.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(failed)?);
        Ok(Self { issuer: issuer.map_err(failed)?, made, next: AtomicU64::new(1) })
    }

    /// A certificate and its key for one process on a machine (nothing for the controller's own),
    /// or for consoles, from an authority of this age.
    pub fn issue(
        &self,
        agent: Agent,
        machine: Option<&str>,
        age: Duration,
    ) -> Result<Trust, Error> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let identity = Identity { agent, machine: machine.map(str::to_owned), number };
        // All are valid from the first: a process may be older than one that it meets.
        let mut params = parameters(&agent.to_string(), self.made, age.saturating_add(LIFETIME))?;
        let uri = Ia5String::try_from(identity.to_uri()).map_err(failed)?;
        let name = Ia5String::try_from(NAME).map_err(failed)?;
        params.subject_alt_names = vec![SanType::DnsName(name), SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Servers connect to the coordinator and listen for workers.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Trust {
            authority: self.issuer.pem(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            issued: self.made.saturating_add(age).as_secs(),
        })
    }

    /// The number of the next certificate: all so far have smaller ones.
    pub fn next_number(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// Of a certificate that is valid until so long after the authority was made.
fn parameters(name: &str, made: Duration, valid: Duration) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, name);
    let made = date_time_ymd(1970, 1, 1) + Duration::from_secs(made.as_secs());
    params.not_before = made;
    params.not_after = made + valid;
    Ok(params)
}

fn failed(error: rcgen::Error) -> Error {
    Error::Certificate(error.to_string())
}
