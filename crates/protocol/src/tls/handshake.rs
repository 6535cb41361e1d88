//! Two strangers become peers: each shows a certificate of the run's authority, which says who it is.
//!
//! Owns the handshake's bytes and their bounds; what they mean is rustls'. A peer that does not begin
//! with TLS is told nothing. Never takes longer than the connection's time allows.

use super::NAME;
use super::record::Key;
use super::stream::{Agreed, Renewal, Tls};
use super::trusted::Trusted;
use crate::auth;
use crate::error::Error;
use crate::identity::Identity;
use crate::socket::Socket;
use crate::ticks::{TICK, Ticks};
use crate::transport::Transport;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{CertificateError, ExtractedSecrets, InvalidMessage};
use std::io::Write;
use webpki::EndEntityCert;

/// Most bytes of a handshake that wait for the rest of their message: certificates are a few
/// hundred each.
const BYTES_MAX: usize = 32 << 10;

const WHAT: &str = "the TLS handshake";

/// First byte of a handshake's record.
const HANDSHAKE: u8 = 22;

/// Told to processes of planaria that speak without TLS: a fatal alert, `handshake_failure`.
const NOT_PLAIN: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];

/// The end that connected.
pub(crate) fn client(
    stream: Socket,
    trusted: &Trusted,
    ticks: &mut Ticks,
) -> Result<(Box<dyn Transport>, Identity), Error> {
    client_tls(stream, trusted, ticks).map(|(tls, identity)| (Box::new(tls) as _, identity))
}

/// The end that was connected to.
pub(crate) fn server(
    stream: Socket,
    trusted: &Trusted,
    ticks: &mut Ticks,
) -> Result<(Box<dyn Transport>, Identity), Error> {
    server_tls(stream, trusted, ticks).map(|(tls, identity)| (Box::new(tls) as _, identity))
}

pub(super) fn client_tls(
    mut stream: Socket,
    trusted: &Trusted,
    ticks: &mut Ticks,
) -> Result<(Tls, Identity), Error> {
    let name = ServerName::try_from(NAME).expect("it is a name");
    let mut connection =
        UnbufferedClientConnection::new(trusted.client.clone(), name).map_err(failed)?;
    let mut talk = Talk::begin(&stream)?;
    let process: Process<UnbufferedClientConnection, _> =
        |connection, bytes| connection.process_tls_records(bytes);
    talk.through(&mut connection, process, &mut stream, ticks)?;
    let identity = identity(connection.peer_certificates())?;
    Ok((talk.end(stream, connection.dangerous_into_kernel_connection())?, identity))
}

pub(super) fn server_tls(
    mut stream: Socket,
    trusted: &Trusted,
    ticks: &mut Ticks,
) -> Result<(Tls, Identity), Error> {
    let mut talk = Talk::begin(&stream)?;
    talk.look(&mut stream, ticks)?;
    let mut connection = UnbufferedServerConnection::new(trusted.server.clone()).map_err(failed)?;
    let process: Process<UnbufferedServerConnection, _> =
        |connection, bytes| connection.process_tls_records(bytes);
    talk.through(&mut connection, process, &mut stream, ticks)?;
    let identity = identity(connection.peer_certificates())?;
    Ok((talk.end(stream, connection.dangerous_into_kernel_connection())?, identity))
}

/// The next thing to do, of either side's connection.
type Process<C, D> = for<'c, 'i> fn(&'c mut C, &'i mut [u8]) -> UnbufferedStatus<'c, 'i, D>;

/// What was heard and what is to be said.
struct Talk {
    /// Heard and not understood.
    heard: Vec<u8>,
    say: Vec<u8>,
    has_spoken: bool,
    /// What came under the keys that the handshake has just agreed on.
    opened: Vec<u8>,
}

impl Talk {
    fn begin(stream: &Socket) -> Result<Self, Error> {
        Transport::set_timeout(stream, Some(TICK)).map_err(Error::io("setting a time-out"))?;
        Ok(Self { heard: Vec::new(), say: Vec::new(), has_spoken: false, opened: Vec::new() })
    }

    /// Reads who it is by its first bytes, and goes on with a peer that speaks TLS.
    fn look(&mut self, stream: &mut Socket, ticks: &mut Ticks) -> Result<(), Error> {
        while self.heard.len() < 4 {
            self.hear(stream, ticks)?;
        }
        let first = [self.heard[0], self.heard[1], self.heard[2], self.heard[3]];
        if first == auth::MAGIC {
            // It may be one of ours that was told too little; if not, it learns nothing by it.
            let _ = stream.write_all(&NOT_PLAIN);
            return Err(Error::Plain);
        }
        if first[..2] != [HANDSHAKE, 3] {
            return Err(Error::Stranger(first));
        }
        Ok(())
    }

