//! Makes the certificates of one run.
//!
//! Owns the authority's private key, in memory only: it is gone with the process that made it, and
//! so is the right to make another. Never writes anything down.

use super::NAME;
use crate::error::Error;
use crate::launch::Trust;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// Who says which processes belong to a run.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A new one, with a key of its own.
    pub fn new(run: &str) -> Result<Self, Error> {
        let mut params = parameters(&format!("planaria run {run}"), &[])?;
        // It makes certificates of processes, and none that make others.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(failed)?);
        Ok(Self { issuer: issuer.map_err(failed)? })
    }

    /// A certificate and its key for a process, or for consoles; `name` is for those who look at
    /// it and decides nothing.
    pub fn issue(&self, name: &str) -> Result<Trust, Error> {
        let mut params = parameters(name, &[NAME.to_owned()])?;
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
        })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

fn parameters(name: &str, names: &[String]) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, name);
    // The authority lives as long as its run, in the memory of one process: what it has signed ends
    // with it, and no date has to end it. The machines' clocks need not agree, or be right at all
    // (the processes do not even ask theirs, see `trusted`).
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    Ok(params)
}

fn failed(error: rcgen::Error) -> Error {
    Error::Certificate(error.to_string())
}
