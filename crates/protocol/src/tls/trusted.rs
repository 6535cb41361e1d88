//! A process' certificate and whom it believes, in the form that handshakes use.
//!
//! Owns the choice of version, cipher and checks. Never asks a clock: see [`RunTime`].

use crate::error::Error;
use crate::trust::Trust;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;
use std::time::Duration;

/// What handshakes of a process are made with.
#[derive(Clone)]
pub(crate) struct Trusted {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    trust: Arc<Trust>,
}

impl Trusted {
    pub(crate) fn new(trust: &Trust) -> Result<Self, Error> {
        let authority = certificate(&trust.authority, "authority")?;
        let chain = vec![certificate(&trust.certificate, "certificate")?];
        let key = PrivateKeyDer::from_pem_slice(trust.key.as_bytes())
            .map_err(|e| Error::Certificate(format!("the private key cannot be read: {e}")))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(failed)?;
        let (roots, provider) = (Arc::new(roots), Arc::new(provider()));
        let time = Arc::new(RunTime(trust.issued));

        let builder = ClientConfig::builder_with_details(provider.clone(), time.clone());
        let mut client = builder
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(failed)?;
        // Every link proves everything anew; there are as many as processes, and they live long.
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        client.enable_secret_extraction = true;

        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|e| Error::Certificate(e.to_string()))?;
        let mut server = ServerConfig::builder_with_details(provider, time)
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(failed)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.enable_secret_extraction = true;
        let trust = Arc::new(trust.clone());
        Ok(Self { client: Arc::new(client), server: Arc::new(server), trust })
    }

    /// What it was made of.
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }
}

/// One cipher, which processors compute fastest: all processes of a run are the same program.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    }
}

fn certificate(pem: &str, what: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|e| Error::Certificate(format!("the {what} cannot be read: {e}")))
}

fn failed(error: rustls::Error) -> Error {
    Error::Certificate(error.to_string())
}

/// The time at which this process' certificate was issued. Machines' clocks may be wrong and may
/// jump; the authority's runs evenly and renews the certificates of live processes, so that a peer
/// whose certificate was not renewed is refused once it has expired.
#[derive(Debug)]
struct RunTime(u64);

impl TimeProvider for RunTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0)))
    }
}