    /// Until both ends have shown their certificates, as far as this end can see.
    fn through<C, D>(
        &mut self,
        connection: &mut C,
        process: Process<C, D>,
        stream: &mut Socket,
        ticks: &mut Ticks,
    ) -> Result<(), Error> {
        loop {
            let UnbufferedStatus { discard, state } = process(connection, &mut self.heard);
            let mut is_blocked = false;
            match state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut self.say, |into| data.encode(into).map_err(drop));
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    self.speak(stream)?;
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        self.opened.extend_from_slice(record.map_err(failed)?.payload);
                    }
                }
                Ok(ConnectionState::BlockedHandshake) => is_blocked = true,
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.heard.drain(..discard);
                    return Ok(());
                }
                Ok(_) => return Err(Error::HungUp(WHAT)),
                Err(error) => {
                    self.complain(connection, process, stream);
                    return Err(failed(error));
                }
            }
            self.heard.drain(..discard);
            if is_blocked {
                self.hear(stream, ticks)?;
            }
        }
    }

    /// Says what was wrong to a peer that has heard something before.
    fn complain<C, D>(&mut self, connection: &mut C, process: Process<C, D>, stream: &mut Socket) {
        if !self.has_spoken {
            return;
        }
        // There is one alert; where there are more, the first says it all.
        if let Ok(ConnectionState::EncodeTlsData(mut data)) = process(connection, &mut []).state {
            encode(&mut self.say, |into| data.encode(into).map_err(drop));
            // Why it failed is told by the caller that asked for the connection.
            let _ = self.speak(stream);
        }
    }

    fn hear(&mut self, stream: &mut Socket, ticks: &mut Ticks) -> Result<(), Error> {
        let before = self.heard.len();
        if before >= BYTES_MAX {
            return Err(Error::Handshake(format!(
                "its messages are longer than {BYTES_MAX} bytes"
            )));
        }
        self.heard.resize(BYTES_MAX, 0);
        let read = ticks.read(stream, &mut self.heard[before..], WHAT);
        self.heard.truncate(before + *read.as_ref().unwrap_or(&0));
        read.map(drop)
    }

    fn speak(&mut self, stream: &mut Socket) -> Result<(), Error> {
        self.has_spoken = true;
        // A new connection takes these few bytes at once.
        stream.write_all(&self.say).map_err(Error::io("writing to the other end"))?;
        self.say.clear();
        Ok(())
    }

    fn end<R: Renewal + 'static>(
        self,
        stream: Socket,
        agreed: Result<(ExtractedSecrets, R), rustls::Error>,
    ) -> Result<Tls, Error> {
        let (secrets, renewal) = agreed.map_err(failed)?;
        let keys = (Key::new(secrets.tx)?, Key::new(secrets.rx)?);
        let (opened, unopened) = (self.opened, self.heard);
        Ok(Tls::new(stream, Agreed { keys, renewal: Box::new(renewal), opened, unopened }))
    }
}

/// Who the other end is, by the certificate that it has shown.
fn identity(shown: Option<&[CertificateDer<'_>]>) -> Result<Identity, Error> {
    let unknown = || Error::Handshake("its certificate does not say who it is".to_owned());
    let certificate = shown.and_then(<[_]>::first).ok_or_else(unknown)?;
    let certificate = EndEntityCert::try_from(certificate).map_err(|_| unknown())?;
    certificate.valid_uri_names().find_map(Identity::of_uri).ok_or_else(unknown)
}

/// Appends what rustls encodes, which says how much room it needs by failing.
fn encode(say: &mut Vec<u8>, mut data: impl FnMut(&mut [u8]) -> Result<usize, ()>) {
    let start = say.len();
    let mut room = 4 << 10;
    loop {
        say.resize(start + room, 0);
        match data(&mut say[start..]) {
            Ok(written) => return say.truncate(start + written),
            // A record is at most so long, so this ends.
            Err(()) if room <= BYTES_MAX => room *= 2,
            Err(()) => return say.truncate(start),
        }
    }
}

/// What went wrong, in words that say whose fault it is.
fn failed(error: rustls::Error) -> Error {
    let why = match error {
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "its certificate is not of this run".to_owned(),
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "its certificate has expired, and it was given no new one".to_owned(),
        rustls::Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        rustls::Error::AlertReceived(alert) => format!("it refused ({alert:?})"),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it does not speak TLS".to_owned()
        }
        other => other.to_string(),
    };
    Error::Handshake(why)
}
