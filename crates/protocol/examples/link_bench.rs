//! Bytes per second of a link, plain and under TLS, beside plain `write_all` and `read_exact` on
//! loopback, and the time of a small round trip. The last column is what a stream of rustls' own,
//! shared by a reading and a writing thread behind a lock, makes of the same bytes: the reason why
//! `tls/record` seals its records itself. Each figure is the median of several rounds, in turns.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a benchmark measures and prints"
)]

use planaria_protocol::message::{Agent, Push};
use planaria_protocol::tls::Authority;
use planaria_protocol::{Credentials, Receiver, Secret, Sender, accept, connect};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

const ROUNDS: usize = 15;

fn main() {
    let (open, sealed) = (Credentials::plain(secret()), sealed());
    println!(
        "frame bytes    TCP MB/s   link MB/s   ratio    TLS MB/s   of link   rustls MB/s   of TLS"
    );
    for bytes in [16 << 10, 64 << 10, 256 << 10, 400_000, 1 << 20, 4 << 20] {
        // 100 MB, in whole frames.
        let frames = 100_000_000 / bytes;
        let (mut to, mut from) = plain();
        let mut links = [&open, &sealed].map(|credentials| one_way(link(credentials)));
        let mut streams = rustls_streams();
        let mut speeds = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            let megabytes = (frames * bytes) as f64 / 1e6;
            speeds[0].push(megabytes / plain_round(&mut to, &mut from, bytes, frames));
            for (speeds, (sender, receiver)) in speeds[1..3].iter_mut().zip(&mut links) {
                speeds.push(megabytes / link_round(sender, receiver, bytes, frames));
            }
            speeds[3].push(megabytes / rustls_round(&mut streams, bytes, frames));
        }
        let [plain, link, tls, stream] = speeds.map(median);
        let (ratio, of_link, of_tls) = (link / plain, tls / link, stream / tls);
        println!(
            "{bytes:11}   {plain:9.0}   {link:9.0}   {ratio:5.2}   {tls:9.0}   {of_link:7.2}   \
             {stream:11.0}   {of_tls:6.2}"
        );
    }
    let trips = [&open, &sealed].map(|credentials| round_trip(credentials) * 1e6);
    println!("small round trip: {:.1} µs, under TLS {:.1} µs", trips[0], trips[1]);
}

fn plain_round(to: &mut TcpStream, from: &mut TcpStream, bytes: usize, frames: usize) -> f64 {
    let bulk = vec![1u8; bytes];
    let mut into = vec![0u8; bytes];
    thread::scope(|scope| {
        let start = Instant::now();
        scope.spawn(|| {
            for _ in 0..frames {
                to.write_all(&bulk).expect("written");
            }
        });
        for _ in 0..frames {
            from.read_exact(&mut into).expect("read");
        }
        start.elapsed().as_secs_f64()
    })
}

fn link_round(sender: &Sender, receiver: &mut Receiver, bytes: usize, frames: usize) -> f64 {
    let bulk = vec![1u8; bytes];
    let mut into = vec![0u8; bytes];
    thread::scope(|scope| {
        let start = Instant::now();
        scope.spawn(|| {
            for step in 0..frames as u64 {
                sender.send_with(&Push::Follow { step }, &bulk).expect("sent");
            }
        });
        for _ in 0..frames {
            receiver.receive::<Push>().expect("whole").expect("not the end");
            receiver.read_bulk(&mut into).expect("read");
        }
        start.elapsed().as_secs_f64()
    })
}

fn round_trip(credentials: &Credentials) -> f64 {
    const TRIPS: u64 = 5000;
    let ((there, mut here), (back, mut other)) = link(credentials);
    thread::scope(|scope| {
        scope.spawn(move || {
            while let Some(incoming) = other.receive::<Push>().expect("whole") {
                back.send(&incoming.message).expect("sent");
            }
        });
        let start = Instant::now();
        for step in 0..TRIPS {
            there.send(&Push::Follow { step }).expect("sent");
            here.receive::<Push>().expect("whole").expect("not the end");
        }
        let seconds = start.elapsed().as_secs_f64() / TRIPS as f64;
        there.close();
        seconds
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn plain() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let to = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let from = listener.accept().expect("accepted").0;
    to.set_nodelay(true).expect("set");
    (to, from)
}

type Ends = ((Sender, Receiver), (Sender, Receiver));

/// Both ends of a link.
fn link(credentials: &Credentials) -> Ends {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            accept(listener.accept().expect("a connection").0, credentials, 1).expect("accepted")
        });
        let one = connect(&address, credentials, Agent::Server(0), Some(1)).expect("connected");
        (one, other.join().expect("accepted"))
    })
}

fn one_way(((sender, _), (_, receiver)): Ends) -> (Sender, Receiver) {
    (sender, receiver)
}

fn secret() -> Secret {
    Secret::random().expect("random bytes")
}

fn sealed() -> Credentials {
    let trust = Authority::new("bench", 1.8e9)
        .and_then(|a| a.issue(Agent::Server(0), None, std::time::Duration::ZERO))
        .expect("a certificate");
    Credentials::new(secret(), Some(&trust), None).expect("a credentials")
}

/// Both ends of a connection under rustls' own streams.
type Streams = (StreamOwned<ClientConnection, TcpStream>, StreamOwned<ServerConnection, TcpStream>);

fn rustls_streams() -> Streams {
    let trust = Authority::new("bench", 1.8e9)
        .and_then(|a| a.issue(Agent::Server(0), None, std::time::Duration::ZERO))
        .expect("a certificate");
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    let key = || PrivateKeyDer::from_pem_slice(trust.key.as_bytes()).expect("PEM");
    let provider = || {
        Arc::new(CryptoProvider {
            cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
            ..ring::default_provider()
        })
    };
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&trust.authority)).expect("a root");
    let client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate(&trust.certificate)], key())
        .expect("a certificate");
    let (to, from) = plain();
    let name = ServerName::try_from("planaria.run").expect("a name");
    let client = ClientConnection::new(Arc::new(client), name).expect("a client");
    let server = ServerConnection::new(Arc::new(server)).expect("a server");
    (StreamOwned::new(client, to), StreamOwned::new(server, from))
}

/// One way, so that no lock is contended: the most that such a stream can do.
fn rustls_round((to, from): &mut Streams, bytes: usize, frames: usize) -> f64 {
    let bulk = vec![1u8; bytes];
    let mut into = vec![0u8; bytes];
    thread::scope(|scope| {
        let start = Instant::now();
        scope.spawn(|| {
            for _ in 0..frames {
                to.write_all(&bulk).expect("written");
                to.flush().expect("written");
            }
        });
        for _ in 0..frames {
            from.read_exact(&mut into).expect("read");
        }
        start.elapsed().as_secs_f64()
    })
}
